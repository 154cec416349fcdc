"""What an ending says in so many words: finish reasons, refusals and errors whose text names one cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglang_lifecycle.analyzers import abort_origin, deaths, rid_validity, timeouts, transfers
from sglang_lifecycle.analyzers.accounting import gone_by
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import NO_REASON
from sglang_lifecycle.analyzers.finding import Cause, Finding, Possible, undecided
from sglang_lifecycle.analyzers.limits import KINDS
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.spans import near
from sglang_lifecycle.analyzers.texts import PLAIN_ABORTS, REFUSALS
from sglang_lifecycle.parsers.evidence import Event, Fact


@dataclass(frozen=True, slots=True)
class Outcome:
    """A text that names its cause."""

    cause: str
    stage: str
    summary: str


PLAIN = {
    "queue_full": Outcome("queue-full", "waiting", "Refused: the waiting queue had reached its limit."),
    "priority_evicted": Outcome("priority-evicted", "waiting", "Pushed out of a full queue by a higher priority."),
    "priority_disabled": Outcome(
        "priority-disabled", "waiting", "Refused: it carried a priority, and priority scheduling is off."
    ),
    "input_too_long": Outcome("input-too-long", "before-scheduler", "Refused: its prompt is longer than a limit."),
    "grammar_failed": Outcome("grammar-failed", "grammar-queue", "Refused: its grammar did not compile."),
    "grammar_token_refused": Outcome("grammar-failed", "running", "Ended: its grammar refused a generated token."),
    "grammar_timeout": Outcome("grammar-timeout", "grammar-queue", "Refused: its grammar took too long to compile."),
    "kv_oom_last": Outcome(
        "kv-out-of-memory", "running", "The KV pool ran out, and retracting every other request did not save it."
    ),
    "kv_host_pool": Outcome("kv-out-of-memory", "running", "Retracted, and the host pool had no room to keep it."),
    "kv_no_backup": Outcome("kv-out-of-memory", "running", "Retracted without a backup of its KV."),
    "kv_beam_group": Outcome("kv-out-of-memory", "running", "The KV pool ran out; beam groups can't be retracted."),
    "beam_aborted": Outcome("model-output-error", "running", "Another member of its beam group was aborted."),
    "external_kv": Outcome("model-output-error", "running", "Its external KV could not be loaded."),
    "sampling_capture": Outcome("model-output-error", "running", "The sampling backend's capture failed."),
    "stop_regex": Outcome("model-output-error", "running", "Its stop_regex is not valid."),
    "nan": Outcome("model-output-error", "running", "The model produced NaN; the reason looks like a normal stop."),
    "pd_no_room": Outcome("pd-bootstrap-failed", "before-scheduler", "It came without a bootstrap room."),
    "pd_metadata": Outcome("pd-transfer-failed", "transfer", "The KV transfer brought wrong or no metadata."),
    "epd_timeout": Outcome("multimodal-error", "before-scheduler", "The encoder did not answer in time."),
    "epd_missing": Outcome("multimodal-error", "before-scheduler", "The encoder returned no embeddings."),
    "duplicate_rid": Outcome("duplicate-rid", "before-scheduler", "Refused: its rid was in flight."),
}
"""Texts that stand for one cause in every release that has them."""


def finished(scene: Scene, attempt: Attempt) -> Finding:
    """What an attempt with a `Finish` ended by."""
    finish = attempt.finish
    assert finish is not None
    if finish.message_id == "nan":
        return _nan(scene, attempt, finish)
    if finish.finish_type != "abort":
        return _delivered(scene, attempt, finish)
    if finish.message_id in KINDS:
        return _after_refusal(scene, attempt, timeouts.resolve(scene, attempt))
    if finish.message_id in PLAIN_ABORTS:
        return _after_refusal(scene, attempt, abort_origin.resolve(scene, attempt))
    return _first_refusal(scene, attempt, finish) or _second_refusal(scene, attempt, finish)


def _nan(scene: Scene, attempt: Attempt, finish: Fact) -> Finding:
    """`matched` is also where a stop string of the client stands, and it may read `NaN happened` (0.4.10 on)."""
    lines = [f for f in scene.life.of(Event.MODEL_NAN) if near(f, finish, _NAN_WINDOW)]
    finding = by_message(scene, attempt, finish)
    finding.evidence = [*lines[:1], finish]
    stops = attempt.received.detail.get("stop_nan") if attempt.received is not None else None
    if stops is False or (lines and stops is None):
        return finding
    if stops:
        delivered = _delivered(scene, attempt, finish)
        delivered.soften(("model-output-error", "the scheduler's line `Detected errors during sampling!`"))
        return delivered
    finding.soften(("finished", "the request's stop strings: one of them may be this text"))
    return finding


_NAN_WINDOW = 30.0  # seconds between the scheduler's NaN line and the end of a request that met it


def _first_refusal(scene: Scene, attempt: Attempt, finish: Fact) -> Finding | None:
    """A request refused twice: the first line is the cause, the second only meets the stub that it left (0.4.9 on)."""
    rejected = attempt.of(Event.REQUEST_REJECTED)
    if finish.status_code != 400 or not rejected or rejected[0].finish_message == finish.finish_message:
        return None
    finding = by_message(scene, attempt, rejected[0])
    finding.evidence = [*finding.evidence, finish]
    finding.http_status = None if attempt.stream else 400
    return finding


def _second_refusal(scene: Scene, attempt: Attempt, finish: Fact) -> Finding:
    """What ended it, and why it had been refused before: its stub may meet a full queue (0.4.9 on)."""
    finding = by_message(scene, attempt, finish)
    rejected = attempt.of(Event.REQUEST_REJECTED)
    if finish.message_id in _OF_STUBS and rejected and rejected[0].finish_message != finish.finish_message:
        finding = _after_refusal(scene, attempt, finding)
        finding.doubt("it had been refused before, and would have ended by that")
    return finding


_OF_STUBS = frozenset({"queue_full", "priority_evicted"})


def _delivered(scene: Scene, attempt: Attempt, finish: Fact) -> Finding:
    """One that ran to its end. Up to 0.5.9 a whole `Finish` may lack a reason; later ones all have one."""
    whole = scene.release.may_have(NO_REASON) and not finish.detail.get("cut")
    if transfers.handed_over(scene, attempt):
        return _refused_all_the_same(scene, attempt, _OF_A_STUB) or transfers.sent(scene, attempt)
    if finish.finish_type is None and not whole:
        others = [(name, "the rest of its Finish") for name in ("waiting-timeout", "explicit-abort")]
        if (refused := _refused_all_the_same(scene, attempt, others)) is not None:
            return refused
        text = "It ended, and the line that says how is cut before it does."
        names = [*_ENDS, *(scene.engine_causes(finish.at) if finish.at is not None else []), *_FURTHER_ENDS]
        return undecided(text, [(name, "the rest of its Finish") for name in names], [finish])
    finding = ran_to_its_end(finish)
    if finish.finish_type is None:
        finding.summary = "It has a Finish, which gives no reason."
        finding.soften()
    gone = attempt.of(Event.CLIENT_DISCONNECTED)
    if gone and not _long_after(gone[0], finish):
        finding.cause = "finished-undelivered"
        finding.summary = f"It ran to its end ({finish.finish_type or 'no reason given'}), but its client had gone."
        finding.evidence.append(gone[0])
        if scene.mixed or attempt.received is None:
            finding.soften(("finished", "whose disconnect it was: its rid may have been used twice"))
    elif (failed := spoilt(scene, attempt)) is not None:
        finding.cause, finding.http_status = "finished-undelivered", None
        finding.summary = f"It ran to its end ({finish.finish_type}), but its batch was not answered: {failed}."
        finding.soften(("finished", "the client's log"))
    elif gone:
        undelivered = "finished-undelivered", "the client's log"
        finding.doubt("a client with its rid left long after it had ended, whose request these logs lack", undelivered)
    return finding


def ran_to_its_end(finish: Fact) -> Finding:
    """What a `Finish` that no abort wrote says of itself."""
    text = f"It ran to its end ({finish.finish_type}) and was answered."
    finding = Finding("finished", "proven", text, [finish], stage="finished", http_status=200)
    if finish.retractions:
        finding.effects.append("retracted")
    return finding


_OF_A_STUB = [(name, "the decode server's log") for name in ("finished", "client-disconnect", "explicit-abort")]
"""What else may have become of a request of which a prefill server sent what it had made of a refused one."""


def _refused_all_the_same(scene: Scene, attempt: Attempt, others: list[Possible]) -> Finding | None:
    """What refused a request whose `Finish` does not say so, with what may have ended it instead."""
    rejected = attempt.of(Event.REQUEST_REJECTED)
    if not rejected:
        return None
    refused = by_message(scene, attempt, rejected[0])
    refused.soften(*others)
    return refused


def spoilt(scene: Scene, attempt: Attempt) -> str | None:
    """Why the one answer of its batch can't have brought its text: another member has no end, or a refusal.

    A batch without a stream is answered when all its members have ended, or with the first error (all releases).
    """
    record = attempt.received
    rids = record.detail.get("batch", ()) if record is not None and (record.detail.get("n") or 1) == 1 else ()
    if record is None or attempt.stream or len(rids) < 2 or scene.partial:
        return None
    known: dict[tuple[str, int], str | None] = scene.memo.setdefault(spoilt, {})
    place = _line(record)
    if place not in known:
        known[place] = _spoilt_by(scene, list(members(scene, attempt)))
    return known[place]


def _spoilt_by(scene: Scene, batch: Sequence[Attempt]) -> str | None:
    """What a member of a batch did to the answer of all."""
    refused = next(filter(answered_by_error, batch), None)
    if refused is not None:
        return f"{refused.rid!r}, another member, ended with an error"
    end, last = deaths.death(scene), max((a.ended_at or 0.0 for a in batch), default=0.0)
    answered = scene.hides_finishes or any(a.access is not None for a in batch)
    if answered or end is None or end.at is None or end.at - last > _LONGEST:
        return None
    open_ = next((a for a in batch if a.finish is None and gone_by(scene, a) is None), None)
    return f"{open_.rid!r}, another member, has no end" if open_ is not None else None


_LONGEST = 600.0  # seconds by which the members of one batch may end apart


def members(scene: Scene, attempt: Attempt) -> Iterator[Attempt]:
    """The attempts of a batch, which one `Receive` began, itself included; none where it came alone."""
    record = attempt.received
    for rid in record.detail.get("batch", ()) if record is not None else ():
        for other in scene.by_rid.get(rid, ()):
            if record is not None and other.received is not None and _line(other.received) == _line(record):
                yield other


def answered_by_error(attempt: Attempt) -> bool:
    """Whether its `Finish` has the HTTP status of an error."""
    return attempt.finish is not None and (attempt.finish.status_code or 0) >= 400


def _line(record: Fact) -> tuple[str, int]:
    return record.source, record.line


def _long_after(gone: Fact, finish: Fact) -> bool:
    """Whether a client was found gone when the poll had long seen the end."""
    return gone.at is not None and finish.at is not None and gone.at > finish.at + _NOTICED


_NOTICED = 6.0  # seconds after a `Finish` within which a poll (4 s by default) may still find its client gone


_ENDS = ("finished", "explicit-abort", "waiting-timeout", "running-timeout")
"""How most requests end."""

_FURTHER_ENDS = ("abort-all", "queue-full", "input-too-long", "grammar-failed", "kv-out-of-memory")


def _after_refusal(scene: Scene, attempt: Attempt, finding: Finding) -> Finding:
    """A refused request waits in the queue as a stub; what ends it there hides the refusal (0.4.9 to 0.5.23)."""
    finding.chain += refused_before(scene, attempt)
    finding.evidence += attempt.of(Event.REQUEST_REJECTED)[:1]
    return finding


def refused_before(scene: Scene, attempt: Attempt) -> list[Cause]:
    """Why it had been refused by the scheduler, as links of its chain; none where it had not."""
    rejected = attempt.of(Event.REQUEST_REJECTED)[:1]
    if not rejected:
        return []
    refusal = by_message(scene, attempt, rejected[0])
    return [Cause(refusal.cause, refusal.summary, rejected), *refusal.chain]


def by_message(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """What a finish reason, a refusal or an API error says."""
    message = said.message_id
    if message in REFUSALS:
        return rid_validity.resolve(scene, attempt, said)
    if message in PLAIN:
        outcome = PLAIN[message]
        finding = Finding(outcome.cause, "proven", outcome.summary, _with_refusal(attempt, said), stage=outcome.stage)
        finding.http_status = None if attempt.stream else said.status_code
        if message == "queue_full" and abort_origin.ran(attempt):
            finding.effects.append("retracted")
            finding.summary = "Retracted, and refused when it was put back: the waiting queue had reached its limit."
        return finding
    if message in ("pd_bootstrap_failed", "pd_transfer_failed"):
        return failure(scene, attempt, said)
    if message in ("aborted_by_abortreq", "aborted_by_user"):
        return transfers.met_early(scene, attempt, said)
    return _unknown_text(scene, attempt, said)


def _with_refusal(attempt: Attempt, said: Fact) -> list[Fact]:
    """The scheduler's own line first, where it has one, then what the client was told."""
    return [*[f for f in attempt.of(Event.REQUEST_REJECTED)[:1] if f is not said], said]


def _unknown_text(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """A text that no table knows: its status and error type say how much it may mean."""
    encoder = attempt.of(Event.EPD_FAILED)
    if encoder:
        finding = failure(scene, attempt, encoder[0])
        finding.evidence = [*finding.evidence, said]
        return finding
    if said.event in (Event.REQUEST_REJECTED, Event.REQUEST_ERROR, Event.HTTP_EXCEPTION) or said.status_code == 400:
        told = said.finish_message or str(said.detail.get("exception") or "")
        text = (told or "an exception").split("\n")[0]
        second = attempt.session_id is not None and _STUB_LENGTH.search(text) is not None
        finding = Finding(
            "invalid-request",
            "likely" if second or said.event is not Event.REQUEST_FINISHED else "proven",
            f"Refused: {text[:160]}",
            _with_refusal(attempt, said),
            stage="before-scheduler",
            http_status=None if attempt.stream else said.status_code,
        )
        if second:
            finding.candidates.append(
                ("session-parent-unknown", "an earlier refusal of it: the stub it leaves has 1 token")
            )
        if not told or _LOST.search(told):
            finding.soften(*((name, "the whole text of its refusal") for name in _TEXTS_OF_REFUSALS))
        return finding
    if said.err_type == "InternalServerError":
        return Finding(
            "multimodal-error", "likely", "Its media could not be processed.", [said], stage="before-scheduler"
        )
    if said.status_code is None:
        return abort_origin.resolve(scene, attempt)
    names = ("multimodal-error", "model-output-error", "invalid-request")
    return undecided(
        f"Ended with status {said.status_code} and a text that is not known.",
        [(n, "the SGLang release and what its source writes there") for n in names],
        [said],
    )


_LOST = re.compile("[\x00-\x08\ufffd]")
"""What stands where bytes were lost: holes of a file are NULs, what is no UTF-8 is replaced."""

_TEXTS_OF_REFUSALS = ("input-too-long", "grammar-failed", "session-unknown", "session-parent-unknown")
"""What a text tells that nobody recognises in pieces."""

_STUB_LENGTH = re.compile(r"logprob_start_len.* is higher than the number of input tokens .*=1\b")
"""What a request that its session had refused already is refused for again: its prompt is a stub of one token."""


def failure(scene: Scene, attempt: Attempt, said: Fact) -> Finding:
    """A failure of the memory, disaggregated or encoder code."""
    if said.event is Event.KV_ABORTED:
        return Finding("kv-out-of-memory", "proven", PLAIN["kv_oom_last"].summary, [said], stage="running")
    return transfers.failure(scene, attempt, said)
