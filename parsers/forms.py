"""Lines of a known form: what is the same in all of them is known once, what differs is told as columns.

A `Row` is a fact that is not made yet, `Rows` are many of one form. They become `Columns`, and these facts.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import attrgetter
from typing import Any, Protocol

from sglang_lifecycle.parsers.evidence import Event, Fact

Stamp = tuple[str | None, float | None, float | None, str | None]
"""A fact's `rank`, `at`, `at_error` and `at_from`."""

KEY = 8
"""How many bytes of a message tell what form it may have."""

AGAIN = ("again", "last_line", "last_offset")
"""Keys of the detail of a line that was said again: how often, and where the last one stands."""

_EVENTS = list(Event)
_NUMBERS = {event: number for number, event in enumerate(_EVENTS)}
_PLACED = ("line", "offset", "length")
_STAMPED = ("rank", "at", "at_error", "at_from")
_REST = Fact.__slots__[Fact.__slots__.index("tainted") : -1]
_FIELDS = (*_PLACED, *_STAMPED, *_REST, "detail")
_BLANK = {name: getattr(Fact(Event.UNKNOWN, "", 0, 0, 0), name) for name in _REST}
_values = attrgetter(*_FIELDS)


@dataclass(slots=True)
class Columns:
    """What facts of one form say, but for their places and stamps.

    `shared` and `detail` are what all have in common; `columns` and `details` have a value for each fact, under the
    names of columns and of keys of the detail, the latter None where a fact lacks the key. `told` has more of details.
    """

    event: Event
    shared: dict[str, Any] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    details: dict[str, list[Any]] = field(default_factory=dict)
    told: list[list[dict[str, Any]]] = field(default_factory=list)


class Form(Protocol):
    """What lines of a form have in common."""

    event: Event

    def plain(self, texts: Sequence[Any]) -> bool:
        """Whether a row with these texts can be told together with others."""

    def plains(self, texts: Sequence[Sequence[Any]]) -> Sequence[bool]:
        """Which of some rows, their texts side by side, can be told together; nothing where all can."""
        return ()

    def often(self, texts: Sequence[Sequence[Any]]) -> Sequence[bool]:
        """Which of some rows, their texts side by side, may be said often, word for word; nothing where none may."""
        return ()

    def rids(self, texts: Sequence[Sequence[Any]]) -> list[str]:
        """Those of rows that are records of the request log, their texts side by side; of others none."""
        return []

    def stamps(self, texts: Sequence[Sequence[Any]], heads: list[Stamp]) -> list[Stamp]:
        """When rows were written, their texts side by side, and before them what their prefixes say."""
        return heads

    def fact(self, source: str, row: Row) -> Fact:
        """The fact of a row."""

    def columns(self, texts: Sequence[Sequence[Any]]) -> Columns:
        """What rows with texts, side by side, say, all of them plain."""


class Row:
    """A line of a form: its place, its stamp, and the texts that differ between lines of the form.

    `again` has the values of `AGAIN` where it was repeated.
    """

    __slots__ = ("again", "form", "length", "line", "offset", "stamp", "tainted", "texts")

    def __init__(self, form: Form, line: int, offset: int, length: int, stamp: Stamp, texts: Sequence[Any]) -> None:
        self.form, self.line, self.offset, self.length = form, line, offset, length
        self.stamp, self.texts, self.tainted = stamp, texts, False
        self.again: tuple[int, int, int] | None = None

    @property
    def event(self) -> Event:
        """The kind of fact."""
        return self.form.event

    def fact(self, source: str) -> Fact:
        """The fact that it stands for."""
        fact = self.form.fact(source, self)
        if self.again is not None:
            fact.detail.update(zip(AGAIN, self.again, strict=True))
        fact.tainted = self.tainted
        return fact


class Rows:
    """Lines of one form: the places of their facts in a list, and what a `Row` has of each, side by side.

    `texts` has a list for each text that differs.
    """

    __slots__ = ("form", "lengths", "lines", "offsets", "places", "stamps", "texts")

    def __init__(self, form: Form, texts: list[list[Any]]) -> None:
        self.form, self.texts = form, texts
        self.places: list[int] = []
        self.lines: list[int] = []
        self.offsets: list[int] = []
        self.lengths: list[int] = []
        self.stamps: list[Stamp] = []

    def row(self, place: int) -> Row | None:
        """The row whose fact has a place, if it is one of these."""
        at = bisect_left(self.places, place)
        if self.places[at : at + 1] != [place]:
            return None
        texts = [each[at] for each in self.texts]
        return Row(self.form, self.lines[at], self.offsets[at], self.lengths[at], self.stamps[at], texts)

    def chosen(self, chosen: Sequence[bool]) -> Rows:
        """Some of them."""
        if all(chosen):
            return self
        rows = Rows(self.form, [list(compress(each, chosen)) for each in self.texts])
        for name in _SIDE_BY_SIDE:
            setattr(rows, name, list(compress(getattr(self, name), chosen)))
        return rows

    def add(self, others: Rows) -> None:
        """Take in others, whose places lie behind these."""
        for name in _SIDE_BY_SIDE:
            getattr(self, name).extend(getattr(others, name))
        for texts, more in zip(self.texts, others.texts, strict=True):
            texts += more


_SIDE_BY_SIDE = ("places", "lines", "offsets", "lengths", "stamps")


def packed(facts: Sequence[Fact | Row | None], told: Iterable[Rows] = ()) -> bytes:
    """Facts, made or not, as they are carried from one process to another; `told` has those that are None."""
    alone: list[tuple[int, Fact]] = []
    rows: dict[Form, list[tuple[int, Row]]] = {}
    for place, each in enumerate(facts):
        if isinstance(each, Row) and not each.tainted:
            rows.setdefault(each.form, []).append((place, each))
        elif each is not None:
            alone.append((place, each if isinstance(each, Fact) else each.fact("")))
    blocks = [_single(form, placed) for form, placed in rows.items()]
    left = (each.chosen([facts[place] is None for place in each.places]) for each in told)
    blocks += [_block(each) for each in left if each.places]
    places_, ones = zip(*alone, strict=True) if alone else ((), ())
    values = list(zip(*map(_values, ones), strict=True))
    repeated = [index for index, fact in enumerate(ones) if "again" in fact.detail]
    return marshal.dumps((len(facts), places_, repeated, [_NUMBERS[fact.event] for fact in ones], values, blocks))


def alone(columns: Columns, row: Row, source: str) -> Fact:
    """The fact of a row, by the columns of it alone."""
    place = [row.line], [row.offset], [row.length], [row.stamp]
    return next(_made(source, 0, *place, *_parts(columns)))


def _single(form: Form, placed: Sequence[tuple[int, Row]]) -> tuple[Any, ...]:
    """Rows that were not told together."""
    rows = Rows(form, list(map(list, zip(*(row.texts for _, row in placed), strict=True))))
    rows.places = [place for place, _ in placed]
    values = zip(*(_row(row) for _, row in placed), strict=True)
    rows.lines, rows.offsets, rows.lengths, rows.stamps = map(list, values)
    return _block(rows, [row.again for _, row in placed])


def _block(rows: Rows, said: Sequence[tuple[int, int, int] | None] = ()) -> tuple[Any, ...]:
    columns = rows.form.columns(rows.texts)
    if any(said):
        every = zip(*(each or _ONCE for each in said), strict=True)
        columns.details.update(zip(AGAIN, map(list, every), strict=True))
    return rows.places, rows.lines, rows.offsets, rows.lengths, rows.stamps, *_parts(columns)


_row = attrgetter(*_PLACED, "stamp")
_ONCE = (None, None, None)


def _parts(columns: Columns) -> tuple[Any, ...]:
    number = _NUMBERS[columns.event]
    return number, columns.shared, columns.detail, columns.columns, columns.details, columns.told


def unpacked(data: bytes, source: str, line: int) -> list[Fact]:
    """The facts that were packed, now of a source, after so many of its lines."""
    size, places, repeated, numbers, values, blocks = marshal.loads(data)
    facts: list[Any] = [None] * size
    if values:
        lines, *columns = values
        shifted, named = [before + line for before in lines], repeat(source)
        events = map(_EVENTS.__getitem__, numbers)
        for place, fact in zip(
            places, map(Fact, events, named, shifted, *columns[:2], named, *columns[2:]), strict=True
        ):
            facts[place] = fact
        for index in repeated:
            facts[places[index]].detail["last_line"] += line
    for places, *block in blocks:
        for place, fact in zip(places, _made(source, line, *block), strict=True):
            facts[place] = fact
    return facts


def _made(
    source: str,
    before: int,
    lines: Sequence[int],
    offsets: Sequence[int],
    lengths: Sequence[int],
    stamps: Sequence[Stamp],
    number: int,
    shared: dict[str, Any],
    detail: dict[str, Any],
    columns: dict[str, list[Any]],
    details: dict[str, list[Any]],
    told: list[list[dict[str, Any]]],
) -> Iterator[Fact]:
    """The facts of columns, after so many lines."""
    lines = [before + line for line in lines]
    if "last_line" in details:
        details["last_line"] = [last and before + last for last in details["last_line"]]
    every = [detail.copy() for _ in lines]
    for key, values in details.items():
        for one, value in zip(every, values, strict=True):
            if value is not None:
                one[key] = value
    for more in told:
        for one, items in zip(every, more, strict=True):
            one.update(items)
    same = {**_BLANK, **shared}
    rest = [columns.get(name) or repeat(same[name]) for name in _REST]
    named = repeat(source)
    stamped = zip(*stamps, strict=True)
    return map(Fact, repeat(_EVENTS[number]), named, lines, offsets, lengths, named, *stamped, *rest, every)
