"""The state of an engine, and the outcome of an operation, as plain data to compare and to print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_lifecycle.replay.batches import RanBatch
from sglang_lifecycle.replay.engine import Engine, Outcome
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import BAD_REQUEST, FinishReason, Request
from sglang_lifecycle.replay.sessions import Node, Session


def state_digest(engine: Engine) -> dict[str, Any]:
    """Return where every request stands and what every session holds."""
    mark = _flag_of if engine.profile.marks_are_flags else FinishReason.as_dict
    batches = engine.batches
    in_batches = [(request, "decoding") for request in batches.running.requests]
    in_batches += [(request, "prefilled") for request in batches.prefilled()]
    return {
        "waiting": [_waiting(engine, request, mark) for request in engine.queue.requests],
        "running": [
            {"rid": request.rid, "out": request.output, "state": state, **_mark(request, mark)}
            for request, state in in_batches
            if request.finished is None
        ],
        "lingering": [request.rid for request, _ in in_batches if request.finished is not None],
        "batch_is_full": batches.running.full,
        "sessions": {session.id: _session(session, engine.profile) for session in engine.controller.sessions.values()},
    }


def _waiting(engine: Engine, request: Request, mark: Callable[[FinishReason], dict[str, Any]]) -> dict[str, Any]:
    digest: dict[str, Any] = {"rid": request.rid, "input_len": request.prompt.length}
    if engine.config.enable_priority_scheduling:
        digest["priority"] = request.priority
    if request.output:
        digest["out"] = request.output
    if request.retracted:
        digest["retracted"] = True
    return digest | _mark(request, mark)


def _mark(request: Request, mark: Callable[[FinishReason], dict[str, Any]]) -> dict[str, Any]:
    return {} if request.mark is None else {"to_finish": mark(request.mark)}


def _flag_of(reason: FinishReason) -> dict[str, Any]:
    """Return a mark as the flag pair shows it: the text of a plain abort is made up only when it ends the request.

    A refused stub has no flag but its reason from birth.
    """
    return reason.as_dict() if reason.error_type == BAD_REQUEST else {"type": "abort", "message": None}


def _session(session: Session, profile: Profile) -> dict[str, Any]:
    digest: dict[str, Any] = {"nodes": [_node(node) for node in session.nodes.values()]}
    if profile.has_reaper:
        digest |= {"streaming": session.streaming, "timeout": session.timeout, "last_active": session.last_active}
    if profile.tracks_inflight:
        digest |= {"inflight": session.inflight, "close_on_finish": session.close_on_finish}
    return digest


def _node(node: Node) -> dict[str, Any]:
    request = node.request
    digest: dict[str, Any] = {
        "rid": request.rid,
        "parent": None if node.parent is None else node.parent.request.rid,
        "state": "unfinished" if request.finished is None else f"finished:{request.finished.kind}",
    }
    return digest | ({"to_finish": True} if request.mark is not None else {})


def outcome_digest(outcome: Outcome, operation: str, engine: Engine) -> dict[str, Any]:
    """Return an outcome as transcripts write it. `operation` decides how batches are shown."""
    digest: dict[str, Any] = {"messages": outcome.messages, "logs": [list(line) for line in outcome.logs]}
    if outcome.crash is not None:
        crash = outcome.crash
        return digest | {"crash": {"layer": "lifecycle", "type": crash.kind, "message": crash.text}}
    if outcome.built is not None:
        rejected = outcome.built.rejected
        digest["built"] = {
            "input_len": outcome.built.input_length,
            "rejected": None if rejected is None else rejected.as_dict(),
        }
    if outcome.noop:
        digest["noop"] = True
    elif outcome.batches:
        batches = [None if ran is None else _batch(ran) for ran in outcome.batches]
        if operation in MANY_BATCHES:
            digest["batches"] = batches
        else:
            digest["batch"] = batches[0]
    return digest | {"state": state_digest(engine)}


MANY_BATCHES = frozenset({"step", "settle", "finish"})
"""Operations that list their batches; the others ran one at most."""


def _batch(ran: RanBatch) -> dict[str, Any]:
    return {"mode": ran.mode, "rids": list(ran.rids)}
