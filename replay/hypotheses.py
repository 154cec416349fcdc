"""What a session did to each of its turns, where the log leaves the order of things open.

Log lines of two processes, or of one second, don't say what came first. So not one session is replayed but every one
that the places of the lines allow: each is a world with an engine of its own. Worlds that have become equal are
merged, and those that an answer in the log contradicts are dropped. What is left when a turn arrives says which
answers it could get.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from sglang_lifecycle.replay.engine import Engine
from sglang_lifecycle.replay.profiles import Profile
from sglang_lifecycle.replay.worlds import ENDS, Answer, Kind, Turn, World

WORLDS = 64
"""So many worlds are kept; a result that needed more says so."""

FEW = 4
"""So many are kept once the effort is spent."""

EFFORT = 5_000
"""So much is spent on orders other than the log's own, in nodes copied; a session that needed more says so."""


CROWD = 200
"""So many steps may stand at one place of the log; what a session does after more of them is not asked."""


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


@dataclass(slots=True)
class History:
    """The result for one session.

    `forbidden` is the first turn whose answer no world allows, or one of too many at once; none after it counts.
    """

    forecasts: dict[int, Forecast] = field(default_factory=dict)
    forbidden: Turn | None = None
    bounded: bool = False
    """More worlds or orders were possible than are looked at."""
    streaming: frozenset[bool] = frozenset()
    """The kinds of session that fit all that the log shows; empty where none does."""
    effort: int = 0
    """Nodes copied so far."""


def replay_session(profile: Profile, steps: Iterable[Step], streaming: Sequence[bool] = (False, True)) -> History:
    """Replay one session in every order that its steps allow.

    `streaming` are the kinds of session that it may be; releases without streaming sessions know only one.
    """
    kinds = streaming if profile.has_reaper else (False,)
    worlds = [World(Engine(profile), kind) for kind in kinds]
    history = History()
    for cluster in _clusters(sorted(_renamed(steps), key=lambda step: (step.lo, step.hi))):
        history.bounded = history.bounded or len(cluster) > CROWD
        left = _explore(worlds, cluster, history) if len(cluster) <= CROWD else []
        if not left:
            history.forbidden = _contradicted(cluster, history)
            break
        worlds = left
    else:
        history.streaming = frozenset(world.streaming for world in worlds)
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


def _explore(worlds: list[World], cluster: Sequence[Step], history: History) -> list[World]:
    """Apply a cluster's steps in every order that their places allow; return the worlds that the log allows."""
    frontier = [(frozenset[int](), world) for world in worlds]
    forked = False
    for _ in cluster:
        reached: list[tuple[frozenset[int], World]] = []
        for done, world in frontier:
            choices = [(index, skip) for index in _next(cluster, done) for skip in _choices(cluster[index])]
            if len(choices) > 1 and history.effort > EFFORT:
                history.bounded, choices = True, choices[:1]
            forked = forked or len(choices) > 1
            for index, skip in choices:
                branch = world
                if (index, skip) != choices[-1]:
                    branch = world.copy()
                    history.effort += 1 + len(branch.nodes())
                if skip or _apply(branch, cluster[index], history):
                    reached.append((done | {index}, branch))
        frontier = _distinct(reached) if forked else reached
        history.bounded = history.bounded or len(frontier) > WORLDS
        frontier = frontier[: WORLDS if history.effort <= EFFORT else FEW]
    return [world for _, world in frontier]


def _distinct(reached: Sequence[tuple[frozenset[int], World]]) -> list[tuple[frozenset[int], World]]:
    """The worlds that differ, in what has happened or in what came of it."""
    if len(reached) < 2:
        return list(reached)
    return list({(done, world.key()): (done, world) for done, world in reversed(reached)}.values())[::-1]


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


def _apply(world: World, step: Step, history: History) -> bool:
    """Carry out a step; return whether the log allows what came of it."""
    turn = step.turn
    if world.dead:
        return turn is None or turn.answered is None
    if turn is None:
        world.session(step.kind)
        return True
    forecast = history.forecasts.setdefault(turn.key, Forecast())
    if step.kind is Kind.ARRIVE:
        answer = world.arrive(turn)
        forecast.answers.add(answer)
        return turn.fits(answer)
    if not step.optional and turn.rid in world.marks:
        forecast.marks.add(world.marks[turn.rid])
    return world.end(turn.rid, step.kind)
