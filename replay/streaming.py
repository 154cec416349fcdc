"""The KV slots of streaming sessions, as far as they decide who is told what.

SGLang's `StreamingSession` (`session/streaming_session.py`) keeps the KV of a session's last turn in a slot. What it
does on admission and at the end of a turn also moves the session's in-flight flag, and that is lifecycle. The cache
itself is not modelled, nor are its crashes.
"""

from __future__ import annotations

from sglang_lifecycle.replay.journal import Journal
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import Request

STREAMING_SESSION = "sglang.srt.session.streaming_session"


class SlotCache:
    """Which streaming sessions own KV between their turns."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._held: set[str] = set()

    def admit(self, request: Request) -> None:
        """Match a request's prefix (`find_active_slot`).

        A refused or marked request is cut loose from a session that holds KV, and clears its in-flight flag,
        although the flag may belong to another turn that is alive.
        """
        session = request.session
        if session is None or not session.streaming or not self._profile.tracks_inflight:
            return
        if session.id in self._held and request.mark is not None:
            session.inflight = False
            request.session = None
        elif self._profile.session_owns_kv_from_admission:
            self._held.add(session.id)

    def settle(self, request: Request, journal: Journal) -> None:
        """Take over a request that has finished or was retracted (`try_cache_finished_req`).

        Only an abort leaves the session's history alone; a retraction passes for an ordinary end.
        """
        session = request.session
        if session is None or not session.streaming or not self._profile.tracks_inflight:
            return
        if request.finished is not None and request.finished.kind == "abort":
            self._held.discard(session.id)
            if self._profile.logs_kv_release_on_abort:
                journal.log(STREAMING_SESSION, "INFO", f"Session KV released: {session.id}")
            session.inflight = False
        else:
            self._held.add(session.id)
            session.confirm(request)

    def release(self, session_id: str, journal: Journal) -> None:
        """Free the slot of a session that closes, with a line where there is one."""
        if session_id in self._held:
            self._held.remove(session_id)
            journal.log(STREAMING_SESSION, "INFO", f"Session KV released: {session_id}")
