"""The life of a request, drawn to scale: alive, waiting, running, and the evidence around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from sglang_lifecycle.analyzers.verdict import EvidenceLine, Verdict
from sglang_lifecycle.cli.layout import FAINT, LABEL
from sglang_lifecycle.cli.text import seconds
from sglang_lifecycle.cli.times import Clock

LABELS = 10
"""Columns for the name of a row."""

DURATIONS = 11
"""Columns for the duration at its end."""

REACH = 0.5
"""Evidence may lengthen the axis by so much of the request's own life; what lies farther off is shown at the edge."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Epoch seconds to columns."""

    start: float
    end: float
    columns: int

    def column(self, at: float) -> int:
        """The column of a moment, kept within the scale."""
        share = (at - self.start) / (self.end - self.start)
        return min(max(int(share * self.columns), 0), self.columns - 1)


def timeline(verdict: Verdict, clock: Clock, width: int) -> tuple[str, list[Text]]:
    """A remark on the scale, and the rows. Without two different times there is nothing to draw, and a row says so."""
    received, ended = clock.epoch(verdict.times.received), clock.epoch(verdict.times.ended)
    marks = [(number, at) for number, line in enumerate(verdict.evidence, 1) if (at := clock.epoch(line.at))]
    if received is not None and ended is not None and received > ended:
        return "", [Text("nothing to draw: it was received and ended within the error of its times", style=FAINT)]
    scale = _scale(received, ended, [at for _, at in marks], width - LABELS - DURATIONS)
    if scale is None:
        return "", [_nothing(verdict, clock, received, ended)]
    zone = clock.name(verdict.times.received or verdict.times.ended or _first(verdict.evidence))
    rows = [_axis(scale, clock, verdict, received, ended)]
    rows.append(_life(scale, received, ended))
    waited, ran = verdict.times.waited_s, verdict.times.ran_s
    if waited is not None:
        rows.append(_bar("waited", "▒", scale, _before(ended, waited, ran) if received is None else received, waited))
    if ran is not None:
        rows.append(_bar("ran", "█", scale, _after(received, waited) if ended is None else ended - ran, ran))
    rows.extend(_marks(scale, marks))
    return f"{zone}, one column is {seconds((scale.end - scale.start) / scale.columns)}", rows


def _scale(received: float | None, ended: float | None, marks: Sequence[float], columns: int) -> Scale | None:
    own = [at for at in (received, ended) if at is not None]
    if len(own) == 2 and own[0] < own[1]:
        reach = REACH * (own[1] - own[0])
        start = min([at for at in marks if at >= own[0] - reach], default=own[0])
        end = max([at for at in marks if at <= own[1] + reach], default=own[1])
        return Scale(min(start, own[0]), max(end, own[1]), columns)
    everything = [*own, *marks]
    if not everything or min(everything) == max(everything):
        return None
    return Scale(min(everything), max(everything), columns)


def _axis(scale: Scale, clock: Clock, verdict: Verdict, received: float | None, ended: float | None) -> Text:
    """The row that names both ends, each above its place where there is room."""
    left = (
        f"received {clock.short(received, off=verdict.times.received_error_s)}"
        if received is not None
        else "received: not in the logs"
    )
    if ended is not None:
        right = f"ended {clock.short(ended, off=verdict.times.ended_error_s)}"
    else:
        right = "still in flight" if verdict.status == "in-flight" else "ended: not in the logs"
    end = scale.columns if ended is None else scale.column(ended) + 1
    start = 0 if received is None else scale.column(received)
    start = min(start, max(end - len(right) - len(left) - 2, 0))
    end = max(end, start + len(left) + 2 + len(right))
    return Text(" " * (LABELS + start) + left + " " * (end - start - len(left) - len(right)) + right)


def _life(scale: Scale, received: float | None, ended: float | None) -> Text:
    """From the one end to the other; an end that the logs don't show stays open."""
    start = 0 if received is None else scale.column(received)
    end = scale.columns - 1 if ended is None else scale.column(ended)
    line = ("·" if received is None else "├") + "─" * max(end - start - 1, 0) + ("·" if ended is None else "┤")
    duration = None if received is None or ended is None else ended - received
    return _row("alive", " " * start + line[: max(end - start + 1, 1)], scale, duration)


def _bar(name: str, glyph: str, scale: Scale, start: float | None, duration: float) -> Text:
    if start is None:
        return _row(name, "", scale, duration)
    first, last = scale.column(start), scale.column(start + duration)
    bar = glyph * (last - first + 1) if duration else "▏"
    return _row(name, " " * first + bar, scale, duration)


def _row(name: str, drawing: str, scale: Scale, duration: float | None) -> Text:
    row = Text(name.ljust(LABELS), style=LABEL, no_wrap=True)
    row.append(drawing.ljust(scale.columns), style="default")
    row.append("" if duration is None else f"  {seconds(duration)}", style="default")
    return row


def _marks(scale: Scale, marks: Sequence[tuple[int, float]]) -> list[Text]:
    """The numbers of the evidence at their times, on as many rows as they need."""
    places: dict[tuple[int, str, str], list[str]] = {}
    for number, at in marks:
        edges = "‹" if at < scale.start else "", "›" if at > scale.end else ""
        places.setdefault((scale.column(at), *edges), []).append(str(number))
    rows: list[str] = []
    for (column, before, after), numbers in sorted(places.items()):
        label = before + ",".join(numbers) + after
        column = max(min(column, scale.columns - len(label)), 0)
        for index, row in enumerate(rows):
            if len(row) < column:
                rows[index] = row.ljust(column) + label
                break
        else:
            rows.append(" " * column + label)
    return [_row("" if index else "evidence", row, scale, None) for index, row in enumerate(rows)]


def _nothing(verdict: Verdict, clock: Clock, received: float | None, ended: float | None) -> Text:
    at = received if received is not None else ended
    if at is None:
        at = clock.epoch(_first(verdict.evidence))
    if at is None:
        return Text("nothing to draw: the logs give no times for it", style=FAINT)
    return Text(f"nothing to draw: all that has a time is at {clock.full(at)}", style=FAINT)


def _before(ended: float | None, *durations: float | None) -> float | None:
    return None if ended is None else ended - sum(duration or 0 for duration in durations)


def _after(received: float | None, *durations: float | None) -> float | None:
    return None if received is None else received + sum(duration or 0 for duration in durations)


def _first(evidence: Sequence[EvidenceLine]) -> str | None:
    return next((line.at for line in evidence if line.at), None)
