"""Reading and judging while the browser is open: a thread that hands over what it has as it gets it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import polars as pl

from sglang_lifecycle.analyzers import audit
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import RequestRow
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.analyzers.watching import LASTING, SETTLE, heard
from sglang_lifecycle.cli.browser.rows import Row, frame, row
from sglang_lifecycle.cli.inputs import Inputs, Request, Window
from sglang_lifecycle.parsers.evidence import BATCHES, Event, Evidence, Fact

EVERY = 0.2
"""Seconds of judging after which a chunk is handed over; the first one comes at once."""

IDLE = 3.0
"""How many times as long as a look at half-read logs took is read on before the next one."""

WINDOW, LEAST = 20_000, 200
"""Facts that a look at half-read logs takes in, the newest: of all streams together at most, and of each at least."""

LOAD = {"at": pl.Float64, "queued": pl.Int64, "running": pl.Int64, "usage": pl.Float64}
"""What a batch line tells of its server's load."""

_ENDS = frozenset({Event.REQUEST_REJECTED, Event.REQUEST_ERROR, Event.CLIENT_DISCONNECTED})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work is: bytes while reading, requests while judging."""

    doing: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on a request that was asked about before the logs were read: it may change."""

    verdict: Verdict
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Ready:
    """The logs are read: from here on requests can be asked about."""

    incident: Incident
    load: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Again:
    """The logs are no longer those that were read: everything that was said of them is in doubt."""


Step = Progress | Answer | Ready | Again | pl.DataFrame
"""What is handed over; a frame is a chunk of judged requests, in place of what was said of them before."""


class Loading:
    """The work. Everything is called from one thread.

    `take` gets the steps. `wanted` says which request is asked about while the logs are read, and forgets it.
    """

    def __init__(
        self,
        question: Request,
        take: Callable[[Step], None],
        wanted: Callable[[], str | None] = lambda: None,
        follow: bool = False,
    ) -> None:
        self._question, self._take, self._wanted, self._follow = question, take, wanted, follow
        self._inputs = Inputs(question, growing=follow)
        self._settled: set[str] = set()
        """Requests about which nothing more is expected; kept only while logs are followed."""
        self._newest = float("-inf")

    def read(self) -> None:
        """Read and judge everything."""
        self._take(Progress("reading", 0, 0))
        looks = _Looks(self._question, self._inputs, self._take, self._wanted)
        self._inputs.read(looks.report)
        self._judge(everything=True)

    def more(self, grown: Sequence[Path] | None) -> None:
        """Read what was added to some files, and judge whom that may concern; all anew if None, or where it must be."""
        if grown is not None and self._inputs.more(grown):
            self._judge(everything=False)
            return
        self._take(Again())
        self._inputs = Inputs(self._question, growing=self._follow)
        self._settled.clear()
        self.read()

    def _judge(self, everything: bool) -> None:
        evidence = self._inputs.so_far() if self._follow else self._inputs.evidence()
        incident, window = self._question.incident(evidence), self._question.window(evidence)
        if not self._follow:
            _spare()
        self._take(Ready(incident, load(evidence)))
        rids = _rids(incident) if everything else list(self._unsettled(incident))
        rows: list[Row] = []
        due = 0.0
        for number, rid in enumerate(rids, 1):
            verdict = _said(incident, rid, window)
            if self._follow and verdict.status != "in-flight":
                self._settled.add(rid)
            rows += _row(self._question, incident, window, verdict)
            if monotonic() >= due or number == len(rids):
                self._take(frame(rows))
                self._take(Progress("judging", number, len(rids)))
                rows, due = [], monotonic() + EVERY
        self._newest = incident.last_time or self._newest

    def _unsettled(self, incident: Incident) -> Iterator[str]:
        """Whose verdict may be new or different: what was said of one stands once it has been silent for a while."""
        for rid, peers in incident.by_rid.items():
            if rid not in incident.batches and (rid not in self._settled or any(self._lately(a) for _, a in peers)):
                yield rid

    def _lately(self, attempt: Attempt) -> bool:
        """Whether something new was said of it, or may be its cause."""
        return heard(attempt) >= self._newest - (0.0 if attempt.went_well else SETTLE)


class _Looks:
    """Looks at logs that are still being read, at those that were interrupted so far.

    They take a bounded share of the time, and only requests are shown whose own end was read.
    """

    def __init__(
        self, question: Request, inputs: Inputs, take: Callable[[Step], None], wanted: Callable[[], str | None]
    ) -> None:
        self._question, self._inputs, self._take, self._wanted = question, inputs, take, wanted
        self._due = 0.0
        self._window = WINDOW
        self._seen: set[str] = set()

    def report(self, done: int, total: int) -> None:
        """As the reader calls it."""
        self._take(Progress("reading", done, total))
        if done >= total:
            return
        if (rid := self._wanted()) is not None:
            self._answer(rid)
        elif monotonic() >= self._due:
            began = monotonic()
            self._look()
            _spare()
            self._due = monotonic() + IDLE * (monotonic() - began)

    def _look(self) -> None:
        began = monotonic()
        evidence = self._inputs.so_far(lambda facts: _newest(facts, self._window))
        self._window = max(LEAST, WINDOW // max(len(evidence.sources), 1))
        incident, window = self._question.incident(evidence), self._question.window(evidence)
        until = monotonic() + max(monotonic() - began, EVERY)
        rows: list[Row] = []
        for rid in _cut(incident, self._seen):
            if monotonic() >= until:
                break
            self._seen.add(rid)
            verdict = explain(incident, rid, window.since, window.until)
            if verdict.status == "interrupted":
                rows += _row(self._question, incident, window, verdict, provisional=True)
        if rows:
            self._take(frame(rows))

    def _answer(self, rid: str) -> None:
        incident = self._question.incident(self._inputs.so_far(lambda facts: _around(facts, rid, self._window)))
        self._take(Answer(explain(incident, rid), _session(incident, rid)))


def _spare() -> None:
    """Spare the garbage collection what stays: a pass through millions of facts would hold up the keyboard."""
    gc.collect()  # what the look leaves behind, so that it doesn't stay too
    gc.freeze()


def _newest(facts: Sequence[Fact], number: int) -> Sequence[Fact]:
    """So many of the newest facts, and what the server said of itself before."""
    first = max(len(facts) - number, 0)
    return [*(fact for fact in facts[:first] if fact.event in LASTING), *facts[first:]]


def _around(facts: Sequence[Fact], rid: str, number: int) -> Sequence[Fact]:
    """So many facts around the newest of a request, in a stream that names it; else the newest."""
    place = next((place for place in range(len(facts) - 1, -1, -1) if facts[place].rid == rid), len(facts))
    return _newest(facts[: place + number // 2], number)


def _cut(incident: Incident, seen: set[str]) -> Iterator[str]:
    """Requests whose own end was read and is no good one, those first whose end came first."""
    for rid, peers in incident.by_rid.items():
        if rid not in incident.batches and rid not in seen and _ended_badly(peers[-1][1]):
            yield rid


def _ended_badly(attempt: Attempt) -> bool:
    if attempt.finish is not None:
        return not attempt.went_well
    return any(fact.event in _ENDS for fact in attempt.facts)


def _said(incident: Incident, rid: str, window: Window) -> Verdict | RequestRow:
    """What is said of a request; no whole verdict where the list needs none of its words."""
    if window == Window() and (found := audit.row(incident, rid)).status != "interrupted":
        return found
    return explain(incident, rid, window.since, window.until)


def _row(
    question: Request, incident: Incident, window: Window, verdict: Verdict | RequestRow, provisional: bool = False
) -> Iterable[Row]:
    """The row of a request, unless it lies outside the time that is asked about."""
    if question.ignores(verdict.rid):
        verdict = verdict.model_copy(update={"synthetic": True})
    if not audit.inside(verdict, window.since, window.until):
        return []
    return [row(verdict, _session(incident, verdict.rid), provisional)]


def _session(incident: Incident, rid: str) -> str | None:
    """The session of its newest attempt."""
    return next((attempt.session_id for _, attempt in reversed(list(incident.peers(rid)))), None)


def _rids(incident: Incident) -> list[str]:
    """All requests, those first whose records don't show a good end: people wait for them. Batches by their members."""
    rids = [rid for rid in incident.by_rid if rid not in incident.batches]
    return sorted(rids, key=lambda rid: all(attempt.went_well for _, attempt in incident.peers(rid)))


def load(evidence: Evidence) -> pl.DataFrame:
    """What the batch lines tell of the servers' load."""
    batches = (
        (fact.at, fact.queued, fact.running, fact.token_usage)
        for fact in evidence.facts
        if fact.event in BATCHES and fact.at is not None and not fact.tainted
    )
    return pl.DataFrame(list(batches), schema=LOAD, orient="row").sort("at")
