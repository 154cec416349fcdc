"""Requests whose rid is the beginning of another's: an abort of theirs hits that one as well (0.4.4 to 0.5.23)."""

from __future__ import annotations

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import ABORT_BY_PREFIX, GRAMMAR_ABORTS_BY_RID
from sglang_lifecycle.analyzers.scene import CALL_AFTER, CALL_BEFORE, Scene
from sglang_lifecycle.analyzers.strokes import TOGETHER, Stroke, cut_at
from sglang_lifecycle.analyzers.texts import ended_plainly
from sglang_lifecycle.parsers.evidence import Event, Fact


def left(scene: Scene, attempt: Attempt) -> list[tuple[Attempt, Fact]]:
    """The requests whose rid is its prefix and that were aborted just before it ended, with the line that says so.

    An abort takes in the rids that begin with its own from 0.4.4 on (managers/scheduler.py:abort_request). A token that
    a grammar refuses ends its request by such an abort from 0.4.10 to 0.5.15
    (managers/scheduler_components/batch_result_processor.py:_accept_grammar_tokens, before 0.5.13
    managers/scheduler_output_processor_mixin.py).
    """
    ended = cut_at(attempt)
    if not ended or not scene.release.may_have(ABORT_BY_PREFIX):
        return []
    events = [Event.CLIENT_DISCONNECTED]
    if scene.release.may_have(GRAMMAR_ABORTS_BY_RID):
        events.append(Event.GRAMMAR_TOKEN_REFUSED)
    return [
        (root, fact)
        for root in scene.prefixes(attempt.rid)
        for fact in root.of(*events)[:1]
        if fact.at is not None and -CALL_AFTER < ended - fact.at <= TOGETHER
    ]


def present(scene: Scene, attempt: Attempt) -> list[Attempt]:
    """The requests whose rid is its prefix and that were there when it ended, or just before: a call may name them.

    Of one that it named there is no `Finish` where its client left, or it follows soon: what runs meets the abort at
    its next result, and that may be its last. And so one that ran ends later than the root that waited.
    """
    return [a for a in scene.prefixes(attempt.rid) if a.received is not None and _was_there(scene, a, attempt)]


def silent(scene: Scene, attempt: Attempt) -> list[Attempt]:
    """Those of them that have no `Finish`: their client may have left, of which a stream's writes no line."""
    return [root for root in present(scene, attempt) if root.finish is None]


def _was_there(scene: Scene, root: Attempt, attempt: Attempt) -> bool:
    end, line = scene.cut_order(attempt), root.cut
    over = scene.cut_order(root) if line is not None else None
    if root.order > end or (over is not None and over < attempt.order):
        return False  # one had ended before the other came
    apart = abs(cut_at(root) - cut_at(attempt))
    return line is None or (apart <= CALL_BEFORE and ((over or 0) > end or ended_plainly(line)))


def any_root(scene: Scene, attempt: Attempt, stroke: Stroke) -> bool:
    """Whether a request whose rid is its prefix left, fell with it or was there: an abort may have been that one's."""
    return bool(left(scene, attempt) or stroke.roots(attempt) or present(scene, attempt))
