"""What a log shows of one session, as steps with the places between which each happened.

A `Receive` is written before the scheduler has the request and a `Finish` after the scheduler has let it go; the
scheduler's own lines stand where they happened. A call of `/close_session` names no session, so up to 0.5.10, where
closing writes no line of its own, it may have been any session's.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.texts import ECHOES, REFUSALS
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.replay.ends import canonical
from sglang_lifecycle.replay.hypotheses import Step
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import SessionParams
from sglang_lifecycle.replay.worlds import Kind, Turn

DELAY = 1.0
"""Seconds between a line of the API server and the scheduler's deed that it is about, at most."""

_REFUSALS = frozenset(map(canonical, REFUSALS))
_CLOSES = {
    Event.SESSION_CLOSED: Kind.CLOSE,
    Event.SESSION_CLOSE_DEFERRED: Kind.CLOSE,
    Event.SESSION_REAPED: Kind.REAP,
    Event.SESSION_CLOSE_READY: Kind.READY,
}


def unknown(scene: Scene, attempt: Attempt) -> str:
    """Why the state of an attempt's session can't be told; empty where it can."""
    if attempt.session_id is None:
        return "no record says which session it belongs to"
    ranks = scene.life.args.get("dp_size")
    if isinstance(ranks, int) and ranks > 1:
        return "every DP rank has sessions of its own, and no line says which rank got which turn"
    if not scene.life.of(Event.SERVER_ARGS, Event.SERVER_READY):
        return "the log does not show the start of the server, whose sessions may be older"
    if attempt.received is None:
        return "its Receive is not in the logs"
    return ""


def steps(scene: Scene, profile: Profile, session: str) -> list[Step]:
    """Everything that the log shows of a session."""
    turns = [attempt for attempt in scene.sessions.get(session, ()) if attempt.received is not None]
    found = [*_lines(scene, session), *_unwritten(scene, profile, session, turns)]
    for index, attempt in enumerate(turns):
        found += _turn(scene, attempt, turns[index + 1 :])
    return found


def _lines(scene: Scene, session: str) -> Iterator[Step]:
    """What the scheduler's own lines say of a session."""
    reaped = False
    for place, fact in scene.about_session(session, Event.SESSION_OPENED, *_CLOSES):
        kind = _CLOSES.get(fact.event, Kind.OPEN)
        reaped = kind is Kind.REAP or (reaped and kind is not Kind.OPEN)
        # What follows an expiry is its own closing, put off or not; nobody asked for another.
        yield Step(Kind.REAP if reaped and kind is Kind.CLOSE else kind, place, place)


def _unwritten(scene: Scene, profile: Profile, session: str, turns: Sequence[Attempt]) -> Iterator[Step]:
    """Opens and closes that write no line (up to 0.5.10): anywhere that a call allows."""
    if profile.logs_session_life and scene.life.of(Event.SESSION_OPENED):
        return
    if not turns or scene.about_session(session, Event.SESSION_OPENED):
        return
    yield Step(Kind.OPEN, turns[0].order - 0.5, turns[0].order - 0.5, optional=True)
    for before, after in pairwise(turns):
        here = after.order - 0.5
        for kind, name in ((Kind.CLOSE, "close"), (Kind.OPEN, "open")):
            orders = scene.call_orders.get(name, [])
            if bisect.bisect_left(orders, after.order) > bisect.bisect_right(orders, before.order):
                yield Step(kind, here, here, optional=True)
                here += 0.25


def _turn(scene: Scene, attempt: Attempt, later: Sequence[Attempt]) -> Iterator[Step]:
    record = attempt.received
    assert record is not None
    tokens = int(record.detail.get("prompt_ids") != 0)
    turn = Turn(attempt.order, attempt.rid, params(attempt, record), tokens, _answered(attempt))
    last = _latest(scene, attempt, record)
    yield Step(Kind.ARRIVE, attempt.order, last, turn)
    finish, end = attempt.finish, attempt.finish_order
    if finish is not None and end is not None:
        first = scene.place_at(finish.at - DELAY - (finish.at_error or 0.0)) if finish.at is not None else 0
        yield Step(_kind(finish), min(end, max(attempt.order, first)), end, turn)
        return
    for other in later[:3]:  # its client may have left at any time: it is gone, or it runs on for nobody
        for kind in (Kind.DROP, Kind.CUT):
            yield Step(kind, other.order - 0.75, other.order - 0.75, turn, optional=True)


def params(attempt: Attempt, record: Fact) -> SessionParams:
    """What a turn asked of its session, by the record that began it."""
    return SessionParams(
        attempt.session_id or "",
        attempt.parent_rid,
        bool(record.detail.get("replace")),
        record.detail.get("offset"),
        bool(record.detail.get("drop_previous_output")),
    )


def _latest(scene: Scene, attempt: Attempt, record: Fact) -> float:
    """The last place at which the scheduler can have got a request."""
    bounds = [scene.places[id(f)] for f in attempt.of(Event.REQUEST_REJECTED)]
    if attempt.finish_order is not None:
        bounds.append(attempt.finish_order)
    if record.at is not None:
        after = scene.place_at(record.at + (record.at_error or 0.0) + DELAY)
        bounds.append(max(after - 1, attempt.order))
    return max(min(bounds, default=attempt.order), attempt.order)


def _kind(finish: Fact) -> Kind:
    if finish.finish_type != "abort":
        return Kind.FINISH
    return Kind.DROP if finish.finish_shape in ECHOES else Kind.CUT


def _answered(attempt: Attempt) -> str | None:
    """What the log says of a turn's arrival, in the terms of `Turn`."""
    said = [*attempt.of(Event.REQUEST_REJECTED), *([attempt.finish] if attempt.finish is not None else [])]
    messages = [canonical(fact.message_id) for fact in said]
    refusal = next((message for message in messages if message in _REFUSALS), None)
    if refusal is not None:
        return refusal
    finish = attempt.finish
    if finish is None:
        return None
    ran = finish.finish_type != "abort" or canonical(finish.message_id) == "running_timeout"
    return "" if ran or finish.message_id == "aborted" else None


def served(attempt: Attempt) -> bool:
    """Whether a session accepted a turn for certain."""
    return _answered(attempt) == ""


def refused(attempt: Attempt) -> str | None:
    """The id of the text by which a session refused a turn."""
    return _answered(attempt) or None


def in_flight(scene: Scene, begins: Sequence[int], ends: Sequence[int], attempt: Attempt) -> int:
    """How many requests were in flight, at most, when an attempt reached the scheduler.

    `begins` and `ends` are the places of all `Receive` and `Finish` lines.
    """
    record = attempt.received
    at = record.at if record is not None else None
    if at is None or record is None:
        return len(begins)
    slack = (record.at_error or 0.0) + DELAY
    last, first = scene.place_at(at + slack), scene.place_at(at - slack)
    return bisect.bisect_left(begins, max(last, attempt.order + 1)) - bisect.bisect_left(
        ends, min(first, attempt.order)
    )
