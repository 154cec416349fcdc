"""What a session did to each of its turns, where the log leaves the order of things open.

Log lines of two processes, or of one second, don't say what came first. So not one session is replayed but every one
that the places of the lines allow: each is a world with an engine of its own. Worlds that have become equal are
merged, and those that an answer in the log contradicts are dropped. What is left when a turn arrives says which
answers it could get.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from sglang_lifecycle.replay.digest import state_digest
from sglang_lifecycle.replay.ends import message_id
from sglang_lifecycle.replay.engine import Engine
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.requests import BAD_REQUEST, Arrival, Request, SessionParams

WORLDS = 64
"""So many worlds are kept; a result that needed more says so."""

SECOND = 2.0
"""Seconds by which the engine's clock moves when the log shows that the reaper ran; else it stands still."""

ENDLESS = 1 << 62
"""A limit of output tokens that is never reached: the log says when a request ended."""


class Kind(Enum):
    """What can happen to a session."""

    OPEN = "open"
    CLOSE = "close"
    REAP = "reap"
    """It expired: like a close, but nobody asked for it."""
    READY = "ready"
    """The reaper took up a close that had been put off."""
    ARRIVE = "arrive"
    FINISH = "finish"
    """A turn ran to an end of its own."""
    CUT = "cut"
    """A turn ended in a batch by a mark, or was answered as a refused stub."""
    DROP = "drop"
    """A turn left the waiting queue without ever being in a batch again."""


ENDS = frozenset({Kind.FINISH, Kind.CUT, Kind.DROP})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a session says to an arriving turn; accepting it is the answer without a message."""

    cause: str = ""
    message: str | None = None


ACCEPTED = Answer()


@dataclass(frozen=True, slots=True)
class Turn:
    """A request to the session. `key` tells two of the same rid apart.

    `answered` is what the log says of its arrival: the id of the refusal's text, "" where it was accepted for certain,
    None where the log does not tell.
    """

    key: int
    rid: str
    params: SessionParams
    length: int = 1
    answered: str | None = None

    def fits(self, answer: Answer) -> bool:
        """Whether the log allows this answer."""
        return self.answered is None or self.answered == (answer.message or "")


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened at a place from `lo` to `hi` of the log, both included.

    What is `optional` may not have happened at all: a close call names no session.
    """

    kind: Kind
    lo: float
    hi: float
    turn: Turn | None = None
    optional: bool = False


@dataclass(slots=True)
class Forecast:
    """What a turn could meet: the answers at its arrival, and the causes of a mark that it bore when it ended."""

    answers: set[Answer] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    unmarked: bool = False
    """In some world it bore no mark."""


@dataclass(slots=True)
class History:
    """The result for one session. `forbidden` is the first turn whose answer no world allows; none after it counts."""

    forecasts: dict[int, Forecast] = field(default_factory=dict)
    forbidden: Turn | None = None
    bounded: bool = False
    """More worlds were possible than are kept."""


@dataclass(slots=True, eq=False)
class _World:
    engine: Engine
    session: str
    streaming: bool
    gone: str = "session-unknown"
    """Why the session is not there, or is about to go."""
    marks: dict[str, str] = field(default_factory=dict)
    """The cause of each mark that a replace left, by rid."""
    clock: float = 0.0
    dead: bool = False

    def copy(self) -> _World:
        engine = self.engine
        kept = {id(engine.profile): engine.profile, id(engine.config): engine.config}
        return replace(self, engine=copy.deepcopy(engine, kept), marks=dict(self.marks))

    def key(self) -> str:
        return repr((state_digest(self.engine), self.gone, self.marks, self.streaming, self.dead))

    def request(self, rid: str) -> Request | None:
        """The live request of a rid."""
        alive = [*self.engine.queue.requests, *self.engine.batches.requests()]
        return next((r for r in reversed(alive) if r.rid == rid and r.finished is None), None)


def replay_session(profile: Profile, steps: Iterable[Step], streaming: Sequence[bool] = (False, True)) -> History:
    """Replay one session in every order that its steps allow.

    `streaming` are the kinds of session that it may be; releases without streaming sessions know only one.
    """
    kinds = streaming if profile.has_reaper else (False,)
    worlds = [_World(Engine(profile), "s", kind) for kind in kinds]
    history = History()
    for cluster in _clusters(sorted(_renamed(steps), key=lambda step: (step.lo, step.hi))):
        left = _explore(worlds, cluster, history)
        if not left:
            history.forbidden = _contradicted(cluster, history)
            break
        worlds = left
    return history


def _renamed(steps: Iterable[Step]) -> Iterator[Step]:
    """Give every rid a name that is no other's prefix, so that the abort that stands for an end hits it alone."""
    names: dict[str, str] = {}

    def name(rid: str) -> str:
        return names.setdefault(rid, f"{len(names):08}")

    for step in steps:
        turn = step.turn
        if turn is not None:
            parent = turn.params.rid
            params = replace(turn.params, rid=None if parent is None else name(parent))
            step = replace(step, turn=replace(turn, rid=name(turn.rid), params=params))
        yield step


def _clusters(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Cut the steps where the order is certain."""
    cluster: list[Step] = []
    end = float("-inf")
    for step in steps:
        if cluster and step.lo > end:
            yield cluster
            cluster = []
        cluster.append(step)
        end = max(end, step.hi) if len(cluster) > 1 else step.hi
    if cluster:
        yield cluster


def _explore(worlds: list[_World], cluster: Sequence[Step], history: History) -> list[_World]:
    """Apply a cluster's steps in every order that their places allow; return the worlds that the log allows."""
    if len(cluster) == 1 and not cluster[0].optional:
        left = [world for world in worlds if _apply(world, cluster[0], history)]
        return left if len(left) < 2 else list({world.key(): world for world in left}.values())
    frontier = [(frozenset[int](), world) for world in worlds]
    for _ in cluster:
        reached: dict[tuple[frozenset[int], str], tuple[frozenset[int], _World]] = {}
        for done, world in frontier:
            choices = [(index, skip) for index in _next(cluster, done) for skip in _choices(cluster[index])]
            for index, skip in choices:
                branch = world if (index, skip) == choices[-1] else world.copy()
                if skip or _apply(branch, cluster[index], history):
                    now = done | {index}
                    reached.setdefault((now, branch.key()), (now, branch))
        history.bounded = history.bounded or len(reached) > WORLDS
        frontier = list(reached.values())[:WORLDS]
    return list({world.key(): world for _, world in frontier}.values())


def _choices(step: Step) -> tuple[bool, ...]:
    """Whether to skip a step: never, or both ways."""
    return (True, False) if step.optional else (False,)


def _next(cluster: Sequence[Step], done: frozenset[int]) -> Iterator[int]:
    """The steps that may come next: none of those left must have come before."""
    left = [index for index in range(len(cluster)) if index not in done]
    horizon = min(cluster[index].hi for index in left)
    arriving = {step.turn.key for i in left if (step := cluster[i]).kind is Kind.ARRIVE and step.turn is not None}
    for index in left:
        step = cluster[index]
        if step.lo > horizon:
            continue
        if step.kind in ENDS and step.turn is not None and step.turn.key in arriving:
            continue
        yield index


def _contradicted(cluster: Sequence[Step], history: History) -> Turn | None:
    """The first turn of a cluster that could not be answered, or could not end, as the log says."""
    turns = [step.turn for step in cluster if step.kind is Kind.ARRIVE and step.turn is not None]
    for turn in turns:
        forecast = history.forecasts.get(turn.key)
        if forecast is not None and not any(map(turn.fits, forecast.answers)):
            return turn
    return next((step.turn for step in cluster if step.turn is not None), None)


def _apply(world: _World, step: Step, history: History) -> bool:
    """Carry out a step; return whether the log allows what came of it."""
    if world.dead:
        return step.turn is None or step.turn.answered is None
    if step.kind is Kind.OPEN:
        if world.session not in world.engine.controller.sessions:
            world.engine.open(world.clock, world.session, world.streaming)
            world.gone = "session-closed"
        return True
    if step.kind in (Kind.CLOSE, Kind.REAP):
        if world.session in world.engine.controller.sessions:
            world.gone = "session-reaped" if step.kind is Kind.REAP else "session-closed"
            world.engine.close(world.clock, world.session)
        return True
    if step.kind is Kind.READY:
        world.clock += SECOND
        world.engine.reap(world.clock)
        return True
    if step.turn is None:
        return True
    forecast = history.forecasts.setdefault(step.turn.key, Forecast())
    if step.kind is Kind.ARRIVE:
        answer = _arrive(world, step.turn)
        forecast.answers.add(answer)
        return step.turn.fits(answer)
    return _end(world, step.turn.rid, step.kind, forecast, step.optional)


def _arrive(world: _World, turn: Turn) -> Answer:
    engine = world.engine
    busy = any(request.session is not None for request in _alive(engine))
    before = {request.rid for request in _alive(engine) if request.mark is not None}
    params = replace(turn.params, id=world.session)
    outcome = engine.arrive(world.clock, Arrival(turn.rid, turn.length, ENDLESS, session=params))
    if outcome.crash is not None:
        world.dead = True
        return Answer("scheduler-crash", "crash")
    for request in _alive(engine):
        if request.mark is not None and request.rid not in before and request.rid != turn.rid:
            named = request.rid == turn.params.rid
            world.marks[request.rid] = "session-replaced" if named else "session-branch-cleared"
    refused = outcome.built.rejected if outcome.built is not None else None
    if refused is None:
        return ACCEPTED
    message = message_id(refused.message or "")
    unfinished = any(text == engine.profile.unfinished_parent_warning for _, _, text in outcome.logs)
    return Answer(_cause(message, world, unfinished, busy), message)


def _alive(engine: Engine) -> list[Request]:
    return [r for r in (*engine.queue.requests, *engine.batches.requests()) if r.finished is None]


def _cause(message: str | None, world: _World, unfinished: bool, busy: bool) -> str:
    if message in ("session_unknown", "session_closing"):
        return world.gone
    if message == "session_busy":
        return "session-busy" if busy else "session-stuck"
    if message == "session_parent_unknown":
        return "session-parent-unfinished" if unfinished else "session-parent-unknown"
    return _CAUSES.get(message or "", "")


_CAUSES = {
    "session_parent_unfinished": "session-parent-unfinished",
    "session_mode": "session-mode-unsupported",
    "session_empty": "session-empty-input",
}


def _end(world: _World, rid: str, kind: Kind, forecast: Forecast, optional: bool) -> bool:
    """End a turn as the log saw it; return whether this world allows it."""
    request = world.request(rid)
    if request is None:
        return True
    cause = world.marks.get(rid)
    if not optional:
        forecast.unmarked |= cause is None
        if cause is not None:
            forecast.marks.add(cause)
    engine = world.engine
    waiting = any(other is request for other in engine.queue.requests)
    if kind is Kind.DROP:
        engine.abort(world.clock, rid)
        if not waiting:
            engine.step(world.clock)
        return True
    refused = request.mark is not None and request.mark.error_type == BAD_REQUEST
    if kind is Kind.FINISH and request.mark is not None:
        return False  # a marked request cannot end well
    if waiting:
        engine.admit(world.clock, rid)
    if request.finished is None:
        if kind is Kind.CUT and not refused:
            engine.abort(world.clock, rid)
        engine.step(world.clock, eos=(rid,))
    return True
