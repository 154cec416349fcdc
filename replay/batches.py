"""Batches: what a scheduling step does with the requests that run, and whom it admits or takes back.

The parts of `Scheduler.get_next_batch_to_run`, `process_batch_result` and `ScheduleBatch` that decide about requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.journal import SCHEDULE_BATCH, SCHEDULER, Journal, SchedulerCrash
from sglang_lifecycle.replay.profiles import LastRequest, Profile
from sglang_lifecycle.replay.queue import WaitingQueue
from sglang_lifecycle.replay.requests import FinishReason, Request
from sglang_lifecycle.replay.streaming import SlotCache

OUT_OF_MEMORY = "Out of memory even after retracting all other requests in the decode batch."

NO_RIDS: frozenset[str] = frozenset()

Selection = Callable[[], Sequence[Request]]
"""Whom a step admits."""


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that run together (SGLang's `ScheduleBatch`).

    Finished requests linger in it until the scheduler filters it, and count against the limit of running requests.
    """

    requests: list[Request] = field(default_factory=list)
    full: bool = False
    """`batch_is_full`: while set, no admission is tried."""

    def drop_finished(self) -> bool:
        """Remove finished requests; return whether there were any."""
        before = len(self.requests)
        self.requests = [request for request in self.requests if request.finished is None]
        return len(self.requests) < before


@dataclass(frozen=True, slots=True)
class RanBatch:
    """A batch that ran: `mode` is `prefill` or `decode`."""

    mode: str
    rids: tuple[str, ...]


class Batches:
    """The running batch, the batch of the last step, and the steps themselves.

    What was prefilled sits in `last` until the next step merges it into `running`.
    """

    def __init__(self, profile: Profile, config: Config, queue: WaitingQueue, slots: SlotCache) -> None:
        self.running = Batch()
        self.last: Batch | None = None
        self._profile = profile
        self._config = config
        self._queue = queue
        self._slots = slots

    def prefilled(self) -> list[Request]:
        """Return the requests of the last step's prefill, which are not in the running batch yet."""
        return [] if self.last is None or self.last is self.running else self.last.requests

    def requests(self) -> list[Request]:
        """Return every request in a batch, finished ones included, those just prefilled last."""
        return [*self.running.requests, *self.prefilled()]

    def overrunning(self, requests: Iterable[Request], now: float) -> list[Request]:
        """Return the unfinished ones first admitted, strictly, longer ago than the running timeout.

        The clock of a retracted request runs on while it waits for its next admission.
        """
        timeout = self._config.running_timeout
        if timeout is None or not self._profile.has_running_timeout:
            return []
        deadline = now - timeout
        return [
            request
            for request in requests
            if request.finished is None
            and request.started_at is not None
            and request.started_at < deadline
            and not (request.mark is not None and self._profile.running_timeout_skips_marked)
        ]

    def step(
        self,
        now: float,
        journal: Journal,
        select: Selection,
        eos: frozenset[str] = NO_RIDS,
        shortage: int | None = 0,
    ) -> RanBatch | None:
        """Run one scheduling step: prefill what `select` admits, else decode what is running.

        `eos` names the rids whose next token ends them. `shortage` is how many requests must be retracted before
        memory suffices; None means that it never does.
        """
        self._merge_last()
        if self._profile.drops_finished_before_admission and self.running.drop_finished():
            self.running.full = False
        admitted = list(select())
        if admitted:
            batch = self._prefill(admitted, now)
        else:
            self._update_running(shortage, now, journal)
            batch = self.running
        if not batch.requests:
            self.last = None
            return None
        ran = RanBatch("prefill" if admitted else "decode", tuple(request.rid for request in batch.requests))
        self.last = batch
        for request in batch.requests:
            if request.take_token(request.rid in eos, self._profile.eos_before_length):
                self._slots.settle(request, journal)
                journal.finish(request)
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

    def by_policy(self) -> list[Request]:
        """Choose whom to admit: the queue in order, up to the limit of running requests.

        Finished requests that still linger in the running batch take up room.
        """
        if self.running.full or not self._queue.requests:
            return []
        limit = self._config.max_running
        room = len(self._queue.requests) if limit is None else limit - len(self.running.requests)
        if room < len(self._queue.requests):
            self.running.full = True
        if room > 0 or self._profile.sorts_without_room:
            self._queue.sort()
        return self._queue.requests[: max(0, room)]

    def _prefill(self, admitted: list[Request], now: float) -> Batch:
        for request in admitted:
            self._slots.admit(request)
            request.retracted = False
            if request.started_at is None:
                request.started_at = now
        self._queue.take(admitted)
        return Batch(admitted)

    def _update_running(self, shortage: int | None, now: float, journal: Journal) -> None:
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
            self._retract(shortage, now, journal)
            shrunk = shrunk or len(running.requests) < before
        if shrunk:
            running.full = False

    def _retract(self, shortage: int | None, now: float, journal: Journal) -> None:
        """Take requests back into the queue until memory suffices (`ScheduleBatch.retract_decode`).

        The victim has the fewest output tokens, then the longest prompt, then came last. One request always stays,
        unless memory does not even suffice for that one.
        """
        running = self.running
        keep = sorted(running.requests, key=lambda request: (-request.output, request.prompt.length))
        retracted: list[Request] = []
        while len(keep) > 1 and (shortage is None or len(retracted) < shortage):
            retracted.append(self._release(keep.pop(), journal))
        doomed: list[Request] = []
        if shortage is None and self._profile.last_request is LastRequest.CRASHES:
            raise SchedulerCrash("ValueError", OUT_OF_MEMORY)
        if shortage is None and self._profile.last_request is LastRequest.ABORTED:
            doomed = [self._give_up(keep.pop(), journal)]
        running.requests = keep  # in the order of preference, not of arrival
        for request in doomed:
            journal.echo(request, None if request.mark is None else request.mark.as_dict())
        journal.log(
            SCHEDULER,
            self._profile.retract_level,
            f"KV cache pool is full. Retract requests. #retracted_reqs: {len(retracted)}",
        )
        for request in retracted:
            self._queue.add(request, now, journal)

    def _release(self, request: Request, journal: Journal) -> Request:
        self._slots.settle(request, journal)
        request.retracted = True
        return request

    def _give_up(self, request: Request, journal: Journal) -> Request:
        request.mark = FinishReason("abort", f"{OUT_OF_MEMORY} Aborting the last request.", 500)
        journal.log(SCHEDULE_BATCH, "WARNING", f"retract_decode: aborted last request {request.rid} due to OOM")
        self._slots.settle(request, journal)
        return request


def nobody() -> list[Request]:
    """Admit no one."""
    return []
