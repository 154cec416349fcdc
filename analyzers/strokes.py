"""Strokes: what ended several requests at once, and who was there and lived on.

An abort ends requests by one call, a pause or a weight update everything that is in the engine; who ended with a
request, and who did not, tells them apart.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sglang_lifecycle.analyzers.accounting import chunk, taking
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import ABORT_MEETS_CHUNKS
from sglang_lifecycle.analyzers.scene import CALL_BEFORE, Call, Scene, group, once, per_attempt, per_scene
from sglang_lifecycle.analyzers.texts import RUNNING_ABORTS

TOGETHER = 1.5
"""Seconds within which ends belong to one stroke."""

OF_ALL = frozenset({"abort-all", "pause-abort", "weight-update-abort"})
"""What ends everything in the engine."""

_REACHES = 0.2  # seconds from a `Receive` to the scheduler


@dataclass(eq=False)
class Stroke:
    """Attempts of a scene that ended together, in the order of their ends.

    Thousands may, and each asks the same of all: what it asks is found once.
    """

    scene: Scene
    members: Sequence[Attempt]
    memo: dict[object, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """How many."""
        return len(self.members)

    def __iter__(self) -> Iterator[Attempt]:
        """Each of them."""
        return iter(self.members)

    @cached_property
    def fell(self) -> int:
        """The place of the first end."""
        return min(map(self.scene.cut_order, self.members), default=0)

    @cached_property
    def last(self) -> int:
        """The place of the last end."""
        return max(map(self.scene.cut_order, self.members), default=0)

    @cached_property
    def ends(self) -> list[float]:
        """When they ended, UTC epoch seconds, in order."""
        return sorted(filter(None, map(cut_at, self.members)))

    @cached_property
    def logs(self) -> frozenset[str]:
        """The processes whose logs have the ends."""
        return frozenset(line.process for a in self.members if (line := a.cut) is not None)

    @cached_property
    def _by_rid(self) -> dict[str, list[Attempt]]:
        return group(self.members, lambda a: a.rid)

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted(set(map(len, self._by_rid)))

    def roots(self, attempt: Attempt) -> list[Attempt]:
        """The members whose rid is a beginning of another's, the shortest first."""
        shorter = self._lengths[: bisect.bisect_left(self._lengths, len(attempt.rid))]
        return [a for length in shorter for a in self._by_rid.get(attempt.rid[:length], ())]


per_stroke = once


def crowd(scene: Scene, attempt: Attempt) -> Stroke:
    """The attempts that ended plainly in the same stroke, the one asked for included."""
    dated = attempt.cut is not None and attempt.cut.at is not None
    return (_strokes(scene).get(attempt) if dated else None) or Stroke(scene, [attempt])


@per_scene
def _strokes(scene: Scene) -> dict[Attempt, Stroke]:
    """The stroke of each attempt that ended plainly."""
    calls = scene.call_orders.get("abort", [])
    found: list[list[Attempt]] = []
    for attempt in scene.plain_ends:
        if found and _one_stroke(scene, found[-1][-1], attempt, calls):
            found[-1].append(attempt)
        else:
            found.append([attempt])
    return {attempt: stroke for members in found for stroke in [Stroke(scene, members)] for attempt in members}


def _one_stroke(scene: Scene, earlier: Attempt, later: Attempt, calls: Sequence[int]) -> bool:
    """Whether two neighbouring ends fell together: close in time, both there, and no further abort call between."""
    if abs(cut_at(later) - cut_at(earlier)) > TOGETHER:
        return False
    start, end = scene.cut_order(earlier), scene.cut_order(later)
    if any(each.received is not None and each.order > start for each in (earlier, later)):
        return False  # one had ended before the other came
    return bisect.bisect_left(calls, end) == bisect.bisect_right(calls, start)


def cut_at(attempt: Attempt) -> float:
    """When the line was written that tells first of an attempt's end, UTC epoch seconds; 0 where none does."""
    at = attempt.ended_at if attempt.cut is attempt.finish else attempt.cut.at if attempt.cut is not None else None
    return at or 0.0


def survivors(stroke: Stroke, call: Call | None = None) -> list[Attempt]:
    """Attempts that were in flight when a stroke fell, or when a call came before it, and lived on to another end."""
    lived = _survivors(stroke)
    return lived if call is None else [a for a in lived if a.order < call.order]


@per_stroke
def _survivors(stroke: Stroke) -> list[Attempt]:
    scene, last, found = stroke.scene, stroke.last, []
    calls = scene.call_orders.get("abort", [])
    end, call = stroke.ends[-1] if stroke.ends else 0.0, next(iter(calls[bisect.bisect_right(calls, last) :]), last)
    for attempt in scene.alive_at(stroke.fell) if stroke.members else ():
        place, soonest = _end(scene, attempt)
        if place > last:
            far = soonest is None or (soonest - end > TOGETHER + 1 and place > call > last)
            if far or not _of_the_stroke(stroke, attempt):
                found.append(attempt)
    return found


@per_attempt
def _end(scene: Scene, attempt: Attempt) -> tuple[int, float | None]:
    """The place of an attempt's end, -1 where it is not known; where an abort ended it, the earliest time of that.

    How it ended is not known either where its line is cut. The time is in UTC epoch seconds.
    """
    if attempt.finish is None or attempt.finish.finish_type is None or attempt.synthetic:
        return -1, None
    return scene.cut_order(attempt), min([cut_at(attempt), *attempt.ends]) if _aborted(scene, attempt) else None


def _of_the_stroke(stroke: Stroke, attempt: Attempt) -> bool:
    """Whether a stroke may have aborted one that ended after its last end.

    At once; or, if it ran, when its next result was processed, which a long prefill of others delays.
    """
    end, ended_at = stroke.ends[-1] if stroke.ends else 0.0, cut_at(attempt)
    if abs(ended_at - end) <= TOGETHER:
        return True
    if any(abs(at - end) <= TOGETHER + (at != ended_at) for at in attempt.ends):
        return True
    ended, calls = stroke.scene.cut_order(attempt), stroke.scene.call_orders.get("abort", [])
    ran = attempt.finish is not None and attempt.finish.message_id in RUNNING_ABORTS
    late = ran and ended_at - end <= CALL_BEFORE
    return late and bisect.bisect_left(calls, ended) == bisect.bisect_right(calls, stroke.last)


def _aborted(scene: Scene, attempt: Attempt) -> bool:
    """Whether an abort ended it, wherever it stood."""
    return attempt in _strokes(scene)


def held_back(scene: Scene, attempt: Attempt, until: int) -> bool:
    """Whether no batch took anybody in between its arrival and a place: it may not have been in the engine."""
    taken = taking(scene)
    return bisect.bisect_right(taken, attempt.order) == bisect.bisect_left(taken, until)


def surely_met(scene: Scene, attempt: Attempt, call: Call) -> bool:
    """Whether an abort of all would have ended a request that was there when a call came.

    It had to have reached the scheduler; and up to 0.5.13 an abort is lost on a prompt that is read in chunks (later
    `managers/scheduler.py:process_pending_chunked_abort` sees to it).
    """
    came, whole = _arrival(scene, attempt)
    at = call.fact.at
    return whole and (came is None or at is None or at + (call.fact.at_error or 0.0) - came > _REACHES)


@per_attempt
def _arrival(scene: Scene, attempt: Attempt) -> tuple[float | None, bool]:
    """When an attempt came, UTC epoch seconds, and whether an abort can't be lost on its prompt."""
    return attempt.received_at, scene.release.has(ABORT_MEETS_CHUNKS) or not in_chunks(scene, attempt)


def in_chunks(scene: Scene, attempt: Attempt) -> bool:
    """Whether its prompt may be longer than what is read at once."""
    record = attempt.received or attempt.finish
    known = attempt.finish.prompt_tokens if attempt.finish is not None else None
    length = known or (record.detail.get("prompt_ids") if record is not None else None)
    return length is None or length >= chunk(scene)
