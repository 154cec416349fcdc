"""The public shape of a replay. These models are the single source of its `--json` and of its JSON Schema."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sglang_lifecycle.analyzers.verdict import EvidenceLine, Model


class ReplayRow(Model):
    """What the reference scheduler says about one interrupted request, beside what the logs say."""

    rid: str
    life: int = 1
    ended: str | None = None
    observed: str = Field(description="the cause of the verdict")
    text: str | None = Field(default=None, description="the id of the text that ended it")
    shape: str | None = None
    covered: bool
    why: str = Field(default="", description="why the model has no say, where it has none")
    era: str = ""
    predicted: str | None = None
    possible: list[str] = []
    agrees: bool | None = None
    bounded: bool = Field(default=False, description="not every order that the clocks allow was looked at")


class ForbiddenStep(Model):
    """Something that the logs show and the rules forbid: a quirk of the version, lost lines or a bug."""

    summary: str
    rid: str | None = None
    session_id: str | None = None
    at: str | None = None
    evidence: list[EvidenceLine] = []


class ReplayedLife(Model):
    """One life of a server, with the rules it was replayed by and the limits that its logs show."""

    server: str
    life: int
    era: str
    release: str | None = None
    waiting_limit_s: float | None = Field(
        default=None, description="as told, else the shortest wait that a timeout ended"
    )
    running_limit_s: float | None = None


class ReplayTotals(Model):
    """Counts over the interrupted requests that are not synthetic."""

    interrupted: int = 0
    covered: int = 0
    agree: int = 0
    differ: int = 0
    open: int = Field(default=0, description="covered, but the verdict itself is not established")


class Changed(Model):
    """A request that ends otherwise than it did."""

    rid: str
    before: str
    after: str
    estimated: bool = Field(default=False, description="its service time is an estimate")


class WhatIf(Model):
    """The same arrivals under other rules or limits."""

    changes: list[str]
    assumptions: list[str] = []
    interrupted_before: int = 0
    interrupted_after: int = 0
    reproduced: int = Field(default=0, description="ends that the replay without changes reproduces")
    replayed: int = 0
    not_reproduced: list[str] = Field(
        default=[], description="the requests whose ends it does not reproduce; they are counted as unchanged"
    )
    saved: list[Changed] = []
    lost: list[Changed] = []
    otherwise: list[Changed] = Field(default=[], description="interrupted before and after, by another cause")
    before: dict[str, int] = {}
    after: dict[str, int] = {}


class ReplayRun(Model):
    """What `replay run` says."""

    schema_version: Literal[1] = 1
    lives: list[ReplayedLife] = []
    totals: ReplayTotals = ReplayTotals()
    requests: list[ReplayRow] = []
    forbidden: list[ForbiddenStep] = []
    what_if: WhatIf | None = None
