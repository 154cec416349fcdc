"""What-if: the same arrivals under other limits, without zombies, or by the rules of another release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from sglang_lifecycle.analyzers import deaths, fingerprint, session_trace, zombies
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import STREAM_ABORT_LOST
from sglang_lifecycle.analyzers.explain import judge
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.limits import STROKE
from sglang_lifecycle.analyzers.replay_models import Changed, WhatIf
from sglang_lifecycle.analyzers.replaying import COVERED, Replayer, replayer
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.service import Service, Services, slots
from sglang_lifecycle.analyzers.strokes import OF_ALL
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.ends import canonical
from sglang_lifecycle.replay.profiles import Profile, profile_for
from sglang_lifecycle.replay.what_if import FINISHED, Act, Deed, Ended, Job, simulate

_BEFORE = 0.02  # seconds by which an abort comes before the end that it brings

_REFUSED = frozenset({
    "session-unknown", "session-closed", "session-reaped", "session-parent-unknown", "session-parent-unfinished",
    "session-busy", "session-stuck", "session-mode-unsupported",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """What is asked. A limit that is absent here stays as it was; None switches it off."""

    limits: dict[str, float | None] = field(default_factory=dict)
    no_zombies: bool = False
    version: str | None = None

    def lines(self) -> list[str]:
        """The changes, for people."""
        found = [f"{name}={'off' if value is None else f'{value:g}'}" for name, value in self.limits.items()]
        found += ["no zombies"] * self.no_zombies
        return found + ([f"SGLang {self.version}"] if self.version is not None else [])


LIMITS = {
    "waiting-timeout": "waiting_timeout",
    "running-timeout": "running_timeout",
    "max-running-requests": "max_running",
    "max-queued-requests": "max_queued_requests",
}
"""The limits that can be changed, and their names in a `Config`."""


@dataclass(slots=True)
class _Plan:
    jobs: list[Job] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)
    observed: dict[int, tuple[Attempt, str]] = field(default_factory=dict)
    services: dict[int, Service] = field(default_factory=dict)
    left_out: int = 0


def what_if(incident: Incident, change: Change) -> WhatIf:
    """Replay an incident with and without a change, and compare.

    Raises ValueError where the release that is asked for is not known.
    """
    result = WhatIf(changes=change.lines())
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    left_out = estimated = 0
    notes: list[str] = []
    for scene in incident.scenes:
        model = replayer(scene)
        if not model.profiles:
            continue
        profile = model.profiles[-1]
        other = profile_for(change.version) if change.version is not None else profile
        plan, changed = _plan(scene, model), _plan(scene, model, _without_zombies(change))
        config = _config(scene, model)
        limits: dict[str, Any] = {LIMITS[name]: _number(name, value) for name, value in change.limits.items()}
        _compare(
            result,
            plan,
            simulate(profile, config, plan.jobs, plan.deeds) | _by_sessions(scene, model, profile, profile, plan),
            simulate(other, replace(config, **limits), changed.jobs, changed.deeds)
            | _by_sessions(scene, model, other, profile, plan),
            (before, after),
        )
        left_out += plan.left_out
        estimated += sum(service.estimated for service in plan.services.values())
        notes += _notes(model, profile, config.max_running)
    result.before, result.after = dict(before.most_common()), dict(after.most_common())
    result.interrupted_after = result.interrupted_before - len(result.saved) + len(result.lost)
    result.assumptions = [*_assumptions(result, left_out, estimated), *dict.fromkeys(notes)]
    return result


def _number(name: str, value: float | None) -> float | int | None:
    return int(value) if value is not None and name.startswith("max-") else value


def _without_zombies(change: Change) -> bool:
    if change.version is None:
        return change.no_zombies
    return change.no_zombies or not fingerprint.told(change.version).has(STREAM_ABORT_LOST)


def _config(scene: Scene, model: Replayer) -> Config:
    """The limits as they were."""
    limits = model.moments.limits
    config = model.moments.config(0)
    told = scene.life.args.get("max_queued_requests")
    return replace(
        config,
        waiting_timeout=limits.get("waiting_timeout"),
        running_timeout=limits.get("running_timeout"),
        max_queued_requests=told if isinstance(told, int) else None,
        max_running=slots(scene),
    )


def _plan(scene: Scene, model: Replayer, no_zombies: bool = False) -> _Plan:
    """The jobs and deeds of a life."""
    plan, services = _Plan(), Services(scene)
    strokes: dict[str, float] = {}
    whole = {
        session for session, turns in scene.sessions.items() if not any(session_trace.unknown(scene, t) for t in turns)
    }
    before = _before(scene)
    for attempt in scene.attempts:
        finding = judge(scene, attempt)
        if attempt.received is None or attempt.received.at is None or attempt.synthetic:
            continue
        in_session = attempt.session_id in whole
        service = services.of(attempt)
        gone = _gone(attempt, finding) if finding.cause == "client-disconnect" else None
        if not _simulated(attempt, finding) or (finding.cause == "client-disconnect" and gone is None):
            plan.left_out += finding.status == "interrupted"
            if in_session:  # its fate is not asked about, but later turns may build on it
                plan.jobs.append(_job(attempt, Service(0.0, True), services.arrival(attempt), in_session, before))
            continue
        if gone is not None:
            last = zombies.until(attempt)
            if last is not None:
                service = Service(max(0.0, last - services.arrival(attempt)), False)
            if last is None or no_zombies:
                plan.deeds.append(Deed(gone, Act.ABORT, attempt.rid, finding.cause))
        plan.deeds += _deeds(services.end(attempt), attempt.rid, finding, strokes)
        plan.jobs.append(_job(attempt, service, services.arrival(attempt), in_session, before))
        plan.services[attempt.order] = service
        observed = finding.cause if finding.status == "interrupted" else FINISHED
        plan.observed[attempt.order] = (attempt, observed)
    plan.deeds += [deed for session in sorted(whole) for deed in _session(scene, model, services, session)]
    return plan


def _simulated(attempt: Attempt, finding: Finding) -> bool:
    """Whether the model decides the fate of a request: it reached the queue, and no check of its content ended it."""
    if finding.status != "interrupted":
        return finding.status == "finished" and attempt.finish is not None
    if finding.cause in deaths.CAUSES or finding.cause == "client-disconnect":
        return True
    return (
        attempt.finish is not None and canonical(attempt.finish.message_id) in COVERED and attempt.ended_at is not None
    )


def _before(scene: Scene) -> dict[int, int]:
    """The turn that each turn of a session came after: the one before it, where that had been answered by then."""
    return {
        turn.order: earlier.order
        for turns in scene.sessions.values()
        for earlier, turn in pairwise(turns)
        if earlier.finish_order is not None and earlier.finish_order < turn.order
    }


def _job(attempt: Attempt, service: Service, at: float, in_session: bool, before: dict[int, int]) -> Job:
    record = attempt.received
    assert record is not None
    priority = record.detail.get("priority")
    params = session_trace.params(attempt, record) if in_session else None
    number = priority if isinstance(priority, int) else None
    return Job(attempt.order, attempt.rid, at, service.seconds, number, params, after=before.get(attempt.order))


def _deeds(end: float | None, rid: str, finding: Finding, strokes: dict[str, float]) -> Iterator[Deed]:
    """What was done to end an attempt, by its verdict."""
    if finding.cause in deaths.CAUSES:
        times = [fact.at for fact in finding.evidence if fact.at is not None]
        end = times[-1] if times else None
    if end is None:
        return
    if finding.cause in OF_ALL or finding.cause in deaths.CAUSES:
        if abs(end - strokes.get(finding.cause, float("-inf"))) > STROKE:
            strokes[finding.cause] = end
            yield Deed(end - _BEFORE, Act.ABORT_ALL, "", finding.cause)
    elif finding.cause == "explicit-abort":
        yield Deed(end - _BEFORE, Act.ABORT, rid, finding.cause)


def _gone(attempt: Attempt, finding: Finding) -> float | None:
    """When a client had left, as far as a line shows."""
    facts = attempt.of(Event.CLIENT_DISCONNECTED, Event.OUTPUT_UNDELIVERABLE, Event.ABORT_UNKNOWN_RID)
    times = [fact.at for fact in facts if fact.at is not None]
    if not times:
        times = [f.at for f in finding.evidence if f is not attempt.received and f.at is not None]
    return min(times, default=None)


def _session(scene: Scene, model: Replayer, services: Services, session: str) -> Iterator[Deed]:
    """The opens and closes of a session."""
    turns = scene.sessions[session]
    kinds = model.history(model.profiles[-1], session).streaming
    # Where the turns fit both kinds: one that names no rid would find no history in an ordinary session.
    streaming = kinds == {True} or (True in kinds and all(turn.parent_rid is None for turn in turns))
    lines = scene.about_session(
        session, Event.SESSION_OPENED, Event.SESSION_CLOSED, Event.SESSION_REAPED, Event.SESSION_CLOSE_DEFERRED
    )
    opened = any(fact.event is Event.SESSION_OPENED for _, fact in lines)
    first = services.arrival(turns[0])
    if not opened and any(session_trace.served(turn) for turn in turns):
        yield Deed(first - _BEFORE, Act.OPEN, session, streaming=streaming)
        last = max((turn.order for turn in turns if session_trace.served(turn)), default=0)
        refused = [turn for turn in turns if turn.order > last and session_trace.refused(turn) == "session_unknown"]
        if refused and not lines:  # up to 0.5.10 a close writes no line
            yield Deed(services.arrival(refused[0]) - _BEFORE, Act.CLOSE, session)
    for place, fact in lines:
        act = Act.OPEN if fact.event is Event.SESSION_OPENED else Act.CLOSE
        yield Deed(services.clock[place], act, session, streaming=streaming)


def _by_sessions(scene: Scene, model: Replayer, other: Profile, own: Profile, plan: _Plan) -> dict[int, Ended]:
    """What the sessions would have said to the turns whose fate they decided.

    Their replay keeps to the order of the log and so knows better than the simulated one who waited for whom.
    """
    found: dict[int, Ended] = {}
    asked = [(key, attempt) for key, (attempt, observed) in plan.observed.items() if observed in _REFUSED]
    for session in {attempt.session_id for _, attempt in asked} - {None}:
        turns = scene.sessions[session or ""]
        if any(session_trace.unknown(scene, turn) for turn in turns):
            continue
        history = model.history(own, session or "") if other is own else model.under(other, session or "")
        for key, attempt in asked:
            forecast = history.forecasts.get(key) if attempt.session_id == session else None
            causes = {answer.cause or FINISHED for answer in forecast.answers} if forecast is not None else set()
            observed = plan.observed[key][1]
            if causes:
                # Where the orders differ in what follows, nothing is gained for certain.
                found[key] = Ended(observed if observed in causes else min(causes), 0.0)
    return found


def _compare(
    result: WhatIf,
    plan: _Plan,
    first: dict[int, Ended],
    second: dict[int, Ended],
    counts: tuple[Counter[str], Counter[str]],
) -> None:
    """Add a life's comparison. What the replay without changes gets wrong says nothing about the changes."""
    for key, (attempt, observed) in plan.observed.items():
        result.replayed += 1
        result.interrupted_before += observed != FINISHED
        was, now = _cause(first.get(key)), _cause(second.get(key))
        if (was == FINISHED) != (observed == FINISHED):
            result.not_reproduced.append(attempt.rid)
            if observed != FINISHED:
                counts[0][observed] += 1
                counts[1][observed] += 1
            continue
        result.reproduced += 1
        # A cause that only changes its name with the rules' coarser texts has not changed.
        now = observed if now == was else now
        counts[0].update([observed] * (observed != FINISHED))
        counts[1].update([now] * (now != FINISHED))
        changed = Changed(rid=attempt.rid, before=observed, after=now, estimated=plan.services[key].estimated)
        if observed != FINISHED and now == FINISHED:
            result.saved.append(changed)
        elif observed == FINISHED and now != FINISHED:
            result.lost.append(changed)
        elif observed != now:
            result.otherwise.append(changed)


def _cause(ended: Ended | None) -> str:
    """How a job ended; what still ran at the end of the replay counts as finished."""
    return ended.cause if ended is not None else FINISHED


def _assumptions(result: WhatIf, left_out: int, estimated: int) -> Sequence[str]:
    wrong = result.replayed - result.reproduced
    found = [
        f"the replay without changes reproduces {result.reproduced:,} of {result.replayed:,} fates"
        + (f"; the rest ({wrong:,}) is counted as unchanged" if wrong else ""),
        "requests arrive when they did, but no turn of a session before the turn that it followed has been answered;"
        " no client retries or gives up because of the change",
        "a request runs as long as it did; memory and the speed of fuller batches are not modelled",
    ]
    if estimated:
        found.append(f"how long requests that were cut or never ran ({estimated:,}) would have run is an estimate")
    if left_out:
        found.append(f"interrupted requests that the model does not cover ({left_out:,}) are left as they are")
    return found


def _notes(model: Replayer, profile: Profile, running: int | None) -> Iterator[str]:
    for kind in ("waiting", "running"):
        told, seconds = (limits.get(f"{kind}_timeout") for limits in (model.scene.limits, model.moments.limits))
        if told is not None:
            yield f"the {kind} timeout is {told:g} s, as told"
        elif seconds is not None:
            yield f"the {kind} timeout is taken to be {seconds:.2f} s, the shortest time after which it struck"
    yield f"at most {running} requests run at once" if running is not None else "any number of requests runs at once"
    if len(model.profiles) > 1:
        yield f"the release may be of several eras; before the change, the rules of {profile.era} are used"
