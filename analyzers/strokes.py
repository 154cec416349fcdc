"""Strokes: what ended several requests at once, and who was there and lived on.

An abort ends requests by one call, a pause or a weight update everything that is in the engine; who ended with a
request, and who did not, tells them apart.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from sglang_lifecycle.analyzers.accounting import chunk, taking
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import ABORT_MEETS_CHUNKS
from sglang_lifecycle.analyzers.scene import CALL_BEFORE, Call, Scene, per_scene
from sglang_lifecycle.analyzers.texts import RUNNING_ABORTS

TOGETHER = 1.5
"""Seconds within which ends belong to one stroke."""

OF_ALL = frozenset({"abort-all", "pause-abort", "weight-update-abort"})
"""What ends everything in the engine."""

_REACHES = 0.2  # seconds from a `Receive` to the scheduler


def crowd(scene: Scene, attempt: Attempt) -> list[Attempt]:
    """The attempts that ended plainly in the same stroke, the one asked for included."""
    ended = attempt.ended_at
    if ended is None:
        return [attempt]
    members = scene.plain_ends
    calls = scene.call_orders.get("abort", [])
    first = last = _positions(scene)[attempt]
    while first > 0 and _one_stroke(members[first - 1], members[first], calls):
        first -= 1
    while last + 1 < len(members) and _one_stroke(members[last], members[last + 1], calls):
        last += 1
    return members[first : last + 1]


@per_scene
def _positions(scene: Scene) -> dict[Attempt, int]:
    return {a: i for i, a in enumerate(scene.plain_ends)}


def _one_stroke(earlier: Attempt, later: Attempt, calls: Sequence[int]) -> bool:
    """Whether two neighbouring ends fell together: close in time, both there, and no further abort call between."""
    if abs((later.ended_at or 0.0) - (earlier.ended_at or 0.0)) > TOGETHER:
        return False
    start, end = earlier.finish_order or 0, later.finish_order or 0
    if any(each.received is not None and each.order > start for each in (earlier, later)):
        return False  # one had ended before the other came
    return bisect.bisect_left(calls, end) == bisect.bisect_right(calls, start)


def survivors(scene: Scene, members: Sequence[Attempt], call: Call | None = None) -> list[Attempt]:
    """Attempts that were in flight when the stroke fell, or when a call came before it, and lived on to another end."""
    fell = min((a.finish_order for a in members if a.finish_order is not None), default=None)
    if fell is None:
        return []
    inside = {id(a) for a in members}
    last = max(a.finish_order or 0 for a in members)
    end = max(a.ended_at or 0.0 for a in members)
    return [
        a
        for a in scene.alive_at(fell)
        if id(a) not in inside
        and (call is None or a.order < call.order)
        and (a.finish_order or 0) > last
        and not a.synthetic
        and a.finish is not None
        and a.finish.finish_type is not None  # else its line is cut, and how it ended not known
        and not (_aborted(scene, a) and _of_the_stroke(scene, a, last, end))
    ]


def _of_the_stroke(scene: Scene, attempt: Attempt, last: int, end: float) -> bool:
    """Whether a stroke may have aborted one that ended after its last end, at the place `last` and the time `end`.

    At once; or, if it ran, when its next result was processed, which a long prefill of others delays.
    """
    if any(abs(at - end) <= TOGETHER + (at != attempt.ended_at) for at in attempt.ends):
        return True
    ended, calls = attempt.finish_order or 0, scene.call_orders.get("abort", [])
    ran = attempt.finish is not None and attempt.finish.message_id in RUNNING_ABORTS
    late = ran and (attempt.ended_at or 0.0) - end <= CALL_BEFORE
    return late and bisect.bisect_left(calls, ended) == bisect.bisect_right(calls, last)


def _aborted(scene: Scene, attempt: Attempt) -> bool:
    """Whether an abort ended it, wherever it stood."""
    early = attempt.finish is not None and attempt.finish.message_id == "aborted_by_abortreq"
    return early or attempt in _positions(scene)


def held_back(scene: Scene, attempt: Attempt, until: int) -> bool:
    """Whether no batch took anybody in between its arrival and a place: it may not have been in the engine."""
    taken = taking(scene)
    return bisect.bisect_right(taken, attempt.order) == bisect.bisect_left(taken, until)


def surely_met(scene: Scene, attempt: Attempt, call: Call) -> bool:
    """Whether an abort of all would have ended a request that was there when a call came.

    It had to have reached the scheduler; and up to 0.5.13 an abort is lost on a prompt that is read in chunks (later
    `managers/scheduler.py:process_pending_chunked_abort` sees to it).
    """
    came = attempt.received_at
    there = came is None or call.at is None or call.at + (call.fact.at_error or 0.0) - came > _REACHES
    return there and (scene.release.has(ABORT_MEETS_CHUNKS) or not in_chunks(scene, attempt))


def in_chunks(scene: Scene, attempt: Attempt) -> bool:
    """Whether its prompt may be longer than what is read at once."""
    record = attempt.received or attempt.finish
    known = attempt.finish.prompt_tokens if attempt.finish is not None else None
    length = known or (record.detail.get("prompt_ids") if record is not None else None)
    return length is None or length >= chunk(scene)
