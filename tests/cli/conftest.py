"""Verdicts and audits built by hand, and stand-ins for what reads logs and judges."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

import sglang_lifecycle.analyzers.partial  # noqa: F401 - with the real ones of what a `world` replaces
from sglang_lifecycle.analyzers.listing import Audit, InputReport, RequestRow, ServerEvent, Totals
from sglang_lifecycle.analyzers.verdict import (
    Attempt,
    Candidate,
    Client,
    EvidenceLine,
    Link,
    Replay,
    RuledOut,
    Step,
    Times,
    Verdict,
    Version,
)
from sglang_lifecycle.parsers.evidence import Event, Evidence, Fact, Source

# Markup, an ANSI sequence, a line break, a bidi override, Hebrew, wide and stacked combining characters.
NASTY = (
    "[red]x[/] \x1b[31mred\x1b[0m\nfake: line \u202eabc \u05e9\u05dc\u05d5\u05dd"
    " 漢字かな e\u0301\u0302\u0303\u0304 👩\u200d💻"
)


@pytest.fixture
def nasty() -> str:
    return NASTY


@pytest.fixture
def verdict() -> Verdict:
    """A request that waited out its limit behind another that nobody read."""
    return Verdict(
        rid="wt-7",
        status="interrupted",
        cause="waiting-timeout",
        title="waited too long in the queue",
        summary="It waited 20.0 s in the queue, over the limit of 20 s; zombie-1 held the only slot all that time.",
        layer="scheduler",
        stage="waiting",
        actor="scheduler",
        confidence="proven",
        sglang_version=Version(value="0.5.10", source="fingerprint"),
        steps=[
            Step(step="session_params", finding="an ordinary request: no session_params", evidence=[1]),
            Step(step="abort_origin", finding="inside the scheduler: a 503 that only it writes", evidence=[2]),
            Step(step="timeout", finding="it was still queued: no output, no prefill names it", evidence=[2]),
            Step(step="rid_validity", finding="does not apply: no session"),
            Step(step="time_stats", finding="they fit: 20.0 s end to end, nothing in a batch", evidence=[2]),
        ],
        chain=[
            Link(cause="waiting-timeout", rid="wt-7", summary="no slot came free within its limit", evidence=[2]),
            Link(cause="client-disconnect", rid="zombie-1", summary="its client had gone; it ran on", evidence=[0]),
        ],
        ruled_out=[
            RuledOut(cause="explicit-abort", because="no abort call in the window"),
            RuledOut(cause="timeout-prefix-collision", because="no rid is a prefix of this one", evidence=[1]),
            RuledOut(cause="queue-full", because="that has another message"),
        ],
        advice=[
            "Ask what held the slots: zombie-1 ran for 41 s after its client had gone.",
            "SGLANG_REQ_WAITING_TIMEOUT sets the limit in seconds; -1 turns it off.",
        ],
        client=Client(http_status=503, saw="Request waiting timeout reached.", peer="10.0.0.7:51234"),
        times=Times(
            received="2026-08-02T12:00:01.500000Z",
            ended="2026-08-02T12:00:21.500000Z",
            waited_s=20.0,
            ran_s=None,
            prompt_tokens=12,
            completion_tokens=0,
        ),
        replay=Replay(era="0.5.9 to 0.5.17", predicted="waiting-timeout", agrees=True),
        evidence=[
            _line(
                31, "2026-08-02T11:59:55Z", "client.disconnected", "[http_server] Error: Request is disconnected", 0.5
            ),
            _line(
                40, "2026-08-02T12:00:01.500Z", "request.received", "Receive: obj=GenerateReqInput(rid='wt-7', text=…)"
            ),
            _line(
                58, "2026-08-02T12:00:21.500Z", "request.finished", "Finish: obj=…, out={'meta_info': {'id': 'wt-7'}}"
            ),
        ],
    )


def _line(line: int, at: str, event: str, text: str, error: float | None = None) -> EvidenceLine:
    return EvidenceLine(source="server.log", line=line, at=at, at_error_s=error, event=event, text=text)


@pytest.fixture
def undecided() -> Verdict:
    """A request that lived twice, of which the logs decide little."""
    return Verdict(
        rid="9f2c",
        status="interrupted",
        cause="not-established",
        title="was interrupted, and the logs do not settle by what",
        summary="Its Finish says Aborted, which seven causes write.",
        layer="unknown",
        stage="unknown",
        actor="unknown",
        confidence="not-established",
        effects=["zombie", "retracted"],
        candidates=[
            Candidate(cause="client-disconnect", would_decide="the access log of the proxy around 12:00:05"),
            Candidate(cause="explicit-abort", would_decide="the access lines of the server, which this log lacks"),
        ],
        contradictions=["the Finish claims 3 tokens, the time stats 40"],
        missing=["access lines: the server runs with --log-level-http warning", "the first 10 minutes of the day"],
        attempts=[
            Attempt(status="finished", cause="finished", confidence="proven", received="2026-08-01T23:59:59Z", life=1),
            Attempt(status="interrupted", cause="not-established", confidence="not-established", life=2),
        ],
        evidence=[EvidenceLine(source="a/b.log", line=7, event="request.finished", text="Finish: …", tainted=True)],
    )


@pytest.fixture
def hostile(verdict: Verdict, nasty: str) -> Verdict:
    """The first verdict with every text that may come from logs replaced by a nasty one."""
    hostile = verdict.model_copy(deep=True)
    hostile.rid = nasty
    hostile.summary = f"It waited behind {nasty}."
    hostile.steps[0].finding = f"built by session {nasty}"
    hostile.chain[1].rid = nasty
    hostile.client.saw = nasty
    hostile.contradictions = [nasty]
    hostile.missing = [nasty]
    hostile.candidates = [Candidate(cause="explicit-abort", would_decide=nasty)]
    hostile.ruled_out[1].because = nasty
    for line in hostile.evidence:
        line.source = f"/var/log/{nasty}/server.log"
        line.text = f"{nasty} {nasty} {nasty}"
    return hostile


@pytest.fixture
def an_audit(nasty: str) -> Audit:
    """Some of everything, hostile ids among it."""

    def row(rid: str, cause: str, at: str | None, **changes: Any) -> RequestRow:
        known: dict[str, Any] = {
            "status": "interrupted",
            "confidence": "proven",
            "layer": "scheduler",
            "stage": "waiting",
            "actor": "scheduler",
            "times": Times(ended=at and f"2026-08-02T{at}Z", waited_s=20.0),
        }
        return RequestRow(rid=rid, cause=cause, **(known | changes))

    requests = [
        row("wt-2", "waiting-timeout", "12:00:21.5"),
        row("wt-1", "waiting-timeout", "12:00:21"),
        row(nasty, "waiting-timeout", "12:00:59", session_id=nasty),
        row(
            "chatcmpl-7c9e6679f0c24b0c8d5f3a1b2c4d5e6f-retry-2",
            "client-disconnect",
            "12:01:00.25",
            confidence="likely",
            layer="client",
            stage="before-scheduler",
            actor="client",
            candidates=[Candidate(cause="explicit-abort", would_decide="access lines")],
            times=Times(
                received="2026-08-02T12:01:00.25Z", ended="2026-08-02T12:01:00.25Z", waited_s=0.004, ran_s=3725
            ),
        ),
        row(
            "who",
            "not-established",
            None,
            confidence="not-established",
            stage="unknown",
            actor="unknown",
            times=Times(),
            candidates=[
                Candidate(cause="abort-all", would_decide="access lines"),
                Candidate(cause="pause-abort", would_decide="access lines"),
            ],
        ),
        row("fine", "finished", "12:00:05", status="finished"),
        row("HEALTH_CHECK_1", "explicit-abort", "12:00:06", synthetic=True),
    ]
    return Audit(
        inputs=[
            InputReport(path="server.log", bytes=1_234_567, lines=8_010, recognised=7_900, unknown=110),
            InputReport(path="reqlog/a.log", bytes=400, lines=1, recognised=1, unknown=0),
        ],
        totals=Totals(requests=6, interrupted=5, finished=1, synthetic=1),
        server_events=[
            ServerEvent(
                cause="scheduler-crash",
                at="2026-08-02T12:02:00Z",
                summary=f"the scheduler raised RuntimeError: {nasty}",
                evidence=[EvidenceLine(source="server.log", line=99, event="process.crashed")],
            ),
            ServerEvent(cause="server-restarted", summary="a second life begins"),
        ],
        requests=requests,
    )


class World:
    """What the stand-ins return and were asked."""

    def __init__(self) -> None:
        self.evidence = Evidence(
            facts=[
                Fact(Event.REQUEST_RECEIVED, "server.log", 1, 0, 10, at=1785672001.5, at_error=0.5, rid="wt-7"),
                Fact(Event.REQUEST_RECEIVED, "server.log", 2, 10, 10, at=1785672061.5, at_error=0.5, rid="wt-8"),
                Fact(Event.REQUEST_FINISHED, "server.log", 3, 20, 10, rid="wt-9"),
            ],
            sources=[Source("server.log", bytes=30, lines=3, recognised=3)],
        )
        self.verdicts: dict[str, Verdict] = {}
        self.audit = Audit()
        self.asked: dict[str, Any] = {}
        self.during_read: Callable[[], None] = lambda: None

    def reading(self, tz: str | None, about: Sequence[str], growing: bool, wide: bool) -> Reading:
        self.asked |= {"tz": tz}
        return Reading(self)

    def explain(self, incident: Any, rid: str, since: float | None = None, until: float | None = None) -> Verdict:
        if rid in self.verdicts:
            return self.verdicts[rid]
        return Verdict(
            rid=rid,
            status="not-found",
            cause="never-received",
            title="never reached this server",
            summary="",
            layer="unknown",
            stage="never-received",
            actor="unknown",
            confidence="not-established",
        )

    def audited(self, incident: Any, since: float | None, until: float | None) -> Audit:
        self.asked |= {"since": since, "until": until}
        return self.audit


class Reading:
    def __init__(self, world: World) -> None:
        self._world = world

    def read(self, paths: list[str], progress: Any, pool: Any = None) -> None:
        self._world.asked |= {"paths": list(paths), "progress": progress}
        self._world.during_read()

    def evidence(self) -> Evidence:
        return self._world.evidence


class Incident:
    def __init__(self, evidence: Evidence, version: str | None = None, *_: object) -> None:
        self.evidence = evidence
        self.version = version

    def matches(self, text: str) -> list[str]:
        rids = list(dict.fromkeys(fact.rid for fact in self.evidence.facts if fact.rid))
        return [text] if text in rids else [rid for rid in rids if rid.startswith(text)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> World:
    world = World()
    world.verdicts = {rid: verdict.model_copy(update={"rid": rid}) for rid in ("wt-7", "wt-8", "wt-9")}

    def quote(source: str, offset: int, length: int, event: str, width: int) -> str:
        return f"quoted {offset}+{length}"

    contents: dict[str, dict[str, Any]] = {
        "parsers.log": {"Reading": world.reading},
        "parsers.quote": {"quote": quote},
        "analyzers.incident": {"Incident": Incident},
        "analyzers.explain": {"explain": world.explain},
        "analyzers.identities": {"identify": lambda *_: None, "at_gateway": lambda _, verdict: verdict},
        "analyzers.audit": {"audit": world.audited},
    }
    for name, content in contents.items():
        module = ModuleType(f"sglang_lifecycle.{name}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return world
