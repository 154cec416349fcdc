"""What the lines that name a request say of its end, where it has no `Finish`.

Lines without a rid that are a request's by their place among the records count here as well; they are never proof.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import NamedTuple

from sglang_lifecycle.analyzers import deaths, disconnects, outcomes, samples, twins, zombies
from sglang_lifecycle.analyzers.accounting import gone_by, seen
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Cause, Finding, undecided
from sglang_lifecycle.analyzers.hidden import hidden
from sglang_lifecycle.analyzers.responses import GONE, POLL
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.texts import EARLY_ABORTS
from sglang_lifecycle.parsers.evidence import Event, Fact

_REFUSED_WITHIN = 2.0  # seconds from `Receive` to the status of a request that the API server refuses


def resolve(scene: Scene, attempt: Attempt) -> Finding | None:
    """What the first rule that has something to say finds; None where no line names the attempt's end."""
    return next((found for rule in _RULES if (found := rule(scene, attempt)) is not None), None)


def _refused(scene: Scene, attempt: Attempt) -> Finding | None:
    """The scheduler refused it; its `Finish` is missing (request log off, filtered, or the reply was lost)."""
    rejected = attempt.of(Event.REQUEST_REJECTED)
    if not rejected:
        return None
    finding = outcomes.by_message(scene, attempt, rejected[0])
    if rejected[0].message_id in EARLY_ABORTS:
        return _aborted_early(scene, attempt, finding)
    finding.missing.append("its Finish: a refused request waits in the queue, where something else may have ended it")
    if attempt.received is not None and not scene.hides_finishes:
        end = deaths.death(scene) or deaths.replaced(scene)
        end = end if end is not None and end.order > attempt.order else None
        if end is not None and end.cause in deaths.FINAL and gone_by(scene, attempt) is None:
            return _unanswered(attempt, finding, end)
        text = f"Refused on arrival ({finding.cause}); the answer waits in the queue, and no Finish shows its delivery."
        names = [
            (finding.cause, "its Finish"),
            *finding.candidates,
            ("client-disconnect", "the client's log: did it leave before the answer?"),
        ]
        if end is not None:
            names.append((end.cause, "its Finish: was it answered before the end of the server?"))
        else:
            names.append(("in-flight", "the lines that follow"))
        unsure = undecided(text, names, finding.evidence)
        unsure.chain, unsure.missing, unsure.stage = finding.chain, finding.missing, finding.stage
        return unsure
    others = ("client-disconnect", "waiting-timeout", "explicit-abort")
    finding.soften(*((other, "its Finish: the refusal is told when its turn in the queue comes") for other in others))
    return finding


def _aborted_early(scene: Scene, attempt: Attempt, finding: Finding) -> Finding:
    """An abort met it before the queue; of a stream without a `Finish` it is that of its client, which had left."""
    if finding.cause == "not-established" and attempt.stream and not hidden(scene, attempt):
        text = "An abort met it before the queue, and its stream has no Finish: its client had closed the connection."
        others, lines, stage = finding.candidates, finding.evidence, finding.stage
        finding = Finding("client-disconnect", "likely", text, [*attempt.begun, *lines], stage=stage)
        for name, decides in others:
            finding.admit(name, decides)
    finding.missing.append("its Finish: who is aborted before the queue is answered when its turn there comes")
    finding.admit("client-disconnect", "the client's log: did it leave before the answer?")
    return finding


def _unanswered(attempt: Attempt, refusal: Finding, end: deaths.Death) -> Finding:
    """The server died while the answer to a refused request waited in the queue (0.4.9 to 0.5.23)."""
    text = f"Refused on arrival ({refusal.cause}); its answer still waited in the queue when {end.summary}."
    finding = Finding(end.cause, "likely", text, [*attempt.begun, *refusal.evidence, *end.evidence[:1]])
    finding.chain = [*end.chain, Cause(refusal.cause, refusal.summary, refusal.evidence), *refusal.chain]
    finding.candidates = [
        (refusal.cause, "its Finish, if the logs lack it"),
        ("client-disconnect", "the client's log: did it leave before that?"),
    ]
    for name, decides in end.candidates:
        finding.admit(name, decides)
    finding.missing, finding.stage = refusal.missing, "waiting"
    finding.client_saw = "a connection reset, or a 5xx from a proxy"
    return finding


def _api_error(scene: Scene, attempt: Attempt) -> Finding | None:
    """The API server answered with an error before the scheduler saw it. The line carries no rid: `likely`."""
    said = [*attempt.errors[:1], *([attempt.access] if attempt.access is not None else [])]
    if any(deaths.too_late(scene, fact) for fact in said):
        return None
    return _by_error(scene, attempt) if attempt.errors else _by_status(scene, attempt)


def _by_error(scene: Scene, attempt: Attempt) -> Finding:
    """What the text of the error says."""
    error = attempt.errors[0]
    finding = outcomes.by_message(scene, attempt, error)
    if error.message_id == "request_aborted":
        finding = Finding("explicit-abort", "likely", "Aborted before it was sent to the scheduler.", [error])
    finding.soften()
    finding.stage = "before-scheduler"
    finding.evidence = [*attempt.begun, error]
    finding.missing.append("a rid in the error's line: it is this request's by its place right after the Receive")
    if attempt.access is not None:
        finding.http_status = int(attempt.access.detail["http_status"])
    return finding


def _by_status(scene: Scene, attempt: Attempt) -> Finding | None:
    """What the status of the answer says by itself, and the time that it took."""
    if attempt.access is None or attempt.received is None:
        return None
    status = int(attempt.access.detail["http_status"])
    if status < 400 or _ran_on(scene, attempt, attempt.access):
        return None
    delay = (attempt.access.at or 0.0) - (attempt.received.at or 0.0)
    answer = next(each for each in _ANSWERS if each.when(scene, attempt, status, delay))
    return Finding(
        answer.cause,
        "not-established" if answer.cause == "not-established" else "likely",
        f"Answered with status {status} {answer.text.format(delay)}",
        [attempt.received, attempt.access],
        stage="before-scheduler" if answer.refused else "unknown",
        candidates=[(cause, answer.decides) for cause in answer.others],
        http_status=status if answer.refused else None,
    )


class _Answer(NamedTuple):
    """What an answer with an error's status means that no other line explains."""

    when: Callable[[Scene, Attempt, int, float], bool]
    """Asked with the status and the seconds from the `Receive` to the answer."""
    cause: str
    text: str
    others: tuple[str, ...]
    decides: str
    refused: bool = False
    """Whether it surely never reached the scheduler."""


_ANSWERS = (
    _Answer(
        lambda scene, attempt, status, delay: status == 503,
        "not-established",
        "after {:.0f} s, which only the scheduler asks for; no Finish says why.",
        ("queue-full", "waiting-timeout", "running-timeout", "priority-evicted"),
        "its Finish",
    ),
    _Answer(
        lambda scene, attempt, status, delay: delay <= _REFUSED_WITHIN and _short(scene, attempt),
        "invalid-request",
        "at once, without reaching the scheduler; its prompt is short.",
        ("input-too-long",),
        "the body of the client's response",
        refused=True,
    ),
    _Answer(
        lambda scene, attempt, status, delay: delay <= _REFUSED_WITHIN,
        "not-established",
        "at once, without reaching the scheduler; OpenAI routes don't log why.",
        ("invalid-request", "input-too-long"),
        "the body of the client's response",
        refused=True,
    ),
    _Answer(
        lambda scene, attempt, status, delay: attempt.openai is not None and delay >= POLL,
        "client-disconnect",
        "after {:.0f} s: the API server had found its connection closed.",
        ("invalid-request",),
        "the body of the client's response",
    ),
    _Answer(
        lambda scene, attempt, status, delay: True,
        "not-established",
        "after {:.0f} s; OpenAI routes log neither errors nor disconnects.",
        ("client-disconnect", "invalid-request"),
        "the proxy's or client's log",
    ),
)
"""The first that fits counts."""


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
    return Finding("watchdog-timeout", "likely", text, [*attempt.begun, *end.evidence[:1], dumps[0]], stage="running")


def _keyed(scene: Scene, attempt: Attempt) -> Finding | None:
    """The missing key of a state table: the process had forgotten it, or it had never been there."""
    keyed = [f for f in attempt.of(Event.PROCESS_CRASHED, Event.HTTP_EXCEPTION) if "rids" in f.detail]
    if not keyed:
        return None
    if keyed[0].event is Event.PROCESS_CRASHED:
        text = f"The {keyed[0].detail.get('name')} no longer knew it and went down with it."
        finding = Finding("scheduler-crash", "likely", text, keyed[:1])
        earlier = twins.first(scene, attempt)
        if earlier is not None:
            twin = "a request with the same rid was open when it came: two shared one state"
            finding.chain.append(Cause("duplicate-rid", twin, [*earlier.begun, *attempt.begun], rid=attempt.rid))
        return finding
    text = "The API server had already dropped its state when its handler looked for it."
    return Finding("output-lost", "likely", text, keyed[:1], candidates=[("finished-undelivered", "its Finish")])


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

    The same line would appear for a rid that was used again, so this is never proven. A health check asks for one token
    and waits for any answer of the engine: its own may come later (`entrypoints/http_server.py`, `health_generate`,
    0.4.4 to 0.5.23).
    """
    lost = attempt.of(Event.OUTPUT_LOST)
    if lost:
        return Finding("output-lost", "likely", "The detokenizer no longer had its state.", lost[:1], stage="running")
    lines = attempt.of(Event.OUTPUT_UNDELIVERABLE, Event.ABORT_UNKNOWN_RID)
    if not lines:
        return None
    if attempt.health_check:
        text = "A health check of the server's own: it had its answer before the engine was done with it."
        return Finding("finished-undelivered", "likely", text, [*attempt.begun, lines[0]], stage="finished")
    earlier = twins.first(scene, attempt)
    if earlier is not None:
        text = "Two requests with this rid were open at once; the outputs of both went to one, then to nobody."
        finding = Finding("duplicate-rid", "likely", text, [*earlier.begun, *attempt.begun, lines[0]])
        finding.candidates.append(("client-disconnect", "the client's log: did the first one leave before the second?"))
        return finding
    text = (
        "Its client left, the abort was lost and the engine went on decoding for nobody."
        if zombies.outputs(attempt)
        else "Its client left; the abort's echo found nobody waiting."
    )
    finding = Finding("client-disconnect", "likely", text, [*attempt.begun, lines[0]])
    finding.stage = disconnects.stage(scene, attempt) or "unknown"
    finding.candidates.append(("duplicate-rid", "whether the rid was used twice: the client's log"))
    zombies.note(attempt, finding)
    return finding


def _stats(scene: Scene, attempt: Attempt) -> Finding | None:
    """Time stats without a `Finish`: it left the engine by its output path and nobody was told."""
    stats = attempt.of(Event.REQUEST_STATS)
    if not stats or attempt.received is None or not attempt.stream or deaths.too_late(scene, stats[0], 0.0):
        return None
    asked = attempt.received.detail.get("max_new_tokens")
    done = stats[0].completion_tokens
    if asked is not None and done is not None and done >= asked:
        text = f"It ran to its {done} tokens, but no Finish was written: its client had gone."
        finding = Finding("finished-undelivered", "likely", text, [attempt.received, stats[0]], stage="finished")
        decides = "its Finish, if the logs lack it"
        if scene.hides_finishes or scene.life.size - scene.places[id(stats[0])] <= SOON:
            decides = "the lines that follow, or SGLANG_LOG_REQUEST_EXCEEDED_MS"
        finding.candidates.append(("finished", decides))
        return finding
    return None


SOON = 40
"""Facts within which a `Finish` follows the time stats."""


def _batch(scene: Scene, attempt: Attempt) -> Finding | None:
    """A batch is one HTTP request: when its client leaves, the line names only the first member."""
    for other in outcomes.members(scene, attempt):
        gone = other.of(Event.CLIENT_DISCONNECTED)
        if gone and other is not attempt:
            text = f"Its batch's connection was closed; the line names {other.rid!r}, the batch's first member."
            return Finding("client-disconnect", "proven", text, [*attempt.begun, gone[0]])
    return None


def _refused_batch(scene: Scene, attempt: Attempt) -> Finding | None:
    """A batch is answered with the first error of a member; of the others nobody is told (all releases)."""
    refused = next(filter(outcomes.answered_by_error, outcomes.members(scene, attempt)), None)
    if refused is None or refused.finish is None:
        return None
    found = outcomes.finished(scene, refused)
    text = f"Its batch was answered with what ended {refused.rid!r}, another member: {found.summary}"
    finding = Finding(found.cause, "likely", text, [*attempt.begun, refused.finish], actor="peer-request")
    finding.chain.append(Cause(found.cause, found.summary, found.evidence, rid=refused.rid))
    finding.admit("client-disconnect", "the client's log: did it leave before the answer?")
    zombies.note(attempt, finding)
    return finding


_RULES = (
    twins.refused,
    disconnects.resolve,
    _dumped,
    _keyed,
    _refused,
    samples.resolve,
    _named_error,
    _failed,
    _api_error,
    _refused_batch,
    _outputs,
    twins.displaced,
    _stats,
    _batch,
)
