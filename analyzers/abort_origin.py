"""Step 2 of the debugging order: who cut a request whose finish reason only says that it was aborted.

The text is the same for an abort call, an abort of another rid that is a prefix, abort-all, a pause, a weight update,
a grammar that refused a token and a session's replace. What separates them is which calls stand around the end and
who else ended with it. An access line carries no rid, so a caller known only by one is at best `likely`. In SGLang
`managers/scheduler.py:abort_request` decides whom an abort hits (0.3.6 to 0.5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_lifecycle.analyzers import (
    abort_calls,
    engine_calls,
    prefixes,
    rid_validity,
    session_params,
    timeouts,
    twins,
)
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
from sglang_lifecycle.analyzers.limits import KINDS
from sglang_lifecycle.analyzers.scene import Call, Scene
from sglang_lifecycle.analyzers.strokes import (
    Stroke,
    crowd,
    cut_at,
    in_chunks,
    per_stroke,
    surely_met,
    survivors,
)
from sglang_lifecycle.analyzers.texts import RUNNING_ABORTS, aborted_early
from sglang_lifecycle.parsers.evidence import Event, Fact

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
    "timeout-prefix-collision": "which rid was aborted: the caller's log, or --log-level debug",
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
    rules = (_grammar, _replaced, rid_validity.old_refusal, *_STROKES)
    finding = next((found for rule in rules if (found := rule(scene, attempt)) is not None), None)
    finding = finding or _unseen(scene, attempt)
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
    if _timed_out(scene, attempt):
        found.append("timeout-prefix-collision")
    at_once = (finish.completion_tokens or 0) <= 1
    if attempt.parent_rid is not None and at_once and release.may_have(PARENT_REFUSED_SILENTLY):
        found += sorted(_REFUSED)
    if twins.left(scene, attempt) is not None:
        found.append("duplicate-rid")
    return found


def early(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """Who aborted a request that had not reached the waiting queue: the reason's text itself says that it was one."""
    finding = next((found for rule in _STROKES if (found := rule(scene, attempt)) is not None), None)
    if finding is None:
        names = ["client-disconnect", *_possible(scene, of_a_session=False)]
        text = "Aborted before it reached the waiting queue."
        return undecided(text, [(c, WOULD_DECIDE[c]) for c in names], [said])
    finding.evidence += [said] * (said not in finding.evidence)
    if _timed_out(scene, attempt):
        finding.admit("timeout-prefix-collision", WOULD_DECIDE["timeout-prefix-collision"])
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
    engine = engine_calls.near(scene, attempt, stroke)
    if engine is None:
        return None
    kind, start, call = engine
    aborts = abort_calls.fresh(stroke)
    if aborts and start is None:
        return None
    what = "a weight update" if kind == "weight-update-abort" else "/pause_generation in abort mode"
    lines = [f for f in (start, attempt.cut, call.fact if call is not None else None) if f is not None]
    others = f", together with {len(stroke) - 1} others" if len(stroke) > 1 else ""
    finding = Finding(kind, "likely", f"Cut by {what}{others}; nothing that was in flight outlived it.", lines)
    roots = bool(prefixes.left(scene, attempt) or prefixes.silent(scene, attempt))
    blind = not scene.sees_access
    roots = roots or ((bool(aborts) or blind) and prefixes.any_root(scene, attempt, stroke))
    names = ["explicit-abort", "abort-all", *["abort-prefix-collision"] * roots, *["pause-abort"] * blind]
    for cause in [*names, *scene.engine_causes(cut_at(attempt))]:
        finding.admit(cause, WOULD_DECIDE[cause])
    if not aborts and not blind:
        finding.ruled_out.append(Cause("abort-all", "no /abort_request stands before the end"))
    return finding


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
    calls = abort_calls.near(stroke) or engine_calls.near(scene, attempt, stroke)
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
    engine = engine_calls.near(scene, attempt, stroke)
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


def _timed_out(scene: Scene, attempt: Attempt) -> list[Attempt]:
    """Those whose timeout may have hit it without its text: its grammar compiled, or its prompt was read in chunks."""
    if not (_came_early(attempt) or (stage(attempt) == "waiting" and in_chunks(scene, attempt))):
        return []
    roots = (root for kind in KINDS for root in timeouts.roots_of(scene, attempt, kind))
    return [root for root in roots if root.finish is not None and root.finish.message_id in KINDS]


def _came_early(attempt: Attempt) -> bool:
    """Whether an abort met it before it came to the queue."""
    return attempt.cut is not None and aborted_early(attempt.cut)


def _prefix_timed_out(scene: Scene, attempt: Attempt) -> Finding | None:
    """The timeout of a rid that is its prefix, which is an abort of that rid (0.5.20 to 0.5.23)."""
    roots, stroke = _timed_out(scene, attempt), crowd(scene, attempt)
    if not roots or not _came_early(attempt) or abort_calls.fresh(stroke):
        return None
    root, engine = roots[0], engine_calls.near(scene, attempt, stroke)
    assert root.finish is not None
    kind = KINDS[root.finish.message_id or ""]
    text = f"The {kind.name} timeout of {root.rid!r} is an abort of every rid that begins with it, and this one does."
    finding = Finding("timeout-prefix-collision", "likely", text, [*_ends(root), *_ends(attempt)])
    reached = f"{root.rid!r} reached its {kind.name} timeout"
    finding.chain.append(Cause(kind.cause, reached, _ends(root), rid=root.rid))
    names = ["explicit-abort", *([engine[0]] if engine is not None else [])]
    finding.candidates += [(name, WOULD_DECIDE[name]) for name in names]
    return finding


def _abort_call(scene: Scene, attempt: Attempt) -> Finding | None:
    """`/abort_request` near the end: for this rid, for a rid that is its prefix, or for all.

    Where another end explains the call, a rid that came before the log begins may have been left without a line.
    """
    stroke = crowd(scene, attempt)
    if not abort_calls.near(stroke):
        return None
    finding = _called(scene, attempt, stroke)
    unknown = not abort_calls.fresh(stroke) and (attempt.received is None or not scene.life.whole)
    if finding is not None and (unknown or prefixes.any_root(scene, attempt, stroke)):
        finding.admit("abort-prefix-collision", WOULD_DECIDE["abort-prefix-collision"])
    if finding is not None and _of_all(stroke):
        finding.ruled_out = [each for each in finding.ruled_out if each.cause != "abort-all"]
        finding.admit("abort-all", WOULD_DECIDE["abort-all"])
    engine = engine_calls.near(scene, attempt, stroke)
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


def _unexplained(stroke: Stroke) -> Stroke:
    """Those of a stroke that nothing but a call explains."""
    part = _part(stroke)
    return part if part is not None else stroke


@per_stroke
def _part(stroke: Stroke) -> Stroke | None:
    """The same; None where it is all of them: a stroke that remembered itself would stay with all of its scene."""
    members = [a for a in stroke if not _explained(stroke.scene, a)]
    return Stroke(stroke.scene, members) if len(members) < len(stroke) else None


@per_stroke
def _rootless(stroke: Stroke) -> int:
    """How many of a stroke have a rid that begins with nobody else's."""
    return sum(not stroke.roots(a) for a in stroke)


def _called(scene: Scene, attempt: Attempt, stroke: Stroke) -> Finding | None:
    """What the abort calls near a stroke tell of it, and of one that it ended."""
    calls, members = abort_calls.taken(stroke), _unexplained(stroke)
    if _explained(scene, attempt):
        members = Stroke(scene, [a for a in stroke if a is attempt or not _explained(scene, a)])
    alone, rootless = len(members) == 1, _rootless(members)
    lives_on = _outlived(members, calls[0])
    lines = [calls[0].fact, *_ends(attempt)]
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
    finding = Finding(
        "abort-prefix-collision",
        "likely",
        f"The abort named {root.rid!r}; the scheduler aborts every rid that begins with it, and this one does.",
        [calls[0].fact, *_ends(attempt)],
    )
    finding.chain.append(
        Cause("explicit-abort", f"{root.rid!r} was aborted by /abort_request", _ends(root), rid=root.rid)
    )
    finding.candidates.append(("explicit-abort", WOULD_DECIDE["explicit-abort"]))
    if not lives_on:
        finding.candidates.append(("abort-all", WOULD_DECIDE["abort-all"]))
    return finding


def _ends(attempt: Attempt) -> list[Fact]:
    return [attempt.cut] if attempt.cut is not None else []


def _unseen(scene: Scene, attempt: Attempt) -> Finding:
    """No call that explains it is in the logs."""
    lines = _ends(attempt)
    if not scene.sees_access:
        missing = "the access log: without it no abort call, pause or weight update can be seen"
    else:
        missing = "an abort call, pause or weight update near its end"
    names = _possible(scene, of_a_session=attempt.session_id is not None)
    finding = undecided(
        "Aborted on request, but no line shows who asked for it.", [(c, WOULD_DECIDE[c]) for c in names], lines
    )
    finding.missing.append(missing)
    return finding


def _possible(scene: Scene, of_a_session: bool) -> list[str]:
    """What may stand behind an abort of which nothing is seen."""
    return [
        cause
        for cause, behaviour in _POSSIBLE.items()
        if scene.release.may_have(behaviour) and (of_a_session or not cause.startswith("session-"))
    ]


_STROKES = (_twin_left, _prefix_left, _prefix_timed_out, _engine_call, _abort_call)
"""Who aborts a request wherever it stands, in the order in which they are asked."""
