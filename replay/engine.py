"""The reference scheduler: one object that takes operations in order and says what each of them lets the outside see.

It holds what is alive and nothing else. Time is an argument of every operation, so equal inputs give equal outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sglang_lifecycle.replay.batches import NO_RIDS, Batches, RanBatch, nobody
from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.journal import ABORT_RUNNING, SCHEDULER, Journal, LogLine, SchedulerCrash
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.queue import WaitingQueue, unavailable
from sglang_lifecycle.replay.requests import ABORTED, UNAVAILABLE, Arrival, FinishReason, Request
from sglang_lifecycle.replay.sessions import SessionController
from sglang_lifecycle.replay.streaming import SlotCache
from sglang_lifecycle.replay.turns import build_request

RUNNING_TIMEOUT = "Request running timeout reached."


@dataclass(frozen=True, slots=True)
class Built:
    """A request as it reached the waiting queue: the length of its prompt, and why it was refused."""

    input_length: int
    rejected: FinishReason | None


@dataclass(slots=True)
class Outcome:
    """What one operation did.

    `batches` has an entry for every step, None where nothing ran. `noop` says that there was nothing to do. A `crash`
    ends the scheduler: no further operation makes sense.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)
    built: Built | None = None
    batches: list[RanBatch | None] = field(default_factory=list)
    noop: bool = False
    crash: SchedulerCrash | None = None


class Engine:
    """A scheduler of one era.

    Every operation takes `now`, the scheduler's clock in seconds, which must not go back, and returns an Outcome.
    """

    def __init__(self, profile: Profile, config: Config | None = None) -> None:
        self.profile = profile
        self.config = config or Config()
        slots = SlotCache(profile)
        self.controller = SessionController(profile, slots)
        self.queue = WaitingQueue(profile, self.config)
        self.batches = Batches(profile, self.config, self.queue, slots)
        self.now = 0.0
        self._journal = Journal()

    # Messages from the tokenizer manager. Each is read after the reaper has run.

    def open(self, now: float, session: str, streaming: bool = False, timeout: float | None = None) -> Outcome:
        """Open a session. `timeout` is in seconds of inactivity."""
        with self._observe(now) as outcome:
            self._reap()
            opened = self.controller.open(session, streaming, timeout, now, self._journal)
            self._journal.opened(session, opened)
        return outcome

    def close(self, now: float, session: str) -> Outcome:
        """Close a session."""
        with self._observe(now) as outcome:
            self._reap()
            self.controller.close(session, self._journal)
        return outcome

    def reap(self, now: float) -> Outcome:
        """Read an empty inbox: only the reaper has something to do."""
        with self._observe(now) as outcome:
            self._reap()
        return outcome

    def arrive(self, now: float, arrival: Arrival) -> Outcome:
        """Receive a request: build it, and queue it or refuse it."""
        with self._observe(now) as outcome:
            self._reap()
            request = build_request(arrival, self.controller.sessions, self.profile, now, self._journal)
            outcome.built = Built(request.prompt.length, request.mark)
            self.queue.add(request, now, self._journal)
        return outcome

    def abort(self, now: float, rid: str) -> Outcome:
        """Abort every request whose rid matches; an empty rid matches all where matching is by prefix."""
        with self._observe(now) as outcome:
            self._reap()
            self._abort(self._matcher(rid))
        return outcome

    def abort_all(self, now: float) -> Outcome:
        """Abort every request."""
        with self._observe(now) as outcome:
            self._reap()
            self._abort(lambda _: True)
        return outcome

    # Time.

    def tick(self, now: float) -> Outcome:
        """Let time pass."""
        with self._observe(now) as outcome:
            pass
        return outcome

    def poll(self, now: float) -> Outcome:
        """Apply the timeouts, as the start of a scheduler iteration does."""
        with self._observe(now) as outcome:
            if self.profile.timeouts_are_aborts:
                self._ingest()
            else:
                self._expire()
        return outcome

    # Scheduling steps.

    def admit(self, now: float, rid: str) -> Outcome:
        """Run a step that admits the one waiting request `rid`; do nothing where it is not waiting."""
        with self._observe(now) as outcome:
            request = next((request for request in self.queue.requests if request.rid == rid), None)
            if request is None:
                outcome.noop = True
            else:
                self.batches.running.full = False
                outcome.batches.append(self.batches.step(now, self._journal, lambda: [request]))
        return outcome

    def step(self, now: float, count: int = 1, eos: Iterable[str] = NO_RIDS) -> Outcome:
        """Run `count` steps without admission: one token for every running request, EOS for the rids in `eos`."""
        ending = frozenset(eos)
        with self._observe(now) as outcome:
            for _ in range(count):
                outcome.batches.append(self.batches.step(now, self._journal, nobody, ending))
        return outcome

    def retract(self, now: float) -> Outcome:
        """Run a step in which memory is full until one request has been retracted."""
        with self._observe(now) as outcome:
            outcome.batches.append(self.batches.step(now, self._journal, nobody, shortage=1))
        return outcome

    def oom(self, now: float) -> Outcome:
        """Run a step in which memory is said to be full whatever is retracted."""
        shortage = None if self.profile.rechecks_memory else 1
        with self._observe(now) as outcome:
            outcome.batches.append(self.batches.step(now, self._journal, nobody, shortage=shortage))
        return outcome

    def iterate(self, now: float) -> Outcome:
        """Run one whole iteration of the event loop: reaper, timeouts, admission by the policy, one batch."""
        with self._observe(now) as outcome:
            if self.profile.timeouts_are_aborts:
                self._ingest()
            else:
                self._reap()
                self._expire()
            outcome.batches.append(self.batches.step(now, self._journal, self.batches.by_policy))
        return outcome

    # What the operations are made of.

    @contextmanager
    def _observe(self, now: float) -> Iterator[Outcome]:
        """Collect what the body of a `with` lets the outside see, a crash included."""
        self.now = now
        self._journal = Journal()
        outcome = Outcome(messages=self._journal.messages)
        try:
            yield outcome
        except SchedulerCrash as crash:
            outcome.crash = crash.with_traceback(None)  # its frames hold all that was asked
        outcome.logs = self._journal.ordered_logs()

    def _reap(self) -> None:
        self.controller.reap(self.now, self._journal)

    def _matcher(self, rid: str) -> Callable[[Request], bool]:
        if self.profile.aborts_by_prefix:
            return lambda request: request.rid.startswith(rid)
        return lambda request: request.rid == rid

    def _abort(
        self, matches: Callable[[Request], bool], reason: FinishReason = ABORTED, echo: dict[str, Any] | None = None
    ) -> None:
        """Carry out an abort (`Scheduler.abort_request`): first the queue, then what is in a batch.

        A waiting request leaves at once, answered with `echo`; a running one is marked, whatever its mark was.
        """
        self.queue.abort(matches, echo, self._journal)
        for request in self.batches.requests():
            if request.finished is None and matches(request):
                self._journal.log(SCHEDULER, "DEBUG", f"{ABORT_RUNNING}req.rid={request.rid!r}")
                request.mark = reason

    def _expire(self) -> None:
        """Apply the timeouts where they stand: waiting requests leave, running ones are marked."""
        self.queue.expire(self.now, self._journal)
        # A request that was prefilled a moment ago is not in the running batch yet and goes unseen.
        for request in self.batches.overrunning(self.batches.running.requests, self.now):
            request.mark = FinishReason("abort", RUNNING_TIMEOUT, UNAVAILABLE)

    def _ingest(self) -> None:
        """Turn the timeouts into aborts by rid and read them like an inbox (`Scheduler.ingest_requests`)."""
        waiting = [(request.rid, self.profile.waiting_timeout_text or "") for request in self.queue.overdue(self.now)]
        overrunning = self.batches.overrunning(self.batches.requests(), self.now)
        running = [(request.rid, RUNNING_TIMEOUT) for request in overrunning]
        self._reap()
        for rid, text in waiting + running:
            self._abort(self._matcher(rid), FinishReason("abort", text, UNAVAILABLE), unavailable(text))
