"""Step 4 of the debugging order: for a session request, was its session there, and the rid it refers to valid?

Rules of `managers/session_controller.py` / `session/session_controller.py:Session.create_req`; the texts and what
each hides differ by era (0.3.6 to 0.5.23).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from sglang_lifecycle.analyzers import session_marks
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import (
    ABORT_FINISHES,
    OPEN_TOLD,
    PARENT_REFUSED_SILENTLY,
    UNFINISHED_PARENT_TOLD,
)
from sglang_lifecycle.analyzers.finding import Cause, Finding, undecided
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.analyzers.spans import near
from sglang_lifecycle.analyzers.texts import QUEUE_ENDS, REFUSALS
from sglang_lifecycle.parsers.evidence import Event, Fact


def resolve(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """Why a session refused a request. `said` is the fact that carries the refusal's text."""
    finding = _RULES[said.message_id or ""](scene, attempt, said)
    finding.stage = "before-scheduler"
    finding.http_status = None if attempt.stream else said.status_code
    return finding


def _session(attempt: Attempt, said: Fact) -> str | None:
    return attempt.session_id or said.session_id


def _last(scene: Scene, session_id: str, before: int, *events: Event) -> Fact | None:
    found = [f for o, f in scene.about_session(session_id, *events) if o < before]
    return found[-1] if found else None


def _over(scene: Scene, session_id: str, before: int, event: Event) -> Fact | None:
    """The last time that a session was closed or expired, if nothing shows it open again since."""
    fact = _last(scene, session_id, before, event)
    if fact is None:
        return None
    place = scene.places[id(fact)]
    opened = _last(scene, session_id, before, Event.SESSION_OPENED)
    again = opened is not None and scene.places[id(opened)] > place
    served = _served(scene).get(session_id, [])
    later = served[bisect_right(served, place, key=_order) : bisect_left(served, before, key=_order)]
    used = any(_after(fact, turn) for turn in later)
    return None if again or used else fact


def _after(fact: Fact, turn: Attempt) -> bool:
    """Whether a turn came later than something happened, and not in the same second."""
    came = turn.received.at if turn.received is not None else None
    return came is not None and fact.at is not None and came - fact.at > _AT_ONCE


def _unknown(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """`session id X does not exist`: never opened here, closed, expired, or on another rank."""
    session = _session(attempt, said)
    if session is None:
        return undecided("Its session did not exist.", [(c, "the request log") for c in _GONE], [said])
    seen = _Seen.of(scene, attempt, said, session)
    rules = (_closed_before_expired, _close_begun, _expired_elsewhere, _expired, _was_closed, _opened_elsewhere)
    return next((found for rule in rules if (found := rule(seen)) is not None), None) or _never_seen_open(seen)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the lines before a request say of its session, which was not there."""

    scene: Scene
    attempt: Attempt
    said: Fact
    session: str
    before: int
    """The place at which it was refused."""
    opened: Fact | None
    reaped: Fact | None
    newest: Fact | None
    """The last line that says that it was closed or had expired, if none opens it after that."""
    begun: Fact | None
    """How that end began."""

    @classmethod
    def of(cls, scene: Scene, attempt: Attempt, said: Fact, session: str) -> _Seen:
        lines = attempt.of(Event.REQUEST_REJECTED)  # the scheduler's own line is what its session lines precede
        places = scene.places
        before = places[id(lines[0] if lines else attempt.received or said)]
        opened = _last(scene, session, before, Event.SESSION_OPENED)
        reaped = _over(scene, session, before, Event.SESSION_REAPED)
        closed = _over(scene, session, before, Event.SESSION_CLOSED)
        newest = max((f for f in (reaped, closed) if f is not None), key=lambda f: places[id(f)], default=None)
        if opened is not None and newest is not None and places[id(newest)] < places[id(opened)]:
            newest = None
        begun = _begun(scene, session, places[id(newest)]) if newest is not None else None
        return cls(scene, attempt, said, session, before, opened, reaped, newest, begun)


def _closed_before_expired(seen: _Seen) -> Finding | None:
    """A close that is not the one to which the expiry led."""
    scene, session, reaped = seen.scene, seen.session, seen.reaped
    over = _over(scene, session, scene.places[id(reaped)], Event.SESSION_CLOSED) if reaped is not None else None
    if over is None or reaped is None or over.rank != reaped.rank or _same_close(reaped, over):
        return None
    return _closed(scene, f"Session {session!r} had been closed, and what is closed can't expire.", over, seen.said)


def _close_begun(seen: _Seen) -> Finding | None:
    """A close that had to wait for a turn."""
    if seen.begun is None or seen.begun.event is not Event.SESSION_CLOSE_DEFERRED:
        return None
    text = f"Session {seen.session!r} had been closed before this request came."
    return _closed(seen.scene, text, seen.begun, seen.said)


def _expired_elsewhere(seen: _Seen) -> Finding | None:
    """It expired on this rank, and is served on another."""
    if seen.reaped is None or seen.newest is None:
        return None
    elsewhere = _served_elsewhere(seen.scene, seen.attempt, seen.session)
    if elsewhere is None:
        return None
    text = f"Session {seen.session!r} had expired on the DP rank that got this request; its turns run on another."
    finding = Finding("session-misrouted", "likely", text, [seen.reaped, *elsewhere, seen.said])
    finding.candidates.append(("session-reaped", "dp_rank of the session's other turns"))
    return finding


def _expired(seen: _Seen) -> Finding | None:
    """It expired, and what closes it then is no call."""
    if seen.reaped is None or seen.newest is None:
        return None
    if seen.begun is None and not _same_close(seen.reaped, seen.newest):
        return None
    session, first = seen.session, seen.begun or seen.reaped
    text = f"Session {session!r} had expired by inactivity before this request came."
    finding = Finding("session-reaped", "proven", text, [first, seen.said])
    finding.chain.append(Cause("session-reaped", f"session {session!r} timed out", [first]))
    if _opened_unseen(seen.scene, seen.reaped, seen.said):
        finding.soften(("session-closed", "the caller's log: which session it opened and closed since"))
    return finding


def _was_closed(seen: _Seen) -> Finding | None:
    if seen.newest is None:
        return None
    text = f"Session {seen.session!r} had been closed before this request came."
    return _closed(seen.scene, text, seen.newest, seen.said)


def _served_elsewhere(scene: Scene, attempt: Attempt, session: str) -> list[Fact] | None:
    """The newest end of a turn that its session served, where all of them ran on another DP rank than this one."""
    served = [turn for turn in _served(scene).get(session, ()) if turn is not attempt]
    reaped = {_DP.sub(r"\1", fact.rank or "") for _, fact in scene.about_session(session, Event.SESSION_REAPED)}
    if len(reaped) > 1:
        return None  # it expired on several
    if not served or any(_other_rank(attempt, turn) is None for turn in served):
        return None
    return [turn.finish for turn in served[-1:] if turn.finish is not None]


def _opened_unseen(scene: Scene, over: Fact, said: Fact) -> bool:
    """Whether a session may have been opened again after it was over.

    Up to 0.5.10 only an access line shows it; later `session/session_controller.py:SessionController.open` does.
    """
    if scene.release.has(OPEN_TOLD) or over.at is None or said.at is None:
        return False
    calls = scene.calls_between("open", over.at - _AT_ONCE, said.at + _AT_ONCE)
    return any(call.fact.detail.get("http_status") == 200 for call in calls)


_AROUND = 400  # facts before and after a refusal among which its warning is looked for
_AT_ONCE = 1.0  # seconds: the resolution of two stamps of one moment
_ENDS_OF_SESSION = (
    Event.SESSION_OPENED, Event.SESSION_REAPED, Event.SESSION_CLOSE_DEFERRED, Event.SESSION_CLOSED
)  # fmt: skip
_DP = re.compile(r".*(DP\d+).*")
_GONE = ("session-unknown", "session-closed", "session-reaped")
_ONE_CLOSE = 2.0  # seconds from a session's "timed out, closing" to the lines of that same close


def _same_close(reaped: Fact, closed: Fact) -> bool:
    """Whether a close is what an expiry led to."""
    return near(reaped, closed, _ONE_CLOSE) is not False


def _closed(scene: Scene, text: str, close: Fact, said: Fact) -> Finding:
    """An expiry closes a session by the same lines as a call: that no line tells of one proves nothing."""
    at = close.at
    calls = scene.calls_between("close", at - _ONE_CLOSE, at + _ONE_CLOSE) if at is not None else []
    finding = Finding("session-closed", "likely", text, [*[c.fact for c in calls[:1]], close, said])
    finding.candidates.append(("session-reaped", "the scheduler's line `Session … timed out, closing.` at the close"))
    return finding


def _opened_elsewhere(seen: _Seen) -> Finding | None:
    """It was opened, and no line ends it."""
    if seen.opened is None:
        return None
    session, lines = seen.session, [seen.opened, seen.said]
    ranks = seen.scene.life.args.get("dp_size")
    if isinstance(ranks, int) and ranks > 1:
        text = f"Session {session!r} was open, but not on the rank that got this request ({ranks} DP ranks)."
        return Finding("session-misrouted", "likely", text, lines)
    candidates = [
        ("session-closed", "the lines between its opening and this request"),
        ("session-misrouted", "dp_size"),
    ]
    return undecided(f"Session {session!r} was opened and no line closes it.", candidates, lines)


def _never_seen_open(seen: _Seen) -> Finding:
    """No line opens it. From 0.5.11 on an open writes one; before, only its use shows that it was there."""
    scene, attempt, said, session = seen.scene, seen.attempt, seen.said, seen.session
    served = _served(scene).get(session, [])
    before = bisect_left(served, seen.before, key=_order)
    used = next((turn for turn in reversed(served[max(0, before - 2) : before]) if turn is not attempt), None)
    if used is not None:
        lines = [f for f in (used.finish, said) if f is not None]
        start, end = used.received_at, attempt.received_at
        closes = scene.calls_between("close", start or 0.0, (end or 0.0) + 1.0) if start and end else []
        if closes:
            text = f"Session {session!r} served {used.rid!r} before; a /close_session call came in between."
            finding = Finding("session-closed", "likely", text, [lines[0], closes[-1].fact, said])
            finding.candidates.append(("session-reaped", "the scheduler's own lines: it names a session it reaps"))
            return finding
        text = f"Session {session!r} served {used.rid!r} before and was gone when this request came."
        return undecided(text, [(c, "the access log and the scheduler's lines in between") for c in _GONE[1:]], lines)
    finding = Finding("session-unknown", "likely", f"No line of this server opens session {session!r}.", [said])
    if not scene.release.has(OPEN_TOLD):
        finding.missing.append("a line at every open: SGLang writes one from 0.5.11 on")
    finding.candidates += [(c, "the server's whole log, from its start on") for c in _GONE[1:]]
    return finding


def old_refusal(scene: Scene, attempt: Attempt) -> Finding | None:
    """A refused parent rid of 0.4.2 to 0.4.8: the text is that of an abort, and the whole prompt is prefilled first.

    `managers/session_controller.py:Session.create_req` marks the request and gives it no text. Told by what such an end
    looks like: a session request with a parent rid that stops at its first token.
    """
    finish = attempt.finish
    if finish is None or attempt.parent_rid is None or not scene.release.has(PARENT_REFUSED_SILENTLY):
        return None
    if (finish.completion_tokens or 0) > 1:
        return None
    finding = _parent_invalid(scene, attempt, finish)
    if finding.cause == "session-parent-unknown" and _parent(scene, attempt) is not None:
        return None
    finding.soften()
    if scene.release.may_have(ABORT_FINISHES):
        finding.admit("explicit-abort", "the access log: a call of /abort_request (0.4.7 on)")
    return finding


@per_scene
def _served(scene: Scene) -> dict[str, list[Attempt]]:
    """The turns of each session that it accepted for certain, in the order of their arrival."""
    return {session: list(filter(_accepted, turns)) for session, turns in scene.sessions.items()}


def _order(turn: Attempt) -> int:
    return turn.order


def _accepted(turn: Attempt) -> bool:
    """Whether a turn ran to an end, or was cut while it ran."""
    finish = turn.finish
    if finish is None or turn.of(Event.REQUEST_REJECTED):
        return False
    return finish.finish_type != "abort" or finish.message_id in ("aborted", "running_timeout")


def _closing(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """`close was requested`: a close or an expiry waits for the running turn (0.5.11 on)."""
    session = _session(attempt, said) or ""
    before = scene.places[id(said)]
    reaped = _over(scene, session, before, Event.SESSION_REAPED)
    deferred = _last(scene, session, before, Event.SESSION_CLOSE_DEFERRED)
    begun = _begun(scene, session, before)
    asked = begun is not None and begun.event is Event.SESSION_CLOSE_DEFERRED
    lines = [f for f in (begun or reaped or deferred, said) if f is not None]
    if reaped is not None and not asked:
        text = f"Session {session!r} had expired while one of its turns was still in flight."
        return Finding("session-reaped", "proven", text, lines)
    text = f"Session {session!r} was being closed while one of its turns was still in flight."
    return _closed(scene, text, lines[0], said)


def _begun(scene: Scene, session: str, before: int) -> Fact | None:
    """How an end of a session began that waits for a turn: what is being closed may expire, and the other way round.

    Both are told again until the turn ends, and then the session is closed (0.5.11 to 0.5.23).
    """
    first: Fact | None = None
    for place, fact in scene.about_session(session, *_ENDS_OF_SESSION):
        if place < before:
            waits = fact.event in (Event.SESSION_REAPED, Event.SESSION_CLOSE_DEFERRED)
            first = (first or fact) if waits else None
    return first


def _parent(scene: Scene, attempt: Attempt) -> Attempt | None:
    """The newest attempt of the rid that a turn refers to, in its session and before it."""
    turns = scene.by_rid.get(attempt.parent_rid or "", ())
    earlier = [a for a in turns if a.session_id == attempt.session_id and a.order < attempt.order]
    return earlier[-1] if earlier else None


def _parent_invalid(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """`Invalid request session id`: the parent is not in the tree, or, up to 0.5.9, had not finished.

    `managers/session_controller.py:Session.create_req`, from 0.5.11 on `session/session_controller.py`.
    """
    warning = _warning(scene, attempt, said)
    if warning is not None and not scene.release.has(UNFINISHED_PARENT_TOLD):
        return _unfinished(scene, attempt, warning, said)
    name = attempt.parent_rid or said.parent_rid
    parent = _parent(scene, attempt)
    elsewhere = _other_rank(attempt, parent)
    if elsewhere is not None and parent is not None and parent.finish is not None:
        text = f"The rid that it refers to, {name!r}, lives on another DP rank ({elsewhere})."
        finding = Finding("session-misrouted", "likely", text, [parent.finish, said])
        finding.chain.append(Cause("session-misrouted", f"{name!r} ran on another rank", [parent.finish], rid=name))
        return finding
    text = f"The rid that it refers to, {name!r}, is not in the session" if name else "Its session has no such rid"
    unambiguous = scene.release.has(UNFINISHED_PARENT_TOLD)
    if parent is None:
        why, sure = ": this server never accepted it there.", unambiguous and scene.life.args.get("dp_size") == 1
    elif parent.finish is not None and parent.finish.message_id in REFUSALS:
        why, sure = f": {name!r} had itself been refused.", unambiguous
    else:
        why, sure = ": it was cleared by a replace, or ran on another rank.", False
    lines = [f for f in (attempt.received, said) if f]
    finding = Finding("session-parent-unknown", "proven" if sure else "likely", text + why, lines)
    if not sure:
        finding.candidates.append(("session-misrouted", "dp_rank of both requests"))
        if not unambiguous:
            finding.candidates.append(("session-parent-unfinished", "the scheduler's warning, which precedes it"))
    if parent is not None and parent.finish is not None:
        finding.chain.append(Cause("session-parent-unknown", f"what became of {name!r}", [parent.finish], rid=name))
    return finding


def _other_rank(attempt: Attempt, parent: Attempt | None) -> str | None:
    """The DP ranks of a parent and its child where they differ, as `0, not 1` (meta_info has them from 0.5.10 on)."""
    finishes = [a.finish for a in (parent, attempt) if a is not None and a.finish is not None]
    ranks = [f.detail.get("dp_rank") for f in finishes]
    if len(ranks) < 2 or None in ranks or ranks[0] == ranks[1]:
        return None
    return f"{ranks[0]}, not {ranks[1]}"


def _warning(scene: Scene, attempt: Attempt, said: Fact) -> Fact | None:
    """The warning about an unfinished parent that precedes a refusal: the next refusal of its rank is the one meant."""
    refusal = next(iter(attempt.of(Event.REQUEST_REJECTED)), None)
    place = scene.places[id(refusal or said)]
    around = scene.life.facts[max(0, place - _AROUND) : place + (0 if refusal is not None else _AROUND)]
    for fact in reversed(around):
        if refusal is not None and fact.event is Event.REQUEST_REJECTED and fact.rank == refusal.rank:
            return None
        if fact.event is Event.SESSION_APPEND_REFUSED and _meant(fact, said, attempt):
            return fact
    return None


def _meant(fact: Fact, said: Fact, attempt: Attempt) -> bool:
    """Whether a warning without a rid belongs to a refusal: the scheduler writes both at once, at the arrival."""
    lines = attempt.of(Event.REQUEST_REJECTED)
    at_once = near(fact, lines[0], _AT_ONCE) if lines else None
    if at_once is not None:
        return at_once
    start = attempt.received_at if attempt.received_at is not None else said.at
    return fact.at is not None and start is not None and start - 1.5 <= fact.at <= start + 2.5


def _unfinished(scene: Scene, attempt: Attempt, warning: Fact | None, said: Fact) -> Finding:
    """The parent had not finished: it still ran, or it was dropped from a queue and never counts as finished."""
    parent = _parent(scene, attempt)
    name = attempt.parent_rid
    lines = [f for f in (warning, said) if f is not None]
    finding = Finding(
        "session-parent-unfinished",
        "proven",
        f"It appends to {name!r}, which had not finished."
        if name
        else "It appends to a request that had not finished.",
        lines,
    )
    if parent is not None and parent.finish is not None and (parent.finish_order or 0) < attempt.order:
        ended = parent.finish.message_id or parent.finish.finish_type
        if parent.finish.message_id in QUEUE_ENDS:
            text = f"{name!r} had been dropped from the queue ({ended}); the session never counts it as finished"
            finding.chain.append(Cause(QUEUE_ENDS[parent.finish.message_id], text, [parent.finish], rid=name))
        else:
            finding.doubt(f"{name!r} has a Finish before this request came")
    elif parent is not None and parent.received is not None:
        finding.chain.append(
            Cause("session-parent-unfinished", f"{name!r} was still in flight", [parent.received], rid=name)
        )
    elif warning is not None:  # which names nobody
        finding.soften(("session-parent-unknown", f"the records of {name!r}"))
    return finding


def _mode(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    text = f"Its session streams, and streaming sessions refuse what it asked for: {said.finish_message}"
    return Finding("session-mode-unsupported", "proven", text, [f for f in (attempt.received, said) if f])


def _empty(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    return Finding("session-empty-input", "proven", "After its history there was nothing to generate from.", [said])


_RULES = {
    "session_unknown": _unknown,
    "session_closing": _closing,
    "session_parent_unknown": _parent_invalid,
    "session_parent_invalid": _parent_invalid,
    "session_parent_unfinished": lambda scene, attempt, said: _unfinished(scene, attempt, None, said),
    "session_busy": session_marks.resolve,
    "session_mode": _mode,
    "session_empty": _empty,
}


def describe(scene: Scene, attempt: Attempt) -> tuple[str, list[Fact]]:
    """The finding of step 4, and its lines."""
    if attempt.session_id is None:
        return "not a session request: it refers to no rid", []
    if attempt.parent_rid is None:
        return "it refers to no rid", []
    parent = _parent(scene, attempt)
    if parent is None:
        return f"{attempt.parent_rid!r} was not seen in session {attempt.session_id!r}", []
    if parent.finish is None:
        lines = [parent.received] if parent.received is not None else []
        return f"{attempt.parent_rid!r} was received before and has no Finish", lines
    state = parent.finish.message_id or parent.finish.finish_type or "ended"
    when = "had finished before" if (parent.finish_order or 0) < attempt.order else "had not finished yet"
    return f"{attempt.parent_rid!r} {when} ({state.replace('_', ' ')})", [parent.finish]
