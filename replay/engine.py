"""The reference scheduler: one object that takes operations in order and says what each of them lets the outside see.

It holds what is alive and nothing else. Time is an argument of every operation, so equal inputs give equal outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang_lifecycle.replay.journal import ABORT_RUNNING, SCHEDULE_BATCH, SCHEDULER, Journal, LogLine, SchedulerCrash
from sglang_lifecycle.replay.profiles import LastRequest, Profile
from sglang_lifecycle.replay.queue import UNAVAILABLE, Config, WaitingQueue, unavailable
from sglang_lifecycle.replay.requests import ABORTED, Arrival, Batch, FinishReason, Request
from sglang_lifecycle.replay.sessions import SessionController
from sglang_lifecycle.replay.streaming import SlotCache
from sglang_lifecycle.replay.turns import build_request

RUNNING_TIMEOUT = "Request running timeout reached."
OUT_OF_MEMORY = "Out of memory even after retracting all other requests in the decode batch."

NO_RIDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RanBatch:
    """A batch that ran: `mode` is `prefill` or `decode`."""

    mode: str
    rids: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """What one operation did. `crash` ends the scheduler: no further operation makes sense."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)
    built: Request | None = None
    input_length: int = 0
    rejected: FinishReason | None = None
    batches: list[RanBatch | None] = field(default_factory=list)
    noop: bool = False
    crash: SchedulerCrash | None = None


class Engine:
    """A scheduler of one era (`Scheduler`, with the parts of `ScheduleBatch` that decide about requests).

    Every public operation takes `now`, the scheduler's clock in seconds, and returns an Outcome.
    """

    def __init__(self, profile: Profile, config: Config | None = None) -> None:
        self.profile = profile
        self.config = config or Config()
        self.slots = SlotCache(profile)
        self.controller = SessionController(profile, self.slots)
        self.queue = WaitingQueue(profile, self.config)
        self.running = Batch()
        self.last: Batch | None = None
        self.now = 0.0
        self._journal = Journal()

    # Messages from the tokenizer manager. Each is read after the reaper has run.

    def open(self, now: float, session: str, streaming: bool = False, timeout: float | None = None) -> Outcome:
        """Open a session. `timeout` is in seconds."""

        def work(_: Outcome) -> None:
            self._reap()
            opened = self.controller.open(session, streaming, timeout, self.now, self._journal)
            self._journal.opened(session, opened)

        return self._observe(now, work)

    def close(self, now: float, session: str) -> Outcome:
        """Close a session."""

        def work(_: Outcome) -> None:
            self._reap()
            self.controller.close(session, self._journal)

        return self._observe(now, work)

    def reap(self, now: float) -> Outcome:
        """Read an empty inbox: only the reaper has something to do."""
        return self._observe(now, lambda _: self._reap())

    def arrive(self, now: float, arrival: Arrival) -> Outcome:
        """Receive a request: build it and queue it, or refuse it."""

        def work(outcome: Outcome) -> None:
            self._reap()
            request = build_request(arrival, self.controller.sessions, self.profile, self.now, self._journal)
            outcome.built = request
            outcome.input_length, outcome.rejected = request.prompt.length, request.mark
            self.queue.add(request, self.now, self._journal)

        return self._observe(now, work)

    def abort(self, now: float, rid: str) -> Outcome:
        """Abort every request whose rid matches; an empty rid matches all where matching is by prefix."""

        def work(_: Outcome) -> None:
            self._reap()
            self._abort(self._matcher(rid))

        return self._observe(now, work)

    def abort_all(self, now: float) -> Outcome:
        """Abort every request."""

        def work(_: Outcome) -> None:
            self._reap()
            self._abort(lambda _: True)

        return self._observe(now, work)

    # Time.

    def tick(self, now: float) -> Outcome:
        """Let time pass."""
        return self._observe(now, lambda _: None)

    def poll(self, now: float) -> Outcome:
        """Apply the timeouts, as the start of a scheduler iteration does."""

        def work(_: Outcome) -> None:
            if self.profile.timeouts_are_aborts:
                self._ingest()
            else:
                self._expire()

        return self._observe(now, work)

    # Scheduling steps.

    def admit(self, now: float, rid: str) -> Outcome:
        """Run a step that admits the one waiting request `rid`."""

        def work(outcome: Outcome) -> None:
            request = next((request for request in self.queue.requests if request.rid == rid), None)
            if request is None:
                outcome.noop = True
                return
            self.running.full = False
            outcome.batches.append(self._step(lambda: [request]))

        return self._observe(now, work)

    def step(self, now: float, count: int = 1, eos: Iterable[str] = NO_RIDS) -> Outcome:
        """Run `count` steps without admission: one token for every running request; EOS for the rids in `eos`."""
        ending = frozenset(eos)

        def work(outcome: Outcome) -> None:
            for _ in range(count):
                outcome.batches.append(self._step(_nobody, ending))

        return self._observe(now, work)

    def retract(self, now: float) -> Outcome:
        """Run a step in which memory is full until one request has been retracted."""

        def work(outcome: Outcome) -> None:
            outcome.batches.append(self._step(_nobody, shortage=1))

        return self._observe(now, work)

    def oom(self, now: float) -> Outcome:
        """Run a step in which memory stays full whatever is retracted."""

        def work(outcome: Outcome) -> None:
            outcome.batches.append(self._step(_nobody, shortage=None))

        return self._observe(now, work)

    def iterate(self, now: float) -> Outcome:
        """Run one whole iteration of the event loop: reaper, timeouts, admission by the policy, one batch."""

        def work(outcome: Outcome) -> None:
            if self.profile.timeouts_are_aborts:
                self._ingest()
            else:
                self._reap()
                self._expire()
            outcome.batches.append(self._step(self._select))

        return self._observe(now, work)

    # What the operations are made of.

    def _observe(self, now: float, work: Callable[[Outcome], None]) -> Outcome:
        self.now = now
        self._journal = Journal()
        outcome = Outcome(messages=self._journal.messages)
        try:
            work(outcome)
        except SchedulerCrash as crash:
            outcome.crash = crash
        outcome.logs = self._journal.ordered_logs()
        return outcome

    def _reap(self) -> None:
        self.controller.reap(self.now, self._journal)

    def in_batches(self) -> list[Request]:
        """Return the requests that are in a batch, finished ones included, those just prefilled last."""
        prefilled = [] if self.last is None or self.last is self.running else self.last.requests
        return [*self.running.requests, *prefilled]

    def _matcher(self, rid: str) -> Callable[[Request], bool]:
        if self.profile.aborts_by_prefix:
            return lambda request: request.rid.startswith(rid)
        return lambda request: request.rid == rid

    def _abort(
        self, matches: Callable[[Request], bool], reason: FinishReason = ABORTED, echo: dict[str, Any] | None = None
    ) -> None:
        """Carry out an abort (`Scheduler.abort_request`): first the queue, then what is in a batch."""
        self.queue.abort(matches, echo, self._journal)
        for request in self.in_batches():
            passed_over = request.mark is not None and self.profile.keeps_first_mark
            if request.finished is None and not passed_over and matches(request):
                self._journal.log(SCHEDULER, "DEBUG", f"{ABORT_RUNNING}req.rid={request.rid!r}")
                request.mark = reason

    def _overrunning(self, requests: Iterable[Request]) -> list[Request]:
        """Return the unfinished requests first admitted, strictly, longer ago than the running timeout."""
        timeout = self.config.running_timeout
        if timeout is None or not self.profile.has_running_timeout:
            return []
        deadline = self.now - timeout
        return [
            request
            for request in requests
            if request.finished is None and request.started_at is not None and request.started_at < deadline
        ]

    def _expire(self) -> None:
        """Apply the timeouts where they stand: waiting requests leave, running ones are marked."""
        self.queue.expire(self.now, self._journal)
        # A request that was prefilled a moment ago is not in the running batch yet and goes unseen.
        for request in self._overrunning(self.running.requests):
            request.mark = FinishReason("abort", RUNNING_TIMEOUT, UNAVAILABLE)

    def _ingest(self) -> None:
        """Turn the timeouts into aborts by rid and read them like an inbox (`Scheduler.ingest_requests`)."""
        waiting = [(request.rid, self.profile.waiting_timeout_text or "") for request in self.queue.overdue(self.now)]
        running = [(request.rid, RUNNING_TIMEOUT) for request in self._overrunning(self.in_batches())]
        self._reap()
        for rid, text in waiting + running:
            self._abort(self._matcher(rid), FinishReason("abort", text, UNAVAILABLE), unavailable(text))

    def _step(
        self, select: Callable[[], Sequence[Request]], eos: frozenset[str] = NO_RIDS, shortage: int | None = 0
    ) -> RanBatch | None:
        """Run one scheduling step: prefill what `select` admits, else decode what is running.

        `shortage` is how many requests must be retracted before memory suffices; None means that it never does.
        """
        self._merge_last()
        if self.profile.drops_finished_before_admission and self.running.drop_finished():
            self.running.full = False
        admitted = list(select())
        if admitted:
            batch = self._prefill(admitted)
        else:
            self._update_running(shortage)
            batch = self.running
        if not batch.requests:
            self.last = None
            return None
        ran = RanBatch("prefill" if admitted else "decode", tuple(request.rid for request in batch.requests))
        self.last = batch
        for request in batch.requests:
            if request.take_token(request.rid in eos, self.profile.eos_before_length):
                self.slots.settle(request, self._journal)
                self._journal.finish(request)
        return ran

    def _merge_last(self) -> None:
        """Move the requests of the last prefill into the running batch."""
        last = self.last
        if last is None or last is self.running:
            return
        if last.drop_finished():
            self.running.full = False
        if not last.requests:
            return
        if self.running.requests:
            self.running.requests += last.requests
        else:
            self.running = last  # and with it, its own `full`

    def _select(self) -> list[Request]:
        """Choose whom to admit: the queue in order, up to the limit of running requests.

        Finished requests that still linger in the running batch take up room.
        """
        if self.running.full or not self.queue.requests:
            return []
        self.queue.sort()
        limit = self.config.max_running
        room = len(self.queue.requests) if limit is None else max(0, limit - len(self.running.requests))
        if room < len(self.queue.requests):
            self.running.full = True
        return self.queue.requests[:room]

    def _prefill(self, admitted: list[Request]) -> Batch:
        for request in admitted:
            self.slots.admit(request)
            request.retracted = False
            if request.started_at is None:
                request.started_at = self.now
        self.queue.take(admitted)
        return Batch(admitted)

    def _update_running(self, shortage: int | None) -> None:
        """Prepare the running batch for a decode step (`Scheduler.update_running_batch`)."""
        running = self.running
        if not running.requests:
            return
        shrunk = running.drop_finished()
        if not running.requests:
            running.full = False
            return
        if shortage != 0:
            before = len(running.requests)
            self._retract(shortage)
            shrunk = shrunk or len(running.requests) < before
        if shrunk:
            running.full = False

    def _retract(self, shortage: int | None) -> None:
        """Take requests back into the queue until memory suffices (`ScheduleBatch.retract_decode`).

        The victim has the fewest output tokens, then the longest prompt, then came last. One request always stays,
        unless memory does not even suffice for that one.
        """
        running, journal = self.running, self._journal
        keep = sorted(running.requests, key=lambda request: (-request.output, request.prompt.length))
        retracted: list[Request] = []
        while len(keep) > 1 and (shortage is None or len(retracted) < shortage):
            retracted.append(self._release(keep.pop()))
        doomed: list[Request] = []
        if shortage is None and self.profile.last_request is LastRequest.CRASHES:
            raise SchedulerCrash("ValueError", OUT_OF_MEMORY)
        if shortage is None and self.profile.last_request is LastRequest.ABORTED:
            doomed = [self._give_up(keep.pop())]
        running.requests = keep  # in the order of preference, not of arrival
        for request in doomed:
            journal.echo(request, None if request.mark is None else request.mark.as_dict())
        journal.log(
            SCHEDULER,
            self.profile.retract_level,
            f"KV cache pool is full. Retract requests. #retracted_reqs: {len(retracted)}",
        )
        for request in retracted:
            self.queue.add(request, self.now, journal)

    def _release(self, request: Request) -> Request:
        self.slots.settle(request, self._journal)
        request.retracted = True
        return request

    def _give_up(self, request: Request) -> Request:
        request.mark = FinishReason("abort", f"{OUT_OF_MEMORY} Aborting the last request.", 500)
        self._journal.log(
            SCHEDULE_BATCH, "WARNING", f"retract_decode: aborted last request {request.rid} due to OOM"
        )
        self.slots.settle(request, self._journal)
        return request


def _nobody() -> list[Request]:
    return []
