"""The public shape of what `doctor` answers: what a set of logs holds, and the questions that it leaves open."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sglang_lifecycle.analyzers.listing import InputReport
from sglang_lifecycle.analyzers.verdict import Model, Version

Switch = Literal["on", "unseen", "off", "unknown"]
"""`unseen`: turned on, and yet nothing of it is in these logs."""


class Gap(Model):
    """A silence much longer than usual while requests were open: lines are missing, or the engine stood still."""

    start: str
    end: str
    seconds: float
    open: int = Field(description="how many requests were open that are known to have ended later")


class RequestLog(Model):
    """How the request log was written."""

    switch: Switch
    formats: list[Literal["text", "json"]] = []
    levels: list[int] = Field(default=[], description="what --log-requests-level can have been, by the fields shown")
    received: int = 0
    finished: int = 0
    held_back: bool = Field(default=False, description="Finish lines of fast requests were left out")
    changed: bool = Field(default=False, description="/configure_logging was called")


class Offset(Model):
    """How far the clocks of two sources stand apart, by the requests that both saw."""

    first: str
    second: str
    seconds: float = Field(description="how far the second is ahead; 0 where their times can be the same")
    requests: int


Mode = Literal["unified", "prefill", "decode", "unknown"]
"""A server's side of a disaggregation; `unified` where there is none."""


class LifeCoverage(Model):
    """What the logs of one life of a server hold."""

    server: str
    life: int = 1
    sources: list[str] = []
    sglang_version: Version = Version()
    mode: Mode = "unknown"
    processes: list[str] = []
    ranks: list[str] = Field(default=[], description="as the prefixes of lines name them")
    sizes: dict[str, int] = Field(default={}, description="tp_size, pp_size, dp_size where the server's arguments tell")
    start: str | None = None
    end: str | None = None
    ended_by: str | None = Field(default=None, description="the cause of its end, where its lines show one")
    gaps: list[Gap] = []
    times: dict[str, int] = Field(default={}, description="facts by where their time comes from")
    milliseconds: bool = False
    zone_offset_s: float | None = Field(
        default=None, description="how far the log's times are ahead of the epoch stamps in its records"
    )
    request_log: RequestLog
    time_stats: Switch
    access_log: Switch
    debug_lines: Switch
    session_lines: Switch
    status_snapshots: Switch
    metrics_export: Switch
    crash_dump: Switch
    arguments: bool = Field(default=False, description="whether the server's arguments are there")
    requests: int = 0
    unfinished: int = Field(default=0, description="received, without a Finish")
    tainted: int = Field(default=0, description="facts that a stranger may have written")
    circumstances: list[str] = Field(default=[], description="what happened, as far as questions depend on it")


Way = Literal["set", "unset", "call", "logs", "upgrade"]


class Remedy(Model):
    """What to set or to give, so that a question has an answer the next time."""

    how: Way
    what: list[str] = Field(description="flags and environment variables as they are set, else one text")
    brings: str
    since: str
    until: str


class OpenQuestion(Model):
    """A question that these logs don't answer."""

    id: str
    asks: str
    because: str
    lives: list[int] = Field(description="the indices, in `lives`, of those that it stays open for")
    remedies: list[Remedy] = []


class Coverage(Model):
    """What a set of logs can and cannot answer."""

    schema_version: Literal[1] = 1
    inputs: list[InputReport] = []
    lives: list[LifeCoverage] = []
    offsets: list[Offset] = []
    questions: list[OpenQuestion] = []
