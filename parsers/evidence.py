"""The evidence table: one row per fact that a log states.

A fact is read from the structure of a record. A value that the line does not have is `None`, never zero; a time that
the line does not have is an interval (`at` ± `at_error`), never a made-up instant. Raw text is not kept: `source`,
`offset` and `length` find it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple


class Event(StrEnum):
    """The kinds of facts. The part before the dot says whose life the fact belongs to."""

    __hash__ = str.__hash__  # an Enum's own is no builtin: every set and dictionary of kinds would wait for it

    UNKNOWN = "unknown"
    REQUEST_RECEIVED = "request.received"
    REQUEST_RECEIVED_OPENAI = "request.received.openai"
    REQUEST_FINISHED = "request.finished"
    REQUEST_REJECTED = "request.rejected"  # the scheduler's `<message>, self.rid='…'`
    REQUEST_ERROR = "request.error"  # what the API server answered instead of an output
    REQUEST_STATS = "request.stats"  # (Req)TimeStats
    REQUEST_BACKLOG = "request.backlog"
    REQUEST_DUMPED = "request.dumped"  # listed in a request or crash dump
    CLIENT_DISCONNECTED = "client.disconnected"
    OUTPUT_UNDELIVERABLE = "output.undeliverable"  # the state was deleted before the output came
    OUTPUT_LOST = "output.lost"  # could not be routed or detokenized
    ABORT_UNKNOWN_RID = "abort.unknown_rid"
    ABORT_IGNORED = "abort.ignored"
    ABORT_EXECUTED = "abort.executed"  # the scheduler's debug lines: names the queue
    HTTP_ACCESS = "http.access"
    HTTP_EXCEPTION = "http.exception"
    SESSION_OPENED = "session.opened"
    SESSION_OPEN_REFUSED = "session.open_refused"
    SESSION_CLOSED = "session.closed"
    SESSION_CLOSE_DEFERRED = "session.close_deferred"
    SESSION_CLOSE_READY = "session.close_ready"
    SESSION_CLOSE_UNKNOWN = "session.close_unknown"
    SESSION_REAPED = "session.reaped"
    SESSION_KV_RELEASED = "session.kv_released"
    SESSION_APPEND_REFUSED = "session.append_refused"  # parent unfinished: the line without a rid
    BATCH_PREFILL = "batch.prefill"
    BATCH_DECODE = "batch.decode"
    KV_RETRACTED = "kv.retracted"
    KV_ABORTED = "kv.aborted"
    KV_EXHAUSTED = "kv.exhausted"
    KV_LEAKED = "kv.leaked"
    GRAMMAR_TOKEN_REFUSED = "grammar.token_refused"
    GRAMMAR_FAILED = "grammar.failed"
    MODEL_NAN = "model.nan"
    WEIGHTS_UPDATE = "weights.update"
    ENGINE_FLUSH_REFUSED = "engine.flush_refused"
    ENGINE_CONTINUED = "engine.continued"
    LOGGING_CONFIGURED = "logging.configured"
    LINES_LOST = "lines.lost"  # what a collector or `grep` says of lines that it let go
    PD_FAILED = "pd.failed"
    PD_PEER_LOST = "pd.peer_lost"
    PD_NOTE = "pd.note"
    EPD_FAILED = "epd.failed"
    SCHEDULER_STATUS = "scheduler.status"
    METRICS_EXPORTED = "metrics.exported"
    SERVER_ARGS = "server.args"
    SERVER_STARTED = "server.started"
    SERVER_CAPACITY = "server.capacity"
    SERVER_READY = "server.ready"
    SERVER_HEALTH_FAILED = "server.health_failed"
    SERVER_SIGTERM = "server.sigterm"
    SERVER_DRAINING = "server.draining"
    SERVER_DUMPED = "server.dumped"
    PROCESS_CRASHED = "process.crashed"
    PROCESS_EXITED = "process.exited"
    PROCESS_FATAL = "process.fatal"  # died inside native code
    PROCESS_SIGQUIT = "process.sigquit"
    PROCESS_TREE_KILLED = "process.tree_killed"
    PLATFORM_ENDED = "platform.ended"  # the host, its kernel or an orchestrator on the end of a process
    PLATFORM_NOTED = "platform.noted"
    GATEWAY_RECEIVED = "gateway.received"
    GATEWAY_ANSWERED = "gateway.answered"
    GATEWAY_REFUSED = "gateway.refused"  # before any server was asked
    GATEWAY_FAILED = "gateway.failed"
    TRACE_SPAN = "trace.span"
    WATCHDOG_DUMPED = "watchdog.dumped"
    WATCHDOG_FIRED = "watchdog.fired"


OUTSIDE = frozenset(event for event in Event if event.startswith(("gateway.", "platform.", "trace.")))
"""What comes from outside a server."""

CONTEXT = 20_000
"""So many facts of one log, or lines, before and after are what a verdict may rest on, besides those of its server."""

NEAR = CONTEXT // 4
"""So many of them are looked at first: mostly all who were there at the same time came and went among these."""

RECORDS = frozenset({Event.REQUEST_RECEIVED, Event.REQUEST_RECEIVED_OPENAI, Event.REQUEST_FINISHED})
"""What the request log writes."""

BATCHES = frozenset({Event.BATCH_PREFILL, Event.BATCH_DECODE})
"""What a scheduler writes of its batches."""


@dataclass(slots=True)
class Fact:
    """One fact, with its place in the input.

    `line` counts from 1; `offset` and `length` are bytes in `source`. `process` is the log that `source` is a part of:
    the same for all files that a log was rotated into. `at` is UTC epoch seconds, the middle of the
    interval in which it happened; `at_error` is half the interval's width in seconds; `at_from` is `own` (the line's
    own stamp), `neighbours`, `meta` (a stamp inside the record) or `wrapper` (a log collector's).
    `tainted` facts may have been written by a stranger: SGLang prints raw user text in or just before them.
    """

    event: Event
    source: str
    line: int
    offset: int
    length: int
    process: str = ""
    rank: str | None = None
    at: float | None = None
    at_error: float | None = None
    at_from: str | None = None
    tainted: bool = False
    pattern: str | None = None
    rid: str | None = None
    session_id: str | None = None
    parent_rid: str | None = None
    room: int | None = None
    finish_type: str | None = None
    finish_message: str | None = None
    finish_shape: str | None = None
    message_id: str | None = None
    status_code: int | None = None
    err_type: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    retractions: int | None = None
    e2e_s: float | None = None
    queue_s: float | None = None
    forward_s: float | None = None
    running: int | None = None
    queued: int | None = None
    token_usage: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    """What only some kinds of facts have; `sglang_lifecycle.parsers.table.DETAIL` lists the keys and their types."""

    def copy(self) -> Fact:
        """One that can be changed without changing this."""
        twin = Fact(*_values(self))
        twin.detail = dict(self.detail)
        return twin


_values = attrgetter(*(each.name for each in fields(Fact)))


@dataclass(slots=True)
class Source:
    """What became of one input, or of one of the streams in it: `file.log[pod/sglang-0]`.

    `wrappers` are the collectors' formats around its lines, outermost first; `zone` is that of its stamps where a
    collector's told it, as `UTC+08:00`.
    """

    path: str
    bytes: int = 0
    lines: int = 0
    recognised: int = 0
    unknown: int = 0
    warnings: list[str] = field(default_factory=list)
    wrappers: list[str] = field(default_factory=list)
    zone: str | None = None

    def copy(self) -> Source:
        """One that can be changed without changing this."""
        return replace(self, warnings=list(self.warnings), wrappers=list(self.wrappers))


class Stretch(NamedTuple):
    """Bytes of a source that were read whole, from its `start` to its `end`; None stands for that of the source.

    `wide`: whether they reach as far as a verdict may rest on.
    """

    source: str
    start: int
    end: int | None
    wide: bool = True


@dataclass(slots=True)
class Evidence:
    """All facts of a set of inputs, in the order of each source's lines.

    Sources come one after the other; those that were read side by side, in order of time.
    """

    facts: list[Fact] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """One line for each path named by the user that could not be read."""
    partial: bool = False
    """Whether lines were left out that had nothing to do with what was asked about."""
    narrow: bool = False
    """Whether lines were left out that one abort may have hit together with what was asked about."""
    whole: list[Stretch] = field(default_factory=list)
    """What was read whole around what was asked about: so much that a line which names nobody is told by its place.

    For each source of which lines were left out; nothing of those that do not name it. Empty where less was read.
    """

    def __reduce__(self) -> tuple[Callable[..., Evidence], tuple[Any, ...]]:
        """To another process its facts go as columns: one by one they take several times as long."""
        columns = [list(map(value, self.facts)) for value in map(attrgetter, Fact.__slots__)]
        return _of_columns, (columns, self.sources, self.failed, self.partial, self.narrow, self.whole)


def _of_columns(columns: Sequence[Sequence[Any]], *others: Any) -> Evidence:
    return Evidence(list(map(Fact, *columns)), *others)
