"""What could have cut a request at one moment: the engine is put into every state that the log allows, then asked.

A question is about a moment. Who was alive is described by durations back from it, which the records give more
exactly than instants. The engine then runs what may have happened there, each thing on its own: the timeouts, an
abort of every rid that may have been named, a full queue, a more urgent arrival, memory that does not suffice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache, partial

from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.ends import End, answers
from sglang_lifecycle.replay.engine import Engine, Outcome
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import Arrival

NOW = 1e6
"""The moment asked about, on the engine's clock."""

ENDLESS = 1 << 62

_FILLER = "\0filler"
"""A request that no abort by rid can hit. It makes room for a retraction, which never takes the only request."""


class Stage(Enum):
    """Where a request stood."""

    WAITING = "waiting"
    RUNNING = "running"
    RETRACTED = "retracted"
    """It waited again after it had run."""


@dataclass(frozen=True, slots=True)
class Alive:
    """A request alive at the moment: seconds since its arrival and, for one that has run, since its admission."""

    rid: str
    lived: float
    ran: float = 0.0
    stages: frozenset[Stage] = frozenset({Stage.WAITING, Stage.RUNNING})
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """An abort that may have been read at the moment. `target` None stands for an abort of all."""

    cause: str
    target: str | None


def timeouts(
    profile: Profile, me: Alive, roots: Iterable[Alive], waiting: float | None, running: float | None
) -> set[End]:
    """The ends that a poll of the timeouts can bring. The limits are in seconds; None where none is known.

    `roots` are requests whose rid begins this one's and that ended with it.
    """
    limits = sorted({limit for limit in (waiting, running) if limit is not None})
    ranks = [None if limit is None else bisect_left(limits, limit) + 1.0 for limit in (waiting, running)]
    config = Config(waiting_timeout=ranks[0], running_timeout=ranks[1])
    return set(
        _timeouts(
            profile,
            config,
            _ranked(me, _ME, limits),
            tuple(sorted({_ranked(root, _ROOT, limits) for root in roots}, key=repr)),
        )
    )


def aborts(profile: Profile, me: Alive, calls: Iterable[Abort], survivors: Sequence[Alive]) -> set[End]:
    """The ends that abort calls can bring. A call that would have hit one who lived on was not that call."""
    found: set[End] = set()
    for call in calls:
        if any(_hit(profile, other.stages, _relation(other.rid, call.target)) for other in survivors):
            continue
        hit = _hit(profile, me.stages, _relation(me.rid, call.target))
        found |= {End(call.cause, message, shape) for message, shape in hit}
    return found


# Only order decides: which limits a duration has passed, and whether a rid begins another. So a question is asked in
# its plainest form, and an answer once given is kept.

_ME, _ROOT = "aa", "a"


def _ranked(alive: Alive, rid: str, limits: Sequence[float]) -> Alive:
    lived, ran = (bisect_left(limits, duration) + 0.5 for duration in (alive.lived, min(alive.ran, alive.lived)))
    return Alive(rid, lived, ran, alive.stages)


def _relation(rid: str, target: str | None) -> str | None:
    """The target of an abort, in terms of `_ME`."""
    if target is None:
        return None
    return _ME if target == rid else _ROOT if rid.startswith(target) else "b"


@lru_cache(4096)
def _timeouts(profile: Profile, config: Config, me: Alive, roots: tuple[Alive, ...]) -> frozenset[End]:
    def poll(engine: Engine) -> Outcome:
        return engine.poll(NOW)

    own = {
        End(f"{message.split('_')[0]}-timeout", message, shape)
        for message, shape in _asked(profile, config, me, (), poll)
    }
    fresh = Alive(me.rid, 0.0, 0.0, me.stages)  # its own time has not come
    hit = _asked(profile, config, fresh, roots, poll) if roots else set()
    return frozenset(own | {End("timeout-prefix-collision", message, shape) for message, shape in hit})


@lru_cache(4096)
def refusals(profile: Profile, config: Config, me: Alive, most: int) -> frozenset[End]:
    """The ends that await an arrival at the queue, with at most `most` others in it."""
    limit = config.max_queued_requests
    # One place is as good as a thousand: only whether the queue is full decides.
    if limit is not None and most >= limit:
        config = replace(config, max_queued_requests=1 if limit > 0 else 0)
    engine = Engine(profile, config)
    if limit is not None and most >= limit > 0:
        # As urgent as the newcomer, which is not urgent enough to push anyone out.
        engine.arrive(
            NOW, Arrival(_FILLER, 1, ENDLESS, priority=me.priority if config.enable_priority_scheduling else None)
        )
    outcome = engine.arrive(NOW, Arrival(me.rid, 1, ENDLESS, priority=me.priority))
    return frozenset(End(_REFUSALS[message], message, shape) for message, shape in _told(outcome, me.rid, _REFUSALS))


@lru_cache(4096)
def evictions(profile: Profile, config: Config, me: Alive, newcomer: int | None) -> frozenset[End]:
    """The ends that a newcomer of this priority brings to a request that waits in a full queue."""
    engine = Engine(profile, replace(config, max_queued_requests=1))
    engine.arrive(NOW - 1, Arrival(me.rid, 1, ENDLESS, priority=me.priority))
    outcome = engine.arrive(NOW, Arrival(_FILLER, 1, ENDLESS, priority=newcomer))
    told = _told(outcome, me.rid, ("priority_evicted",))
    return frozenset(End("priority-evicted", message, shape) for message, shape in told)


def out_of_memory(profile: Profile, me: Alive) -> set[End]:
    """The ends of a request for which alone memory does not suffice."""
    engine = _placed(profile, Config(), [(Alive(me.rid, 1.0, 1.0), Stage.RUNNING)])
    return {End("kv-out-of-memory", message or "", shape) for message, shape in answers(engine.oom(NOW), me.rid)}


_REFUSALS = {"queue_full": "queue-full", "priority_disabled": "priority-disabled"}


def _told(outcome: Outcome, rid: str, known: Iterable[str]) -> set[tuple[str, str]]:
    return {(message, shape) for message, shape in answers(outcome, rid) if message is not None and message in known}


@lru_cache(4096)
def _hit(profile: Profile, stages: frozenset[Stage], target: str | None) -> frozenset[tuple[str, str]]:
    def act(engine: Engine) -> Outcome:
        return engine.abort_all(NOW) if target is None else engine.abort(NOW, target)

    return frozenset(_asked(profile, Config(), Alive(_ME, 1.0, 1.0, stages), (), act))


def _asked(
    profile: Profile, config: Config, me: Alive, others: Sequence[Alive], act: Callable[[Engine], Outcome]
) -> set[tuple[str, str]]:
    """What an act tells `me`, in every stage that it may be in; a mark shows with the next token."""
    found: set[tuple[str, str]] = set()
    for stage in sorted(me.stages, key=lambda each: each.value):
        for placed in _stages(others):
            engine = _placed(profile, config, [*placed, (me, stage)])
            said = [*answers(act(engine), me.rid), *answers(engine.step(NOW), me.rid)]
            found |= {(message, shape) for message, shape in said if message is not None}
    return found


def _stages(others: Sequence[Alive]) -> Iterator[list[tuple[Alive, Stage]]]:
    """Every other request in one of its stages. Together they vary only in which kind of timeout they can reach."""
    for stage in (Stage.WAITING, Stage.RUNNING):
        yield [(other, stage if stage in other.stages else min(other.stages, key=_name)) for other in others]
        if not others:
            return


def _name(stage: Stage) -> str:
    return stage.value


def _placed(profile: Profile, config: Config, requests: Sequence[tuple[Alive, Stage]]) -> Engine:
    """An engine at the moment, with requests in their stages."""
    engine = Engine(profile, config)
    if any(stage is Stage.RETRACTED for _, stage in requests):
        engine.arrive(0.0, Arrival(_FILLER, 1, ENDLESS))
        engine.admit(0.0, _FILLER)
        engine.step(0.0, 4)
    acts: list[tuple[float, int, Callable[[float], object]]] = []
    for number, (request, stage) in enumerate(requests):
        arrival = Arrival(request.rid, 1, ENDLESS)
        ran = min(request.ran, request.lived)
        acts.append((NOW - request.lived, number, partial(engine.arrive, arrival=arrival)))
        if stage is Stage.WAITING:
            continue
        acts.append((NOW - ran, number, partial(_run, engine, request.rid)))
        if stage is Stage.RETRACTED:
            acts.append((NOW - ran, number, engine.retract))
    for at, _, act in sorted(acts, key=lambda each: each[:2]):
        act(at)
    return engine


def _run(engine: Engine, rid: str, at: float) -> None:
    """Have a waiting request admitted, and its first token made."""
    engine.admit(at, rid)
    engine.step(at)
