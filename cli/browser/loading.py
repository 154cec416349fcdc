"""Reading and judging while the browser is open: a thread that hands over what it has as it gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import polars as pl

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.cli.browser.rows import Row, frame, row
from sglang_lifecycle.parsers.evidence import Event, Evidence

if TYPE_CHECKING:
    from sglang_lifecycle.cli.inputs import Request

EVERY = 0.2
"""Seconds of judging after which a chunk is handed over; the first one comes at once."""

LOAD = {"at": pl.Float64, "queued": pl.Int64, "running": pl.Int64, "usage": pl.Float64}
"""What a batch line tells of its server's load."""

_WENT_WELL = frozenset({"stop", "length"})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work is: bytes while reading, requests while judging."""

    doing: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The logs are read: from here on requests can be asked about."""

    incident: Incident
    load: pl.DataFrame


Step = Progress | Ready | pl.DataFrame


def steps(question: Request, report: Callable[[Progress], None]) -> Iterator[Step]:
    """The work, step by step; a frame is a chunk of judged requests. `report` is called while the logs are read."""
    yield Progress("reading", 0, 0)
    evidence = question.evidence(lambda done, total: report(Progress("reading", done, total)))
    incident = question.incident(evidence)
    window = question.window(evidence)
    yield Ready(incident, load(evidence))
    rids = _rids(incident)
    rows: list[Row] = []
    due = 0.0
    for number, rid in enumerate(rids, 1):
        verdict = explain(incident, rid, window.since, window.until)
        if question.ignores(rid):
            verdict = verdict.model_copy(update={"synthetic": True})
        last = row(verdict, next(reversed(list(incident.peers(rid))))[1].session_id)
        if window.meets(last[_AT], last[_AT]):
            rows.append(last)
        if monotonic() >= due or number == len(rids):
            yield frame(rows)
            yield Progress("judging", number, len(rids))
            rows, due = [], monotonic() + EVERY


_AT = list(frame().columns).index("at")


def _rids(incident: Incident) -> list[str]:
    """All requests, those first whose records don't show a good end: people wait for them. Batches by their members."""
    rids = [rid for rid in incident.by_rid if rid not in incident.batches]
    return sorted(rids, key=lambda rid: all(_went_well(incident, rid)))


def _went_well(incident: Incident, rid: str) -> Iterator[bool]:
    for _, attempt in incident.peers(rid):
        yield attempt.finish is not None and attempt.finish.finish_type in _WENT_WELL


def load(evidence: Evidence) -> pl.DataFrame:
    """What the batch lines tell of the servers' load."""
    batches = (
        (fact.at, fact.queued, fact.running, fact.token_usage)
        for fact in evidence.facts
        if fact.event in (Event.BATCH_PREFILL, Event.BATCH_DECODE) and fact.at is not None and not fact.tainted
    )
    return pl.DataFrame(list(batches), schema=LOAD, orient="row").sort("at")
