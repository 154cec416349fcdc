"""Every request of an incident, with the same verdicts as `explain`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime
from math import inf

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.catalogue import cause
from sglang_lifecycle.analyzers.explain import confirm, decide, evidence_line, times, timestamp
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Audit, Candidate, InputReport, RequestRow, ServerEvent, Totals
from sglang_lifecycle.parsers.garbage import uncollected


def audit(incident: Incident, since: float | None = None, until: float | None = None) -> Audit:
    """All requests, those that ended or arrived inside `since` to `until` (UTC epoch seconds) where given.

    The bounds limit what is reported, not what is looked at.
    """
    with uncollected():
        rows = [found for rid in incident.by_rid if _inside(found := row(incident, rid), since, until)]
    rows.sort(key=lambda r: (r.times.received or r.times.ended or "", r.rid))
    return Audit(
        inputs=inputs(incident),
        totals=totals(rows),
        server_events=[
            ServerEvent(
                cause=h.cause, at=timestamp(h.at), summary=h.summary, evidence=[evidence_line(f) for f in h.evidence]
            )
            for h in sorted(deaths.happenings(incident), key=lambda h: inf if h.at is None else h.at)
            if _within(h.at, since, until)
        ],
        requests=rows,
    )


def inputs(incident: Incident) -> list[InputReport]:
    """What became of every input."""
    return [InputReport(**asdict(source)) for source in incident.evidence.sources]


def totals(rows: list[RequestRow]) -> Totals:
    """Counts over the requests that are not synthetic; of a batch its members are counted."""
    rows = [r for r in rows if not r.members]
    real = [r for r in rows if not r.synthetic]
    interrupted = [r for r in real if r.status == "interrupted"]
    return Totals(
        requests=len(real),
        interrupted=len(interrupted),
        finished=sum(r.status == "finished" for r in real),
        in_flight=sum(r.status == "in-flight" for r in real),
        synthetic=len(rows) - len(real),
        by_cause=_sorted(Counter(r.cause for r in interrupted)),
        by_confidence=_sorted(Counter(r.confidence for r in interrupted)),
    )


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def row(incident: Incident, rid: str, since: float | None = None, until: float | None = None) -> RequestRow:
    """The summary of the verdict that `explain` gives on a rid that the logs name, without the rest of it."""
    decided = decide(incident, rid, since, until)
    assert decided is not None
    scene, attempt, finding = decided[0]
    confirm(scene, attempt, finding)
    entry = cause(finding.cause)
    linked = finding.status == "interrupted" or finding.chain
    return RequestRow(
        rid=rid,
        status=finding.status,  # type: ignore[arg-type]
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
        times=times(scene, attempt, finding),
        chain=[finding.cause, *(link.cause for link in finding.chain)] if linked else [],
    )


def _inside(row: RequestRow, since: float | None, until: float | None) -> bool:
    times = [datetime.fromisoformat(t).timestamp() for t in (row.times.received, row.times.ended) if t is not None]
    return _within(times[0], since, until) or _within(times[-1], since, until) if times else True


def _within(at: float | None, since: float | None, until: float | None) -> bool:
    return at is None or ((since is None or at >= since) and (until is None or at <= until))
