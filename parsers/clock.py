"""When a record without a stamp of its own happened: an interval, never a guess.

The request log of 0.5.8 to 0.5.11 writes no time. Its neighbours in the same file bound it, so does the stamp of a log
collector; where a `Finish` carries
epoch stamps in `meta_info`, these tell the instant, after the zone of the log has been taken into account.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.prefix import LATEST

_SLACK = 1.5  # seconds by which a stamp inside a record may leave the interval that its neighbours allow
_QUARTER = 900.0


def settle(facts: Sequence[Fact]) -> None:
    """Give every fact of one source, in line order, its time.

    A stamp of one second's resolution stands for the second that it begins. Facts before the first or after the last
    stamp of a source keep the one bound that they have, with no upper limit on the error stated (`at_error` None).
    """
    clock = Clock()
    clock.take(facts)
    clock.finish()


class Clock:
    """Gives the facts of one source their times, as they come."""

    def __init__(self) -> None:
        self._lower: float | None = None
        self._waiting: list[tuple[Fact, float | None]] = []

    def take(self, facts: Sequence[Fact]) -> int:
        """Take the next facts; returns how many of the newest, these or earlier ones, still wait for a later stamp."""
        for fact in facts:
            if fact.at is None or fact.at_from == "wrapper":
                self._waiting.append((fact, self._lower))
                continue
            start = fact.at - (fact.at_error or 0.0)
            if self._waiting:
                self._bound(fact.at + (fact.at_error or 0.0))
            if self._lower is None or start > self._lower:
                self._lower = start
            if fact.event is Event.REQUEST_FINISHED:
                _sharpen(fact)
        return len(self._waiting)

    def finish(self) -> None:
        """There is no later stamp."""
        self._bound(None)

    def _bound(self, upper: float | None) -> None:
        for fact, lower in self._waiting:
            _between(fact, lower, upper)
        self._waiting.clear()


def _between(fact: Fact, lower: float | None, upper: float | None) -> None:
    if fact.at is not None:
        _narrow(fact, lower, upper)
        return
    if lower is None and upper is None:
        _from_inside(fact)
        return
    if lower is None or upper is None:
        fact.at, fact.at_error = lower if lower is not None else upper, None
    else:
        upper = max(lower, upper)
        fact.at, fact.at_error = (lower + upper) / 2, (upper - lower) / 2
    fact.at_from = "neighbours"
    _sharpen(fact, lower, upper)


def _narrow(fact: Fact, lower: float | None, upper: float | None) -> None:
    """A collector's stamp and the neighbours: both hold, unless they contradict each other."""
    assert fact.at is not None
    low, high = fact.at - (fact.at_error or 0.0), fact.at + (fact.at_error or 0.0)
    if lower is not None and lower <= high:
        low = max(low, lower)
    if upper is not None and upper >= low:
        high = min(high, upper)
    fact.at, fact.at_error = (low + high) / 2, (high - low) / 2
    _sharpen(fact, low, high)


def _from_inside(fact: Fact) -> None:
    """A file without any stamp (a metrics export): the epoch stamp inside the record is all there is."""
    sent = fact.detail.get("response_sent_to_client_ts")
    if isinstance(sent, float) and 0 <= sent < LATEST:
        fact.at, fact.at_error, fact.at_from = sent, 0.05, "meta"


def _sharpen(fact: Fact, lower: float | None = None, upper: float | None = None) -> None:
    """Use the epoch stamp inside a `Finish` where it agrees with what the line allows, zones taken into account."""
    sent = fact.detail.get("response_sent_to_client_ts")
    if sent is None or not isfinite(sent) or fact.at is None or fact.at_from == "meta":
        return
    if fact.at_from == "own":
        lower, upper = fact.at - (fact.at_error or 0.0), fact.at + (fact.at_error or 0.0)
        if (fact.at_error or 0.0) < 0.01:
            return
    middle = fact.at
    sent += round((middle - sent) / _QUARTER) * _QUARTER
    if (lower is None or sent >= lower - _SLACK) and (upper is None or sent <= upper + _SLACK):
        fact.at = min(max(sent, lower if lower is not None else sent), upper if upper is not None else sent)
        fact.at_error, fact.at_from = 0.05, "meta"
