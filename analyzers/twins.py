"""Two requests of one rid: a second one that comes while the first is open is refused, or takes its place.

Up to 0.5.9 nothing keeps two from having one rid, and the newer takes the older one's place silently
(managers/tokenizer_manager.py:_send_one_request); from 0.5.10 on `_init_req_state` refuses the second.
"""

from __future__ import annotations

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import TWIN_REFUSED
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.scene import CALL_AFTER, Scene
from sglang_lifecycle.analyzers.strokes import TOGETHER
from sglang_lifecycle.parsers.evidence import Event, Fact


def refused(_: Scene, attempt: Attempt) -> Finding | None:
    """Refused because the rid was in flight, or had leaked (0.5.10 to 0.5.12); it has no `Receive` of its own."""
    if not attempt.refused_twin:
        return None
    text = "Refused: a request with this rid was in flight, or the API server had never forgotten an earlier one."
    return Finding("duplicate-rid", "proven", text, attempt.facts[:1], stage="before-scheduler", http_status=400)


def displaced(scene: Scene, attempt: Attempt) -> Finding | None:
    """A second `Receive` of its rid while it was open took its place (to 0.5.9)."""
    if attempt not in _displaced(scene, attempt.rid):
        return None
    newer = second(scene, attempt)
    finding = Finding(
        "duplicate-rid",
        "likely",
        "A second request with the same rid came while it was open and took its place: its client waits for ever.",
        [*attempt.begun, *(newer.begun if newer is not None else [])],
    )
    finding.candidates.append(("client-disconnect", "the client's log: did it leave before it sent the rid again?"))
    return finding


def second(scene: Scene, attempt: Attempt) -> Attempt | None:
    """The next attempt of the same rid."""
    return next((a for a in scene.by_rid[attempt.rid] if a.order > attempt.order and a.received), None)


def first(scene: Scene, attempt: Attempt) -> Attempt | None:
    """An attempt of the same rid that was open when this one came and that it displaced (to 0.5.9)."""
    return next((a for a in _displaced(scene, attempt.rid) if a is not attempt), None)


def left(scene: Scene, attempt: Attempt) -> Fact | None:
    """The line of a disconnect just before it ended that is about the request whose rid it took (to 0.5.9)."""
    ended = attempt.cut.at if attempt.cut is not None else None
    if ended is None:
        return None
    earlier = [a for a in _displaced(scene, attempt.rid) if a is not attempt and a.order < attempt.order]
    lines = [fact for a in (*earlier, attempt) for fact in a.of(Event.CLIENT_DISCONNECTED)] if earlier else []
    return next((f for f in lines if f.at is not None and -CALL_AFTER < ended - f.at <= TOGETHER), None)


def _displaced(scene: Scene, rid: str) -> list[Attempt]:
    """The attempts of a rid whose place another took."""
    if scene.release.has(TWIN_REFUSED):
        return []
    return [a for a in scene.by_rid.get(rid, ()) if a.overwritten]
