"""Step 2 of the debugging order: who cut a request whose finish reason only says that it was aborted.

The text is the same for an abort call, an abort of another rid that is a prefix, abort-all, a pause, a weight update,
a grammar that refused a token and a session's replace. What separates them is which calls stand around the end and
who else ended with it. An access line carries no rid, so a caller known only by one is at best `likely`. In SGLang
`managers/scheduler.py:abort_request` decides whom an abort hits (0.3.6 to 0.5.23).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from sglang_lifecycle.analyzers import abort_calls, prefixes, rid_validity, session_params, twins
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import (
    ABORT_BY_PREFIX,
    ABORT_FINISHES,
    ABORT_OF_ALL,
    PARENT_REFUSED_SILENTLY,
    REPLACES,
    TIMEOUT_BY_RID,
)
from sglang_lifecycle.analyzers.finding import Cause, Finding, Possible, undecided
from sglang_lifecycle.analyzers.scene import CALL_AFTER, CALL_BEFORE, ENGINE_CALL, Call, Scene
from sglang_lifecycle.analyzers.strokes import (
    TOGETHER,
    Stroke,
    crowd,
    held_back,
    in_chunks,
    per_stroke,
    surely_met,
    survivors,
)
from sglang_lifecycle.analyzers.texts import RUNNING_ABORTS
from sglang_lifecycle.parsers.evidence import Event, Fact

_PAUSE = 5.0  # seconds by which a pause answers after the last end: it aborts each second what is left

_POSSIBLE = {
    "explicit-abort": ABORT_FINISHES,
    "abort-all": ABORT_OF_ALL,
    "abort-prefix-collision": ABORT_FINISHES,
    "pause-abort": ABORT_OF_ALL,
    "weight-update-abort": ABORT_OF_ALL,
    "session-replaced": REPLACES,
    "session-branch-cleared": REPLACES,
    "session-parent-unknown": PARENT_REFUSED_SILENTLY,
    "session-parent-unfinished": PARENT_REFUSED_SILENTLY,
}
"""What may stand behind a plain abort in a `Finish`, and what SGLang has to do for that.

Before 0.4.7 only what a session aborts has a `Finish`, which says `Unknown error`.
"""

WOULD_DECIDE = {
    "session-replaced": "the request log: a turn of its session with replace",
    "session-branch-cleared": "the request log: a turn of its session with replace, of a turn before",
    "session-parent-unknown": "the request log from the session's opening on",
    "session-parent-unfinished": "the scheduler's warning in the same second",
    "explicit-abort": "the caller's log of /abort_request (its line carries no rid), or --log-level debug",
    "abort-all": "the caller's log of /abort_request, with abort_all",
    "abort-prefix-collision": "which rid the abort call named: the caller's log",
    "pause-abort": "the access log with /pause_generation around the end",
    "weight-update-abort": "the access log with /update_weights… around the end",
    "running-timeout": "SGLANG_REQ_RUNNING_TIMEOUT of the server: a prompt that is prefilled in chunks ends like this",
    "duplicate-rid": "which request of its rid the abort was sent for: the log of its client",
    "client-disconnect": "the proxy's or client's log: did it close the connection?",
}


def stage(attempt: Attempt) -> str:
    """Where a plainly aborted attempt stood, by what its `Finish` says (0.4.9 to 0.5.23)."""
    finish = attempt.finish
    if finish is None:
        return "unknown"
    executed = attempt.of(Event.ABORT_EXECUTED)
    if executed:
        return str(executed[0].detail["place"])
    return "running" if _told_while_running(finish) else "waiting"


def _told_while_running(finish: Fact) -> bool:
    known = finish.message_id is not None
    return finish.message_id in RUNNING_ABORTS if known else finish.finish_shape == "scheduler"


_REFUSED = frozenset({"session-parent-unknown", "session-parent-unfinished"})


def resolve(scene: Scene, attempt: Attempt) -> Finding:
    """Who aborted an attempt whose `Finish` gives no reason."""
    for rule in (_grammar, _replaced, rid_validity.old_refusal, _twin_left, _prefix_left, _engine_call, _abort_call):
        finding = rule(scene, attempt)
        if finding is not None:
            break
    else:
        finding = _unseen(scene, attempt)
    for cause in _further(scene, attempt):
        finding.admit(cause, WOULD_DECIDE[cause])
    if finding.cause in _REFUSED:
        finding.stage = "before-scheduler"
    elif finding.stage == "unknown":
        finding.stage = stage(attempt)
    if attempt.finish is not None and not _told_while_running(attempt.finish) and ran(attempt):
        finding.effects.append("retracted")
    return finding


def _further(scene: Scene, attempt: Attempt) -> list[str]:
    """What looks like an abort by the records alone: a timeout in chunks loses its text, a refused parent had none."""
    finish, release = attempt.finish, scene.release
    assert finish is not None
    found = []
    if finish.message_id == "abort_in_waiting_queue" and release.may_have(TIMEOUT_BY_RID) and in_chunks(scene, attempt):
        found.append("running-timeout")
    at_once = (finish.completion_tokens or 0) <= 1
    if attempt.parent_rid is not None and at_once and release.may_have(PARENT_REFUSED_SILENTLY):
        found += sorted(_REFUSED)
    if twins.left(scene, attempt) is not None:
        found.append("duplicate-rid")
    return found


def early(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """Who aborted a request that had not reached the waiting queue: the reason's text itself says that it was one."""
    at = said.at
    calls = scene.calls_between("abort", at - CALL_BEFORE, at + CALL_AFTER) if at is not None else []
    arrived = attempt.received_at
    calls = [
        c for c in calls if c.order > attempt.order or (arrived is not None and (c.at or 0.0) >= arrived - CALL_AFTER)
    ]
    engine = scene.engine_causes(at) if at is not None else []
    if not calls:
        names = ["explicit-abort", "client-disconnect", "abort-all", *engine]
        return undecided("Aborted before it reached the waiting queue.", [(c, WOULD_DECIDE[c]) for c in names], [said])
    together = Stroke(
        scene, [a for a in scene.plain_ends if at is not None and abs((a.ended_at or 0.0) - at) <= TOGETHER]
    )
    prefix = any(attempt.rid.startswith(a.rid) for a in together)
    names = ["explicit-abort", *["abort-all"] * bool(together), *["abort-prefix-collision"] * prefix, *engine]
    lived_on = any(surely_met(scene, a, calls[-1]) for a in survivors(together, calls[-1]))
    everyone = len(together) >= len(calls) and not prefix and not lived_on
    text = "Aborted by a call of /abort_request before it reached the waiting queue"
    text += f", together with {len(together)} others." if everyone else "."
    cause = "abort-all" if everyone else "abort-prefix-collision" if prefix else "explicit-abort"
    finding = Finding(cause, "likely", text, [calls[-1].fact, said])
    finding.candidates = [(name, WOULD_DECIDE[name]) for name in names if name != cause]
    return finding


def ran(attempt: Attempt) -> bool:
    """Whether it had produced output before it was aborted in the queue: it was retracted first."""
    finish = attempt.finish
    return finish is not None and bool(
        (finish.completion_tokens or 0) > 0 or (finish.retractions or 0) > 0 or finish.detail.get("has_output")
    )


def _grammar(_: Scene, attempt: Attempt) -> Finding | None:
    """A token that the grammar refuses aborts its request with the plain text (0.4.10 to 0.5.22)."""
    refused = attempt.of(Event.GRAMMAR_TOKEN_REFUSED)
    if not refused or attempt.finish is None:
        return None
    return Finding(
        "grammar-failed",
        "proven",
        "A generated token was refused by the request's grammar; the finish reason only says that it was aborted.",
        [refused[0], attempt.finish],
    )


def _engine_call(scene: Scene, attempt: Attempt) -> Finding | None:
    """A pause in abort mode or a weight update ends everything in flight, then answers (0.4.9 to 0.5.23)."""
    stroke = crowd(scene, attempt)
    engine = _engine(scene, attempt, stroke)
    if engine is None:
        return None
    kind, start, call = engine
    aborts = abort_calls.fresh(stroke)
    if aborts and start is None:
        return None
    what = "a weight update" if kind == "weight-update-abort" else "/pause_generation in abort mode"
    lines = [f for f in (start, attempt.finish, call.fact if call is not None else None) if f is not None]
    others = f", together with {len(stroke) - 1} others" if len(stroke) > 1 else ""
    finding = Finding(kind, "likely", f"Cut by {what}{others}; nothing that was in flight outlived it.", lines)
    roots = bool(prefixes.left(scene, attempt) or prefixes.silent(scene, attempt))
    roots = roots or (bool(aborts) and prefixes.any_root(scene, attempt, stroke))
    others_too = [c for c in scene.engine_causes(attempt.ended_at or 0.0) if c != kind]
    names = ["explicit-abort", "abort-all", *["abort-prefix-collision"] * roots, *others_too]
    finding.candidates = [(c, WOULD_DECIDE[c]) for c in names]
    if not aborts:
        finding.ruled_out.append(Cause("abort-all", "no /abort_request stands before the end"))
    return finding


def _engine(scene: Scene, attempt: Attempt, stroke: Stroke) -> tuple[str, Fact | None, Call | None] | None:
    """The pause or weight update that may have ended a stroke: its cause, the line of its start, and of its answer."""
    ended, order = attempt.ended_at, attempt.finish_order or 0
    if ended is None:
        return None
    calls = [
        c for kind, within in (("pause", _PAUSE), ("weights", ENGINE_CALL))
        for c in scene.calls_between(kind, ended - CALL_AFTER, ended + within)
        if c.order > order and not _served_between(scene, ended, c)
    ]  # fmt: skip
    starts = [
        f for f in scene.updates_between(ended - CALL_BEFORE, ended + CALL_AFTER)
        if not _over_before(scene, f, attempt) and not _begun_after(stroke, f)
    ]  # fmt: skip
    call = min(calls, key=lambda c: c.order, default=None)
    if call is None and not starts:
        return None
    answered = call.order if call is not None else order
    if any(not held_back(scene, other, answered) for other in survivors(stroke)):
        return None
    kind = "weight-update-abort" if starts or (call is not None and call.kind == "weights") else "pause-abort"
    return kind, starts[0] if starts else None, call


def _served_between(scene: Scene, ended: float, call: Call) -> bool:
    """Whether a request came after an end and went well before a call was answered, which then had not begun."""
    if call.at is None:
        return False
    known: dict[tuple[float, int], bool] = scene.memo.setdefault(_served_between, {})  # many end in one moment
    asked = ended, call.order
    if asked not in known:
        known[asked] = any(
            attempt.went_well
            and (attempt.received_at or 0.0) > ended + CALL_AFTER
            and (attempt.ended_at or call.at) < call.at - CALL_AFTER
            for attempt in scene.ended_between(ended, call.at)
        )
    return known[asked]


def _over_before(scene: Scene, start: Fact, attempt: Attempt) -> bool:
    """Whether a weight update was answered before a request came."""
    begun = scene.places[id(start)]
    answers = scene.call_orders.get("weights", [])
    return bisect_right(answers, begun) < bisect_left(answers, attempt.order)


def _begun_after(stroke: Stroke, start: Fact) -> bool:
    """Whether a weight update began after a stroke: one process writes that line, then aborts, then writes the ends."""
    return start.process in stroke.logs and stroke.scene.places[id(start)] > stroke.last + abort_calls.LATE


def _replaced(scene: Scene, attempt: Attempt) -> Finding | None:
    """Cut by its session; an abort that was asked for before takes effect at its next result, maybe first."""
    finding = session_params.replaced(scene, attempt)
    if finding is None:
        return None
    calls, stroke = abort_calls.fresh(Stroke(scene, [attempt])), crowd(scene, attempt)
    roots = prefixes.any_root(scene, attempt, stroke)
    called = ["explicit-abort", *["abort-all"] * (len(stroke) > 1)] if calls else []
    for cause in [*called, *["abort-prefix-collision"] * roots]:
        finding.ruled_out = [each for each in finding.ruled_out if each.cause != cause]
        finding.soften((cause, WOULD_DECIDE[cause]))
    return finding


def _twin_left(scene: Scene, attempt: Attempt) -> Finding | None:
    """The client of a request that it displaced left: the abort of their rid hits whoever has it now (to 0.5.9)."""
    gone, stroke = twins.left(scene, attempt), crowd(scene, attempt)
    if gone is None:
        return None
    calls = abort_calls.near(stroke) or _engine(scene, attempt, stroke)
    if calls and scene.places[id(gone)] < attempt.order:
        return None  # it came later, and something else may have ended it
    text = "The client of an earlier request with its rid left, and the abort of that rid ended this one."
    finding = Finding("duplicate-rid", "likely", text, [gone, *_ends(attempt)])
    finding.chain.append(Cause("client-disconnect", "the first one's client left", [gone], rid=attempt.rid))
    collided = prefixes.any_root(scene, attempt, stroke)
    names = ["explicit-abort", *["abort-prefix-collision"] * collided, *["abort-all"] * bool(calls)]
    finding.candidates += [(name, WOULD_DECIDE[name]) for name in names]
    return finding


def _prefix_left(scene: Scene, attempt: Attempt) -> Finding | None:
    """A rid that is its prefix was aborted in the same stroke, which hits both (0.4.4 to 0.5.23).

    Its client left, or, from 0.4.10 to 0.5.15, its grammar refused a token.
    """
    roots, stroke = prefixes.left(scene, attempt), crowd(scene, attempt)
    if not roots or abort_calls.fresh(stroke):
        return None
    root, gone = roots[0]
    engine = _engine(scene, attempt, stroke)
    if engine is not None and any(not a.rid.startswith(root.rid) for a in stroke):
        return None  # others fell as well
    cause, what = _PREFIX_ENDS[gone.event]
    text = f"{what.format(repr(root.rid))}; the abort of its rid hits every rid that begins with it, and this one does."
    finding = Finding("abort-prefix-collision", "likely", f"{text[0].upper()}{text[1:]}", [gone, *_ends(attempt)])
    finding.chain.append(Cause(cause, what.format(repr(root.rid)), [gone], rid=root.rid))
    names = ["explicit-abort", *([engine[0]] if engine is not None else [])]
    finding.candidates += [(name, WOULD_DECIDE[name]) for name in names]
    return finding


_PREFIX_ENDS = {
    Event.CLIENT_DISCONNECTED: ("client-disconnect", "the client of {} left"),
    Event.GRAMMAR_TOKEN_REFUSED: ("grammar-failed", "the grammar of {} refused a token"),
}
"""What aborts a request by its rid, without a call."""


def _abort_call(scene: Scene, attempt: Attempt) -> Finding | None:
    """`/abort_request` near the end: for this rid, for a rid that is its prefix, or for all."""
    stroke = crowd(scene, attempt)
    if not abort_calls.near(stroke):
        return None
    finding = _called(scene, attempt, stroke)
    if finding is not None and prefixes.any_root(scene, attempt, stroke):
        finding.admit("abort-prefix-collision", WOULD_DECIDE["abort-prefix-collision"])
    if finding is not None and _of_all(stroke):
        finding.ruled_out = [each for each in finding.ruled_out if each.cause != "abort-all"]
        finding.admit("abort-all", WOULD_DECIDE["abort-all"])
    engine = _engine(scene, attempt, stroke)
    if finding is not None and engine is not None and engine[0] not in dict(finding.candidates):
        finding.admit(engine[0], WOULD_DECIDE[engine[0]])
        finding.ruled_out = [each for each in finding.ruled_out if each.cause != engine[0]]
    return finding


def _explained(scene: Scene, member: Attempt) -> bool:
    """Whether one of a stroke needs no call: its session cut it, or its grammar refused a token."""
    return bool(member.of(Event.GRAMMAR_TOKEN_REFUSED)) or session_params.replaced(scene, member) is not None


@per_stroke
def _of_all(stroke: Stroke) -> bool:
    """Whether nobody is known to have outlived one of the other calls: what ran may end later than what waited."""
    left_out = set(map(id, abort_calls.taken(stroke)))
    others = [call for call in abort_calls.near(stroke) if id(call) not in left_out]
    alive = survivors(stroke) if others else []
    return not all(any(a.order < call.order and surely_met(stroke.scene, a, call) for a in alive) for call in others)


@per_stroke
def _unexplained(stroke: Stroke) -> Stroke:
    """Those of a stroke that nothing but a call explains."""
    return Stroke(stroke.scene, [a for a in stroke if not _explained(stroke.scene, a)])


@per_stroke
def _rootless(stroke: Stroke) -> int:
    """How many of a stroke have a rid that begins with nobody else's."""
    return sum(not stroke.roots(a) for a in stroke)


def _called(scene: Scene, attempt: Attempt, stroke: Stroke) -> Finding | None:
    """What the abort calls near a stroke tell of it, and of one that it ended."""
    assert attempt.finish is not None
    calls, members = abort_calls.taken(stroke), _unexplained(stroke)
    if _explained(scene, attempt):
        members = Stroke(scene, [a for a in stroke if a is attempt or not _explained(scene, a)])
    alone, rootless = len(members) == 1, _rootless(members)
    lives_on = _outlived(members, calls[0])
    lines: list[Fact] = [calls[0].fact, attempt.finish]
    shorter = members.roots(attempt)
    before = [call for call in calls if call.order < members.fell] or calls  # one that follows: who comes next
    if shorter and rootless <= len(before) < len(members):
        return _collision(scene, attempt, shorter, calls, lives_on)
    if len(calls) >= rootless:
        finding = Finding(
            "explicit-abort",
            "likely",
            "Aborted by a call of /abort_request just before its end"
            + (f"; {_others(lives_on)} lived on, so it was not an abort of all." if lives_on else "."),
            lines,
        )
        if lives_on:
            finding.ruled_out.append(Cause("abort-all", "other requests in flight lived on", _proof(lives_on)))
            finding.ruled_out.append(Cause("pause-abort", "other requests in flight lived on", _proof(lives_on)))
        else:
            finding.candidates.append(("abort-all", WOULD_DECIDE["abort-all"]))
        finding.candidates += _by_session(attempt)
        return finding
    if not lives_on and not alone:
        finding = Finding(
            "abort-all",
            "likely",
            f"Cut by one stroke with {len(members) - 1} others after {_calls(calls)} of /abort_request: "
            "everything in flight ended.",
            lines,
        )
        finding.candidates.append(("explicit-abort", WOULD_DECIDE["explicit-abort"]))
        finding.candidates += _by_session(attempt)
        return finding
    return undecided(
        f"{len(members)} requests ended together after {_calls(calls)} of /abort_request, and "
        f"{len(lives_on)} lived on; which of them the calls named does not show.",
        [(c, WOULD_DECIDE[c]) for c in ("explicit-abort", "abort-prefix-collision", "abort-all")],
        lines,
    )


def _by_session(attempt: Attempt) -> list[Possible]:
    """What its session may have done to a turn whose beginning the logs lack, and with it that of others."""
    if attempt.received is not None or attempt.session_id is None:
        return []
    names = ("session-replaced", "session-branch-cleared")
    return [(name, "the log before: which turns of its session came with replace") for name in names]


def _others(others: Sequence[Attempt]) -> str:
    return f"{len(others)} other requests seen in flight" if len(others) > 1 else "another request in flight"


def _calls(calls: Sequence[Call]) -> str:
    return f"{len(calls)} calls" if len(calls) > 1 else "one call"


def _proof(others: Sequence[Attempt]) -> list[Fact]:
    return [a.finish for a in others[:1] if a.finish is not None]


def _outlived(stroke: Stroke, call: Call) -> list[Attempt]:
    """Who surely was in the engine when a call came, and lived on."""
    asked = _outlived, call.order
    if asked not in stroke.memo:
        stroke.memo[asked] = [a for a in survivors(stroke, call) if surely_met(stroke.scene, a, call)]
    found: list[Attempt] = stroke.memo[asked]
    return found


def _collision(
    scene: Scene, attempt: Attempt, shorter: Sequence[Attempt], calls: Sequence[Call], lives_on: Sequence[Attempt]
) -> Finding | None:
    """The scheduler aborts every rid that begins with the one named (0.4.4 to 0.5.23)."""
    if not scene.release.may_have(ABORT_BY_PREFIX):
        return None
    root = shorter[0]
    assert attempt.finish is not None
    finding = Finding(
        "abort-prefix-collision",
        "likely",
        f"The abort named {root.rid!r}; the scheduler aborts every rid that begins with it, and this one does.",
        [calls[0].fact, attempt.finish],
    )
    finding.chain.append(
        Cause("explicit-abort", f"{root.rid!r} was aborted by /abort_request", _ends(root), rid=root.rid)
    )
    finding.candidates.append(("explicit-abort", WOULD_DECIDE["explicit-abort"]))
    if not lives_on:
        finding.candidates.append(("abort-all", WOULD_DECIDE["abort-all"]))
    return finding


def _ends(attempt: Attempt) -> list[Fact]:
    return [attempt.finish] if attempt.finish is not None else []


def _unseen(scene: Scene, attempt: Attempt) -> Finding:
    """No call that explains it is in the logs."""
    lines = _ends(attempt)
    if not scene.sees_access:
        missing = "the access log: without it no abort call, pause or weight update can be seen"
    else:
        missing = "an abort call, pause or weight update near its end"
    session = attempt.session_id is not None
    names = [
        cause
        for cause, behaviour in _POSSIBLE.items()
        if scene.release.may_have(behaviour) and (session or not cause.startswith("session-"))
    ]
    finding = undecided(
        "Aborted on request, but no line shows who asked for it.", [(c, WOULD_DECIDE[c]) for c in names], lines
    )
    finding.missing.append(missing)
    return finding
