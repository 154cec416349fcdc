"""The calls of `/abort_request` around a stroke: which of them may have ended it.

An access line names no rid: place and time are all that tells.
"""

from __future__ import annotations

import bisect

from sglang_lifecycle.analyzers.scene import CALL_AFTER, CALL_BEFORE, Call, Scene, per_scene
from sglang_lifecycle.analyzers.strokes import Stroke, per_stroke

LATE = 3
"""Facts by which the line of a call may stand behind an end that it caused."""


@per_stroke
def near(stroke: Stroke) -> list[Call]:
    """The abort calls that can have ended a stroke."""
    if not stroke.ends:
        return []
    scene = stroke.scene
    calls = scene.calls_between("abort", stroke.ends[0] - CALL_BEFORE, stroke.ends[-1] + CALL_AFTER)
    first = min((a.order for a in stroke if a.received is not None), default=-1)
    lines = [line for a in stroke if (line := a.cut) is not None]
    late = max((line.at or 0.0) + (line.at_error or 0.0) for line in lines)
    return [
        c
        for c in calls
        if c.order > first
        and (
            c.order <= stroke.last + LATE
            or c.fact.process not in stroke.logs
            or scene.several_workers
            or not _after(c, late)
        )
    ]


def _after(call: Call, late: float) -> bool:
    """Whether a call was answered after a time for certain, UTC epoch seconds: its line goes before what it brings."""
    return call.at is not None and call.at - (call.fact.at_error or 0.0) > late


@per_scene
def _plain_end_orders(scene: Scene) -> list[int]:
    return sorted(map(scene.cut_order, scene.plain_ends))


@per_stroke
def fresh(stroke: Stroke) -> list[Call]:
    """Of the abort calls near a stroke those that an earlier one does not explain already."""
    ends = _plain_end_orders(stroke.scene)
    before = bisect.bisect_left(ends, stroke.fell) - 1
    last_end = ends[before] if before >= 0 else -1
    return [c for c in near(stroke) if c.order > last_end]


def taken(stroke: Stroke) -> list[Call]:
    """The abort calls that are taken for those of a stroke, where any are near."""
    return fresh(stroke) or near(stroke)[-1:]
