"""When a request came and when it ended, each with how far that may be off, and what lies near to what."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.parsers.evidence import Fact


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in UTC epoch seconds, the middle of an interval, and half the interval's width."""

    at: float
    error: float


def span(attempt: Attempt, shows_end: Fact | None = None) -> tuple[Moment | None, Moment | None]:
    """From its arrival to its end, in this order: what contradicts it lies within the error, and is narrowed to it.

    `shows_end` is the line that shows its end where it has no `Finish`. One whose own time is hardly known ends when
    it came and took as long as it says.
    """
    came, ended = _came(attempt), _moment(attempt.finish if attempt.ended_at is not None else shows_end)
    took = attempt.finish.e2e_s if attempt.finish is not None else None
    if came is not None and ended is not None and took is not None and ended.error > max(came.error, _COARSE):
        ended = Moment(came.at + took, came.error)
    if came is None or ended is None or came.at <= ended.at:
        return came, ended
    if came.error < ended.error:
        return came, _between(came.at, max(came.at, ended.at + ended.error))
    return _between(min(ended.at, came.at - came.error), ended.at), ended


def overlaps(start: float | None, end: float | None, since: float | None, until: float | None) -> bool:
    """Whether a span reaches into a window, all in UTC epoch seconds; what is not known does not keep it out."""
    late = until is not None and start is not None and start > until
    early = since is not None and end is not None and end < since
    return not late and not early


def near(one: Fact, other: Fact, seconds: float) -> bool | None:
    """Whether two lines were written within some seconds of each other; None where the time of one is not known."""
    return None if one.at is None or other.at is None else abs(one.at - other.at) <= seconds


_COARSE = 1.0  # seconds: the error of a line with a stamp of whole seconds is half of it


def _came(attempt: Attempt) -> Moment | None:
    at, record = attempt.received_at, attempt.received
    if at is None or record is None:
        return None
    from_ = record if record.at == at or attempt.finish is None else attempt.finish
    return Moment(at, from_.at_error or 0.0)


def _moment(fact: Fact | None) -> Moment | None:
    return Moment(fact.at, fact.at_error or 0.0) if fact is not None and fact.at is not None else None


def _between(start: float, end: float) -> Moment:
    return Moment((start + end) / 2, (end - start) / 2)
