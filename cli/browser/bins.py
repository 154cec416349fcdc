"""An incident cut into equal pieces of time: interruptions by cause, and the load of the servers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

_PARTS = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)
STEPS = (0.1, 0.2, 0.5, *_PARTS, *(60 * part for part in _PARTS), *(3600 * part for part in (1, 2, 3, 4, 6, 12, 24)))
"""Seconds of a piece that people can read off an axis; beyond these, whole days."""

SHORT = 20
"""Seconds of an incident that may be cut finer than whole seconds, which is how exact most logs are."""

LANES = {"queued": "queue", "running": "running", "usage": "token usage"}
"""What is drawn of the load."""


@dataclass(slots=True)
class Bins:
    """Pieces of `step` seconds each, the first one beginning at `start` (UTC epoch seconds)."""

    start: float
    step: float
    number: int
    causes: dict[str, list[int]] = field(default_factory=dict)
    """Interruptions by cause, the most frequent cause first."""
    load: dict[str, list[float | None]] = field(default_factory=dict)
    """The greatest value in each piece; none where no line tells."""

    def at(self, place: int) -> float:
        """When a piece begins."""
        return self.start + place * self.step

    def place(self, at: float) -> int:
        """The piece that begins closest to a time."""
        return max(0, min(round((at - self.start) / self.step), self.number - 1))

    @property
    def busiest(self) -> int:
        """The piece with the most interruptions."""
        sums = [sum(values) for values in zip(*self.causes.values(), strict=True)] or [0]
        return sums.index(max(sums))

    def total(self, places: range) -> dict[str, int]:
        """How many of each cause fall into some pieces."""
        counts = {cause: sum(values[place] for place in places) for cause, values in self.causes.items()}
        return {cause: count for cause, count in counts.items() if count}


def step_for(seconds: float, number: int) -> float:
    """The smallest readable step with which so many pieces cover a time."""
    least = max(seconds / max(number - 1, 1), 1.0 if seconds >= SHORT else 0.0)
    return next((step for step in STEPS if step >= least), math.ceil(least / 86400) * 86400.0)


def bins(rows: pl.DataFrame, load: pl.DataFrame, number: int, window: tuple[float, float] | None) -> Bins | None:
    """Rows (`at`, `cause`) and load in at most so many pieces; nothing where no row has a time."""
    if window is None:
        first, last = rows["at"].min(), rows["at"].max()
        if not isinstance(first, float) or not isinstance(last, float):
            return None
        margin = (last - first) * 0.05 or 1.0  # what led up to the first and followed the last
        window = first - margin, last + margin
    step = step_for(window[1] - window[0], number)
    start = math.floor(window[0] / step) * step
    found = Bins(start, step, min(number, math.ceil((window[1] - start) / step)))
    place = ((pl.col("at") - start) / step).floor().cast(pl.Int64).alias("place")
    inside = place.is_between(0, found.number - 1)
    counts = rows.lazy().filter(inside).group_by(pl.col("cause").cast(pl.String), place).len().collect()
    for cause, at, count in counts.iter_rows():
        found.causes.setdefault(cause, [0] * found.number)[at] = count
    found.causes = dict(sorted(found.causes.items(), key=lambda item: (-sum(item[1]), item[0])))
    peaks = load.lazy().filter(inside).group_by(place).agg(pl.col(*LANES).max()).collect()
    for lane in LANES:
        values: list[float | None] = [None] * found.number
        for at, value in peaks.select("place", lane).iter_rows():
            values[at] = value
        if any(value is not None for value in values):
            found.load[lane] = values
    return found


BLOCKS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float | None], top: float, rows: int) -> list[str]:
    """Values as bars of so many rows, the upper row first. Whatever is more than nothing is seen."""
    eighths = [_eighths(value, top, rows) for value in values]
    return ["".join(BLOCKS[min(max(e - 8 * row, 0), 8)] for e in eighths) for row in reversed(range(rows))]


def _eighths(value: float | None, top: float, rows: int) -> int:
    if not value or top <= 0:
        return 0
    return max(1, round(min(value / top, 1) * rows * 8))


def ticks(found: Bins, room: int) -> Iterator[int]:
    """The pieces that get a time on the axis, far enough apart and at round times."""
    fitting = (step for step in STEPS if step >= room * found.step and not round(step / found.step, 6) % 1)
    pieces = round(next(fitting, room * found.step) / found.step)
    yield from (place for place in range(found.number) if not round(found.at(place) / found.step) % pieces)
