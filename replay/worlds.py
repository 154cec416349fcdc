"""One way in which a session may have gone: an engine with that session alone, and what the log says happened to it.

Only what matters to a session is replayed. When its turns were admitted and when they ended is taken from the log.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from sglang_lifecycle.replay.digest import state_digest
from sglang_lifecycle.replay.ends import message_id
from sglang_lifecycle.replay.engine import Engine
from sglang_lifecycle.replay.requests import BAD_REQUEST, Arrival, Request, SessionParams
from sglang_lifecycle.replay.sessions import Node

SECOND = 2.0
"""Seconds by which the engine's clock moves when the log shows that the reaper ran; else it stands still."""

ENDLESS = 1 << 62
"""A limit of output tokens that is never reached: the log says when a request ended."""


SESSION = "s"


class Kind(Enum):
    """What can happen to a session."""

    OPEN = "open"
    CLOSE = "close"
    REAP = "reap"
    """It expired: like a close, but nobody asked for it."""
    READY = "ready"
    """The reaper took up a close that had been put off."""
    ARRIVE = "arrive"
    FINISH = "finish"
    """A turn ran to an end of its own."""
    CUT = "cut"
    """A turn ended in a batch by a mark, or was answered as a refused stub."""
    DROP = "drop"
    """A turn left the waiting queue without ever being in a batch again."""


ENDS = frozenset({Kind.FINISH, Kind.CUT, Kind.DROP})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a session says to an arriving turn; accepting it is the answer without a message."""

    cause: str = ""
    message: str | None = None


ACCEPTED = Answer()


@dataclass(frozen=True, slots=True)
class Turn:
    """A request to the session. `key` tells two of the same rid apart.

    `answered` is what the log says of its arrival: the id of the refusal's text, "" where it was accepted for certain,
    None where the log does not tell.
    """

    key: int
    rid: str
    params: SessionParams
    length: int = 1
    answered: str | None = None

    def fits(self, answer: Answer) -> bool:
        """Whether the log allows this answer."""
        return self.answered is None or self.answered == (answer.message or "")


@dataclass(slots=True, eq=False)
class World:
    """An engine in which one session has gone one of its possible ways."""

    engine: Engine
    streaming: bool
    gone: str = "session-unknown"
    """The cause that a turn meets while the session is not there, or is about to go."""
    marks: dict[str, str] = field(default_factory=dict)
    """The cause of each mark that a replace left, by rid."""
    clock: float = 0.0
    dead: bool = False
    """The scheduler crashed."""

    def copy(self) -> World:
        """An equal world that goes its own way from here."""
        return replace(self, engine=_copied(self.engine, self.nodes()), marks=dict(self.marks))

    def nodes(self) -> list[Node]:
        """Every node of the session's tree, with those that hang on one although the session has let them go."""
        session = self.engine.controller.sessions.get(SESSION)
        found = {id(node): node for node in session.nodes.values()} if session is not None else {}
        left = list(found.values())
        while left:
            node = left.pop()
            for other in (*node.children, *([node.parent] if node.parent is not None else [])):
                if id(other) not in found:
                    found[id(other)] = other
                    left.append(other)
        return list(found.values())

    def key(self) -> str:
        """What two worlds have in common that can't be told apart any more."""
        return repr((state_digest(self.engine), self.gone, self.marks, self.streaming, self.dead))

    def session(self, kind: Kind) -> None:
        """Open or close the session, or let the reaper see to it."""
        there = SESSION in self.engine.controller.sessions
        if kind is Kind.OPEN and not there:
            self.engine.open(self.clock, SESSION, self.streaming)
        elif kind in (Kind.CLOSE, Kind.REAP) and there:
            self.gone = "session-reaped" if kind is Kind.REAP else "session-closed"
            self.engine.close(self.clock, SESSION)
        elif kind is Kind.READY:
            self.clock += SECOND
            self.engine.reap(self.clock)

    def arrive(self, turn: Turn) -> Answer:
        """Bring a turn to the session."""
        engine = self.engine
        busy = any(request.session is not None for request in _alive(engine))
        marked = {request.rid for request in _alive(engine) if request.mark is not None}
        params = replace(turn.params, id=SESSION)
        outcome = engine.arrive(self.clock, Arrival(turn.rid, turn.length, ENDLESS, session=params))
        if outcome.crash is not None:
            self.dead = True
            return Answer("scheduler-crash", "crash")
        for request in _alive(engine):
            if request.mark is not None and request.rid not in marked and request.rid != turn.rid:
                named = request.rid == turn.params.rid
                self.marks[request.rid] = "session-replaced" if named else "session-branch-cleared"
        refused = outcome.built.rejected if outcome.built is not None else None
        if refused is None:
            return ACCEPTED
        message = message_id(refused.message or "")
        unfinished = any(text == engine.profile.unfinished_parent_warning for _, _, text in outcome.logs)
        return Answer(self._cause(message, unfinished, busy), message)

    def _cause(self, message: str | None, unfinished: bool, busy: bool) -> str:
        if message in ("session_unknown", "session_closing"):
            return self.gone
        if message == "session_busy":
            return "session-busy" if busy else "session-stuck"
        if message == "session_parent_unknown":
            return "session-parent-unfinished" if unfinished else "session-parent-unknown"
        return _CAUSES.get(message or "", "")

    def end(self, rid: str, kind: Kind) -> bool:
        """End a turn as the log saw it; return whether this world allows it."""
        request = next((r for r in reversed(_alive(self.engine)) if r.rid == rid), None)
        if request is None:
            return True
        engine = self.engine
        waiting = any(other is request for other in engine.queue.requests)
        if kind is Kind.DROP:
            engine.abort(self.clock, rid)
            if not waiting:
                engine.step(self.clock)
            return True
        if kind is Kind.FINISH and request.mark is not None:
            return False  # a marked request cannot end well
        refused = request.mark is not None and request.mark.error_type == BAD_REQUEST
        if waiting:
            engine.admit(self.clock, rid)
        if request.finished is None:
            if kind is Kind.CUT and not refused:
                engine.abort(self.clock, rid)
            engine.step(self.clock, eos=(rid,))
        return True


def _copied(engine: Engine, nodes: Sequence[Node]) -> Engine:
    """A copy that shares nothing that can change. A long session's tree is too deep to be copied by recursion."""
    memo: dict[int, Any] = {id(engine.profile): engine.profile, id(engine.config): engine.config}
    memo |= {id(node): copy.copy(node) for node in nodes}
    for node in nodes:
        twin: Node = memo[id(node)]
        twin.parent = None if node.parent is None else memo[id(node.parent)]
        twin.children = [memo[id(child)] for child in node.children]
    for node in nodes:
        memo[id(node)].request = copy.deepcopy(node.request, memo)
    return copy.deepcopy(engine, memo)


_CAUSES = {
    "session_parent_unfinished": "session-parent-unfinished",
    "session_mode": "session-mode-unsupported",
    "session_empty": "session-empty-input",
}


def _alive(engine: Engine) -> list[Request]:
    return [r for r in (*engine.queue.requests, *engine.batches.requests()) if r.finished is None]
