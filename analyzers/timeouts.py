"""Step 3 of the debugging order: a waiting or a running timeout, its own or one that hit it by rid prefix.

The scheduler writes no line of its own for a timeout (0.5.8 to 0.5.23), and the limits are environment variables that
no log prints: `SGLANG_REQ_WAITING_TIMEOUT`, `SGLANG_REQ_RUNNING_TIMEOUT`; the user may tell them. From 0.5.20 on a
timeout travels as an abort by rid, and an abort matches by prefix (managers/scheduler.py:_poll_timeout_aborts,
abort_request).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from sglang_lifecycle.analyzers import strokes
from sglang_lifecycle.analyzers.accounting import seen
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Cause, Finding
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact

_STROKE = 1.6  # seconds within which one poll's victims are written
_ITERATION = 0.4  # seconds within which the ends are written that one abort in the scheduler brings
_LEAP = 5.0  # seconds by which an end and the time that it took disagree where a clock was set
_ALIKE = 0.6  # seconds by which two timeouts of one limit differ
_SLACK = 0.25  # seconds by which a genuine timeout may be measured shorter than its limit
_ASTRAY = "no timeout of its kind lasted as long as the limit that was told"
CAUSE = {"waiting_timeout": "waiting-timeout", "running_timeout": "running-timeout"}
"""What a timeout's text means, where it is the request's own (0.5.8 to 0.5.23)."""

_SHAPE = {"waiting_timeout": "echo-with-reason", "running_timeout": "scheduler"}


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


def resolve(scene: Scene, attempt: Attempt) -> Finding:
    """A `Request waiting|running timeout reached.`: whose timeout was it?

    It hits every rid that begins with its own from 0.5.20 on (managers/scheduler.py:_poll_timeout_aborts).
    """
    assert attempt.finish is not None
    message_id = attempt.finish.message_id or ""
    ran = ran_before(attempt)
    roots = roots_of(scene, attempt, message_id)
    told = _Told.of(scene, attempt, message_id)
    astray = False  # whether the limit that was told can't be this server's, as far as these timeouts show
    if told is not None and told.refutes:
        reached = [root for root in roots if (theirs := _Told.of(scene, root, message_id)) and not theirs.refutes]
        astray = not reached and (bool(roots) or _limit_confirmed(scene, attempt, message_id))
        roots = reached or roots
    fits = attempt.finish.finish_shape in (None, _SHAPE[message_id])
    stage = "running" if attempt.finish.finish_shape == "scheduler" else "waiting"
    if roots and _too_short(scene, attempt, roots, message_id, fits, None if astray else told):
        found = _collision(scene, attempt, roots, message_id, stage, None if astray else told)
        if astray:
            found.doubt(_ASTRAY)
        return found
    if not roots and scene.release.may_be("0.5.20"):
        if not fits and not _requeued(scene, attempt, message_id, told):
            return _unseen_root(attempt, message_id, stage)
        if told is not None and told.refutes and not astray:
            return _unseen_root(attempt, message_id, stage, told)
    own = _own(scene, attempt, message_id, stage, ran, fits, told)
    if told is not None and told.refutes:
        own.doubt(f"it lasted {told.mine:.1f} s, less than the limit of {told.limit:g} s that was told")
    hidden, verb = _open_prefix(scene, attempt), "waited" if message_id == "waiting_timeout" else "ran"
    confirmed = (told is not None and told.confirms) or _limit_confirmed(scene, attempt, message_id)
    if scene.release.may_be("0.5.20") and (hidden or not confirmed) and not (told is not None and told.exceeded):
        own.confidence = "likely"
        own.candidates.append(("timeout-prefix-collision", _decides(told, verb, "SGLANG_REQ_…_TIMEOUT of the server")))
    elif not roots and scene.release.may_be("0.5.20") and _at_the_beginning(scene, attempt):
        own.confidence = "likely"
        own.candidates.append(("timeout-prefix-collision", "the lines before: who else ended in the same second"))
    if roots and not (told is not None and told.exceeded):
        own.confidence = "likely"
        note = _decides(told, verb, "its time is as long as that of the rid that is its prefix")
        own.candidates = [("timeout-prefix-collision", note)]
    return own


@dataclass(frozen=True, slots=True)
class _Told:
    """A limit that the user knows, beside the time of an attempt that a timeout ended."""

    limit: float
    mine: float
    slack: float
    exact: bool
    """Whether its time is just what the limit counts, and finely measured."""

    @classmethod
    def of(cls, scene: Scene, attempt: Attempt, message_id: str) -> _Told | None:
        """`None` where no limit is told, or the time is unknown."""
        limit, mine = scene.limits.get(message_id), spent(attempt, message_id)
        finish = attempt.finish
        if limit is None or mine is None or finish is None:
            return None
        coarse = 0.0
        if finish.e2e_s is None and attempt.received is not None:  # by the log's clock
            coarse = (attempt.received.at_error or 0.0) + (finish.at_error or 0.0)
        pure = message_id == "waiting_timeout" or finish.queue_s is not None or "forward_entry_time" in finish.detail
        return cls(limit, mine, _SLACK + coarse, pure and coarse < _SLACK)

    @property
    def refutes(self) -> bool:
        """Whether it ended before its own time had come."""
        return self.mine < self.limit - self.slack

    @property
    def confirms(self) -> bool:
        """Whether its own time had come."""
        return self.exact and not self.refutes

    @property
    def exceeded(self) -> bool:
        """Whether its own time had come beyond doubt: what was measured around the wait makes no difference."""
        return self.exact and self.mine >= self.limit + self.slack


def _decides(told: _Told | None, verb: str, otherwise: str) -> str:
    """What would tell an own timeout from another rid's."""
    if told is None:
        return f"the limit: {otherwise}"
    if told.refutes:
        return "whether the limit that was told is this server's"
    if not told.exact:
        return f"how long it {verb}: the {told.mine:.1f} s that the logs tell are not just that, or coarse"
    return (
        f"when the scheduler took it up: its {told.mine:.1f} s are too close to the limit of {told.limit:g} s to tell"
    )


def _at_the_beginning(scene: Scene, attempt: Attempt) -> bool:
    """Whether it ended just where the log begins, and a server had been up before that."""
    begin, ended = scene.life.begin, attempt.ended_at
    started = scene.life.of(Event.SERVER_ARGS, Event.SERVER_STARTED, Event.SERVER_READY)
    return begin is not None and ended is not None and ended - begin <= _STROKE and not started


def _open_prefix(scene: Scene, attempt: Attempt) -> bool:
    """Whether a request whose rid is its prefix was in flight and has no `Finish`: its timeout may have gone unseen."""
    end = attempt.finish_order or 0
    return any(other.finish is None and other.order < end for other in scene.prefixes(attempt.rid))


def _limit_confirmed(scene: Scene, attempt: Attempt, message_id: str) -> bool:
    """Whether another timeout of the same kind, in another stroke, took as long: both measured the limit."""
    mine, ended = spent(attempt, message_id), attempt.ended_at
    if mine is None or ended is None:
        return False
    slack = max(_ALIKE, 0.1 * mine)
    fine = attempt.finish is not None and (attempt.finish.e2e_s is not None or _clocked(attempt.finish))
    lengths = _lengths(scene).get(message_id, [])
    for theirs, end in lengths[bisect.bisect_left(lengths, (mine - slack, 0.0)) :]:
        if theirs > mine + (_SLACK if fine else slack):  # the limit may be longer than its time
            break
        if abs(end - ended) > _STROKE:
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
        for message_id in CAUSE
    }


def _unseen_root(attempt: Attempt, message_id: str, stage: str, told: _Told | None = None) -> Finding:
    """The reason's form is the other stage's, or its time was too short: only another rid's timeout (0.5.20 on)."""
    assert attempt.finish is not None
    kind = "waiting" if message_id == "waiting_timeout" else "running"
    if told is None:
        why = "although it stood elsewhere"
    else:
        why = f"after {told.mine:.1f} s, before the limit of {told.limit:g} s that was told"
    text = f"A {kind} timeout ended it {why}: it was another rid's, which these logs lack."
    finding = Finding("timeout-prefix-collision", "likely", text, [attempt.finish], stage=stage, actor="peer-request")
    finding.missing.append("the request whose rid is a prefix of this one and that timed out in the same second")
    finding.http_status = None if attempt.stream else 503
    if told is not None:
        finding.candidates.append((CAUSE[message_id], "whether the limit that was told is this server's"))
    return finding


def roots_of(scene: Scene, attempt: Attempt, message_id: str) -> list[Attempt]:
    """Attempts whose own timeout can have hit this one: a rid that is its prefix, the same text, the same stroke."""
    if not scene.release.may_be("0.5.20"):
        return []
    ended = attempt.ended_at
    by_rid = _timed_out(scene)
    return [
        a
        for length in range(1, len(attempt.rid))
        for a in by_rid.get((message_id, attempt.rid[:length]), ())
        if a.ended_at is not None
        and ended is not None
        and (_at_once(a, attempt) or _set_back(a, attempt))
        and _rank(a) in (None, _rank(attempt) or _rank(a))
    ]


def _at_once(one: Attempt, other: Attempt) -> bool:
    """Whether two attempts may have been ended by one stroke, by the time of their ends."""
    within = _ITERATION if _fine(one) and _fine(other) else _STROKE
    return abs((one.ended_at or 0.0) - (other.ended_at or 0.0)) <= within or _leapt(one, other)


def _leapt(one: Attempt, other: Attempt) -> bool:
    """Whether the clock leapt while one of them lived, and both ended at once by the time that they took."""
    leaps = [a for a in (one, other) if max(a.ends, default=0.0) - min(a.ends, default=0.0) > _LEAP]
    return bool(leaps) and any(abs(mine - theirs) <= _STROKE for mine in one.ends for theirs in other.ends)


def _set_back(one: Attempt, other: Attempt) -> bool:
    """Whether the clock was set back between two ends, so that their times tell nothing of what lay between them."""
    first, second = sorted((one, other), key=lambda a: a.finish_order or 0)
    return (second.ended_at or 0.0) < (first.ended_at or 0.0) - _STROKE


def _fine(attempt: Attempt) -> bool:
    """Whether the log tells its end more finely than to the second."""
    error = attempt.finish.at_error if attempt.finish is not None else None
    return error is not None and error < _ITERATION / 2


def _rank(attempt: Attempt) -> object:
    """The DP rank that ended it, each of which keeps its own queues and limits (0.5.10 on)."""
    return attempt.finish.detail.get("dp_rank") if attempt.finish is not None else None


@per_scene
def _timed_out(scene: Scene) -> dict[tuple[str, str], list[Attempt]]:
    """The attempts that ended by a timeout, by its text and their rid."""
    found: dict[tuple[str, str], list[Attempt]] = {}
    for message_id in CAUSE:
        for attempt in scene.ended_with.get(message_id, ()):
            found.setdefault((message_id, attempt.rid), []).append(attempt)
    for attempt in scene.ended_with.get("abort_in_waiting_queue", ()):
        if strokes.in_chunks(scene, attempt):  # a running timeout ends a prompt that is read in chunks like this
            found.setdefault(("running_timeout", attempt.rid), []).append(attempt)
    return found


def ran_before(attempt: Attempt) -> bool:
    """Whether it had produced tokens, or is known to have been in a batch."""
    finish = attempt.finish
    if finish is None:
        return bool(attempt.completion_tokens)
    return bool((finish.completion_tokens or 0) > 0 or finish.retractions or "forward_entry_time" in finish.detail)


def _too_short(
    scene: Scene, attempt: Attempt, roots: list[Attempt], message_id: str, fits: bool, told: _Told | None
) -> bool:
    """Whether its own time can't have reached the limit."""
    if not fits and message_id == "running_timeout" and not ran_before(attempt):
        return True  # a running timeout on a request that never ran
    if not fits and message_id == "waiting_timeout":
        return True  # a waiting timeout that ended a running request
    if told is not None:
        return told.refutes
    mine = spent(attempt, message_id)
    limits = [s for root in roots if (s := spent(root, message_id)) is not None]
    return (
        mine is not None and bool(limits) and mine < min(limits) - _SLACK and not _reached(scene, attempt, message_id)
    )


def _reached(scene: Scene, attempt: Attempt, message_id: str) -> bool:
    """Whether its time is enough for a timeout of its own: in another stroke no more was needed, by its own limit."""
    mine = spent(attempt, message_id)
    return mine is not None and any(
        theirs <= mine + _SLACK and abs(end - (attempt.ended_at or end)) > _STROKE
        for theirs, end in _own_lengths(scene).get(message_id, ())
    )


@per_scene
def _own_lengths(scene: Scene) -> dict[str, list[tuple[float, float]]]:
    """The same as `_lengths`, of attempts that no other's timeout can have hit."""
    return {
        message_id: [
            (length, a.ended_at)
            for a in scene.ended_with.get(message_id, ())
            if (length := spent(a, message_id)) is not None
            and a.ended_at is not None
            and a.finish is not None
            and a.finish.finish_shape in (None, _SHAPE[message_id])
            and not roots_of(scene, a, message_id)
            and not _open_prefix(scene, a)
        ]
        for message_id in CAUSE
    }


def _requeued(scene: Scene, attempt: Attempt, message_id: str, told: _Told | None) -> bool:
    """Whether it was back in the waiting queue when it had run too long: a retraction, or the limit, shows it."""
    if message_id != "running_timeout":
        return False
    end = attempt.finish_order or 0
    retracted = any(attempt.order < scene.places[id(fact)] < end for fact in scene.life.of(Event.KV_RETRACTED))
    return retracted or ran_before(attempt) or (told is not None and told.confirms)


def _outlasted(scene: Scene, root: Attempt, other: float, message_id: str) -> bool:
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
        (fact.at or 0.0) - (fact.at_error or 0.0) - begun > other + _SLACK for fact in lines
    )


def _clocked(finish: Fact) -> bool:
    """Whether SGLang measured when it first ran."""
    return finish.queue_s is not None or "forward_entry_time" in finish.detail


def _inside(scene: Scene, attempt: Attempt) -> float | None:
    """The latest time by which an attempt was queued or ran: a batch line counts as many as are there.

    UTC epoch seconds; None where no line shows it. Who came or went in the moment of a line may have done so before.
    """
    measured = attempt.finish is not None and attempt.finish.e2e_s is not None and _fine(attempt)
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


_NEAR = 20  # facts behind an end among which a line of the scheduler may stand that was written before


def _collision(
    scene: Scene, attempt: Attempt, roots: list[Attempt], message_id: str, stage: str, told: _Told | None
) -> Finding:
    root = roots[0]
    assert attempt.finish is not None
    assert root.finish is not None
    kind = "waiting" if message_id == "waiting_timeout" else "running"
    mine, limit = spent(attempt, message_id), spent(root, message_id)
    sure = True
    if stage == "running" and kind == "waiting":
        how = ": it was running, and a waiting timeout of its own ends only what waits"
    elif stage == "waiting" and kind == "running":
        how = ": it had never run"
    elif told is not None and told.refutes:
        how = f": it had lasted {told.mine:.1f} s, and the limit is {told.limit:g} s, as told"
    else:
        how = f": it had lasted {mine:.1f} s, that one {limit:.1f} s" if mine and limit else ""
        sure = all(_at_once(each, attempt) and _outlasted(scene, each, mine or 0.0, message_id) for each in roots)
    finding = Finding(
        "timeout-prefix-collision",
        "proven" if sure else "likely",
        f"The {kind} timeout of {root.rid!r} hit it, because its rid begins with that one's{how}.",
        [attempt.finish, root.finish],
        stage=stage,
        actor="peer-request",
        http_status=None if attempt.stream else 503,
    )
    finding.chain.append(
        Cause(CAUSE[message_id], f"{root.rid!r} reached its {kind} timeout", [root.finish], rid=root.rid)
    )
    if not sure:
        finding.candidates.append((CAUSE[message_id], "the server's limit, or how long each of them waited and ran"))
        return finding
    why = "its own time or stage does not reach the limit"
    if told is not None and told.refutes:
        why = f"its own {told.mine:.1f} s do not reach the limit of {told.limit:g} s that was told"
    finding.ruled_out.append(Cause(CAUSE[message_id], why, [attempt.finish]))
    return finding


def _own(
    scene: Scene, attempt: Attempt, message_id: str, stage: str, ran: bool, fits: bool, told: _Told | None
) -> Finding:
    assert attempt.finish is not None
    cause = CAUSE[message_id]
    mine = spent(attempt, message_id)
    after = f" after {mine:.1f} s" if mine is not None else ""
    limit = f"limit of {told.limit:g} s, as told," if told is not None and not told.refutes else "limit"
    verb = "Waited too long in the queue" if cause == "waiting-timeout" else "Ran too long"
    finding = Finding(
        cause,
        "proven",
        f"{verb}{after}: the scheduler's {limit} ended it.",
        [attempt.finish],
        stage="waiting" if cause == "waiting-timeout" else stage,
        http_status=None if attempt.stream else 503,
    )
    finding.ruled_out.append(Cause("explicit-abort", "an abort call leaves no timeout text"))
    if cause == "waiting-timeout" and ran:
        finding.effects.append("retracted")
        finding.doubt("it had produced tokens before it waited: it was retracted, or another rid's timeout hit it")
    if not fits:
        finding.doubt(f"the finish reason's form is not that of a {cause.replace('-', ' ')}")
    if cause == "waiting-timeout":
        _add_context(scene, attempt, finding)
    return finding


def _add_context(scene: Scene, attempt: Attempt, finding: Finding) -> None:
    """Why it waited: the zombies that held the slots, else what the batch lines say of queue and batch."""
    end = attempt.finish_order
    if end is None:
        return
    zombies = [z for z in _zombies(scene) if z.attempt is not attempt and len(z.between(attempt.order, end)) > 1]
    if zombies:
        lines = [f for z in zombies[:3] for f in z.between(attempt.order, end)[:1]]
        who = f"{len(zombies)} requests" if len(zombies) > 1 else "a request"
        text = f"{who} whose client had gone was decoded on and held a slot while it waited"
        if len(zombies) > 1:
            text = f"{who} whose clients had gone were decoded on and held slots while it waited"
        finding.chain.append(Cause("client-disconnect", text, lines, rid=zombies[0].attempt.rid))
    seen = [f for f in scene.batches_between(attempt.order, end) if f.running is not None]
    if seen:
        most = max(seen, key=lambda f: (f.running or 0, f.queued or 0))
        finding.notes.append((f"{most.running} running, {most.queued or 0} queued while it waited", [most]))


@dataclass(frozen=True, slots=True)
class _Zombie:
    """An attempt that the engine went on decoding for nobody: its outputs, and their places."""

    attempt: Attempt
    outputs: Sequence[Fact]
    places: Sequence[int]

    def between(self, start: int, end: int) -> Sequence[Fact]:
        """The outputs between two places."""
        return self.outputs[bisect.bisect_left(self.places, start) : bisect.bisect_right(self.places, end)]


@per_scene
def _zombies(scene: Scene) -> list[_Zombie]:
    silent = [(a, a.of(Event.OUTPUT_UNDELIVERABLE)) for a in scene.attempts if a.finish is None]
    return [_Zombie(a, outputs, [scene.places[id(f)] for f in outputs]) for a, outputs in silent if len(outputs) > 1]
