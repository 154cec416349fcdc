"""The lines of the list: the rows that a query leaves, in an order, under their causes where asked for."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from sglang_lifecycle.cli.browser.query import Query


@dataclass(frozen=True, slots=True)
class Order:
    """How lines are sorted, and whether they are grouped by cause. Unknown values come last either way."""

    column: str = "at"
    descending: bool = False
    grouped: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """The line above the requests of one cause."""

    cause: str
    count: int
    folded: bool


class View:
    """Lines by number. Only numbers of rows are kept: a line's content is looked up when it is drawn."""

    def __init__(self, frame: pl.DataFrame, query: Query, order: Order, folded: frozenset[str] = frozenset()) -> None:
        self.frame, self._query = frame, query
        found = (
            frame.lazy()
            .with_row_index("index")
            .filter(query.condition())
            .sort(order.column, descending=order.descending, nulls_last=True, maintain_order=True)
            .select("index", "cause")
            .collect()
        )
        self.groups: list[Group] = []
        self._starts: list[int] = []
        """The line of each group, and the row that its first request is among `_indices`."""
        self._rows: list[int] = []
        self._indices = found["index"]
        self._length = found.height
        if order.grouped:
            self._group(found, folded)

    def _group(self, found: pl.DataFrame, folded: frozenset[str]) -> None:
        parts = found.with_columns(size=pl.len().over("cause"), name=pl.col("cause").cast(pl.String)).sort(
            "size", "name", descending=[True, False], maintain_order=True
        )
        self._indices = parts["index"]
        line = row = 0
        for cause, count in parts.group_by("name", maintain_order=True).len().iter_rows():
            self.groups.append(Group(cause, count, cause in folded))
            self._starts.append(line)
            self._rows.append(row)
            line += 1 if cause in folded else 1 + count
            row += count
        self._length = line

    def __len__(self) -> int:
        """How many lines there are."""
        return self._length

    @property
    def requests(self) -> int:
        """How many requests it shows."""
        return len(self._indices)

    @property
    def indices(self) -> pl.Series:
        """The rows it shows, in their order."""
        return self._indices

    def line(self, number: int) -> int | Group:
        """The index of the row on a line, or the group that begins there."""
        if not self.groups:
            return int(self._indices[number])
        place = bisect_right(self._starts, number) - 1
        within = number - self._starts[place]
        return self.groups[place] if not within else int(self._indices[self._rows[place] + within - 1])

    def row(self, index: int) -> dict[str, Any]:
        """A row by its index."""
        return self.frame.row(index, named=True)

    def find(self, rid: str | None) -> int | None:
        """The line on which a request stands."""
        return self._line_of(self.frame["rid"].index_of(rid)) if rid is not None else None

    def _line_of(self, index: int | None) -> int | None:
        position = self._indices.index_of(index) if index is not None and len(self._indices) else None
        if position is None or not self.groups:
            return position
        place = bisect_right(self._rows, position) - 1
        group = self.groups[place]
        return self._starts[place] + (0 if group.folded else position - self._rows[place] + 1)

    def counts(self, facet: str) -> list[tuple[str, int]]:
        """How many rows have each value of a facet if only the other filters held, the most frequent first."""
        counted = (
            self.frame.lazy()
            .filter(self._query.condition(without=facet))
            .group_by(facet)
            .len()
            .collect()
            .cast({facet: pl.String})
        )
        chosen = dict.fromkeys(self._query.values(facet), 0)
        found = chosen | dict(counted.iter_rows())
        return sorted(found.items(), key=lambda item: (-item[1], item[0]))

    @cached_property
    def span(self) -> tuple[float, float] | None:
        """The first and the last time of what it shows."""
        times = self.frame["at"].gather(self._indices).drop_nulls()
        return (float(times.min()), float(times.max())) if len(times) else None  # type: ignore[arg-type]
