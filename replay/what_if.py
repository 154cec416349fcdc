"""The arrivals of an incident, replayed as discrete events under the rules and limits that one chooses.

The engine decides who is admitted, refused, expired and aborted. How long a request runs once it is admitted comes
from outside. Memory is not modelled: what limits the batch is the number of running requests.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count
from typing import Any

from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.ends import PLAIN_ECHO, canonical, message_id
from sglang_lifecycle.replay.engine import Engine, Outcome
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import Arrival, SessionParams

FINISHED = "finished"

ENDLESS = 1 << 62

MOMENT = 1e-3
"""Seconds after a limit at which it has surely passed."""

CAUSES = {
    "waiting_timeout": "waiting-timeout",
    "running_timeout": "running-timeout",
    "queue_full": "queue-full",
    "priority_evicted": "priority-evicted",
    "priority_disabled": "priority-disabled",
    "session_unknown": "session-unknown",
    "session_closing": "session-closed",
    "session_parent_unknown": "session-parent-unknown",
    "session_parent_unfinished": "session-parent-unfinished",
    "session_busy": "session-busy",
    "session_mode": "session-mode-unsupported",
    "session_empty": "session-empty-input",
}
"""The cause that an end's text stands for, where nothing tells more."""


@dataclass(frozen=True, slots=True)
class Job:
    """A request: its arrival (seconds), and for how many seconds it runs once it is admitted."""

    key: int
    rid: str
    at: float
    service: float
    priority: int | None = None
    session: SessionParams | None = None
    length: int = 1
    after: int | None = None
    """The key of a job whose answer its client waits for before it sends this one."""


class Act(Enum):
    """What is done to the server from outside."""

    OPEN = "open"
    CLOSE = "close"
    ABORT = "abort"
    ABORT_ALL = "abort all"


@dataclass(frozen=True, slots=True)
class Deed:
    """Something done at a time: `target` is a session's id or a rid, `cause` what it means to whom it ends."""

    at: float
    act: Act
    target: str = ""
    cause: str = ""
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended: `finished` or a cause, and the id of the text that it got."""

    cause: str
    at: float
    message: str | None = None


@dataclass(slots=True)
class _Alive:
    job: Job
    queued: float
    admitted: float | None = None


@dataclass(slots=True, eq=False)
class _Run:
    engine: Engine
    events: list[tuple[float, int, Callable[[float], Outcome | None]]] = field(default_factory=list)
    alive: dict[str, _Alive] = field(default_factory=dict)
    ends: dict[int, Ended] = field(default_factory=dict)
    held: dict[int, list[Job]] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    cause: str = ""
    numbers: Any = field(default_factory=count)
    crashed: bool = False


def simulate(profile: Profile, config: Config, jobs: Iterable[Job], deeds: Iterable[Deed] = ()) -> dict[int, Ended]:
    """Replay jobs and deeds; return how each job ended, by its key. What never ended is left out."""
    run = _Run(Engine(profile, config))
    for deed in deeds:
        _at(run, deed.at, partial(_do, run, deed=deed))
    for job in jobs:
        _at(run, job.at, partial(_arrive, run, job=job))
    while run.events and not run.crashed:
        now, _, act = heapq.heappop(run.events)
        _take(run, now, act(now))
        _settle(run, now)
    return run.ends


def _at(run: _Run, at: float, act: Callable[[float], Outcome | None]) -> None:
    heapq.heappush(run.events, (at, next(run.numbers), act))


def _arrive(run: _Run, now: float, job: Job) -> Outcome | None:
    if job.after is not None and any(alive.job.key == job.after for alive in run.alive.values()):
        run.held.setdefault(job.after, []).append(job)
        return None
    if job.rid in run.alive:
        return None  # the API server refuses a rid that is in flight
    run.alive[job.rid] = _Alive(job, now)
    _deadline(run, now, run.engine.config.waiting_timeout)
    arrival = Arrival(job.rid, job.length, ENDLESS, priority=job.priority, session=job.session)
    marked = _marked(run.engine)
    outcome = run.engine.arrive(now, arrival)
    for rid in _marked(run.engine) - marked - {job.rid}:
        named = job.session is not None and rid == job.session.rid
        run.marks[rid] = "session-replaced" if named else "session-branch-cleared"
    return outcome


def _marked(engine: Engine) -> set[str]:
    if not engine.controller.sessions:
        return set()
    requests = (*engine.queue.requests, *engine.batches.requests())
    return {request.rid for request in requests if request.mark is not None and request.session is not None}


def _deadline(run: _Run, now: float, limit: float | None) -> None:
    if limit is not None:
        _at(run, now + limit + MOMENT, lambda _: None)


def _do(run: _Run, now: float, deed: Deed) -> Outcome:
    engine = run.engine
    run.cause = deed.cause
    if deed.act is Act.OPEN:
        return engine.open(now, deed.target, deed.streaming)
    if deed.act is Act.CLOSE:
        return engine.close(now, deed.target)
    if deed.act is Act.ABORT_ALL:
        run.marks |= dict.fromkeys(run.alive, deed.cause)
        return engine.abort_all(now)
    hit = [
        rid
        for rid in run.alive
        if rid == deed.target or (engine.profile.aborts_by_prefix and rid.startswith(deed.target))
    ]
    run.marks |= {rid: deed.cause if rid == deed.target else "abort-prefix-collision" for rid in hit}
    return engine.abort(now, deed.target)


def _complete(run: _Run, now: float, alive: _Alive) -> Outcome | None:
    if run.alive.get(alive.job.rid) is not alive:
        return None
    return run.engine.step(now, eos=(alive.job.rid,))


def _settle(run: _Run, now: float) -> None:
    """Let the event loop turn until it has admitted whom it can and dropped whom it must."""
    idle = 0
    while idle < 2 and not run.crashed:
        outcome = run.engine.iterate(now)
        _take(run, now, outcome)
        ran = outcome.batches[0] if outcome.batches else None
        if ran is None or ran.mode != "prefill":
            # The first turn without an admission drops the finished; only the second shows that there is no room.
            idle += 1 if run.engine.queue.requests else 2
            continue
        for rid in ran.rids:
            alive = run.alive.get(rid)
            if alive is not None and alive.admitted is None:
                alive.admitted = now
                _deadline(run, now, run.engine.config.running_timeout)
                _at(run, now + alive.job.service, partial(_complete, run, alive=alive))


def _take(run: _Run, now: float, outcome: Outcome | None) -> None:
    """Note who ended by an operation."""
    if outcome is None:
        return
    for message in outcome.messages:
        alive = run.alive.pop(str(message.get("rid")), None) if message["kind"] != "open" else None
        if alive is not None:
            run.ends[alive.job.key] = _ended(run, now, alive, message["finished_reason"])
            for job in run.held.pop(alive.job.key, ()):
                _at(run, now + MOMENT, partial(_arrive, run, job=job))
    if outcome.crash is not None:
        run.crashed = True
        for alive in run.alive.values():
            run.ends[alive.job.key] = Ended("scheduler-crash", now, "crash")


def _ended(run: _Run, now: float, alive: _Alive, reason: dict[str, Any] | None) -> Ended:
    if reason is not None and reason["type"] != "abort":
        return Ended(FINISHED, now)
    message = PLAIN_ECHO if reason is None else message_id(str(reason.get("message")))
    if message in ("aborted", PLAIN_ECHO):
        return Ended(run.marks.get(alive.job.rid, run.cause), now, message)
    cause = CAUSES.get(message or "", message or "")
    return Ended("timeout-prefix-collision" if _another(run, now, alive, message) else cause, now, canonical(message))


def _another(run: _Run, now: float, alive: _Alive, message: str | None) -> bool:
    """Whether a timeout hit a job whose own time had not come."""
    config = run.engine.config
    if message == "waiting_timeout":
        return config.waiting_timeout is not None and now - alive.queued <= config.waiting_timeout
    if message == "running_timeout":
        started = alive.admitted
        return config.running_timeout is not None and (started is None or now - started <= config.running_timeout)
    return False
