"""Step 3 of the debugging order: a waiting or a running timeout, its own or one that hit it by rid prefix.

The scheduler writes no line of its own for a timeout (0.5.8 to 0.5.23). From 0.5.20 on a timeout travels as an abort by
rid, and an abort matches by prefix (managers/scheduler.py:_poll_timeout_aborts, abort_request).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sglang_lifecycle.analyzers import limits, missing, strokes, zombies
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import TIMEOUT_BY_RID
from sglang_lifecycle.analyzers.finding import Cause, Finding
from sglang_lifecycle.analyzers.limits import ITERATION, KINDS, SLACK, STROKE, Kind, Told, finely_dated, spent
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact

_LEAP = 5.0  # seconds by which an end and the time that it took disagree where a clock was set
_ASTRAY = "no timeout of its kind lasted as long as the limit that was told"


@dataclass(frozen=True, slots=True)
class _Struck:
    """An attempt that a timeout ended, and what may tell whose timeout it was."""

    scene: Scene
    attempt: Attempt
    finish: Fact
    kind: Kind
    roots: list[Attempt]
    """Those whose timeout it may have been, if it was not its own."""
    told: Told | None

    @classmethod
    def of(cls, scene: Scene, attempt: Attempt) -> _Struck:
        """Where the limit is told, only those count as roots that reached it, if any did."""
        assert attempt.finish is not None
        kind = KINDS[attempt.finish.message_id or ""]
        roots, told = roots_of(scene, attempt, kind.id), Told.of(scene, attempt, kind.id)
        if told is not None and told.short:
            reached = [root for root in roots if (theirs := Told.of(scene, root, kind.id)) and not theirs.short]
            astray = not reached and (bool(roots) or limits.confirmed(scene, attempt, kind.id))
            roots, told = reached or roots, replace(told, astray=astray)
        return cls(scene, attempt, attempt.finish, kind, roots, told)

    @property
    def fits(self) -> bool:
        """Whether the finish reason has the form of such a timeout's."""
        return self.finish.finish_shape in (None, self.kind.shape)

    @property
    def stage(self) -> str:
        """Where it stood, by the form of the finish reason."""
        return "running" if self.finish.finish_shape == "scheduler" else "waiting"

    @property
    def mine(self) -> float | None:
        """Seconds of its own that count towards the limit."""
        return spent(self.attempt, self.kind.id)

    @property
    def http_status(self) -> int | None:
        """What its client got where it waits for one answer."""
        return None if self.attempt.stream else 503


def resolve(scene: Scene, attempt: Attempt) -> Finding:
    """A `Request waiting|running timeout reached.`: whose timeout was it?

    It hits every rid that begins with its own from 0.5.20 on (managers/scheduler.py:_poll_timeout_aborts).
    """
    struck = _Struck.of(scene, attempt)
    return _anothers(struck) or _unseen_root(struck) or _own(struck)


def _anothers(struck: _Struck) -> Finding | None:
    """The timeout of a rid that is its prefix, where its own time was too short."""
    if not struck.roots or not _too_short(struck):
        return None
    kind, told, root = struck.kind, struck.told, struck.roots[0]
    assert root.finish is not None
    how, sure = _not_its_own(struck, root)
    finding = Finding(
        "timeout-prefix-collision",
        "proven" if sure else "likely",
        f"The {kind.name} timeout of {root.rid!r} hit it, because its rid begins with that one's{how}.",
        [struck.finish, root.finish],
        stage=struck.stage,
        actor="peer-request",
        http_status=struck.http_status,
    )
    finding.chain.append(
        Cause(kind.cause, f"{root.rid!r} reached its {kind.name} timeout", [root.finish], rid=root.rid)
    )
    if sure:
        why = "its own time or stage does not reach the limit"
        if told is not None and told.refutes:
            why = f"its own {told.mine:.1f} s do not reach the limit of {told.limit:g} s that was told"
        finding.ruled_out.append(Cause(kind.cause, why, [struck.finish]))
    else:
        finding.admit(kind.cause, "the server's limit, or how long each of them waited and ran")
    if told is not None and told.astray:
        finding.doubt(_ASTRAY)
    return finding


def _not_its_own(struck: _Struck, root: Attempt) -> tuple[str, bool]:
    """How it shows that a timeout was not its own but a root's, and whether that is certain."""
    told, mine, limit = struck.told, struck.mine, spent(root, struck.kind.id)
    if struck.stage == "running" and struck.kind.name == "waiting":
        return ": it was running, and a waiting timeout of its own ends only what waits", True
    if struck.stage == "waiting" and struck.kind.name == "running":
        return ": it had never run", True
    if told is not None and told.refutes:
        return f": it had lasted {told.mine:.1f} s, and the limit is {told.limit:g} s, as told", True
    how = f": it had lasted {mine:.1f} s, that one {limit:.1f} s" if mine and limit else ""
    outlasted = (limits.outlasted(struck.scene, each, mine or 0.0, struck.kind.id) for each in struck.roots)
    return how, all(_at_once(each, struck.attempt) for each in struck.roots) and all(outlasted)


def _unseen_root(struck: _Struck) -> Finding | None:
    """The reason's form is the other stage's, or its time was too short: only another rid's timeout (0.5.20 on)."""
    if struck.roots or not struck.scene.release.may_have(TIMEOUT_BY_RID):
        return None
    kind, told = struck.kind, None
    if not struck.fits and not _requeued(struck):
        why = "although it stood elsewhere"
    elif struck.told is not None and struck.told.refutes:
        told = struck.told
        why = f"after {told.mine:.1f} s, before the limit of {told.limit:g} s that was told"
    else:
        return None
    text = f"A {kind.name} timeout ended it {why}: it was another rid's, which these logs lack."
    finding = Finding("timeout-prefix-collision", "likely", text, [struck.finish], actor="peer-request")
    finding.missing.append("the request whose rid is a prefix of this one and that timed out in the same second")
    finding.stage, finding.http_status = struck.stage, struck.http_status
    if told is not None:
        finding.candidates.append((kind.cause, "whether the limit that was told is this server's"))
    return finding


def _own(struck: _Struck) -> Finding:
    """Its own timeout, as far as nothing shows another's."""
    kind, told, mine = struck.kind, struck.told, struck.mine
    waited = kind.name == "waiting"
    after = f" after {mine:.1f} s" if mine is not None else ""
    limit = f"limit of {told.limit:g} s, as told," if told is not None and not told.short else "limit"
    finding = Finding(
        kind.cause,
        "proven",
        f"{kind.too_long}{after}: the scheduler's {limit} ended it.",
        [struck.finish],
        stage=kind.name if waited else struck.stage,
        http_status=struck.http_status,
    )
    finding.ruled_out.append(Cause("explicit-abort", "an abort call leaves no timeout text"))
    if waited and ran_before(struck.attempt):
        finding.effects.append("retracted")
        finding.doubt("it had produced tokens before it waited: it was retracted, or another rid's timeout hit it")
    if not struck.fits:
        finding.doubt(f"the finish reason's form is not that of a {kind.name} timeout")
    if waited:
        _add_context(struck.scene, struck.attempt, finding)
    if told is not None and told.short:
        finding.doubt(f"it lasted {told.mine:.1f} s, less than the limit of {told.limit:g} s that was told")
    decides = _perhaps_anothers(struck)
    if decides is not None:
        finding.soften(("timeout-prefix-collision", decides))
    return finding


def _perhaps_anothers(struck: _Struck) -> str | None:
    """What would decide whether it was not another rid's timeout after all (0.5.20 on); None where it was not."""
    scene, attempt, told = struck.scene, struck.attempt, struck.told
    if not scene.release.may_have(TIMEOUT_BY_RID):
        return None
    if told is None or not told.exceeded:
        if struck.roots:
            return _decides(struck, "its time is as long as that of the rid that is its prefix")
        confirmed = (told is not None and told.confirms) or limits.confirmed(scene, attempt, struck.kind.id)
        if not confirmed or _open_prefix(scene, attempt):
            return _decides(struck, "SGLANG_REQ_…_TIMEOUT of the server")
        if not struck.roots and missing.silently(scene):
            return "the lines that the log lacks: who else ended in the same second"
    if not struck.roots and _at_the_beginning(scene, attempt):
        return "the lines before: who else ended in the same second"
    return None


def _decides(struck: _Struck, otherwise: str) -> str:
    """What would tell an own timeout from another rid's."""
    told = struck.told
    if told is None:
        return f"the limit: {otherwise}"
    if told.short:
        return "whether the limit that was told is this server's"
    if not told.exact:
        return f"how long it {struck.kind.verb}: the {told.mine:.1f} s that the logs tell are not just that, or coarse"
    return (
        f"when the scheduler took it up: its {told.mine:.1f} s are too close to the limit of {told.limit:g} s to tell"
    )


def _at_the_beginning(scene: Scene, attempt: Attempt) -> bool:
    """Whether it ended just where the log begins, and a server had been up before that."""
    begin, ended = scene.life.begin, attempt.ended_at
    return begin is not None and ended is not None and ended - begin <= STROKE and not scene.life.whole


def _open_prefix(scene: Scene, attempt: Attempt) -> bool:
    """Whether a request whose rid is its prefix was in flight and has no `Finish`: its timeout may have gone unseen."""
    end = attempt.finish_order or 0
    return any(other.finish is None and other.order < end for other in scene.prefixes(attempt.rid))


def roots_of(scene: Scene, attempt: Attempt, message_id: str) -> list[Attempt]:
    """Attempts whose own timeout can have hit this one: a rid that is its prefix, the same text, the same stroke."""
    if not scene.release.may_have(TIMEOUT_BY_RID):
        return []
    by_rid = _timed_out(scene)
    return [
        a
        for rid in scene.beginnings(attempt.rid)
        for a in by_rid.get((message_id, rid), ())
        if strokes.cut_at(a)
        and strokes.cut_at(attempt)
        and (_at_once(a, attempt) or _set_back(a, attempt))
        and _rank(a) in (None, _rank(attempt) or _rank(a))
    ]


def _at_once(one: Attempt, other: Attempt) -> bool:
    """Whether two attempts may have been ended by one stroke, by the time of their ends."""
    within = ITERATION if finely_dated(one) and finely_dated(other) else STROKE
    return abs(strokes.cut_at(one) - strokes.cut_at(other)) <= within or _leapt(one, other)


def _leapt(one: Attempt, other: Attempt) -> bool:
    """Whether the clock leapt while one of them lived, and both ended at once by the time that they took."""
    leaps = [a for a in (one, other) if max(a.ends, default=0.0) - min(a.ends, default=0.0) > _LEAP]
    return bool(leaps) and any(abs(mine - theirs) <= STROKE for mine in one.ends for theirs in other.ends)


def _set_back(one: Attempt, other: Attempt) -> bool:
    """Whether the clock was set back between two ends, so that their times tell nothing of what lay between them."""
    first, second = sorted((one, other), key=lambda a: a.finish_order or 0)
    return (second.ended_at or 0.0) < (first.ended_at or 0.0) - STROKE


def _rank(attempt: Attempt) -> object:
    """The DP rank that ended it, each of which keeps its own queues and limits (0.5.10 on)."""
    return attempt.finish.detail.get("dp_rank") if attempt.finish is not None else None


@per_scene
def _timed_out(scene: Scene) -> dict[tuple[str, str], list[Attempt]]:
    """The attempts that ended by a timeout, by its text and their rid."""
    found: dict[tuple[str, str], list[Attempt]] = {}
    for message_id in KINDS:
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


def _too_short(struck: _Struck) -> bool:
    """Whether its own time can't have reached the limit."""
    kind, told, mine = struck.kind, struck.told, struck.mine
    if not struck.fits and kind.name == "running" and not ran_before(struck.attempt):
        return True  # a running timeout on a request that never ran
    if not struck.fits and kind.name == "waiting":
        return True  # a waiting timeout that ended a running request
    if told is not None and not told.astray:
        return told.refutes
    lengths = [s for root in struck.roots if (s := spent(root, kind.id)) is not None]
    return mine is not None and bool(lengths) and mine < min(lengths) - SLACK and not _reached(struck, mine)


def _reached(struck: _Struck, mine: float) -> bool:
    """Whether its time is enough for a timeout of its own: in another stroke no more was needed, by its own limit."""
    ended = struck.attempt.ended_at
    return any(
        theirs <= mine + SLACK and abs(end - (ended or end)) > STROKE
        for theirs, end in _own_lengths(struck.scene).get(struck.kind.id, ())
    )


@per_scene
def _own_lengths(scene: Scene) -> dict[str, list[tuple[float, float]]]:
    """How long the attempts lasted that their own timeout ended for certain, and when they ended, by its text."""
    return {
        message_id: [
            (length, a.ended_at)
            for a in scene.ended_with.get(message_id, ())
            if (length := spent(a, message_id)) is not None
            and a.ended_at is not None
            and a.finish is not None
            and a.finish.finish_shape in (None, kind.shape)
            and not roots_of(scene, a, message_id)
            and not _open_prefix(scene, a)
        ]
        for message_id, kind in KINDS.items()
    }


def _requeued(struck: _Struck) -> bool:
    """Whether it was back in the waiting queue when it had run too long: a retraction, or the limit, shows it."""
    if struck.kind.name != "running":
        return False
    scene, attempt, told = struck.scene, struck.attempt, struck.told
    end = attempt.finish_order or 0
    retracted = any(attempt.order < scene.places[id(fact)] < end for fact in scene.life.of(Event.KV_RETRACTED))
    return retracted or ran_before(attempt) or (told is not None and told.confirms)


def _add_context(scene: Scene, attempt: Attempt, finding: Finding) -> None:
    """Why it waited: the zombies that held the slots, else what the batch lines say of queue and batch."""
    end = attempt.finish_order
    if end is None:
        return
    finding.chain += zombies.beside(scene, attempt, end)
    lines = [f for f in scene.batches_between(attempt.order, end) if f.running is not None]
    if lines:
        most = max(lines, key=lambda f: (f.running or 0, f.queued or 0))
        finding.notes.append((f"{most.running} running, {most.queued or 0} queued while it waited", [most]))
