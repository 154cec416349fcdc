"""The waiting queue: who gets in, who is pushed out, who is aborted in it and who has waited too long.

`Scheduler._add_request_to_queue` and what it calls, the waiting part of `Scheduler.abort_request`, and the timeouts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.journal import SCHEDULER, Journal
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import UNAVAILABLE, Request

PRIORITY_DISABLED = "Using priority is disabled for this server. Please send a new request without a priority."
QUEUE_FULL = "The request queue is full."
EVICTED = "The request is aborted by a higher priority request."


def unavailable(message: str) -> dict[str, Any]:
    """Return the reason that travels in an echo with status 503."""
    return {"type": "abort", "status_code": UNAVAILABLE, "message": message}


class WaitingQueue:
    """Requests that wait for their first or, after a retraction, their next admission."""

    def __init__(self, profile: Profile, config: Config) -> None:
        self.requests: list[Request] = []
        self._profile = profile
        self._config = config
        # By this sign a smaller number is the more urgent one.
        self._direction = 1 if config.schedule_low_priority_values_first else -1

    def add(self, request: Request, now: float, journal: Journal) -> bool:
        """Queue a new or retracted request; return False where it was refused.

        A full queue may push out another request instead.
        """
        if not self._accepts_priority(request, journal) or not self._makes_room(request, journal):
            return False
        request.queued_at = now
        self.requests.append(request)
        return True

    def _accepts_priority(self, request: Request, journal: Journal) -> bool:
        config = self._config
        if config.enable_priority_scheduling:
            if request.priority is None:
                request.priority = sys.maxsize if config.schedule_low_priority_values_first else -sys.maxsize - 1
            return True
        refuses = config.abort_on_priority_when_disabled or self._profile.always_refuses_priority
        if request.priority is None or not refuses:
            return True
        journal.echo(request, unavailable(PRIORITY_DISABLED))
        self._let_go(request)
        return self._profile.refused_priority_still_queues

    def _makes_room(self, request: Request, journal: Journal) -> bool:
        limit = self._config.max_queued_requests
        if limit is None or len(self.requests) < limit:
            return True
        victim = self._least_urgent() if self._config.enable_priority_scheduling else None
        if victim is None or self._urgency(request) >= self._urgency(victim):
            journal.echo(request, unavailable(QUEUE_FULL))
            self._let_go(request)
            return False
        self.requests.remove(victim)
        journal.echo(victim, unavailable(EVICTED))
        self._let_go(victim)
        return True

    def _urgency(self, request: Request) -> int:
        return self._direction * (request.priority or 0)

    def _least_urgent(self) -> Request:
        """Return the request to push out: of the least urgent ones, the one that came last."""
        return max(self.requests, key=lambda request: (self._urgency(request), request.queued_at))

    def sort(self) -> None:
        """Order by priority, then by time of entry. Without priorities the order stays first come, first served."""
        if self._config.enable_priority_scheduling:
            self.requests.sort(key=lambda request: (self._urgency(request), request.queued_at))

    def take(self, requests: Iterable[Request]) -> None:
        """Remove requests that were admitted."""
        admitted = set(map(id, requests))
        self.requests = [request for request in self.requests if id(request) not in admitted]

    def abort(self, matches: Callable[[Request], bool], reason: dict[str, Any] | None, journal: Journal) -> None:
        """Remove every matching request and answer it, last one first."""
        hit = [request for request in self.requests if matches(request)]
        self.take(hit)
        for request in reversed(hit):
            if self._profile.echoes_queue_aborts:
                journal.echo(request, reason)
                journal.log(SCHEDULER, "DEBUG", f"Abort queued request. req.rid={request.rid!r}")
            self._let_go(request)

    def overdue(self, now: float) -> list[Request]:
        """Return the requests that have waited, strictly, longer than the waiting timeout."""
        timeout = self._config.waiting_timeout
        if timeout is None or self._profile.waiting_timeout_text is None:
            return []
        return [request for request in self.requests if request.queued_at < now - timeout]

    def expire(self, now: float, journal: Journal) -> None:
        """Remove and answer the overdue requests (up to 0.5.19; later releases abort them by rid)."""
        overdue = self.overdue(now)
        self.take(overdue)
        for request in overdue:
            journal.echo(request, unavailable(self._profile.waiting_timeout_text or ""))

    def _let_go(self, request: Request) -> None:
        """Leave a request to its fate. A refused stub frees its session too, whoever's turn is under way."""
        session = request.session
        if self._profile.drops_clear_inflight and session is not None and session.streaming:
            session.inflight = False
