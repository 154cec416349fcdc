"""An audit against an earlier one: what grew, what vanished, what is new, and whether that is more than chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, lgamma

from sglang_lifecycle.analyzers.listing import Audit, CauseChange, Change, Comparison, EventChange
from sglang_lifecycle.analyzers.thresholds import INTERRUPTED

LEVEL = 0.05
"""A difference is taken for more than chance where chance makes one as large in fewer cases than this."""

TEST = (
    "Fisher's exact test, two-sided, p < 0.05 after Holm's correction over all causes; requests count as independent,"
    " which those that one event ended are not"
)

_SLACK = 1 + 1e-7  # tables as likely as the observed one count, whatever rounding says


def compare(now: Audit, before: Audit, baseline: str) -> Comparison:
    """The comparison; `baseline` is what the earlier audit is called."""
    totals = before.totals, now.totals
    causes = sorted(totals[0].by_cause.keys() | totals[1].by_cause.keys())
    counts = [(cause, totals[0].by_cause.get(cause, 0), totals[1].by_cause.get(cause, 0)) for cause in causes]
    everything = _cause(INTERRUPTED, totals[0].interrupted, totals[1].interrupted, before, now)
    everything.significant = everything.p is not None and everything.p < LEVEL  # one question of its own
    changes = [_cause(*each, before, now) for each in counts]
    for change, significant in zip(changes, holm([each.p for each in changes]), strict=True):
        change.significant = significant
    changes.sort(key=lambda each: (-abs((each.rate_now or 0) - (each.rate_before or 0)), each.cause))
    return Comparison(
        baseline=baseline,
        requests_before=totals[0].requests,
        requests_now=totals[1].requests,
        test=TEST,
        causes=[everything, *changes],
        server_events=_events(before, now),
    )


def _cause(cause: str, old: int, new: int, before: Audit, now: Audit) -> CauseChange:
    n_old, n_new = before.totals.requests, now.totals.requests
    comparable = bool(n_old and n_new)
    return CauseChange(
        cause=cause,
        before=old,
        now=new,
        rate_before=round(1000 * old / n_old, 3) if n_old else None,
        rate_now=round(1000 * new / n_new, 3) if n_new else None,
        change=_change(old, new, n_new, n_old) if comparable else _change(old, new),
        p=float(f"{fisher(old, n_old - old, new, n_new - new):.4g}") if comparable else None,
    )


def _events(before: Audit, now: Audit) -> list[EventChange]:
    old, new = (Counter(event.cause for event in audit.server_events) for audit in (before, now))
    return [
        EventChange(cause=cause, before=old[cause], now=new[cause], change=_change(old[cause], new[cause]))
        for cause in sorted(old.keys() | new.keys())
    ]


def _change(old: int, new: int, weight_old: int = 1, weight_new: int = 1) -> Change:
    """How two numbers compare; the weights make rates of them, exactly."""
    if old * weight_old == new * weight_new:
        return "same"
    if not old or not new:
        return "new" if new else "vanished"
    return "grew" if new * weight_new > old * weight_old else "shrank"


def fisher(a: int, b: int, c: int, d: int) -> float:
    """Fisher's exact test of the table [[a, b], [c, d]], two-sided.

    The probability, all margins given, of a table that is at most as likely as this one.
    """
    row, column, total = a + b, a + c, a + b + c + d
    first, last = max(0, column - (c + d)), min(row, column)
    ways = _ways(total, column)

    def chance(x: int) -> float:
        return exp(_ways(row, x) + _ways(total - row, column - x) - ways)

    observed = chance(a) * _SLACK
    return min(1.0, sum(p for p in map(chance, range(first, last + 1)) if p <= observed))


def _ways(n: int, k: int) -> float:
    """The logarithm of the number of ways to choose k of n."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def holm(probabilities: Sequence[float | None]) -> list[bool]:
    """Which of several tests show more than chance, if all of them together may err in `LEVEL` of cases."""
    tested = sorted((p, index) for index, p in enumerate(probabilities) if p is not None)
    shown = [False] * len(probabilities)
    for rank, (p, index) in enumerate(tested):
        if p >= LEVEL / (len(tested) - rank):
            break
        shown[index] = True
    return shown
