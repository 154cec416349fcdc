"""The requests as the lines of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import polars as pl

from sglang_lifecycle.cli.browser.grid import Cells, Column, Heading
from sglang_lifecycle.cli.browser.rows import SURE
from sglang_lifecycle.cli.browser.view import Group, Order, View
from sglang_lifecycle.cli.text import clean, count, seconds
from sglang_lifecycle.cli.times import Clock

DURATION = 6
"""Columns that a duration takes."""

IDS = {"rid": (14, 40), "session": (10, 24)}
"""The columns that strangers fill: how narrow and how wide they may be."""

SORTABLE = ("at", "rid", "cause", "confidence", "stage", "actor", "waited", "ran", "prompt", "completion", "session")
"""The columns, in the order in which they are shown."""


class Listing:
    """What the list shows. `clock` says times in one zone, with the date where they span several days."""

    def __init__(self, view: View, order: Order, clock: Clock) -> None:
        self.view, self._order = view, order
        self.clock = clock.spanning(view.span or ())

    @property
    def sorted_by(self) -> tuple[str, bool]:
        """As the grid wants to know."""
        return self._order.column, self._order.descending

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self.view)

    @cached_property
    def columns(self) -> Sequence[Column]:
        """As wide as their longest values; a column that all rows leave empty has no width."""
        frame = self.view.frame
        values = {name: frame[name].unique().cast(pl.String) for name in ("cause", "stage", "actor")}
        words = {
            name: max((len(clean(value)) for value in found if value), default=0) for name, found in values.items()
        }
        real = frame.lazy().filter(~pl.col("synthetic")).select(*IDS).collect()  # SGLang's own have very long ids
        ids = {name: _longest(real[name], most) for name, (_, most) in IDS.items()}
        return (
            Column("at", "time", 14 if self.clock.dated else 8),
            Column("rid", "rid", ids["rid"], IDS["rid"][0]),
            Column("cause", "cause", words["cause"]),
            Column("confidence", "verdict", max(map(len, SURE.values()))),
            Column("stage", "stage", words["stage"]),
            Column("actor", "actor", words["actor"]),
            Column("waited", "waited", DURATION, right=True),
            Column("ran", "ran", DURATION, right=True),
            Column("prompt", "in", 6, right=True),
            Column("completion", "out", 6, right=True),
            Column("session", "session", ids["session"], IDS["session"][0]),
        )

    def line(self, number: int) -> Cells | Heading:
        """As the grid wants to know."""
        found = self.view.line(number)
        if isinstance(found, Group):
            return Heading(f"{'▸' if found.folded else '▾'} {clean(found.cause)}", count(found.count, "request"))
        return self._cells(self.view.row(found))

    def _cells(self, row: dict[str, Any]) -> Cells:
        confidence = row["confidence"]
        good = row["status"] != "interrupted"
        texts = {
            "at": self.clock.short(row["at"], whole=True) if row["at"] is not None else "–",
            "rid": clean(row["rid"]),
            "cause": clean(row["cause"]),
            "confidence": SURE[confidence],
            "stage": clean(row["stage"]),
            "actor": clean(row["actor"]),
            "waited": _duration(row["waited"]),
            "ran": _duration(row["ran"]),
            "prompt": _number(row["prompt"]),
            "completion": _number(row["completion"]),
            "session": clean(row["session"] or ""),
        }
        return Cells(texts, dict.fromkeys(texts, "faint") if good else {"confidence": confidence, "at": "faint"})


def _longest(values: pl.Series, most: int) -> int:
    """How wide a column of ids would like to be; letters stand for columns here, `shorten` cuts what is wider."""
    longest = values.str.len_chars().max()
    return min(int(longest), most) if isinstance(longest, int) else 0


def _duration(value: float | None) -> str:
    return seconds(value).replace(" ", "") if value is not None else "–"


def _number(value: int | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if value < 100_000 else f"{value // 1000:,}k"
