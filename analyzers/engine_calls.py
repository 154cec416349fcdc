"""Pauses and weight updates around a stroke: which of them may have ended it (0.4.9 to 0.5.23).

Either aborts everything in flight and answers when that is done; an update from disk says when it begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from sglang_lifecycle.analyzers import abort_calls
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.scene import CALL_AFTER, CALL_BEFORE, ENGINE_CALL, Call, Scene
from sglang_lifecycle.analyzers.strokes import Stroke, cut_at, held_back, survivors
from sglang_lifecycle.parsers.evidence import Fact

_PAUSE = 5.0  # seconds by which a pause answers after the last end: it aborts each second what is left


def near(scene: Scene, attempt: Attempt, stroke: Stroke) -> tuple[str, Fact | None, Call | None] | None:
    """The pause or weight update that may have ended a stroke: its cause, the line of its start, and of its answer."""
    ended, order = cut_at(attempt), scene.cut_order(attempt)
    if not ended:
        return None
    calls = [
        c for kind, within in (("pause", _PAUSE), ("weights", ENGINE_CALL))
        for c in scene.calls_between(kind, ended - CALL_AFTER, ended + within)
        if c.order > order and not _served_between(scene, ended, c)
    ]  # fmt: skip
    starts = [
        f for f in scene.updates_between(ended - CALL_BEFORE, ended + CALL_AFTER)
        if not _over_before(scene, f, attempt) and not _begun_after(stroke, f) and not _came_after(attempt, f)
    ]  # fmt: skip
    call = min(calls, key=lambda c: c.order, default=None)
    if call is None and not starts:
        return None
    answered = call.order if call is not None else order
    if any(not held_back(scene, other, answered) for other in survivors(stroke)):
        return None
    kind = "weight-update-abort" if starts or (call is not None and call.kind == "weights") else "pause-abort"
    return kind, starts[0] if starts else None, call


def _served_between(scene: Scene, ended: float, call: Call) -> bool:
    """Whether a request came after an end and went well before a call was answered, which then had not begun."""
    if call.at is None:
        return False
    known: dict[tuple[float, int], bool] = scene.memo.setdefault(_served_between, {})  # many end in one moment
    asked = ended, call.order
    if asked not in known:
        known[asked] = any(
            attempt.went_well
            and (attempt.received_at or 0.0) > ended + CALL_AFTER
            and (attempt.ended_at or call.at) < call.at - CALL_AFTER
            for attempt in scene.ended_between(ended, call.at)
        )
    return known[asked]


def _over_before(scene: Scene, start: Fact, attempt: Attempt) -> bool:
    """Whether a weight update was answered before a request came."""
    begun = scene.places[id(start)]
    answers = scene.call_orders.get("weights", [])
    return bisect_right(answers, begun) < bisect_left(answers, attempt.order)


def _came_after(attempt: Attempt, start: Fact) -> bool:
    """Whether a request came when a weight update had aborted what was there, which it does as it begins."""
    record, came = attempt.received, attempt.received_at
    if record is None or came is None or start.at is None:
        return False
    return came - (record.at_error or 0.0) > start.at + (start.at_error or 0.0) + CALL_AFTER


def _begun_after(stroke: Stroke, start: Fact) -> bool:
    """Whether a weight update began after a stroke: one process writes that line, then aborts, then writes the ends."""
    return start.process in stroke.logs and stroke.scene.places[id(start)] > stroke.last + abort_calls.LATE
