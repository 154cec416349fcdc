"""What may have ended a request whose `Finish` got lost: what struck others when it left the engine."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from sglang_lifecycle.analyzers import session_params
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import TIMEOUT_BY_RID
from sglang_lifecycle.analyzers.limits import KINDS
from sglang_lifecycle.analyzers.outcomes import PLAIN
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.analyzers.texts import ended_plainly
from sglang_lifecycle.parsers.evidence import BATCHES, Event, Fact

_SLACK = 1.0  # seconds by which lines of several processes may stand in the wrong order


def causes(scene: Scene, attempt: Attempt, gone: Fact | None) -> list[str]:
    """The causes that struck in the span in which an attempt left, each once.

    `gone` is the line that shows that it had; the batch line before that still had room for it. Aborts hit by the
    beginning of a rid (managers/scheduler.py:abort_request), timeouts from 0.5.20 on (`_poll_timeout_aborts`).
    """
    return list(dict.fromkeys(_causes(scene, attempt, gone)))


def _causes(scene: Scene, attempt: Attempt, gone: Fact | None) -> Iterator[str]:
    end = scene.places[id(gone)] if gone is not None else scene.life.size
    start, began, ended = attempt.order, attempt.received_at, gone.at if gone is not None else scene.life.end
    if gone is not None and gone.event in BATCHES:
        before = bisect.bisect_left(scene.batch_orders, end) - 1
        if before >= 0 and scene.batches[before][0] > start:
            start, line = scene.batches[before]
            began = line.at - (line.at_error or 0.0) if line.at is not None else began
    if gone is not None and gone.event is Event.REQUEST_STATS:
        start, began = end, ended
    if began is None or ended is None:
        return
    yield from _by_session(scene, attempt, end)
    for other in scene.ended_between(began - _SLACK, ended + _SLACK):
        finish = other.finish
        assert finish is not None
        prefix = attempt.rid != other.rid and attempt.rid.startswith(other.rid)
        if finish.message_id in KINDS:
            yield KINDS[finish.message_id].cause
            if prefix and scene.release.may_have(TIMEOUT_BY_RID):
                yield "timeout-prefix-collision"
        elif ended_plainly(finish):
            if prefix:
                yield "abort-prefix-collision"
            yield from scene.engine_causes(other.ended_at or ended)
    if scene.calls_between("abort", began - _SLACK, ended + _SLACK):
        yield from ("explicit-abort", "abort-all")


def later(scene: Scene, attempt: Attempt) -> Iterator[str]:
    """The causes that struck anybody after an attempt came, as far as texts and calls name them."""
    yield from (cause for cause, order in _last(scene).items() if order > attempt.order)
    yield from _by_session(scene, attempt, scene.life.size)


@per_scene
def _last(scene: Scene) -> dict[str, int]:
    """The places where causes last struck."""
    texts = {name: outcome.cause for name, outcome in (PLAIN | KINDS).items()}
    found = {cause: orders[-1] for kind, cause in _CALLS.items() if (orders := scene.call_orders.get(kind))}
    for attempt in scene.attempts:
        message = attempt.finish.message_id if attempt.finish is not None else None
        if message in texts:
            found[texts[message]] = max(found.get(texts[message], -1), attempt.finish_order or 0)
    return found


_CALLS = {"abort": "abort-all", "pause": "pause-abort", "weights": "weight-update-abort"}


def _by_session(scene: Scene, attempt: Attempt, end: int) -> Iterator[str]:
    """Whether a newer turn of its session came before a place to replace it, or one above it.

    However long before: who waits in the queue is only marked, and leaves at its first token (0.4.2 to 0.5.23,
    session/session_controller.py:Session.create_req).
    """
    if attempt.session_id is None:
        return
    for named, _ in session_params.replacers(scene, attempt, end):
        yield "session-replaced" if named == attempt.rid else "session-branch-cleared"
