"""Every request of an incident, with the same verdicts as `explain`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime
from math import inf

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.explain import evidence_line, explain, timestamp
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Audit, InputReport, RequestRow, ServerEvent, Totals, Verdict


def audit(incident: Incident, since: float | None = None, until: float | None = None) -> Audit:
    """All requests, those that ended or arrived inside `since` to `until` (UTC epoch seconds) where given.

    The bounds limit what is reported, not what is looked at.
    """
    rows = []
    for rid, peers in incident.by_rid.items():
        row = _row(explain(incident, rid), peers[-1][1].session_id)
        if _inside(row, since, until):
            rows.append(row)
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


def _row(verdict: Verdict, session_id: str | None) -> RequestRow:
    return RequestRow(
        rid=verdict.rid,
        status=verdict.status,
        cause=verdict.cause,
        candidates=verdict.candidates,
        confidence=verdict.confidence,
        layer=verdict.layer,
        stage=verdict.stage,
        actor=verdict.actor,
        effects=verdict.effects,
        synthetic=verdict.synthetic,
        members=verdict.members,
        session_id=session_id,
        times=verdict.times,
        chain=[link.cause for link in verdict.chain],
    )


def _inside(row: RequestRow, since: float | None, until: float | None) -> bool:
    times = [datetime.fromisoformat(t).timestamp() for t in (row.times.received, row.times.ended) if t is not None]
    return _within(times[0], since, until) or _within(times[-1], since, until) if times else True


def _within(at: float | None, since: float | None, until: float | None) -> bool:
    return at is None or ((since is None or at >= since) and (until is None or at <= until))
