"""Every request of an incident, with the same verdicts as `explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime

from sglang_lifecycle.analyzers import happenings
from sglang_lifecycle.analyzers.catalogue import cause
from sglang_lifecycle.analyzers.explain import confirm, decide, evidence_line, simply_finished, times, timestamp
from sglang_lifecycle.analyzers.finding import NOT_INTERRUPTED
from sglang_lifecycle.analyzers.happenings import ServerHappening
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.legs import Judged
from sglang_lifecycle.analyzers.listing import Audit, InputReport, RequestRow, ServerEvent, Totals
from sglang_lifecycle.analyzers.outcomes import ran_to_its_end
from sglang_lifecycle.analyzers.spans import overlaps
from sglang_lifecycle.analyzers.verdict import Candidate, Verdict
from sglang_lifecycle.parsers.evidence import Evidence
from sglang_lifecycle.parsers.garbage import uncollected


def audit(incident: Incident, since: float | None = None, until: float | None = None) -> Audit:
    """All requests, those that lived inside `since` to `until` (UTC epoch seconds) where given.

    The bounds limit what is reported, not what is looked at.
    """
    with uncollected():
        rows = [found for rid in incident.by_rid if inside(found := row(incident, rid), since, until)]
    rows.sort(key=order)
    return Audit(
        inputs=inputs(incident.evidence),
        totals=totals(rows),
        server_events=in_order(event(h) for h in happenings.of(incident) if within(h.at, since, until)),
        requests=rows,
    )


def event(happening: ServerHappening) -> ServerEvent:
    """What happened to a server, as an audit lists it."""
    return ServerEvent(
        cause=happening.cause,
        at=timestamp(happening.at),
        summary=happening.summary,
        evidence=[evidence_line(fact) for fact in happening.evidence],
    )


def in_order(events: Iterable[ServerEvent]) -> list[ServerEvent]:
    """Events by their times; those of one moment by their lines, and what has no time comes last."""
    return sorted(events, key=lambda each: (each.at is None, each.at, [(e.source, e.line) for e in each.evidence[:1]]))


def inputs(evidence: Evidence) -> list[InputReport]:
    """What became of every input."""
    return [InputReport(**asdict(source)) for source in evidence.sources]


class Tally:
    """Counts requests; those that are not synthetic, and of a batch its members."""

    def __init__(self) -> None:
        self._status: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._confidence: Counter[str] = Counter()
        self._perhaps_not = 0

    def add(self, found: RequestRow) -> None:
        """Count a request."""
        if found.members:
            return
        status = "synthetic" if found.synthetic else found.status
        self._status[status] += 1
        if status == "interrupted":
            if found.cause == "not-established":
                self._perhaps_not += any(each.cause in NOT_INTERRUPTED for each in found.candidates)
            self._causes[found.cause] += 1
            self._confidence[found.confidence] += 1

    def finished(self, number: int, synthetic: bool) -> None:
        """Count so many requests that simply finished."""
        self._status["synthetic" if synthetic else "finished"] += number

    def totals(self) -> Totals:
        """The counts so far."""
        synthetic = self._status["synthetic"]
        return Totals(
            requests=self._status.total() - synthetic,
            interrupted=self._status["interrupted"],
            perhaps_not=self._perhaps_not,
            finished=self._status["finished"],
            in_flight=self._status["in-flight"],
            synthetic=synthetic,
            by_cause=_sorted(self._causes),
            by_confidence=_sorted(self._confidence),
        )


def totals(rows: Iterable[RequestRow]) -> Totals:
    """Counts over requests."""
    tally = Tally()
    for found in rows:
        tally.add(found)
    return tally.totals()


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def row(incident: Incident, rid: str, since: float | None = None, until: float | None = None) -> RequestRow:
    """The summary of the verdict that `explain` gives on a rid that the logs name, without the rest of it."""
    scene, attempt, finding = _simply(incident, rid) or _decided(incident, rid, since, until)
    entry = cause(finding.cause)
    linked = finding.status == "interrupted" or finding.chain
    return RequestRow(
        rid=rid,
        status=finding.status,
        cause=finding.cause,
        candidates=[Candidate(cause=name, would_decide=what) for name, what in finding.candidates],
        confidence=finding.confidence,
        layer=entry.layer,
        stage=finding.stage,
        actor=finding.actor or entry.actor,
        effects=finding.effects,
        synthetic=attempt.synthetic,
        members=incident.batches.get(rid, []),
        session_id=incident.by_rid[rid][-1][1].session_id,
        server=scene.life.server,
        times=times(scene, attempt, finding),
        chain=[finding.cause, *(link.cause for link in finding.chain)] if linked else [],
    )


def _simply(incident: Incident, rid: str) -> Judged | None:
    """The judgement of a request that simply finished, as nearly all do."""
    attempt = simply_finished(incident, rid)
    if attempt is None or attempt.finish is None:
        return None
    return incident.by_rid[rid][0][0], attempt, ran_to_its_end(attempt.finish)


def _decided(incident: Incident, rid: str, since: float | None, until: float | None) -> Judged:
    decided = decide(incident, rid, since, until)
    assert decided is not None
    scene, attempt, finding = decided[0]
    confirm(scene, attempt, finding)
    return scene, attempt, finding


def order(row: RequestRow) -> tuple[str, str]:
    """What the requests of an audit are sorted by."""
    return row.times.received or row.times.ended or "", row.rid


def inside(row: RequestRow | Verdict, since: float | None, until: float | None) -> bool:
    """Whether a request lived inside the bounds, UTC epoch seconds; one that is in flight lives on."""
    if since is until is None:
        return True
    came, ended = (
        datetime.fromisoformat(at).timestamp() if at else None for at in (row.times.received, row.times.ended)
    )
    last = ended if ended is not None or row.status == "in-flight" else came
    return overlaps(came if came is not None else ended, last, since, until)


def within(at: float | None, since: float | None, until: float | None) -> bool:
    """Whether a time lies inside the bounds, UTC epoch seconds; one that is not known may."""
    return overlaps(at, at, since, until)
