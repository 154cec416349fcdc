"""The reference scheduler beside the verdicts: which ends the model allows each interrupted request.

What the log shows of a life becomes questions to `replay/`. The model has a say about what the scheduler does with
queues, limits, timeouts, aborts and sessions; about the rest (clients that leave, refusals of the API server, crashes,
disaggregation, grammars) it has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from sglang_lifecycle.analyzers import deaths, session_trace
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.limits import KINDS
from sglang_lifecycle.analyzers.moments import Moments
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.analyzers.texts import REFUSALS
from sglang_lifecycle.analyzers.verdict import Replay
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.replay import cuts
from sglang_lifecycle.replay.cuts import Alive
from sglang_lifecycle.replay.ends import PLAIN_ECHO, End, Seen, canonical
from sglang_lifecycle.replay.hypotheses import History, replay_session
from sglang_lifecycle.replay.profiles import Profile, profile_for
from sglang_lifecycle.replay.worlds import Turn

SESSION = frozenset(filter(None, map(canonical, REFUSALS))) - {"session_empty"}
ABORTS = frozenset({"aborted", PLAIN_ECHO})
QUEUE = frozenset({"queue_full", "priority_disabled", "priority_evicted"})
MEMORY = frozenset({"kv_oom_last"})
COVERED = SESSION | set(KINDS) | ABORTS | QUEUE | MEMORY


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says about the end of one attempt. `silent` is why it says nothing."""

    era: str = ""
    seen: Seen | None = None
    ends: frozenset[End] = frozenset()
    silent: str = ""
    bounded: bool = False

    @property
    def fitting(self) -> list[str]:
        """The causes that the model allows and that look as the record does."""
        return sorted({end.cause for end in self.ends if self.seen is not None and self.seen.fits(end)})


@dataclass(eq=False)
class Replayer:
    """The model's view of one life."""

    scene: Scene
    _histories: dict[tuple[str, str], History] = field(default_factory=dict)

    @cached_property
    def moments(self) -> Moments:
        """What the log shows of the moments at which requests ended."""
        return Moments(self.scene, any(profile.timeouts_are_aborts for profile in self.profiles))

    @cached_property
    def profiles(self) -> tuple[Profile, ...]:
        """The rules of every era that the life may be of."""
        found: dict[str, Profile] = {}
        for release in self.scene.release.possible:
            profile = profile_for(release)
            found[profile.era] = profile
        return tuple(found.values())

    @cached_property
    def era(self) -> str:
        """The eras, for people: `0.5.18`, or `0.5.11 to 0.5.18`."""
        eras = [profile.era for profile in self.profiles]
        return eras[0] if len(eras) == 1 else f"{eras[0]} to {eras[-1]}" if eras else ""

    def predict(self, attempt: Attempt) -> Prediction:
        """What the model says about an attempt that was interrupted."""
        seen = _seen(attempt)
        if not self.profiles:
            return Prediction(silent="the lines contradict each other about the release: --sglang-version names it")
        if seen is None:
            return Prediction(self.era, silent="no record shows an end that the scheduler's rules decide")
        if seen.message not in COVERED or attempt.of(Event.GRAMMAR_TOKEN_REFUSED):
            return Prediction(self.era, seen, silent="not an end that the scheduler's rules decide")
        if seen.message in SESSION:
            return self._refused(attempt, seen)
        if seen.message in ABORTS:
            return self._aborted(attempt, seen)
        if seen.message in KINDS:
            if any(root.finish is not None and root.finish.message_id not in KINDS for root in self._roots(attempt)):
                return Prediction(self.era, seen, silent="whether another's prompt was still read is not shown")
            ends = [self._timed_out(profile, attempt) for profile in self.profiles]
        elif seen.message in QUEUE:
            ends = [self._queued(profile, attempt) for profile in self.profiles]
        else:
            ends = [cuts.out_of_memory(profile, Alive(attempt.rid, 0.0)) for profile in self.profiles]
        return Prediction(self.era, seen, frozenset().union(*ends))

    # Sessions.

    def history(self, profile: Profile, session: str) -> History:
        """The replay of a session under one era's rules."""
        key = (profile.era, session)
        if key not in self._histories:
            self._histories[key] = replay_session(profile, session_trace.steps(self.scene, profile, session))
        return self._histories[key]

    def under(self, other: Profile, session: str) -> History:
        """The replay of a session under the rules of another release: the answers in the log don't bind it."""
        own = session_trace.steps(self.scene, self.profiles[-1], session)
        free = [step if step.turn is None else replace(step, turn=replace(step.turn, answered=None)) for step in own]
        kinds = sorted(self.history(self.profiles[-1], session).streaming) or (False, True)
        return replay_session(other, free, kinds)

    def histories(self, session: str) -> list[History]:
        """The replays of a session under the rules of every era that the life may be of."""
        return [self.history(profile, session) for profile in self.profiles]

    def _refused(self, attempt: Attempt, seen: Seen) -> Prediction:
        silent = session_trace.unknown(self.scene, attempt)
        if silent:
            return Prediction(self.era, seen, silent=silent)
        ends: set[End] = set()
        histories = self.histories(attempt.session_id or "")
        for history in histories:
            forecast = history.forecasts.get(attempt.order)
            for answer in forecast.answers if forecast is not None else ():
                ends.add(End(answer.cause, answer.message or "", seen.shape or "scheduler"))
        if not ends:
            first = next((h.forbidden for h in histories if h.forbidden is not None), None)
            return Prediction(
                self.era, seen, silent=f"the session's state is not known after {_place(first, self.scene)}"
            )
        return Prediction(self.era, seen, frozenset(ends), bounded=any(history.bounded for history in histories))

    def marks(self, attempt: Attempt) -> set[str]:
        """The causes of the marks that its session may have left on an attempt."""
        if attempt.session_id is None or session_trace.unknown(self.scene, attempt):
            return set()
        found: set[str] = set()
        for history in self.histories(attempt.session_id):
            forecast = history.forecasts.get(attempt.order)
            if forecast is not None:
                found |= forecast.marks
        return found

    # Aborts.

    def _aborted(self, attempt: Attempt, seen: Seen) -> Prediction:
        ends = {End(cause, "aborted", "scheduler") for cause in self.marks(attempt)}
        calls = self.moments.calls(attempt)
        if not calls and not ends:
            return Prediction(self.era, seen, silent="no line shows who asked for the abort")
        me = self.moments.alive(attempt)
        for abort, possible in calls.items():
            for call in possible:
                survivor = next(
                    (
                        Alive(other.rid, 1.0)
                        for other in self.moments.lived_on(call)
                        if other is not attempt and (abort.target is None or other.rid.startswith(abort.target))
                    ),
                    None,
                )
                for profile in self.profiles:
                    ends |= cuts.aborts(profile, me, [abort], [survivor] if survivor is not None else [])
                if survivor is None:
                    break  # of any other call no more can be said
        return Prediction(self.era, seen, frozenset(ends))

    def _timed_out(self, profile: Profile, attempt: Attempt) -> set[End]:
        assert attempt.finish is not None
        message = canonical(attempt.finish.message_id) or ""
        roots = [self.moments.alive(root) for root in self._roots(attempt)]
        return cuts.timeouts(profile, self.moments.alive(attempt), roots, *self.moments.bounds(message))

    def _roots(self, attempt: Attempt) -> list[Attempt]:
        message = attempt.finish.message_id if attempt.finish is not None else None
        return self.moments.roots(attempt, canonical(message) or "")

    def _queued(self, profile: Profile, attempt: Attempt) -> set[End]:
        record = attempt.received or attempt.finish
        priority = record.detail.get("priority") if record is not None else None
        most = self.moments.others(attempt)
        config = self.moments.config(most)
        me = Alive("", 0.0, priority=priority if isinstance(priority, int) else None)
        ends = set(cuts.refusals(profile, config, me, min(most, config.max_queued_requests or 0)))
        for newcomer in self.moments.newcomers(attempt) if config.enable_priority_scheduling else ():
            ends |= cuts.evictions(profile, config, me, newcomer)
        return ends


def _place(turn: Turn | None, scene: Scene) -> str:
    if turn is None:
        return "an earlier turn"
    return repr(next((a.rid for a in scene.attempts if a.order == turn.key), "an earlier turn"))


def _seen(attempt: Attempt) -> Seen | None:
    """The end that a record shows; a refusal by the scheduler's own line counts as well."""
    finish = attempt.finish
    if finish is not None:
        if finish.finish_type != "abort":
            return None
        return Seen(canonical(finish.message_id) or "", finish.finish_shape)
    if attempt.of(Event.CLIENT_DISCONNECTED):
        return None  # before its refusal was answered
    said = next((f for f in attempt.of(Event.REQUEST_REJECTED)), None)
    message = canonical(said.message_id) if said is not None else None
    return Seen(message) if message is not None else None


@per_scene
def replayer(scene: Scene) -> Replayer:
    """The model's view of a life, made once."""
    return Replayer(scene)


def compare(scene: Scene, attempt: Attempt, finding: Finding) -> Replay | None:
    """What the model says beside a verdict; a disagreement is noted in the finding, whose cause stays as it is.

    None where the model has no say.
    """
    if finding.status != "interrupted":
        return None
    prediction = replayer(scene).predict(attempt)
    said = beside(prediction, finding)
    if said is not None and said.agrees is False and not prediction.bounded:
        finding.doubt(_contradiction(prediction))
    return said


def beside(prediction: Prediction, finding: Finding) -> Replay | None:
    """A prediction in the words of a verdict; None where the model has no say.

    Where several causes would look the same, the verdict's own is named if it is one of them.
    """
    if prediction.silent or finding.cause in deaths.CAUSES:
        return None
    fitting = prediction.fitting
    if finding.cause == "not-established":
        candidates = {cause for cause, _ in finding.candidates}
        left = [cause for cause in fitting if cause in candidates]
        return Replay(era=prediction.era, predicted=left[0] if len(left) == 1 else None, possible=fitting)
    agrees = finding.cause in fitting
    predicted = finding.cause if agrees else _first(fitting) or _first(end.cause for end in prediction.ends)
    return Replay(era=prediction.era, predicted=predicted, agrees=agrees, possible=fitting)


def _first(causes: Iterable[str]) -> str | None:
    return next(iter(sorted(set(filter(None, causes)))), None)


def _contradiction(prediction: Prediction) -> str:
    if prediction.fitting:
        return f"by the scheduler's rules ({prediction.era}) this end means {' or '.join(prediction.fitting)}"
    return f"by the scheduler's rules ({prediction.era}) it could not end this way"
