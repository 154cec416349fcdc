"""The public shape of what lists requests: audits, their records, sessions and comparisons."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, RootModel

from sglang_lifecycle.analyzers.verdict import Candidate, Confidence, EvidenceLine, Model, Status, Times, Version


class InputReport(Model):
    """What became of one input of an audit."""

    path: str
    bytes: int
    lines: int
    recognised: int
    unknown: int
    warnings: list[str] = []
    wrappers: list[str] = Field(default=[], description="formats of log collectors around its lines, outermost first")
    zone: str | None = Field(default=None, description="the zone of its stamps, where a collector's clock told it")


class ServerEvent(Model):
    """Something that happened to the server rather than to one request."""

    cause: str
    at: str | None = None
    summary: str
    evidence: list[EvidenceLine] = []


class RequestRow(Model):
    """A verdict's summary, one per rid, as an audit lists it."""

    rid: str
    status: Status
    cause: str
    candidates: list[Candidate] = []
    confidence: Confidence
    layer: str
    stage: str
    actor: str
    effects: list[str] = []
    synthetic: bool = False
    members: list[str] = Field(default=[], description="as in a verdict; such a row is left out of the totals")
    session_id: str | None = None
    server: str | None = Field(default=None, description="the name of its server, else the log that tells of it")
    times: Times
    chain: list[str] = []


class Totals(Model):
    """Counts over all requests that are not synthetic."""

    requests: int = 0
    interrupted: int = 0
    perhaps_not: int = Field(default=0, description="of the interrupted, those that may have finished or be in flight")
    finished: int = 0
    in_flight: int = 0
    synthetic: int = 0
    by_cause: dict[str, int] = {}
    by_confidence: dict[str, int] = {}


class ThresholdResult(Model):
    """What became of one threshold of an audit."""

    expression: str
    crossed: bool = Field(description="whether it holds: then the audit fails")
    requests: int = Field(description="how many requests it speaks of")
    server_events: int = Field(default=0, description="how many events of the server it speaks of")
    of: int = Field(description="all requests that are not synthetic: what a percentage is of")
    share: float | None = Field(default=None, description="requests / of; null where there are no requests at all")
    rids: list[str] = Field(default=[], description="the requests it speaks of, where it was crossed")


Change = Literal["new", "vanished", "grew", "shrank", "same"]


class CauseChange(Model):
    """How often a cause ended requests, then and now. Rates are per thousand requests that are not synthetic."""

    cause: str = Field(description="a cause, or `interrupted` for all of them together")
    before: int
    now: int
    rate_before: float | None = None
    rate_now: float | None = None
    change: Change = Field(description="of the rate; of the number where there are no requests to have a rate of")
    p: float | None = Field(default=None, description="how likely chance alone makes a difference at least as large")
    significant: bool = Field(default=False, description="whether the test takes it for more than chance")


class EventChange(Model):
    """How often something happened to the server, then and now."""

    cause: str
    before: int
    now: int
    change: Change


class Comparison(Model):
    """An audit against an earlier one."""

    baseline: str = Field(description="the file of the earlier audit")
    requests_before: int
    requests_now: int
    test: str = Field(description="how chance was judged")
    causes: list[CauseChange] = []
    server_events: list[EventChange] = []


class Audit(Model):
    """What happened to every request of a set of logs."""

    schema_version: Literal[1] = 1
    inputs: list[InputReport] = []
    totals: Totals = Totals()
    server_events: list[ServerEvent] = []
    requests: list[RequestRow] = []
    thresholds: list[ThresholdResult] = Field(default=[], description="what was asked with --fail-on, in that order")
    comparison: Comparison | None = Field(default=None, description="with the audit that --baseline names")


SessionEventKind = Literal[
    "opened",
    "open-refused",
    "reaped",
    "close-deferred",
    "close-ready",
    "kv-released",
    "closed",
    "close-unknown",
    "server-ended",
]


class SessionEvent(Model):
    """Something that happened to a session itself. What was told every second, or by every rank, is told once."""

    kind: SessionEventKind
    place: int = Field(description="orders events and turns of one session; its place among the facts of the life")
    at: str | None = None
    until: str | None = Field(default=None, description="when it was told for the last time")
    told: int = Field(default=1, description="how often it was told")
    tokens: int | None = Field(default=None, description="KV tokens that were given back")
    evidence: list[EvidenceLine] = []


class SessionFinding(Model):
    """What a session did to a turn that its own end does not tell."""

    cause: str
    confidence: Confidence
    summary: str
    evidence: list[EvidenceLine] = []


class Turn(Model):
    """One request of a session, with its place in the session's tree and what became of it."""

    rid: str
    place: int = Field(description="as in an event")
    parent: int | None = Field(
        default=None, description="the index, in `turns`, of the one it was attached to or tried to be; null at a root"
    )
    parent_rid: str | None = Field(default=None, description="the rid that the client named")
    how: Literal["begins", "appends", "replaces"]
    offset: int | None = None
    drop_previous_output: bool = False
    accepted: bool = Field(description="whether the session took it in; else it only tried")
    replaced_by: str | None = None
    cleared_by: str | None = Field(default=None, description="the turn whose `replace` cleared the branch it stood in")
    status: Status
    cause: str
    confidence: Confidence
    stage: str
    actor: str
    effects: list[str] = []
    summary: str
    latency_s: float | None = Field(default=None, description="seconds from its arrival to its end")
    times: Times = Times()
    findings: list[SessionFinding] = []
    evidence: list[EvidenceLine] = []


SessionState = Literal["open", "stuck", "closing", "closed", "reaped", "lost", "never-opened", "unknown"]
"""What a session is where the logs end."""


class SessionRow(Model):
    """One session in one life of a server."""

    id: str
    server: str
    life: int = 1
    streaming: bool | None = Field(default=None, description="null where nothing tells")
    state: SessionState
    opened: str | None = None
    closed: str | None = None
    reaped: str | None = None
    replaced: list[str] = Field(default=[], description="when turns of it were replaced")
    first_turn: str | None = None
    last_turn: str | None = None
    turns: int = 0
    interrupted: int = 0
    in_flight: int = 0
    context_lost: int = 0


class Sessions(Model):
    """All sessions of a set of logs."""

    schema_version: Literal[1] = 1
    sessions: list[SessionRow] = []


class SessionTree(Model):
    """One session: its life and its tree of turns, parents before their children, oldest first."""

    schema_version: Literal[1] = 1
    session: SessionRow
    sglang_version: Version = Version()
    events: list[SessionEvent] = []
    turns: list[Turn] = []


class InputRecord(InputReport):
    """A line of an audit's NDJSON: an input."""

    record: Literal["input"] = "input"


class ServerEventRecord(ServerEvent):
    """A line of an audit's NDJSON: an event of the server."""

    record: Literal["server_event"] = "server_event"


class RequestRecord(RequestRow):
    """A line of an audit's NDJSON: a request."""

    record: Literal["request"] = "request"


class ThresholdRecord(ThresholdResult):
    """A line of an audit's NDJSON: a threshold."""

    record: Literal["threshold"] = "threshold"


class ComparisonRecord(Comparison):
    """A line of an audit's NDJSON: the comparison with an earlier one."""

    record: Literal["comparison"] = "comparison"


class TotalsRecord(Totals):
    """The last line of an audit's NDJSON: where it is there, nothing is missing."""

    record: Literal["totals"] = "totals"
    schema_version: Literal[1] = 1


Record = InputRecord | ServerEventRecord | RequestRecord | ThresholdRecord | ComparisonRecord | TotalsRecord


class AuditRecord(RootModel[Record]):
    """A line of an audit's NDJSON; `record` says what it is."""

    root: Record = Field(discriminator="record")
