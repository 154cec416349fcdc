"""How a request joins its session: the checks in SGLang's order, and the prompt that comes out.

`Session.create_req` in `session_controller.py`, and the branch of `Scheduler.handle_generate_request` before it.
"""

from __future__ import annotations

from collections.abc import Callable

from sglang_lifecycle.replay.journal import ROOT, SCHEDULE_BATCH, Journal, SchedulerCrash
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import Arrival, Request, SessionParams, Tokens
from sglang_lifecycle.replay.sessions import Node, Session

UNKNOWN_RID = "Invalid request session id"
EMPTY_TURN = "A session request must contain input tokens after restoring history."

STREAMING_CHECKS: tuple[tuple[Callable[[Session, SessionParams], bool], str], ...] = (
    (lambda session, _: session.inflight, "Streaming session already has an active request."),
    (lambda _, params: params.replace, "Streaming sessions do not support replace."),
    (lambda _, params: params.drop_previous_output, "Streaming sessions do not support drop_previous_output."),
    (lambda _, params: bool(params.offset), "Streaming sessions do not support offset."),
)
"""Asked in this order; the first that holds refuses the turn."""


def build_request(
    arrival: Arrival, sessions: dict[str, Session], profile: Profile, now: float, journal: Journal
) -> Request:
    """Return the request that an arrival becomes: an ordinary one, a turn of its session, or a refused stub.

    Raises SchedulerCrash where SGLang dies of the request.
    """
    params = arrival.session
    if params is None:
        return Request(arrival.rid, Tokens(arrival.length), arrival.max_new_tokens, arrival.priority)
    session = sessions.get(params.id)
    if session is not None and not session.close_on_finish:
        return _create_turn(session, params, arrival, profile, now, journal)
    priority = arrival.priority if profile.stubs_carry_priority else None
    request = Request(arrival.rid, Tokens(arrival.length), arrival.max_new_tokens, priority)
    _refuse(
        request,
        f"Invalid request: session id {params.id} does not exist"
        if session is None
        else f"Invalid request: close was requested for session {params.id}",
        journal,
    )
    return request


def _create_turn(
    session: Session, params: SessionParams, arrival: Arrival, profile: Profile, now: float, journal: Journal
) -> Request:
    if profile.session_request_crash is not None:
        raise SchedulerCrash("AttributeError", profile.session_request_crash)
    if profile.refused_turn_counts_as_activity:
        session.last_active = now
    parent, error = _parent(session, params, profile, journal)
    prompt = _prompt(session, params, arrival, parent, profile)
    if error is None and prompt.length == 0 and profile.refuses_empty_turn:
        error = EMPTY_TURN
    priority = arrival.priority if profile.turns_carry_priority else None
    request = Request(arrival.rid, prompt, arrival.max_new_tokens, priority, session)
    if error is not None:
        _refuse(request, error, journal)
        return request
    session.last_active = now
    if not session.streaming:
        session.nodes[arrival.rid] = Node.under(parent, request)
    elif profile.tracks_inflight:
        session.inflight = True  # the node follows when the turn has ended well
    else:
        session.nodes = {arrival.rid: Node(request)}
    return request


def _parent(
    session: Session, params: SessionParams, profile: Profile, journal: Journal
) -> tuple[Node | None, str | None]:
    """Return the node that the turn continues and, where the turn is refused, the text.

    `replace` acts here and now: what it names is marked, and the branch below is cleared.
    """
    if session.streaming:
        error = next((text for holds, text in STREAMING_CHECKS if holds(session, params)), None)
        return (None if error else next(iter(session.nodes.values()), None)), error
    if params.rid is None:
        if params.replace:
            session.clear_all()
        return None, None
    node = session.nodes.get(params.rid)
    if node is None:
        return None, UNKNOWN_RID
    if params.replace:
        node.abort()
        node.clear_children(session.nodes)
        return node, None
    if node.request.finished is None:
        journal.log(ROOT, "WARNING", profile.unfinished_parent_warning)
        return node, profile.unfinished_parent_error
    return node, None


def _prompt(session: Session, params: SessionParams, arrival: Arrival, parent: Node | None, profile: Profile) -> Tokens:
    if parent is None:
        return Tokens(arrival.length)
    if arrival.length == 0 and profile.empty_append_crashes:
        raise SchedulerCrash("IndexError", "list index out of range")
    new = arrival.length - (1 if arrival.bos and arrival.length else 0)
    last = parent.request
    answer = min(last.output, last.max_new_tokens)
    if session.streaming and session.confirmed is not None and profile.shares_token_arrays:
        # The array of the previous turn is cut back to what that turn confirmed and then grown in place.
        last.prompt.length = min(last.prompt.length, session.confirmed) + answer + new
        return last.prompt
    history = last.prompt.length + (0 if params.drop_previous_output else answer)
    if params.offset:
        history = len(range(history)[: params.offset])
    return Tokens(history + new)


def _refuse(request: Request, message: str, journal: Journal) -> None:
    request.refuse(message)
    journal.log(SCHEDULE_BATCH, "ERROR", f"{message}, self.rid={request.rid!r}")
