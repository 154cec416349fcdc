"""When requests came and were admitted, and how long each ran: as observed, or estimated where it was cut short.

Few records say how long a request waited. Where none does, the prefill lines tell how many were admitted when, and the
queue is taken to be first come, first served. What a request that was cut would have produced is estimated from all
others: of each, the share of its `max_new_tokens` that it used, the cut ones counting as more than what they had
(Kaplan-Meier).
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from sglang_lifecycle.analyzers import time_stats
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.texts import ECHOES
from sglang_lifecycle.replay.survival import median_total

_LEAST = 5  # tokens from which a rate is worth taking
_BLUR = 0.7  # seconds below which a wait between two lines is taken for none: most stamps are whole seconds


@dataclass(frozen=True, slots=True)
class Service:
    """Seconds in a batch. `estimated` says that the request was cut, or never ran."""

    seconds: float
    estimated: bool


@dataclass(eq=False)
class Services:
    """The times of one life."""

    scene: Scene

    @cached_property
    def clock(self) -> list[float]:
        """The time of each place, UTC epoch seconds. Lines of one second are spread over it in their order."""
        facts = self.scene.life.facts
        times: list[float] = []
        last = 0.0
        for (at, _), group in groupby(facts, key=lambda fact: (fact.at, fact.at_from)):
            members = list(group)
            error = min((fact.at_error or 0.0 for fact in members), default=0.0)
            for index in range(len(members)):
                here = last if at is None else at + error * (2 * (index + 1) / (len(members) + 1) - 1)
                last = max(last, here)
                times.append(last)
        return times

    def arrival(self, attempt: Attempt) -> float:
        """When an attempt was received."""
        return self.clock[attempt.order]

    def end(self, attempt: Attempt) -> float | None:
        """When an attempt's `Finish` was written, as long after its arrival as SGLang measured."""
        if attempt.finish is None or attempt.finish_order is None:
            return None
        if attempt.finish.e2e_s is not None:
            return self.arrival(attempt) + attempt.finish.e2e_s
        return max(self.clock[attempt.finish_order], self.arrival(attempt))

    @cached_property
    def _admitted(self) -> dict[int, float]:
        """When each attempt was admitted, by its place, where the prefill lines tell."""
        if self.scene.life.args.get("enable_priority_scheduling"):
            return {}
        arrivals = deque(a for a in sorted(self.scene.attempts, key=lambda a: a.order) if a.received is not None)
        found: dict[int, float] = {}
        waiting: deque[Attempt] = deque()
        for place, fact in self.scene.batches:
            while arrivals and arrivals[0].order < place:
                waiting.append(arrivals.popleft())
            for _ in range(fact.detail.get("new_seq") or 0):
                while waiting and _left_queue(waiting[0], place):
                    waiting.popleft()
                if waiting:
                    found[waiting.popleft().order] = self.clock[place]
        return found

    def waited(self, attempt: Attempt) -> float | None:
        """Seconds in the queue before the first admission."""
        waited, _ = time_stats.durations(self.scene, attempt)
        if waited is not None:
            return waited
        admitted = self._admitted.get(attempt.order)
        if admitted is None:
            return None
        seconds = admitted - self.arrival(attempt)
        return seconds if seconds > _BLUR else 0.0

    def ran(self, attempt: Attempt) -> float | None:
        """Seconds from the first admission to the end."""
        _, ran = time_stats.durations(self.scene, attempt)
        if ran is not None:
            return ran
        waited, latency = self.waited(attempt), attempt.latency
        return None if waited is None or latency is None else max(0.0, latency - waited)

    @cached_property
    def rate(self) -> float:
        """Seconds per token, in the middle."""
        rates = []
        for attempt in self.scene.attempts:
            tokens, ran = attempt.completion_tokens or 0, self.ran(attempt)
            if tokens >= _LEAST and ran is not None and not attempt.synthetic:
                rates.append(ran / tokens)
        return statistics.median(rates) if rates else 0.0

    @cached_property
    def _shares(self) -> list[tuple[float, bool]]:
        """The share of its allowed tokens that each request used, and whether it ended of its own."""
        found = []
        for attempt in self.scene.attempts:
            allowed, tokens = _allowed(attempt), attempt.completion_tokens
            if allowed and tokens is not None and not attempt.synthetic:
                found.append((min(1.0, tokens / allowed), attempt.went_well))
        return found

    @cached_property
    def _totals(self) -> list[tuple[float, bool]]:
        return [
            (float(attempt.completion_tokens), attempt.went_well)
            for attempt in self.scene.attempts
            if attempt.completion_tokens is not None and not attempt.synthetic
        ]

    def of(self, attempt: Attempt) -> Service:
        """The service time of an attempt."""
        tokens = attempt.completion_tokens or 0
        ran = self.ran(attempt) if tokens else 0.0
        so_far = ran if ran is not None else tokens * self.rate
        if attempt.went_well:
            return Service(so_far, False)
        return Service(max(so_far, self._tokens(attempt, tokens) * self.rate), True)

    def _tokens(self, attempt: Attempt, tokens: int) -> float:
        """The tokens that a request which was cut would have produced."""
        allowed = _allowed(attempt)
        if allowed:
            share = median_total(self._shares, tokens / allowed)
            return allowed * (share if share is not None else 1.0)
        return median_total(self._totals, float(tokens)) or float(tokens)


def _allowed(attempt: Attempt) -> int | None:
    record = attempt.received or attempt.finish
    allowed = record.detail.get("max_new_tokens") if record is not None else None
    return allowed if isinstance(allowed, int) and allowed > 0 else None


def _left_queue(attempt: Attempt, place: int) -> bool:
    """Whether an attempt had been answered from the queue before a place, or never came to it."""
    finish, end = attempt.finish, attempt.finish_order
    if finish is None or end is None:
        return bool(attempt.errors)
    return end < place and finish.finish_shape in ECHOES


def slots(scene: Scene) -> int | None:
    """How many requests ran at once, at most: by the server's arguments, else the most that a batch line shows."""
    limit = scene.life.args.get("max_running_requests")
    if isinstance(limit, int):
        return limit
    crowded = [fact.running for _, fact in scene.batches if fact.running is not None and (fact.queued or 0) > 0]
    return max(crowded, default=None)
