"""Thresholds of an audit: what a pipeline refuses to accept, as one line of text.

    [proven | likely | not-established]  CAUSE  > | >= | < | <=  NUMBER[%]

CAUSE is the id of a cause, a pattern of ids such as `session-*`, or `interrupted` for every request that was. A
percentage is of all requests that are not synthetic; where there are none it is zero. A bare number counts requests,
and the server's events of that cause with them: a crash that ended nobody is still a crash. Events have no confidence,
so a threshold that names one counts requests only.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import get_args

from sglang_lifecycle.analyzers.catalogue import load
from sglang_lifecycle.analyzers.finding import NOT_INTERRUPTED
from sglang_lifecycle.analyzers.listing import Audit, RequestRow, ThresholdResult
from sglang_lifecycle.analyzers.verdict import Confidence

INTERRUPTED = "interrupted"
"""What names every request that was interrupted, whatever the cause."""

CONFIDENCES: tuple[str, ...] = get_args(Confidence)

_OPERATORS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SHAPE = re.compile(r"(?P<subject>[^<>=]*)(?P<operator>[<>]=?|=+)(?P<limit>.*)", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_EXAMPLE = "give one such as 'waiting-timeout > 1%' or 'proven session-* > 5'"


class MalformedThreshold(ValueError):
    """A text that is no threshold. The message is one line, and names what is wrong."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold, read. `limit` is a number of requests, or of percent; exact, since gates sit on round numbers."""

    expression: str
    pattern: str
    operator: str
    limit: Fraction
    percent: bool
    confidence: str | None = None

    def result(self, audit: Audit) -> ThresholdResult:
        """Whether the audit passes it, and by which requests."""
        rows = [row for row in audit.requests if self._speaks_of(row)]
        events = 0 if self.percent or self.confidence else sum(self._names(e.cause) for e in audit.server_events)
        total = audit.totals.requests
        if self.percent:
            value = Fraction(100 * len(rows), total) if total else Fraction(0)
        else:
            value = Fraction(len(rows) + events)
        crossed = _OPERATORS[self.operator](value, self.limit)
        return ThresholdResult(
            expression=self.expression,
            crossed=crossed,
            requests=len(rows),
            server_events=events,
            of=total,
            share=round(len(rows) / total, 6) if total else None,
            rids=[row.rid for row in rows] if crossed else [],
        )

    def _speaks_of(self, row: RequestRow) -> bool:
        if row.synthetic or row.members or self.confidence not in (None, row.confidence):
            return False
        return row.status == INTERRUPTED if self.pattern == INTERRUPTED else self._names(row.cause)

    @property
    def of_finished(self) -> bool:
        """Whether it may speak of requests that finished."""
        finished = (cause for cause, status in NOT_INTERRUPTED.items() if status == "finished")
        return self.pattern != INTERRUPTED and any(map(self._names, finished))

    def _names(self, cause: str) -> bool:
        return fnmatchcase(cause, self.pattern)


def parse(text: str) -> Threshold:
    """Read a threshold. Raises `MalformedThreshold`."""
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise MalformedThreshold(f"{text!r} compares with nothing; {_EXAMPLE}")
    if match["operator"] not in _OPERATORS:
        raise MalformedThreshold(f"{text!r}: {match['operator']!r} is none of {', '.join(_OPERATORS)}")
    *before, pattern = match["subject"].split() or [""]
    if not pattern:
        raise MalformedThreshold(f"{text!r} names no cause; {_EXAMPLE}")
    confidence = before[0] if before else None
    if len(before) > 1 or confidence not in (None, *CONFIDENCES):
        raise MalformedThreshold(
            f"{text!r}: {' '.join(before)!r} is no confidence; it is one of {', '.join(CONFIDENCES)}"
        )
    _require_cause(text, pattern)
    limit = match["limit"].strip()
    percent = limit.endswith("%")
    number = limit.removesuffix("%").strip()
    if not _NUMBER.fullmatch(number):
        raise MalformedThreshold(f"{text!r}: {limit!r} is neither a number nor a percentage")
    if percent and Fraction(number) > 100:
        raise MalformedThreshold(f"{text!r}: {limit} is more than all requests")
    shown = f"{confidence} " * bool(confidence) + f"{pattern} {match['operator']} {number}{'%' * percent}"
    return Threshold(shown, pattern, match["operator"], Fraction(number), percent, confidence)


def _require_cause(text: str, pattern: str) -> None:
    known = [INTERRUPTED, *load()]
    if any(fnmatchcase(cause, pattern) for cause in known):
        return
    near = get_close_matches(pattern, known, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "lifecycle causes lists them"
    raise MalformedThreshold(f"{text!r}: no cause is named {pattern!r}; {hint}")


def results(thresholds: Sequence[Threshold], audit: Audit) -> list[ThresholdResult]:
    """What became of each threshold, in their order."""
    return [threshold.result(audit) for threshold in thresholds]
