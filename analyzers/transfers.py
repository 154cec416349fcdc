"""What failed between two servers: transfers of the disaggregation, and encoders; which side held the cause."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sglang_lifecycle.analyzers import abort_origin, deaths
from sglang_lifecycle.analyzers.accounting import seen
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Cause, Finding, undecided
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.analyzers.skew import skew
from sglang_lifecycle.analyzers.spans import near
from sglang_lifecycle.analyzers.texts import aborted_early
from sglang_lifecycle.parsers.evidence import Event, Fact

_NO_REASON = re.compile(r"(?:NIXL|Fake) KV(?:Sender|Receiver) Exception")
"""What NIXL says up to 0.5.12 whatever the reason, a client's abort included."""

_NEVER_SENT = "KVPoll.WaitingForInput"
"""What a decode server waits for (`SGLANG_DISAGGREGATION_WAITING_TIMEOUT`, 0.4.10 on)."""

_ABORTERS = ("explicit-abort", "client-disconnect")

_REASONS = (
    ("Aborted by", "aborted"),
    ("timed out after", "timeout"),
    ("could be dead", "dead"),
    ("might be dead", "dead"),
    ("Losing connection", "lost"),
    ("Lost connection", "lost"),
    ("is healthy before, but now it is down", "lost"),
    ("unknown reason from another rank", "elsewhere"),
)


def met_early(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """Aborted while its grammar compiled or while it waited for an encoder or a KV transfer."""
    encoder = said.event is Event.EPD_FAILED or said.message_id == "aborted_by_user"
    place = "before-scheduler" if encoder else "grammar-queue"
    finished = said.event is Event.REQUEST_FINISHED
    if finished and said.message_id == "aborted_by_abortreq" and said.status_code != 400:
        place = "transfer"
    finding = abort_origin.early(scene, attempt, said)
    finding.stage = place
    return finding


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed transfer, and what the line that knows most of it says."""

    scene: Scene
    attempt: Attempt
    said: Fact
    reason: str
    kind: str
    """That of the reason."""
    cause: str
    """What it is called where nothing else is behind it."""

    @classmethod
    def of(cls, scene: Scene, attempt: Attempt, said: Fact) -> _Failure:
        """`said` is any rank's line."""
        said = _rank_that_knows(scene, attempt, said)
        reason = _reason(said)
        place = said.detail.get("failed") or said.message_id or said.pattern or ""
        bootstrap = "bootstrap" in place or "handshake" in place or "Bootstrapping" in reason
        cause = "pd-bootstrap-failed" if bootstrap else "pd-transfer-failed"
        return cls(scene, attempt, said, reason, _kind(reason), cause)

    @property
    def short(self) -> str:
        """The reason as a summary quotes it."""
        return self.reason.split("\n")[0][:160]


def failure(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """A failure of the disaggregated or the encoder code, by the reason that its line gives."""
    if said.event is Event.EPD_FAILED:
        if said.detail.get("aborted"):
            return met_early(scene, attempt, said)
        return Finding("multimodal-error", "proven", "Its encoder failed.", [said], stage="before-scheduler")
    failed = _Failure.of(scene, attempt, said)
    finding = next((found for rule in _RULES if (found := rule(failed)) is not None), None) or _plainly(failed)
    finding.stage = "bootstrap" if failed.cause == "pd-bootstrap-failed" else "transfer"
    for other in _otherwise(failed):
        finding.doubt(f"another rank says: {_reason(other)[:120]}")
        for name in _ABORTERS if _kind(_reason(other)) == "aborted" else ("waiting-timeout", failed.cause):
            finding.admit(name, "which of the ranks failed first")
    if failed.said.room is not None:
        _join(failed, finding)
    return finding


def _cut(failed: _Failure) -> Finding | None:
    """The line ends before it says why."""
    if not _is_cut(failed.reason):
        return None
    names = [failed.cause, *_WHEN_CUT.get(failed.reason[:1], _ABORTERS)]
    return undecided(
        "Its transfer failed; the line that says why is cut before it does.",
        [(name, "the rest of the line, or another rank's") for name in names],
        [failed.said],
    )


def _aborted(failed: _Failure) -> Finding | None:
    """Somebody aborted it."""
    if failed.kind != "aborted":
        return None
    scene, said = failed.scene, failed.said
    engine = scene.engine_causes(said.at) if said.at is not None else []
    names = ["client-disconnect", "explicit-abort", "abort-all", *engine]
    names += ["abort-prefix-collision"] * bool(scene.prefixes(failed.attempt.rid))
    finding = abort_origin.early(scene, failed.attempt, said) if aborted_early(said) else _left_there(failed)
    if finding is None or finding.cause == "not-established":
        text = "Aborted while its KV was on its way; a disconnect, an abort call or the router stands behind it."
        finding = undecided(text, [], [said])
    for name in names:
        finding.admit(name, "the other side's log, the router's and the access log")
    return finding


def _left_there(failed: _Failure) -> Finding | None:
    """The client left the other side, which told this one to abort (`Aborted by decode-side abort notification.`)."""
    said, scene = failed.said, failed.scene
    for other in _peers(scene, said)[0] if said.room is not None else ():
        clocks = skew(scene, other)
        for there in other.attempts:
            if there.received is None or there.received.room != said.room:
                continue
            gone = next(iter(there.of(Event.CLIENT_DISCONNECTED)), None)
            if gone is not None and _earlier(gone, said, clocks.seconds + _TICK + clocks.error):
                text = f"The client of {there.rid!r} left the other side, which told this one to abort."
                finding = Finding("client-disconnect", "likely", text, [gone, said])
                whose = None if there.rid == failed.attempt.rid else there.rid
                finding.chain.append(Cause("client-disconnect", "its client left the other side", [gone], rid=whose))
                return finding
    return None


def _lost(failed: _Failure) -> Finding | None:
    """The connection to the other side broke."""
    if failed.kind != "lost":
        return None
    chain = _dead_peer(failed.scene, failed.attempt, failed.said)
    return Finding("pd-peer-lost", "proven", f"The other side was lost: {failed.short}", [failed.said], chain=chain)


def _on_another_rank(failed: _Failure) -> Finding | None:
    """Only another rank says why."""
    if failed.kind != "elsewhere":
        return None
    candidates = [(failed.cause, "the other ranks' logs"), ("pd-peer-lost", "the other side's log")]
    return undecided("It failed on another rank, whose log holds the reason.", candidates, [failed.said])


def _peer_had_died(failed: _Failure) -> Finding | None:
    """The other side's log ends by a death just before."""
    died = _dead_peer(failed.scene, failed.attempt, failed.said, _patience(failed.reason))
    if not died:
        return None
    finding = Finding("pd-peer-lost", "likely", f"The other side had died: {failed.short}", [failed.said], chain=died)
    finding.admit(failed.cause, "the other side's log: whether it had a part in this transfer")
    return finding


def _waited_in_vain(failed: _Failure) -> Finding | None:
    """A decode server got no KV in time."""
    if failed.kind != "timeout" or _NEVER_SENT not in failed.reason:
        return None
    return Finding("waiting-timeout", "proven", f"Its KV was waited for in vain: {failed.short}", [failed.said])


def _perhaps_dead(failed: _Failure) -> Finding | None:
    """It says that the other side might be dead, and no log shows that."""
    if failed.kind != "dead":
        return None
    finding = Finding(failed.cause, "likely", f"The KV transfer failed: {failed.short}", [failed.said])
    finding.admit("pd-peer-lost", "the other side's log: did it die?")
    return finding


def _plainly(failed: _Failure) -> Finding:
    """It failed, as far as nothing else shows."""
    what = "Prefill and decode never met" if failed.cause == "pd-bootstrap-failed" else "The KV transfer failed"
    text = f"{what}: {failed.short}" if failed.short else f"{what}."
    finding = Finding(failed.cause, "proven", text, [failed.said])
    if not failed.reason or _NO_REASON.search(failed.reason):
        finding.soften(*((name, "the other side's log, the router's and the access log") for name in _ABORTERS))
    return finding


_RULES: tuple[Callable[[_Failure], Finding | None], ...] = (
    _cut, _aborted, _lost, _on_another_rank, _peer_had_died, _waited_in_vain, _perhaps_dead,
)  # fmt: skip
"""The first that finds something counts."""


def _kind(text: str) -> str:
    """What kind of reason a text gives."""
    return next((kind for needle, kind in _REASONS if needle in text), "")


def _otherwise(failed: _Failure) -> list[Fact]:
    """What other ranks say at once of why a transfer failed: an abort, or a timeout, where this one says another."""
    kinds, said = {"aborted", "timeout"} - {failed.kind}, failed.said
    lines = failed.attempt.of(Event.PD_FAILED)
    told = [fact for fact in lines if fact is not said and _tells(fact) and _kind(_reason(fact)) in kinds]
    return [fact for fact in told if near(fact, said, _TICK) is not False][:1]


def handed_over(scene: Scene, attempt: Attempt) -> bool:
    """Whether a `Finish` is a prefill server's, which only says that the KV was sent; the decode server goes on.

    Every request that it has sent ends so, a refused one included, whose stub is sent as well (0.4.6 on,
    `disaggregation/prefill.py:process_disagg_prefill_inflight_queue`: `FINISH_LENGTH(length=0)`). Where the server's
    arguments are missing, a room and one token at most tell it.
    """
    finish = attempt.finish
    if finish is None or finish.finish_type != "length":
        return False
    if scene.mode is not None or finish.room is None:
        return scene.mode == "prefill"
    return finish.completion_tokens is not None and finish.completion_tokens <= 1


def sent(scene: Scene, attempt: Attempt) -> Finding:
    """What is known of a request that a prefill server has handed over; of the other side's record its own verdict."""
    finish = attempt.finish
    assert finish is not None
    text = "Its KV was sent to the decode server, which alone can say how it ended."
    end = _took_along(scene, attempt, finish)
    if end is not None:
        names = ("finished", end.cause)
        text += f" There {end.summary}."
        return undecided(text, [(name, _ON_DECODE) for name in names], [finish, *end.evidence[:1]])
    finding = Finding("finished", "likely", text, [finish], stage="transfer")
    finding.candidates += [(name, _ON_DECODE) for name in ("client-disconnect", "running-timeout", "explicit-abort")]
    return finding


def _took_along(scene: Scene, attempt: Attempt, finish: Fact) -> deaths.Death | None:
    """The death of a decode server with what it had been sent, where this may be among it: it is of the newest."""
    if finish.at is None or any(attempt.rid in other.by_rid for other in scene.others):
        return None
    for other in _peers(scene, finish)[0]:
        end, clocks = deaths.death(other), skew(scene, other)
        died = end.at - clocks.seconds + _TICK + clocks.error if end is not None and end.at is not None else 0.0
        if finish.at <= died <= finish.at + _LONGEST:
            times = _sent_at(scene)
            newer = bisect.bisect_right(times, died) - bisect.bisect_right(times, finish.at)
            held = next((seen(fact) for _, fact in reversed(other.batches) if fact.running is not None), newer + 1)
            return end if newer < held else None
    return None


@per_scene
def _sent_at(scene: Scene) -> list[float]:
    """When requests were handed over, UTC epoch seconds, in order."""
    ends = (a.finish.at for a in scene.attempts if a.finish is not None and handed_over(scene, a))
    return sorted(at for at in ends if at is not None)


_LONGEST = 600.0  # seconds for which a request decodes, at most
_ON_DECODE = "the decode server's request log"


def _dead_peer(scene: Scene, attempt: Attempt, said: Fact, within: float | None = None) -> list[Cause]:
    """The death of the other server, where its log is here: it took part in the transfer and died before the loss.

    `within`: seconds from a death to what is said of it, at most. Who died before the request came had no part in it,
    unless its log knows the room.
    """
    peers, known = _peers(scene, said)
    for other in peers:
        end = deaths.death(other)
        if end is None or end.at is None or said.at is None:
            continue
        clocks = skew(scene, other)
        at, slack = end.at - clocks.seconds, _TICK + clocks.error
        met = known or attempt.received_at is None or at >= attempt.received_at - slack
        if met and -slack <= said.at - at <= (within or _NOTICED_WITHIN) + slack:
            return [Cause(end.cause, f"on the other server {end.summary}", end.evidence), *end.chain]
    return []


def _peers(scene: Scene, said: Fact) -> tuple[list[Scene], bool]:
    """The lives of the server that may be the other side of a transfer, and whether its log knows the room.

    Of several servers that it may be none is taken for the one.
    """
    possible = [
        other
        for other in scene.others
        if other.life.server != scene.life.server
        and (other.mode in _MODES and other.mode != scene.mode if other.mode is not None else _fails(other))
    ]
    if len({other.life.server for other in possible}) > 1:
        possible = []
    if said.room is None:
        return possible, False
    known = [other for other in scene.others if other.life.server != scene.life.server and said.room in _rooms(other)]
    return (known, True) if known else (possible, False)


_MODES = ("prefill", "decode")


def _fails(scene: Scene) -> bool:
    """Whether transfers of a server failed: then it is one of two sides."""
    return bool(scene.life.of(Event.PD_FAILED))


@per_scene
def _rooms(scene: Scene) -> frozenset[int]:
    """The bootstrap rooms that a life's lines name."""
    return frozenset(fact.room for fact in scene.life.told if fact.room is not None)


def _patience(text: str) -> float | None:
    """Seconds for which a side may have waited for one that had died, where the reason tells how long it did."""
    waited = _WAITED.search(text)
    return float(waited[1]) + _NOTICED_WITHIN if waited is not None else None


_WAITED = re.compile(r"timed out after (\d{1,6}(?:\.\d{1,6})?)s")
_TICK = 1.0  # seconds by which two hosts' lines of one moment may stand in the wrong order
_NOTICED_WITHIN = 120.0  # seconds from a server's death to the failure of what it had promised to send


def _reason(said: Fact) -> str:
    """Why a transfer failed, as far as a record says: what follows `with exception`, else an exception of its own."""
    if said.detail.get("reason"):
        return str(said.detail["reason"])
    message = said.finish_message or ""
    found = _WITH_EXCEPTION.search(message)
    if found is not None:
        return found[1]
    known = message.startswith(("Prefill ", "Decode "))
    return str(said.detail.get("exception") or ("" if known else message))


_WITH_EXCEPTION = re.compile(r" with exception (?:KVTransferError\(bootstrap_room=\d+\): )?(.*)", re.DOTALL)


_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_BEGINNINGS = (
    "KVTransferError(bootstrap_room=0): ",
    "Aborted by ",
    "Request 0 timed out after 0s in KVPoll.Bootstrapping",
    "Request 0 timed out after 0s in KVPoll.WaitingForInput",
    "Losing connection",
    "Lost connection",
    "Decode instance could be dead",
    "Failed to get kvcache from prefill instance, it might be dead",
    "Failed due to an unknown reason from another rank",
)
"""How the reasons begin that tell late what they are, each number in them a 0."""

_WHEN_CUT = {"R": ("waiting-timeout",), **dict.fromkeys("LDF", ("pd-peer-lost",))}
"""What they may have come to, by their first letters; others an abort."""


def _is_cut(text: str) -> bool:
    """Whether a reason may be cut before it says what it is: it is no more than the beginning of a known one."""
    begun = _NUMBER.sub("0", text.rstrip("."))
    return bool(begun) and any(known.startswith(begun) and known != begun for known in _BEGINNINGS)


def _rank_that_knows(scene: Scene, attempt: Attempt, said: Fact) -> Fact:
    """The line of the rank that holds the reason, where this one only says that another rank failed, or is cut.

    Of one that is cut another server's line is no reason: it says so of the same room, and not of the request.
    """
    if _tells(said):
        return said
    lines = [f for f in attempt.of(Event.PD_FAILED) if _tells(f)]
    if not lines and said.room is not None and not _is_cut(_reason(said)):
        facts = (f for s in scene.others for f in s.life.of(Event.PD_FAILED) if f.room == said.room)
        lines = [f for f in facts if _tells(f)]
    return lines[0] if lines else said


def _tells(said: Fact) -> bool:
    text = _reason(said)
    return "unknown reason from another rank" not in text and not _is_cut(text)


def _join(failed: _Failure, finding: Finding) -> None:
    """What the other side's log says of the same bootstrap room: the side that holds the cause goes into the chain."""
    said = failed.said
    for fact, ahead in _on_the_other_side(failed):
        reason = _reason(fact)
        if reason.startswith("Aborted by"):
            if finding.confidence == "proven" and _earlier(fact, said, ahead):
                others = [(name, "the other side's access log, the router's") for name in _ABORTERS]
                finding.doubt(f"the other side had been told to abort in room {said.room}", *others)
            continue
        cause = "pd-bootstrap-failed" if fact.detail.get("place") == "bootstrap" else "pd-transfer-failed"
        what = f"the other side failed in room {said.room}: {reason.splitlines()[0][:120] if reason else 'no reason'}"
        finding.chain.append(Cause(cause, what, [fact], rid=fact.rid))
        unsure = finding.cause == "not-established"
        if unsure and failed.kind == "aborted" and _earlier(fact, said, ahead - _TICK):
            finding.cause, finding.confidence = cause, "likely"
            finding.summary = f"It was aborted after {what.rstrip('.')}."
        elif unsure:
            finding.candidates.insert(0, (cause, "the order of both sides' lines"))
        return


def _on_the_other_side(failed: _Failure) -> Iterator[tuple[Fact, float]]:
    """The failures that other servers tell of its room, each with the seconds by which that server's clock is ahead."""
    for other in failed.scene.others:
        for fact in other.life.of(Event.PD_FAILED):
            if fact.room == failed.said.room:
                ahead = skew(failed.scene, other).seconds
                if not _before_it_came(failed.attempt, fact, ahead):
                    yield fact, ahead


def _before_it_came(attempt: Attempt, fact: Fact, ahead: float) -> bool:
    """Whether a fact of a server whose clock is so many seconds ahead is of a request before, in the same room."""
    came = attempt.received_at
    return came is not None and fact.at is not None and fact.at - ahead < came - _NOTICED_WITHIN


def _earlier(one: Fact, other: Fact, ahead: float) -> bool:
    """Whether a fact of a server whose clock is so many seconds ahead comes before another."""
    return one.at is not None and other.at is not None and one.at - ahead < other.at
