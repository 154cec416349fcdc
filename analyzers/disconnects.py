"""Requests whose HTTP peer closed the connection, as the API server noticed."""

from __future__ import annotations

import bisect

from sglang_lifecycle.analyzers import deaths, outcomes, twins, zombies
from sglang_lifecycle.analyzers.accounting import last_listed
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import QUEUE_ABORT_HANGS
from sglang_lifecycle.analyzers.finding import Cause, Finding, Possible, undecided
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact


def resolve(scene: Scene, attempt: Attempt) -> Finding | None:
    """What a line that says so tells of an attempt's end; None where there is none, or its server had died before."""
    gone = next(iter(attempt.of(Event.CLIENT_DISCONNECTED)), None)
    if gone is None or deaths.too_late(scene, gone):
        return None
    rules = (_failed_before, _reply_lost, _displaced)
    finding = next((found for rule in rules if (found := rule(scene, attempt, gone)) is not None), None)
    return finding or _left(scene, attempt, gone)


def _failed_before(scene: Scene, attempt: Attempt, gone: Fact) -> Finding | None:
    """The memory, encoder or disaggregation code had ended it before its client left: the reply was lost, or late.

    A disconnect's abort is sent when its line is written (managers/tokenizer_manager.py:_wait_one_response).
    """
    failed = _failure(scene, attempt)
    if failed is None or not _surely_before(failed.evidence[0], gone):
        return None
    failed.effects.append("reply-lost")
    failed.evidence.append(gone)
    return failed


def _failure(scene: Scene, attempt: Attempt) -> Finding | None:
    """What a line of that code says ended it; an abort may be the disconnect's own."""
    lines = attempt.of(Event.KV_ABORTED, Event.EPD_FAILED, Event.PD_FAILED)
    finding = outcomes.failure(scene, attempt, lines[0]) if lines else None
    possible = {finding.cause, *dict(finding.candidates)} if finding is not None else set()
    return None if possible & _ITS_OWN else finding


def _surely_before(one: Fact, other: Fact) -> bool:
    """Whether a line was written before another, whatever their times may be off."""
    if one.at is None or other.at is None:
        return False
    return one.at + (one.at_error or 0.0) < other.at - (other.at_error or 0.0)


_ITS_OWN = frozenset({"not-established", "client-disconnect"})
"""What a line may say of the abort that a disconnect brought."""
_ORDER = "when the client left: its own log, or the proxy's"


def _reply_lost(scene: Scene, attempt: Attempt, gone: Fact) -> Finding | None:
    """With several HTTP workers the reply may have been lost before its client left."""
    if not scene.several_workers:
        return None
    rejected = attempt.of(Event.REQUEST_REJECTED)
    if rejected:
        finding = outcomes.by_message(scene, attempt, rejected[0])
        finding.effects.append("reply-lost")
        finding.evidence.append(gone)
        finding.soften()
        return finding
    since = attempt.order if attempt.received is not None else -1
    lost = [
        fact
        for fact in scene.life.of(Event.OUTPUT_LOST)
        if fact.rid is None and since < scene.places[id(fact)] < scene.places[id(gone)]
    ]
    if not lost:
        return None
    text = "A scheduler-side end was lost on its way back to one of several HTTP workers; the client left later."
    names = ("output-lost", "client-disconnect", "explicit-abort", "waiting-timeout", "session-unknown")
    lines = [*attempt.of(Event.CLIENT_DISCONNECTED), lost[0]]
    finding = undecided(text, [(name, "one HTTP worker, or --log-level debug") for name in names], lines)
    finding.effects.append("reply-lost")
    return finding


def _displaced(scene: Scene, attempt: Attempt, gone: Fact) -> Finding | None:
    """Its connection was still there when another request took its rid."""
    finding = twins.displaced(scene, attempt)
    if finding is None or gone.at is None:
        return None
    second = twins.second(scene, attempt)
    came = second.received_at if second is not None else None
    if came is not None and gone.at - came <= deaths.NOTICED:
        return None
    finding.evidence.append(gone)
    return finding


def _left(scene: Scene, attempt: Attempt, gone: Fact) -> Finding:
    """The client left, as far as nothing else shows."""
    kind = gone.detail.get("kind")
    how = {1: "at its 4 s poll", 3: "at an output"}.get(kind if isinstance(kind, int) else 0, "")
    hung = unanswered(scene, attempt, scene.places[id(gone)])
    others = [*_OR_LOST * scene.several_workers, *hung, *_OR_TWIN * (twins.displaced(scene, attempt) is not None)]
    failed = _failure(scene, attempt)
    refused = outcomes.refused_before(scene, attempt)  # the answer waited in the queue
    ends: list[Finding | Cause] = [*([failed] if failed is not None else []), *refused[:1]]
    others += [
        (end.cause, _ORDER) for end in ends if end.cause not in _ITS_OWN and not _surely_before(gone, end.evidence[0])
    ]
    finding = Finding(
        "client-disconnect",
        "likely" if others else "proven",
        f"The HTTP peer closed the connection; the API server noticed {how or 'it'} and aborted the request.",
        [*attempt.begun, gone],
        stage=stage(scene, attempt) or ("running" if kind == 3 else "unknown"),
        candidates=others,
        client_saw="nothing: it had gone, or a proxy had closed the connection",
    )
    _note_alike(scene, attempt, gone, finding)
    if not hung:
        finding.ruled_out.append(Cause("explicit-abort", "an abort call leaves a Finish and no disconnect line"))
    finding.chain += refused
    zombies.note(attempt, finding)
    return finding


_OR_LOST = [("output-lost", "one HTTP worker: with several, a scheduler-side end can get lost")]
_OR_TWIN = [("duplicate-rid", "the client's log: did it leave before it sent the rid again?")]


def unanswered(scene: Scene, attempt: Attempt, until: int) -> list[Possible]:
    """The aborts that may have taken it out of the queue before a place.

    Up to 0.4.8 whoever is aborted there hangs until its client leaves.
    """
    if not scene.release.may_have(QUEUE_ABORT_HANGS):
        return []
    found = []
    calls = scene.call_orders.get("abort", [])
    if bisect.bisect_left(calls, until) > bisect.bisect_right(calls, attempt.order):
        found.append(("explicit-abort", _HUNG))
    prefixes = [other for other in scene.prefixes(attempt.rid) if other.order < until]
    gone = (fact for other in prefixes for fact in other.of(Event.CLIENT_DISCONNECTED))
    left = any(other.stream and other.finish is None for other in prefixes)  # without a word
    if left or any(attempt.order < scene.places[id(fact)] < until for fact in gone):
        found.append(("abort-prefix-collision", _HUNG))
    return found


_HUNG = "the client's log: how long it waited; to 0.4.8 whoever is aborted in the queue hangs until then"
_ALIKE = 4.5  # seconds: a disconnect without a stream is noticed at a poll, up to 4 s late
_CROWD = 2  # other disconnects that must be alike


def _note_alike(scene: Scene, attempt: Attempt, gone: Fact, finding: Finding) -> None:
    """Disconnects after the same time are a proxy's or an SDK's timeout, not clients that changed their minds."""
    mine = _stayed(attempt, gone)
    if mine is None or mine < 2 * _ALIKE:
        return
    stays = _stays(scene)
    alike = bisect.bisect_right(stays, mine + _ALIKE) - bisect.bisect_left(stays, mine - _ALIKE)
    if alike > _CROWD:
        text = f"{alike} disconnects came after about {mine:.0f} s: a timeout of a proxy, load balancer or SDK"
        finding.notes.append((text, [gone]))
        finding.summary += f" {text[0].upper()}{text[1:]}."


@per_scene
def _stays(scene: Scene) -> list[float]:
    """Seconds from arrival to the disconnect, of every attempt that a line shows disconnected; sorted."""
    stays = [_stayed(a, f) for a in scene.attempts for f in a.of(Event.CLIENT_DISCONNECTED)[:1]]
    return sorted(s for s in stays if s is not None)


def _stayed(attempt: Attempt, gone: Fact) -> float | None:
    start = attempt.received_at
    return gone.at - start if start is not None and gone.at is not None else None


def stage(scene: Scene, attempt: Attempt) -> str | None:
    """Where it stood, if a line tells: debug lines, time stats, outputs that came later, the scheduler's lists."""
    executed = attempt.of(Event.ABORT_EXECUTED)
    if executed:
        return str(executed[0].detail["place"])
    if any((f.completion_tokens or 0) > 1 for f in attempt.of(Event.REQUEST_STATS)):
        return "running"
    if attempt.of(Event.OUTPUT_UNDELIVERABLE):
        return "running"
    if attempt.of(Event.ABORT_UNKNOWN_RID):
        return "waiting"
    listed, _ = last_listed(scene, attempt)
    return None if listed is None else "running" if attempt.rid in listed.detail.get("running_rids", ()) else "waiting"
