"""One request, explained: the steps in their order, the finding, and the verdict made of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sglang_lifecycle.analyzers import (
    deaths,
    faults,
    legs,
    outcomes,
    replaying,
    rid_validity,
    session_params,
    silence,
    time_stats,
    transfers,
)
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.catalogue import cause as catalogue_entry
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.legs import Judged
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.spans import Moment, overlaps, span
from sglang_lifecycle.analyzers.verdict import Attempt as AttemptSummary
from sglang_lifecycle.analyzers.verdict import (
    Candidate,
    Client,
    EvidenceLine,
    KnownFault,
    Link,
    Replay,
    RuledOut,
    Step,
    Times,
    Verdict,
    Version,
)
from sglang_lifecycle.parsers.evidence import Event, Fact


def judge(scene: Scene, attempt: Attempt) -> Finding:
    """What ended one attempt."""
    finding = outcomes.finished(scene, attempt) if attempt.finish is not None else silence.resolve(scene, attempt)
    if attempt.finish is not None and attempt.finish.detail.get("cut"):
        finding.doubt("its Finish line is cut")
    if attempt.rejoined:
        end = deaths.death(scene)
        open_ = end.cause if end is not None else "in-flight", "whether its rid was sent twice"
        finding.doubt("its Finish stands before its Receive, as lines that were delivered out of turn", open_)
    if any(f.tainted for f in finding.evidence) and not any(not f.tainted for f in finding.evidence):
        finding.doubt("raw user text stands in or before every line of this evidence: it may be forged")
    if scene.life.suspects and any(id(f) in scene.life.suspects for f in finding.evidence if f is not attempt.received):
        open_ = "in-flight", "whether a call named a session of several lines: the caller's log"
        finding.doubt("these lines stand among those of one session id, which may hold them: they may be forged", open_)
    return finding


def explain(incident: Incident, rid: str, since: float | None = None, until: float | None = None) -> Verdict:
    """The verdict on a rid: on its newest interrupted attempt, else on its newest.

    `since` and `until` (UTC epoch seconds) bound the attempts that are asked about, where any lies inside.
    """
    asked = rid, since, until
    if asked not in incident.verdicts:
        incident.verdicts[asked] = _explained(incident, *asked)
    found: Verdict = incident.verdicts[asked]
    # Whoever shows the lines fills in as much text as it has room for.
    lines = [line.model_copy() for line in found.evidence]
    return found.model_copy(update={"evidence": lines})


def _explained(incident: Incident, rid: str, since: float | None, until: float | None) -> Verdict:
    found = decide(incident, rid, since, until)
    if found is None:
        return _not_found(rid)
    one, judged = found
    verdict = _verdict(*one)
    if rid in incident.batches:
        verdict.rid, verdict.members = rid, incident.batches[rid]
    if len(judged) > 1:
        verdict.attempts = [_summary(*each) for each in judged]
    return verdict


def decide(
    incident: Incident, rid: str, since: float | None = None, until: float | None = None
) -> tuple[Judged, list[Judged]] | None:
    """What ended a rid's attempts: the one that a verdict is about, and all; None where no line names the rid.

    `since` and `until` are as for `explain`.
    """
    peers = list(incident.peers(rid))
    if not peers:
        return None
    peers = legs.in_time([p for p in peers if _overlaps(*p, since, until)] or peers)
    judged = [(scene, attempt, judge(scene, attempt)) for scene, attempt in peers]
    interrupted = [j for j in judged if j[2].status == "interrupted"]
    return legs.first(interrupted) if interrupted else legs.last(judged), judged


def simply_finished(incident: Incident, rid: str) -> Attempt | None:
    """The attempt of a rid that there is, where it simply ran to its end: `decide` would find nothing else."""
    peers = incident.by_rid[rid]
    scene, attempt = peers[0]
    finish = attempt.finish
    if len(peers) > 1 or finish is None or finish.finish_type in _UNCLEAR or finish.message_id is not None:
        return None
    odd = (
        outcomes.spoilt(scene, attempt) is not None
        or attempt.rejoined
        or "cut" in finish.detail
        or finish.tainted
        or id(finish) in scene.life.suspects
        or transfers.handed_over(scene, attempt)
    )
    return None if odd or any(fact.event is Event.CLIENT_DISCONNECTED for fact in attempt.facts) else attempt


_UNCLEAR = frozenset({None, "abort"})


def _overlaps(scene: Scene, attempt: Attempt, since: float | None, until: float | None) -> bool:
    """Whether an attempt was alive inside the bounds; one without a `Finish` lived as long as its server at most."""
    start = attempt.received_at or attempt.ended_at
    end = attempt.ended_at or (scene.life.end if scene.life.restarted else None)
    return overlaps(start, end, since, until)


def _not_found(rid: str) -> Verdict:
    entry = catalogue_entry("never-received")
    return Verdict(
        rid=rid,
        status="not-found",
        cause="never-received",
        title=entry.title,
        summary="No line of these logs names this rid.",
        layer="unknown",
        stage="never-received",
        actor="unknown",
        confidence="likely",
        advice=list(entry.advice),
        candidates=[Candidate(cause="never-received", would_decide="the logs of every server and of the gateway")],
        missing=["any line that names the rid"],
    )


class _Lines:
    """Numbers the lines that a verdict rests on, each once."""

    def __init__(self) -> None:
        self.lines: list[EvidenceLine] = []
        self._seen: dict[int, int] = {}

    def add(self, facts: Iterable[Fact | None]) -> list[int]:
        return list(dict.fromkeys(self._index(f) for f in facts if f is not None))

    def _index(self, fact: Fact) -> int:
        known = self._seen.get(id(fact))
        if known is None:
            known = self._seen[id(fact)] = len(self.lines)
            self.lines.append(evidence_line(fact))
        return known


def evidence_line(fact: Fact) -> EvidenceLine:
    """A fact as a line of evidence; its text is filled in by whoever can read the input."""
    return EvidenceLine(
        source=fact.source,
        line=fact.line,
        at=timestamp(fact.at),
        at_error_s=round(fact.at_error, 6) if fact.at_error is not None else None,
        event=str(fact.event),
        tainted=fact.tainted,
        offset=fact.offset,
        length=fact.length,
    )


@lru_cache(maxsize=1024)  # most lines tell of whole seconds
def timestamp(at: float | None) -> str | None:
    """UTC epoch seconds as ISO 8601 with milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def dated(moment: Moment | None) -> tuple[str | None, float | None]:
    """A moment as ISO 8601, and by how many seconds it may be off."""
    return (timestamp(moment.at), rounded(moment.error)) if moment is not None else (None, None)


def _verdict(scene: Scene, attempt: Attempt, finding: Finding) -> Verdict:
    lines = _Lines()
    entry = catalogue_entry(finding.cause)
    proximate = lines.add(finding.evidence)
    replay = confirm(scene, attempt, finding)
    steps = _steps(scene, attempt, finding, lines, proximate)
    chain = [Link(cause=finding.cause, rid=attempt.rid, summary=finding.summary, evidence=proximate)]
    chain += [Link(cause=c.cause, rid=c.rid, summary=c.summary, evidence=lines.add(c.evidence)) for c in finding.chain]
    return Verdict(
        rid=attempt.rid,
        status=finding.status,
        cause=finding.cause,
        title=entry.title,
        summary=finding.summary,
        layer=entry.layer,
        stage=finding.stage,
        actor=finding.actor or entry.actor,
        confidence=finding.confidence,
        effects=finding.effects,
        synthetic=attempt.synthetic,
        sglang_version=version(scene),
        steps=steps,
        chain=chain if finding.status == "interrupted" or finding.chain else [],
        ruled_out=[
            RuledOut(cause=c.cause, because=c.summary, evidence=lines.add(c.evidence)) for c in finding.ruled_out
        ],
        candidates=[Candidate(cause=c, would_decide=w) for c, w in finding.candidates],
        contradictions=finding.contradictions,
        missing=finding.missing,
        known_faults=_known_faults(scene, finding),
        advice=list(entry.advice),
        client=_client(scene, attempt, finding, entry.client_sees),
        times=times(scene, attempt, finding),
        replay=replay,
        evidence=lines.lines,
    )


def confirm(scene: Scene, attempt: Attempt, finding: Finding) -> Replay | None:
    """Hold a finding against the durations and the reference scheduler, which may lower its confidence."""
    if finding.status == "finished":
        return None  # neither has a say
    time_stats.check(scene, attempt, finding)
    return replaying.compare(scene, attempt, finding)


def times(scene: Scene, attempt: Attempt, finding: Finding) -> Times:
    """When an attempt came and ended, how long it took, how many tokens it had."""
    waited, ran = time_stats.durations(scene, attempt)
    received, ended = map(dated, span(attempt, legs.shows_end(finding, attempt)))
    return Times(
        received=received[0],
        received_error_s=received[1],
        ended=ended[0],
        ended_error_s=ended[1],
        waited_s=rounded(waited),
        ran_s=rounded(ran),
        prompt_tokens=attempt.finish.prompt_tokens if attempt.finish is not None else None,
        completion_tokens=attempt.completion_tokens,
    )


def rounded(seconds: float | None) -> float | None:
    """Seconds as they are shown, to the millisecond."""
    return round(seconds, 3) if seconds is not None else None


def _known_faults(scene: Scene, finding: Finding) -> list[KnownFault]:
    """The faults of SGLang that the finding shows and that the life's release may have."""
    crash = next((f for f in finding.evidence if "exception" in f.detail), None)
    exception = str(crash.detail["exception"]) if crash is not None else ""
    frames = crash.detail.get("frames", ()) if crash is not None else ()
    chain = [c.cause for c in finding.chain]
    return [
        KnownFault(id=f.id, title=f.title, first=f.first, last=f.last, fixed_in=f.fixed_in or None, url=f.url or None)
        for f in faults.load().values()
        if f.match is not None
        and finding.status == "interrupted"
        and scene.release.may_be(f.first, f.last)
        and f.match.fits(finding.cause, finding.effects, chain, exception, frames)
    ]


def version(scene: Scene) -> Version:
    """The release that a life is of, as far as it is known, and how it is known."""
    text = scene.release.text
    if text is None:
        return Version()
    return Version(value=text, source="told" if scene.release.told else "fingerprint")


def _client(scene: Scene, attempt: Attempt, finding: Finding, sees: str) -> Client:
    access = attempt.access
    status: Any = access.detail.get("http_status") if access is not None else finding.http_status
    return Client(
        http_status=status,
        saw=finding.client_saw or (sees if finding.status == "interrupted" and status is None else None),
        peer=attempt.peer if not scene.partial else None,  # others may have waited for a response as well
    )


def _steps(scene: Scene, attempt: Attempt, finding: Finding, lines: _Lines, proximate: Sequence[int]) -> list[Step]:
    session, session_lines = session_params.describe(attempt)
    validity, validity_lines = rid_validity.describe(scene, attempt)
    stats, stats_lines = time_stats.describe(scene, attempt, finding)
    context = "".join(f"; {text}" for text, _ in finding.notes)
    return [
        Step(step="session_params", finding=session, evidence=lines.add(session_lines)),
        Step(step="abort_origin", finding=_origin(attempt, finding), evidence=list(proximate)),
        Step(
            step="timeout",
            finding=_timeout(finding) + context,
            evidence=[i for _, facts in finding.notes for i in lines.add(facts)],
        ),
        Step(step="rid_validity", finding=validity, evidence=lines.add(validity_lines)),
        Step(step="time_stats", finding=stats, evidence=lines.add(stats_lines)),
    ]


_ORIGINS = {
    "client": "the HTTP peer's side",
    "api-server": "the API server",
    "tokenizer": "the API server, before the scheduler",
    "scheduler": "the scheduler",
    "session": "its session, in the scheduler",
    "grammar": "its grammar, in the scheduler",
    "memory": "the scheduler, for want of KV memory",
    "disaggregation": "the disaggregated transfer",
    "process": "the death of a process",
}


def _origin(attempt: Attempt, finding: Finding) -> str:
    if finding.status == "finished":
        return "nobody cut it"
    if finding.status == "in-flight":
        return "nothing shows that it was cut"
    if finding.cause == "not-established":
        names = ", ".join(c for c, _ in finding.candidates)
        return f"not established: {names}"
    layer = catalogue_entry(finding.cause).layer
    said = attempt.finish.finish_message if attempt.finish is not None else None
    quoted = f" (finish reason: {said.splitlines()[0][:80]!r})" if said else " (no Finish)"
    return f"cut by {_ORIGINS.get(layer, layer)}{quoted}"


_OWN = ("waiting-timeout", "running-timeout")
_ANOTHERS = "timeout-prefix-collision"


def _timeout(finding: Finding) -> str:
    still = [cause for cause, _ in finding.candidates if cause in (*_OWN, _ANOTHERS)]
    if finding.cause in _OWN:
        return f"its own {finding.cause.replace('-', ' ')}" + ", or another rid's" * (_ANOTHERS in still)
    if finding.cause == _ANOTHERS:
        own = ", or its own" * any(cause in _OWN for cause in still)
        return f"another rid's timeout{own}; it stood in stage {finding.stage}"
    return f"not ruled out: {', '.join(still)}" if still else "no timeout of the scheduler"


def _summary(scene: Scene, attempt: Attempt, finding: Finding) -> AttemptSummary:
    received, ended = map(dated, span(attempt, legs.shows_end(finding, attempt)))
    return AttemptSummary(
        status=finding.status,
        cause=finding.cause,
        confidence=finding.confidence,
        received=received[0],
        ended=ended[0],
        life=scene.life.number,
        server=scene.life.server,
    )
