"""What happened, in a paragraph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sglang_lifecycle.analyzers.listing import Audit, RequestRow
from sglang_lifecycle.cli.interrupted import moment
from sglang_lifecycle.cli.text import count, listed
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.cli.words import WORDS, cause_title

CAUSES = 3
"""So many causes are told; the others are counted."""

EVENTS = 4
"""So many events of the server are told."""

_GRAVE = ("scheduler-crash", "process-killed", "watchdog-timeout", "server-shutdown", "server-restarted")


def story(audit: Audit, found: Mapping[str, Sequence[RequestRow]], clock: Clock) -> str:
    """The paragraph."""
    return " ".join(_sentences(audit, found, clock))


def _sentences(audit: Audit, found: Mapping[str, Sequence[RequestRow]], clock: Clock) -> Iterator[str]:
    rows = [row for group in found.values() for row in group]
    whole = count(audit.totals.requests, "request")
    if not rows:
        yield f"None of {whole} was interrupted."
    else:
        sure: Counter[str] = Counter(row.confidence for row in rows)
        words = [f"{sure[key]:,} {word}" for key, word in WORDS.items() if sure[key]]
        yield f"{len(rows):,} of {whole} were interrupted{_span(rows, clock)}: {listed(words)}."
        yield from _causes(found)
    yield from _events(audit, clock)
    if audit.totals.in_flight:
        yield f"{count(audit.totals.in_flight, 'request was', 'requests were')} still in flight where the logs end."


def _span(rows: Sequence[RequestRow], clock: Clock) -> str:
    """From when to when."""
    known = sorted(at for row in rows if (at := clock.at(moment(row))) is not None)
    if not known:
        return ""
    first, last = known[0], known[-1]
    day = f"{first:%Y-%m-%d} {first:%H:%M:%S}"
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d} {last:%H:%M:%S}"
    if f"{first:%Y-%m-%d %H:%M:%S}" == f"{last:%Y-%m-%d %H:%M:%S}":
        return f" at {day} {last.tzname()}"
    return f" between {day} and {end} {last.tzname()}"


def _causes(found: Mapping[str, Sequence[RequestRow]]) -> Iterator[str]:
    told = list(found.items())[:CAUSES]
    parts = [f"{cause} ({len(rows):,}: the request {cause_title(cause)})" for cause, rows in told]
    yield f"{'The cause' if len(found) == 1 else 'The most frequent causes'}: {listed(parts)}."
    left = len(found) - len(told)
    if left:
        rest = sum(len(rows) for rows in list(found.values())[CAUSES:])
        yield f"{count(left, 'other cause')} ended the other {rest:,}."


def _events(audit: Audit, clock: Clock) -> Iterator[str]:
    grave = [event for event in audit.server_events if event.cause in _GRAVE]
    times = clock.spanning(event.at for event in grave)
    told = [f"at {times.short(event.at, whole=True)} {event.summary}" for event in grave[:EVENTS]]
    if told:
        more = f"; {len(grave) - EVENTS:,} more such events are listed below" if len(grave) > EVENTS else ""
        yield f"What happened to the server: {'; '.join(told)}{more}."
