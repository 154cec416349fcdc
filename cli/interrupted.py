"""The interrupted requests of an audit, grouped and limited as people are shown them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_lifecycle.analyzers.listing import RequestRow
    from sglang_lifecycle.cli.times import Clock

LIMIT = 200
"""So many interrupted requests are listed unless all are asked for."""

EVENTS = 50
"""So many events of the server are listed unless all are asked for."""


def groups(requests: Sequence[RequestRow], clock: Clock) -> dict[str, list[RequestRow]]:
    """The interrupted requests by cause, the most frequent cause first, each cause's in the order of their ends."""
    found: dict[str, list[RequestRow]] = {}
    for row in requests:
        if row.status == "interrupted" and not row.synthetic:
            found.setdefault(row.cause, []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (clock.epoch(moment(row)) or math.inf, row.rid))
    return dict(sorted(found.items(), key=lambda group: (-len(group[1]), group[0])))


def moment(row: RequestRow) -> str | None:
    """The time that a request is sorted and shown by."""
    return row.times.ended or row.times.received


def shares(sizes: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """How many of each group are listed: small groups whole, the rest evenly, so that no cause is crowded out."""
    left, shown = limit if limit is not None else sum(sizes.values()), dict.fromkeys(sizes, 0)
    for index, (group, number) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shown[group] = min(number, left // (len(sizes) - index))
        left -= shown[group]
    return shown


def remark(shown: int, total: int) -> str:
    """How many there are, and how many of them are listed."""
    return f"{total:,}" if shown == total else f"{shown:,} of {total:,}; --all lists them all"


def perhaps_not(number: int) -> str:
    """That so many of the undecided may not have been interrupted at all."""
    return f"Of the undecided, {number:,} may have finished, or still be in flight."
