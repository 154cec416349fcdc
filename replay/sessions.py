"""Sessions: their trees of requests, opening, closing, deferred closing and the reaper.

SGLang's `session_controller.py`. How a request joins a session is in `turns.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_lifecycle.replay.journal import Journal, SchedulerCrash
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import ABORTED, Request
from sglang_lifecycle.replay.streaming import SlotCache

REAP_INTERVAL = 1.0
"""Seconds that must have passed, strictly, between two runs of the reaper."""


@dataclass(slots=True, eq=False)
class Node:
    """A request in a session's tree (`SessionReqNode`)."""

    request: Request
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)

    @classmethod
    def under(cls, parent: Node | None, request: Request) -> Node:
        """Return a new node for `request`, made a child of `parent`."""
        node = cls(request, parent)
        if parent is not None:
            parent.children.append(node)
        return node

    def abort(self) -> None:
        """Mark the request for `Aborted` unless it has ended."""
        if self.request.finished is None:
            self.request.mark = ABORTED

    def clear(self, nodes: dict[str, Node]) -> None:
        """Abort this branch, leaves first, and delete its rids from `nodes`.

        Raises SchedulerCrash where a rid was used twice in the branch: its entry is gone at the second deletion.
        """
        for child in self.children:
            child.clear(nodes)
        self.abort()
        if self.request.rid not in nodes:
            raise SchedulerCrash("KeyError", repr(self.request.rid))
        del nodes[self.request.rid]

    def clear_children(self, nodes: dict[str, Node]) -> None:
        """Abort and delete every descendant; this node stays."""
        for child in self.children:
            child.clear(nodes)
        self.children = []


@dataclass(slots=True, eq=False)
class Session:
    """A session (`Session`). `timeout` is in seconds of inactivity; None means never."""

    id: str
    last_active: float
    streaming: bool = False
    timeout: float | None = None
    nodes: dict[str, Node] = field(default_factory=dict)
    """By rid, in the order in which the rids first appeared."""
    inflight: bool = False
    """A streaming session's turn is under way, as far as SGLang knows."""
    close_on_finish: bool = False
    confirmed: int | None = None
    """Prompt length of the last finished streaming turn, in tokens: appends to a shared array start over from it."""

    def clear_all(self) -> None:
        """Do what `replace` without a rid does: clear every node.

        Raises SchedulerCrash as soon as there is one, because SGLang deletes from the dict it iterates over.
        """
        for node in list(self.nodes.values()):
            node.clear(self.nodes)
            raise SchedulerCrash("RuntimeError", "dictionary changed size during iteration")

    def confirm(self, request: Request) -> None:
        """Make `request` the session's only node: the turn is over (`finish_req`)."""
        self.inflight = False
        for node in self.nodes.values():
            node.request.session = None
        self.nodes = {request.rid: Node(request)}
        self.confirmed = request.prompt.length

    def last_request(self) -> Request | None:
        """Return the request of a streaming session's only node."""
        return next((node.request for node in self.nodes.values()), None)

    def is_idle_too_long(self, now: float) -> bool:
        """Return whether the session has passed its timeout, strictly."""
        return self.timeout is not None and now - self.last_active > self.timeout


class SessionController:
    """The sessions of one scheduler, by id (`SessionController`)."""

    def __init__(self, profile: Profile, slots: SlotCache) -> None:
        self.sessions: dict[str, Session] = {}
        self.last_reap = 0.0
        self._profile = profile
        self._slots = slots
        self._logger = profile.session_logger

    def open(self, session_id: str, streaming: bool, timeout: float | None, now: float, journal: Journal) -> bool:
        """Open a session; return False, with a warning, where the id is taken."""
        if session_id in self.sessions:
            journal.log(self._logger, "WARNING", f"session id {session_id} already exist, cannot open.")
            return False
        self.sessions[session_id] = Session(session_id, now, streaming, timeout)
        if self._profile.logs_session_life:
            journal.log(self._logger, "INFO", f"Session opened: {session_id} (active={len(self.sessions)})")
        return True

    def close(self, session_id: str, journal: Journal) -> None:
        """Close a session on request; an unknown id only gets a warning."""
        if session_id not in self.sessions:
            journal.log(self._logger, "WARNING", f"session id {session_id} does not exist, cannot delete.")
        else:
            self._close(session_id, journal)

    def _close(self, session_id: str, journal: Journal) -> None:
        session = self.sessions[session_id]
        if self._profile.tracks_inflight and self._is_busy(session):
            session.close_on_finish = True
            journal.log(self._logger, "INFO", f"Deferring session close for {session_id} (unfinished request)")
            return
        last = session.last_request() if session.streaming else None
        if last is not None:
            last.session = None
        self._slots.release(session_id, journal)
        # The requests of the session run on: nothing here aborts them.
        del self.sessions[session_id]
        if self._profile.logs_session_life:
            journal.log(self._logger, "INFO", f"Session closed: {session_id} (active={len(self.sessions)})")

    @staticmethod
    def _is_busy(session: Session) -> bool:
        if not session.streaming:
            return False
        last = session.last_request()
        return session.inflight or (last is not None and last.finished is None)

    def reap(self, now: float, journal: Journal) -> None:
        """Finish deferred closes and close sessions past their timeout, at most once a second (`maybe_reap`).

        A deferred close counts as ready when no *node* is unfinished; the in-flight flag is not looked at. So a
        session whose turn is under way, or whose flag is stuck, is deferred again on every run.
        """
        if not self._profile.has_reaper or now - self.last_reap <= REAP_INTERVAL:
            return
        self.last_reap = now
        for session in [s for s in self.sessions.values() if s.close_on_finish and _all_finished(s)]:
            journal.log(self._logger, "INFO", f"Deferred close ready for session {session.id}, releasing.")
            session.close_on_finish = False
            self._close(session.id, journal)
        for session in [s for s in self.sessions.values() if s.is_idle_too_long(now)]:
            journal.log(self._logger, "INFO", f"Session {session.id} timed out, closing.")
            self._close(session.id, journal)


def _all_finished(session: Session) -> bool:
    return all(node.request.finished is not None for node in session.nodes.values())
