"""How long the limits of the scheduler's timeouts are, and whether a request has reached them, as far as logs show.

They are environment variables that no log prints: `SGLANG_REQ_WAITING_TIMEOUT`, `SGLANG_REQ_RUNNING_TIMEOUT` (0.5.8 to
0.5.23, managers/scheduler.py); the user may tell them. Else other requests that reached them do.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import NamedTuple

from sglang_lifecycle.analyzers.accounting import seen
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact

STROKE = 1.6
"""Seconds within which one poll's victims are written."""

ITERATION = 0.4
"""Seconds within which the ends are written that one abort in the scheduler brings."""

SLACK = 0.25
"""Seconds by which a genuine timeout may be measured shorter than its limit."""

_ALIKE = 0.6  # seconds by which two timeouts of one limit differ
_NEAR = 20  # facts behind an end among which a line of the scheduler may stand that was written before


class Kind(NamedTuple):
    """One of the scheduler's timeouts, and how its own victims are told of (0.5.8 to 0.5.23)."""

    id: str
    """That of its text."""
    cause: str
    shape: str
    """That of the finish reason."""
    name: str
    verb: str
    too_long: str


KINDS = {
    kind.id: kind
    for kind in (
        Kind(
            "waiting_timeout",
            "waiting-timeout",
            "echo-with-reason",
            "waiting",
            "waited",
            "Waited too long in the queue",
        ),
        Kind("running_timeout", "running-timeout", "scheduler", "running", "ran", "Ran too long"),
    )
}
"""By the ids of their texts."""


def spent(attempt: Attempt, message_id: str) -> float | None:
    """Seconds that count towards a limit, as far as the records tell; for a running timeout at most that."""
    latency = attempt.latency
    if message_id == "running_timeout" and latency is not None and attempt.finish is not None:
        entry, sent = attempt.finish.detail.get("forward_entry_time"), attempt.finish.at
        if isinstance(entry, float) and sent is not None and 0 <= sent - entry <= latency + 1:
            return sent - entry
        queue = attempt.finish.queue_s
        if queue is not None and 0 <= queue <= latency:
            return latency - queue
    return latency


@dataclass(frozen=True, slots=True)
class Told:
    """A limit that the user knows, beside the time of an attempt that a timeout ended."""

    limit: float
    mine: float
    slack: float
    exact: bool
    """Whether its time is just what the limit counts, and finely measured."""
    astray: bool = False
    """Whether the limit can't be this server's, as far as other timeouts show."""

    @classmethod
    def of(cls, scene: Scene, attempt: Attempt, message_id: str) -> Told | None:
        """`None` where no limit is told, or the time is unknown."""
        limit, mine = scene.limits.get(message_id), spent(attempt, message_id)
        finish = attempt.finish
        if limit is None or mine is None or finish is None:
            return None
        coarse = 0.0
        if finish.e2e_s is None and attempt.received is not None:  # by the log's clock
            coarse = (attempt.received.at_error or 0.0) + (finish.at_error or 0.0)
        pure = message_id == "waiting_timeout" or _clocked(finish)
        return cls(limit, mine, SLACK + coarse, pure and coarse < SLACK)

    @property
    def short(self) -> bool:
        """Whether its time is less than the limit."""
        return self.mine < self.limit - self.slack

    @property
    def refutes(self) -> bool:
        """Whether it ended before its own time had come."""
        return self.short and not self.astray

    @property
    def confirms(self) -> bool:
        """Whether its own time had come."""
        return self.exact and not self.short

    @property
    def exceeded(self) -> bool:
        """Whether its own time had come beyond doubt: what was measured around the wait makes no difference."""
        return self.exact and self.mine >= self.limit + self.slack


def confirmed(scene: Scene, attempt: Attempt, message_id: str) -> bool:
    """Whether another timeout of the same kind, in another stroke, took as long: both measured the limit."""
    mine, ended = spent(attempt, message_id), attempt.ended_at
    if mine is None or ended is None:
        return False
    slack = max(_ALIKE, 0.1 * mine)
    measured = attempt.finish is not None and (attempt.finish.e2e_s is not None or _clocked(attempt.finish))
    lengths = _lengths(scene).get(message_id, [])
    for theirs, end in lengths[bisect.bisect_left(lengths, (mine - slack, 0.0)) :]:
        if theirs > mine + (SLACK if measured else slack):  # the limit may be longer than its time
            break
        if abs(end - ended) > STROKE:
            return True
    return False


@per_scene
def _lengths(scene: Scene) -> dict[str, list[tuple[float, float]]]:
    """How long the attempts lasted that a timeout ended, and when they ended, by the timeout's text; sorted."""
    return {
        message_id: sorted(
            (length, a.ended_at)
            for a in scene.ended_with.get(message_id, ())
            if (length := spent(a, message_id)) is not None and a.ended_at is not None
        )
        for message_id in KINDS
    }


def outlasted(scene: Scene, root: Attempt, other: float, message_id: str) -> bool:
    """Whether a root surely went on for longer than another's time without reaching the limit, seconds.

    What it lasted in all tells that of neither: time before the queue does not count, and a long forward delays the
    poll by which the limit strikes. So a batch line has to show that it was in the engine, and another, so much later,
    that the scheduler had looked and let it be.
    """
    end, ended, length = root.finish_order or 0, root.ended_at, spent(root, message_id)
    if root.finish is None or ended is None or length is None or scene.partial:
        return False
    if message_id == "running_timeout" and _clocked(root.finish):
        begun: float | None = ended - length
    else:
        begun = _inside(scene, root)
    lines = [fact for fact in scene.batches_between(root.order, end + _NEAR) if fact.at is not None and fact.at < ended]
    return begun is not None and any(
        (fact.at or 0.0) - (fact.at_error or 0.0) - begun > other + SLACK for fact in lines
    )


def _clocked(finish: Fact) -> bool:
    """Whether SGLang measured when it first ran."""
    return finish.queue_s is not None or "forward_entry_time" in finish.detail


def finely_dated(attempt: Attempt) -> bool:
    """Whether the log tells its end more finely than to the second."""
    error = attempt.cut.at_error if attempt.cut is not None else None
    return error is not None and error < ITERATION / 2


def _inside(scene: Scene, attempt: Attempt) -> float | None:
    """The latest time by which an attempt was queued or ran: a batch line counts as many as are there.

    UTC epoch seconds; None where no line shows it. Who came or went in the moment of a line may have done so before.
    """
    measured = attempt.finish is not None and attempt.finish.e2e_s is not None and finely_dated(attempt)
    came, end = attempt.received_at if measured else attempt.latest_arrival, attempt.finish_order or 0
    for fact in scene.batches_between(attempt.order, end):
        counted = seen(fact)
        if fact.at is None or came is None or fact.at - (fact.at_error or 0.0) < came or not counted:
            continue
        if counted >= _most(scene, fact):
            return fact.at + (fact.at_error or 0.0)
    return None


def _most(scene: Scene, fact: Fact) -> int:
    """How many may have been there when a batch line was written: who came or went in its moment may have been.

    But for those that did both at once, on one side of it.
    """
    facts, place = scene.life.facts, scene.places[id(fact)]
    first, last = place, place + 1
    while first > 0 and _as_old(facts[first - 1], fact):
        first -= 1
    while last < len(facts) and _as_old(facts[last], fact):
        last += 1
    came = {f.rid for f in facts[first:last] if f.event is Event.REQUEST_RECEIVED}
    went = {f.rid for f in facts[first:last] if f.event is Event.REQUEST_FINISHED}
    late = {f.rid for f in facts[place:last] if f.event is Event.REQUEST_RECEIVED} - went
    early = {f.rid for f in facts[first:place] if f.event is Event.REQUEST_FINISHED} - came
    return len(scene.open_at(place)) + len(late) + len(early)


def _as_old(one: Fact, other: Fact) -> bool:
    if one.at is None or other.at is None:
        return True
    return abs(one.at - other.at) < (one.at_error or 0.0) + (other.at_error or 0.0) or one.at == other.at
