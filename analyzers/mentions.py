"""What the lines that name a request say of its end, where it has no `Finish`.

Lines without a rid that are a request's by their place among the records count here as well; they are never proof.
"""

from __future__ import annotations

import bisect

from sglang_lifecycle.analyzers import deaths, outcomes, samples, zombies
from sglang_lifecycle.analyzers.accounting import gone_by, last_listed, seen
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Cause, Finding, undecided
from sglang_lifecycle.analyzers.responses import GONE, POLL
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact

_REFUSED_WITHIN = 2.0  # seconds from `Receive` to the status of a request that the API server refuses


def resolve(scene: Scene, attempt: Attempt) -> Finding | None:
    """What the first rule that has something to say finds; None where no line names the attempt's end."""
    for rule in _RULES:
        finding = rule(scene, attempt)
        if finding is not None:
            return finding
    return None


def begin(attempt: Attempt) -> list[Fact]:
    """The record that began it, where there is one."""
    return [attempt.received] if attempt.received is not None else []


def _twin(_: Scene, attempt: Attempt) -> Finding | None:
    """Refused because the rid was in flight, or had leaked (0.5.10 to 0.5.12); it has no `Receive` of its own."""
    if not attempt.refused_twin:
        return None
    text = "Refused: a request with this rid was in flight, or the API server had never forgotten an earlier one."
    return Finding("duplicate-rid", "proven", text, attempt.facts[:1], stage="before-scheduler", http_status=400)


def _disconnected(scene: Scene, attempt: Attempt) -> Finding | None:
    """The API server found the connection closed. With several HTTP workers the reply may have been lost first."""
    lines = attempt.of(Event.CLIENT_DISCONNECTED)
    if not lines or _too_late(scene, lines[0]):
        return None
    lost = [
        f for f in scene.life.of(Event.OUTPUT_LOST)
        if f.rid is None
        and (attempt.received is None or attempt.order < scene.places[id(f)])
        and scene.places[id(f)] < scene.places[id(lines[0])]
    ]  # fmt: skip
    rejected = attempt.of(Event.REQUEST_REJECTED)
    if rejected and scene.several_workers:
        finding = outcomes.by_message(scene, attempt, rejected[0])
        finding.effects.append("reply-lost")
        finding.evidence.append(lines[0])
        if finding.confidence == "proven":
            finding.confidence = "likely"
        return finding
    if lost and scene.several_workers:
        text = "A scheduler-side end was lost on its way back to one of several HTTP workers; the client left later."
        names = ("output-lost", "client-disconnect", "explicit-abort", "waiting-timeout", "session-unknown")
        finding = undecided(text, [(n, "one HTTP worker, or --log-level debug") for n in names], [*lines, *lost[:1]])
        finding.effects.append("reply-lost")
        return finding
    displaced = _overwritten(scene, attempt)
    if displaced is not None and lines[0].at is not None:
        second = _second(scene, attempt)
        came = second.received_at if second is not None else None
        if came is None or lines[0].at - came > deaths.NOTICED:  # its connection was there when the other came
            displaced.evidence.append(lines[0])
            return displaced
    workers = scene.several_workers
    kind = lines[0].detail.get("kind")
    how = {1: "at its 4 s poll", 3: "at an output"}.get(kind if isinstance(kind, int) else 0, "")
    finding = Finding(
        "client-disconnect",
        "proven",
        f"The HTTP peer closed the connection; the API server noticed {how or 'it'} and aborted the request.",
        [*begin(attempt), lines[0]],
        stage=stage(scene, attempt) or ("running" if kind == 3 else "unknown"),
    )
    if workers:
        finding.confidence = "likely"
        finding.candidates.append(("output-lost", "one HTTP worker: with several, a scheduler-side end can get lost"))
    _note_alike(scene, attempt, lines[0], finding)
    finding.client_saw = "nothing: it had gone, or a proxy had closed the connection"
    hung = unanswered(scene, attempt, scene.places[id(lines[0])])
    if hung:
        finding.confidence = "likely"
        finding.candidates += hung
    else:
        finding.ruled_out.append(Cause("explicit-abort", "an abort call leaves a Finish and no disconnect line"))
    if rejected:  # its answer waited in the queue
        refusal = outcomes.by_message(scene, attempt, rejected[0])
        finding.chain += [Cause(refusal.cause, refusal.summary, rejected[:1]), *refusal.chain]
    if displaced is not None:
        finding.confidence = "likely"
        finding.candidates.append(("duplicate-rid", "the client's log: did it leave before it sent the rid again?"))
    zombies.note(attempt, finding)
    return finding


def _too_late(scene: Scene, fact: Fact, notice: float = deaths.NOTICED) -> bool:
    """Whether a line only tells what became of a request that its dead server could not answer any more."""
    return deaths.outlived(scene, fact, notice) and not deaths.went_on(scene)


def unanswered(scene: Scene, attempt: Attempt, until: int) -> list[tuple[str, str]]:
    """The aborts that may have taken it out of the queue before a place, each with what would decide.

    Up to 0.4.8 whoever is aborted there gets no answer and no `Finish`, and hangs until its client leaves: to 0.4.6 the
    scheduler tells nobody (managers/scheduler.py:abort_request), then the API server does not tell who waits
    (managers/tokenizer_manager.py:_handle_abort_req). A client that waits can be hit from 0.4.4 on, when an abort takes
    in the rids that begin with its own, and from 0.4.7 on by a call.
    """
    if not scene.release.may_be("0.4.4", "0.4.8"):
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


_CROWD = 2  # other disconnects that must be alike


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
    return None if listed is None else "running" if attempt.rid in listed.detail["running_rids"] else "waiting"


def _refused(scene: Scene, attempt: Attempt) -> Finding | None:
    """The scheduler refused it; its `Finish` is missing (request log off, filtered, or the reply was lost)."""
    rejected = attempt.of(Event.REQUEST_REJECTED)
    if not rejected:
        return None
    finding = outcomes.by_message(scene, attempt, rejected[0])
    finding.missing.append("its Finish: a refused request waits in the queue, where something else may have ended it")
    if attempt.received is not None and not scene.hides_finishes:
        text = f"Refused on arrival ({finding.cause}); the answer waits in the queue, and no Finish shows its delivery."
        names = [
            (finding.cause, "its Finish"),
            ("client-disconnect", "the client's log: did it leave before the answer?"),
        ]
        unsure = undecided(text, names, finding.evidence)
        unsure.chain, unsure.missing, unsure.stage = finding.chain, finding.missing, finding.stage
        return unsure
    if finding.confidence == "proven":
        finding.confidence = "likely"
    for name in ("client-disconnect", "waiting-timeout", "explicit-abort"):
        finding.admit(name, "its Finish: the refusal is told when its turn in the queue comes")
    return finding


def _api_error(scene: Scene, attempt: Attempt) -> Finding | None:
    """The API server answered with an error before the scheduler saw it. The line carries no rid: `likely`."""
    said = [*attempt.errors[:1], *([attempt.access] if attempt.access is not None else [])]
    if any(_too_late(scene, fact) for fact in said):
        return None
    if attempt.errors:
        error = attempt.errors[0]
        finding = outcomes.by_message(scene, attempt, error)
        if error.message_id == "request_aborted":
            finding = Finding("explicit-abort", "likely", "Aborted before it was sent to the scheduler.", [error])
        finding.confidence = "likely" if finding.confidence == "proven" else finding.confidence
        finding.stage = "before-scheduler"
        finding.evidence = [*begin(attempt), error]
        finding.missing.append("a rid in the error's line: it is this request's by its place right after the Receive")
        if attempt.access is not None:
            finding.http_status = int(attempt.access.detail["http_status"])
        return finding
    status = int(attempt.access.detail["http_status"]) if attempt.access is not None else 0
    if status < 400 or attempt.access is None or attempt.received is None or _ran_on(scene, attempt, attempt.access):
        return None
    delay = (attempt.access.at or 0.0) - (attempt.received.at or 0.0)
    lines = [attempt.received, attempt.access]
    if status == 503:
        text = f"Answered with status 503 after {delay:.0f} s, which only the scheduler asks for; no Finish says why."
        return undecided(text, [(cause, "its Finish") for cause in _UNAVAILABLE], lines)
    if delay <= _REFUSED_WITHIN:
        if _short(scene, attempt):
            text = f"Answered with status {status} at once, without reaching the scheduler; its prompt is short."
            finding = Finding("invalid-request", "likely", text, lines, stage="before-scheduler", http_status=status)
            finding.candidates.append(("input-too-long", "the body of the client's response"))
            return finding
        finding = undecided(
            f"Answered with status {status} at once, without reaching the scheduler; OpenAI routes don't log why.",
            [(c, "the body of the client's response") for c in ("invalid-request", "input-too-long")],
            lines,
        )
        finding.stage, finding.http_status = "before-scheduler", status
        return finding
    if attempt.openai is not None and delay >= POLL:
        text = f"Answered with status {status} after {delay:.0f} s: the API server had found its connection closed."
        finding = Finding("client-disconnect", "likely", text, lines)
        finding.candidates.append(("invalid-request", "the body of the client's response"))
        return finding
    return undecided(
        f"Answered with status {status} after {delay:.0f} s; OpenAI routes log neither errors nor disconnects.",
        [(c, "the proxy's or client's log") for c in ("client-disconnect", "invalid-request")],
        lines,
    )


def causes_of(scene: Scene, attempt: Attempt, said: Fact) -> list[str]:
    """What an error or a status without a rid would mean for an attempt, were it about it."""
    if said.event is Event.HTTP_ACCESS:
        return ["invalid-request"]
    if (said.finish_message or "").startswith(GONE):
        return ["client-disconnect"]
    finding = outcomes.by_message(scene, attempt, said)
    return [finding.cause] if finding.cause != "not-established" else [cause for cause, _ in finding.candidates]


def _ran_on(scene: Scene, attempt: Attempt, answer: Fact) -> bool:
    """Whether a batch line counts it after an answer that names nobody: that was another's."""
    place = scene.places[id(answer)]
    first = bisect.bisect_right(scene.batch_orders, place)
    for order, fact in scene.batches[first : first + _LINES]:
        late = fact.at is not None and answer.at is not None and fact.at - answer.at > _SETTLED
        if late and fact.running is not None:
            if seen(fact) > sum(_there(scene, a, order) for a in scene.open_at(order) if a is not attempt):
                return True
            if not fact.detail.get("new_seq"):
                return False
    return False


def _there(scene: Scene, attempt: Attempt, order: int) -> bool:
    """Whether it may be in the engine at a place."""
    gone = gone_by(scene, attempt) if attempt.finish is None else None
    return gone is None or scene.places[id(gone)] > order


_LINES = 20  # batch lines after an answer among which one is looked for that takes nobody in
_SETTLED = 1.0  # seconds by which a batch line may trail what it counts
_UNAVAILABLE = ("queue-full", "waiting-timeout", "running-timeout", "priority-evicted")


def _short(scene: Scene, attempt: Attempt) -> bool:
    """Whether prompt and max_new_tokens together fit the context, as far as both are known."""
    detail = attempt.received.detail if attempt.received is not None else {}
    limit = next((f.detail.get("context_len") for f in scene.life.of(Event.SERVER_CAPACITY)), None)
    prompt = detail.get("prompt_ids")
    return limit is not None and prompt is not None and prompt + (detail.get("max_new_tokens") or 0) < limit


def _dumped(scene: Scene, attempt: Attempt) -> Finding | None:
    """Named in the batch that a watchdog dumped before it killed the server: it was running then."""
    end = deaths.death(scene)
    dumps = [f for f in (*attempt.facts, *attempt.forged) if f.event is Event.WATCHDOG_DUMPED]
    if end is None or end.cause != "watchdog-timeout" or not dumps:
        return None
    text = f"It was in the batch that did not finish: {end.summary}."
    return Finding("watchdog-timeout", "likely", text, [*begin(attempt), *end.evidence[:1], dumps[0]], stage="running")


def _keyed(scene: Scene, attempt: Attempt) -> Finding | None:
    """The missing key of a state table: the process had forgotten it, or it had never been there."""
    keyed = [f for f in attempt.of(Event.PROCESS_CRASHED, Event.HTTP_EXCEPTION) if "rids" in f.detail]
    if not keyed:
        return None
    if keyed[0].event is Event.PROCESS_CRASHED:
        text = f"The {keyed[0].detail.get('name')} no longer knew it and went down with it."
        finding = Finding("scheduler-crash", "likely", text, keyed[:1])
        earlier = _overwritten_twin(scene, attempt)
        if earlier is not None:
            twin = "a request with the same rid was open when it came: two shared one state"
            finding.chain.append(Cause("duplicate-rid", twin, [*begin(earlier), *begin(attempt)], rid=attempt.rid))
        return finding
    text = "The API server had already dropped its state when its handler looked for it."
    return Finding("output-lost", "likely", text, keyed[:1], candidates=[("finished-undelivered", "its Finish")])


def _overwritten_twin(scene: Scene, attempt: Attempt) -> Attempt | None:
    """An attempt of the same rid that was open when this one came and that it displaced.

    Up to 0.5.9 (managers/tokenizer_manager.py:_send_one_request).
    """
    if scene.release.within("0.5.10"):
        return None
    return next((a for a in scene.by_rid[attempt.rid] if a.overwritten and a is not attempt), None)


def _named_error(scene: Scene, attempt: Attempt) -> Finding | None:
    """An API error that names its rid: the rust server's ingress (0.5.17 on), or an abort before dispatch (0.5.17)."""
    errors = attempt.of(Event.REQUEST_ERROR)
    if not errors or attempt.refused_twin:
        return None
    if errors[0].message_id == "request_aborted" or errors[0].pattern == "tokenizer.request_aborted":
        text = "Aborted before it was sent to the scheduler."
        return Finding("explicit-abort", "likely", text, errors[:1], stage="before-scheduler")
    finding = outcomes.by_message(scene, attempt, errors[0])
    finding.stage = "before-scheduler"
    return finding


def _failed(scene: Scene, attempt: Attempt) -> Finding | None:
    """A line of the disaggregation, encoder or memory code names it."""
    lines = attempt.of(Event.PD_FAILED, Event.EPD_FAILED, Event.KV_ABORTED)
    lines += [f for f in attempt.of(Event.HTTP_EXCEPTION) if "failed" in f.detail]
    return outcomes.failure(scene, attempt, lines[0]) if lines else None


def _outputs(scene: Scene, attempt: Attempt) -> Finding | None:
    """Outputs or an abort's echo for a request that the API server had forgotten: its client had left.

    The same line would appear for a rid that was used again, so this is never proven.
    """
    lost = attempt.of(Event.OUTPUT_LOST)
    if lost:
        return Finding("output-lost", "likely", "The detokenizer no longer had its state.", lost[:1], stage="running")
    lines = attempt.of(Event.OUTPUT_UNDELIVERABLE, Event.ABORT_UNKNOWN_RID)
    if not lines:
        return None
    earlier = _overwritten_twin(scene, attempt)
    if earlier is not None:
        text = "Two requests with this rid were open at once; the outputs of both went to one, then to nobody."
        finding = Finding("duplicate-rid", "likely", text, [*begin(earlier), *begin(attempt), lines[0]])
        finding.candidates.append(("client-disconnect", "the client's log: did the first one leave before the second?"))
        return finding
    text = (
        "Its client left, the abort was lost and the engine went on decoding for nobody."
        if zombies.outputs(attempt)
        else "Its client left; the abort's echo found nobody waiting."
    )
    finding = Finding("client-disconnect", "likely", text, [*begin(attempt), lines[0]])
    finding.stage = stage(scene, attempt) or "unknown"
    finding.candidates.append(("duplicate-rid", "whether the rid was used twice: the client's log"))
    zombies.note(attempt, finding)
    return finding


def _overwritten(scene: Scene, attempt: Attempt) -> Finding | None:
    """A second `Receive` of the same rid while it was open: up to 0.5.9 it takes the first one's place silently.

    managers/tokenizer_manager.py:_send_one_request; later `_init_req_state` refuses the second.
    """
    if not attempt.overwritten or scene.release.within("0.5.10"):
        return None
    second = _second(scene, attempt)
    lines = [*begin(attempt), *(begin(second) if second is not None else [])]
    finding = Finding(
        "duplicate-rid",
        "likely",
        "A second request with the same rid came while it was open and took its place: its client waits for ever.",
        lines,
        stage="unknown",
    )
    finding.candidates.append(("client-disconnect", "the client's log: did it leave before it sent the rid again?"))
    return finding


def _second(scene: Scene, attempt: Attempt) -> Attempt | None:
    """The next attempt of the same rid."""
    return next((a for a in scene.by_rid[attempt.rid] if a.order > attempt.order and a.received), None)


def _stats(scene: Scene, attempt: Attempt) -> Finding | None:
    """Time stats without a `Finish`: it left the engine by its output path and nobody was told."""
    stats = attempt.of(Event.REQUEST_STATS)
    if not stats or attempt.received is None or not attempt.stream or _too_late(scene, stats[0], 0.0):
        return None
    asked = attempt.received.detail.get("max_new_tokens")
    done = stats[0].completion_tokens
    if asked is not None and done is not None and done >= asked:
        text = f"It ran to its {done} tokens, but no Finish was written: its client had gone."
        finding = Finding("finished-undelivered", "likely", text, [attempt.received, stats[0]], stage="finished")
        decides = "its Finish, if the logs lack it"
        if scene.hides_finishes or scene.life.size - scene.places[id(stats[0])] <= _SOON:
            decides = "the lines that follow, or SGLANG_LOG_REQUEST_EXCEEDED_MS"
        finding.candidates.append(("finished", decides))
        return finding
    return None


_SOON = 40  # facts within which a Finish follows the time stats


def _batch(scene: Scene, attempt: Attempt) -> Finding | None:
    """A batch is one HTTP request: when its client leaves, the line names only the first member."""
    rids = attempt.received.detail.get("batch", ()) if attempt.received is not None else ()
    for other in (a for rid in rids for a in scene.by_rid.get(rid, ())):
        if other is attempt or not outcomes.of_one_record(other, attempt):
            continue
        gone = other.of(Event.CLIENT_DISCONNECTED)
        if gone:
            text = f"Its batch's connection was closed; the line names {other.rid!r}, the batch's first member."
            return Finding("client-disconnect", "proven", text, [*begin(attempt), gone[0]])
    return None


def _refused_batch(scene: Scene, attempt: Attempt) -> Finding | None:
    """A batch is answered with the first error of a member; of the others nobody is told (all releases)."""
    rids = attempt.received.detail.get("batch", ()) if attempt.received is not None else ()
    for other in (a for rid in rids for a in scene.by_rid.get(rid, ())):
        if other is attempt or not outcomes.of_one_record(other, attempt) or other.finish is None:
            continue
        if (other.finish.status_code or 0) >= 400:
            found = outcomes.finished(scene, other)
            text = f"Its batch was answered with what ended {other.rid!r}, another member: {found.summary}"
            finding = Finding(found.cause, "likely", text, [*begin(attempt), other.finish], actor="peer-request")
            finding.chain.append(Cause(found.cause, found.summary, found.evidence, rid=other.rid))
            finding.candidates.append(("client-disconnect", "the client's log: did it leave before the answer?"))
            zombies.note(attempt, finding)
            return finding
    return None


_RULES = (
    _twin,
    _disconnected,
    _dumped,
    _keyed,
    _refused,
    samples.resolve,
    _named_error,
    _failed,
    _api_error,
    _refused_batch,
    _outputs,
    _overwritten,
    _stats,
    _batch,
)
