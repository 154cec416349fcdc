"""The mark by which a streaming session knows that a turn of it is active, and who leaves it behind.

It is `Session._inflight` (0.5.11 on, `session/session_controller.py`); up to 0.5.21 a drop does not clear it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import MARK_STAYS
from sglang_lifecycle.analyzers.finding import Cause, Finding, undecided
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.analyzers.spans import near
from sglang_lifecycle.analyzers.texts import QUEUE_ENDS, REFUSALS
from sglang_lifecycle.parsers.evidence import Event, Fact

_ONE_MOMENT = 2.0  # seconds by which two processes tell of one moment


def resolve(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """`already has an active request`: really, or because a turn dropped from the queue left its mark."""
    turns = _turns(scene).get(attempt.session_id or said.session_id or "", [])
    before = bisect_left(turns, attempt.order, key=lambda turn: turn.order)
    if not before:
        text = "Its streaming session already had an active request, which these logs don't show."
        candidates = [("session-busy", "the earlier turn's records"), ("session-stuck", "the earlier turn's records")]
        return undecided(text, candidates, [said])
    seen = _Before.of(scene, attempt, said, turns[before - 1])
    return _mark_of_a_client_that_left(seen) or _active(seen) or _mark_of_a_drop(seen) or _had_ended(seen)


@per_scene
def _turns(scene: Scene) -> dict[str, list[Attempt]]:
    """The turns of each session that nothing refused, in the order of their arrival."""
    return {session: [turn for turn in turns if not _refused(turn)] for session, turns in scene.sessions.items()}


def _refused(turn: Attempt) -> bool:
    told = turn.finish is not None and turn.finish.message_id in REFUSALS
    return told or bool(turn.of(Event.REQUEST_REJECTED))


@dataclass(frozen=True, slots=True)
class _Before:
    """A turn that a busy streaming session refused, and the last one before it."""

    scene: Scene
    attempt: Attempt
    said: Fact
    last: Attempt
    refusal: list[Fact]
    """The scheduler's own line of the refusal."""
    decided: int
    """The place of that line, else of the arrival: it may have been held back in the API server before."""

    @classmethod
    def of(cls, scene: Scene, attempt: Attempt, said: Fact, last: Attempt) -> _Before:
        refusal = attempt.of(Event.REQUEST_REJECTED)
        decided = scene.places[id(refusal[0])] if refusal else attempt.order
        return cls(scene, attempt, said, last, refusal, decided)

    @property
    def may_stick(self) -> bool:
        """Whether a turn that is dropped may leave its mark."""
        return self.scene.release.may_have(MARK_STAYS)

    @property
    def in_queue(self) -> bool:
        """Whether the last turn was dropped from the queue."""
        return self.last.finish is not None and self.last.finish.message_id in QUEUE_ENDS

    @property
    def over(self) -> bool:
        """Whether the last turn had ended, or was dropped in the same moment."""
        finish = self.last.finish
        if finish is None:
            return False
        at_once = near(finish, (*self.refusal, self.said)[0], _ONE_MOMENT)  # in either order, by two processes
        return bool(self.in_queue and at_once) or (self.last.finish_order or 0) < self.decided


def _mark_of_a_client_that_left(before: _Before) -> Finding | None:
    scene, last = before.scene, before.last
    gone = last.of(Event.CLIENT_DISCONNECTED) if last.finish is None else []
    left = [fact for fact in gone if scene.places[id(fact)] < before.decided]
    if not left or not before.may_stick:
        return None
    text = f"No turn was active: the client of {last.rid!r} had left, and the mark of its turn may never have gone."
    finding = Finding("session-stuck", "likely", text, [left[0], before.said], effects=["session-stuck"])
    finding.candidates.append(("session-busy", "whether that turn had run: one that is dropped leaves its mark"))
    finding.chain.append(Cause("client-disconnect", f"the client of {last.rid!r} left", left[:1], rid=last.rid))
    return finding


def _active(before: _Before) -> Finding | None:
    """The last turn was still in flight, as far as its end shows."""
    attempt, last = before.attempt, before.last
    if before.over:
        return None
    lines = [f for f in (last.received, before.said) if f is not None]
    text = f"Turn {last.rid!r} of its streaming session was still in flight."
    finding = Finding("session-busy", "proven" if last.finish is not None else "likely", text, lines)
    finding.chain.append(Cause("session-busy", f"{last.rid!r} was active", lines[:1], rid=last.rid))
    early = (last.finish_order or 0) < (attempt.finish_order or 0)  # else it may have come after the refusal
    late = not before.refusal and last.finish is not None and (early or attempt.received is None)
    if late or last.torn:  # of which the end before may be lost
        finding.soften(("session-stuck", "the scheduler's own line of the refusal"))
    if last.finish is None and before.may_stick:
        finding.candidates.append(
            ("session-stuck", "how that turn ended: one that is dropped from the queue leaves it so")
        )
    return finding


def _mark_of_a_drop(before: _Before) -> Finding | None:
    last = before.last
    if last.finish is None or not before.in_queue or not before.may_stick:
        return None
    text = f"No turn was active: {last.rid!r} had been dropped from the queue and its mark was never cleared."
    finding = Finding("session-stuck", "likely", text, [last.finish, before.said], effects=["session-stuck"])
    finding.candidates.append(("session-busy", "the records of every turn of the session"))
    why = f"{last.rid!r} ended in the queue and left the mark"
    finding.chain.append(Cause(QUEUE_ENDS[last.finish.message_id or ""], why, [last.finish], rid=last.rid))
    return finding


def _had_ended(before: _Before) -> Finding:
    """Nothing explains the refusal."""
    last = before.last
    lines = [fact for fact in (last.finish, before.said) if fact is not None]
    finding = Finding("session-busy", "likely", "Its streaming session already had an active request.", lines)
    stuck = "session-stuck", "the records of every turn of the session"
    finding.doubt(f"the last turn seen, {last.rid!r}, had ended before", stuck)
    return finding
