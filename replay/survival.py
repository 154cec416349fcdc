"""How long something that was cut would have gone on: the Kaplan-Meier estimate from what comparable ones did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def median_total(observed: Iterable[tuple[float, bool]], reached: float = 0.0) -> float | None:
    """The median total of what has reached `reached` already, by totals of which some were cut short.

    `observed` are (total, complete). Among those that went further, the estimate follows the share that is left over
    as they end; where more than half never were seen to end, the longest total is the least that can be said. None
    where nothing went further.
    """
    further = [(total, complete) for total, complete in observed if total > reached]
    if not further:
        return None
    ended = Counter(total for total, complete in further if complete)
    at_risk, left = len(further), 1.0
    totals = Counter(total for total, _ in further)
    for total in sorted(totals):
        left *= 1 - ended[total] / at_risk
        if left <= 0.5:
            return total
        at_risk -= totals[total]
    return max(totals)
