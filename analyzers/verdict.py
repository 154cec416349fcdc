"""The public shape of an answer. These models are the single source of `--json` and of its JSON Schema."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["interrupted", "finished", "in-flight", "not-found"]
Confidence = Literal["proven", "likely", "not-established"]


class Model(BaseModel):
    """What all of an answer's shapes have in common."""

    model_config = ConfigDict(defer_build=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


class EvidenceLine(Model):
    """A line that proves something. `text` is its relevant piece, payload cut; times are UTC, ISO 8601."""

    source: str
    line: int
    at: str | None = None
    at_error_s: float | None = None
    event: str
    text: str = ""
    tainted: bool = False
    offset: int = Field(default=0, description="byte offset of the record in `source`")
    length: int = Field(default=0, description="length of the record in bytes")


class Step(Model):
    """One step of the debugging order, with the indices of the evidence it rests on."""

    step: Literal["session_params", "abort_origin", "timeout", "rid_validity", "time_stats"]
    finding: str
    evidence: list[int] = []


class Link(Model):
    """One link of the chain from the proximate cause to the root."""

    cause: str
    rid: str | None = None
    summary: str
    evidence: list[int] = []


class RuledOut(Model):
    """A cause that was considered and excluded."""

    cause: str
    because: str
    evidence: list[int] = []


class Candidate(Model):
    """A cause that remains possible, and what would decide."""

    cause: str
    would_decide: str


class KnownFault(Model):
    """A fault of SGLang itself that a verdict shows."""

    id: str
    title: str
    first: str
    last: str
    fixed_in: str | None = None
    url: str | None = None


class Version(Model):
    """The SGLang release, or range of releases, that the logs speak of."""

    value: str | None = None
    source: Literal["fingerprint", "told", "unknown"] = Field(
        default="unknown", validation_alias="from", serialization_alias="from"
    )


class Client(Model):
    """What the client saw, as far as the logs tell."""

    http_status: int | None = None
    saw: str | None = None
    peer: str | None = None


class Times(Model):
    """When, how long, how much. Times are UTC, ISO 8601; durations are seconds; counts are tokens."""

    received: str | None = None
    received_error_s: float | None = Field(default=None, description="how far it may be off, either way")
    ended: str | None = None
    ended_error_s: float | None = Field(default=None, description="how far it may be off, either way")
    waited_s: float | None = None
    ran_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Attempt(Model):
    """One life of a rid: from its Receive to its end."""

    status: Status
    cause: str
    confidence: Confidence
    received: str | None = None
    ended: str | None = None
    life: int = 1
    server: str | None = Field(default=None, description="the name of its server, else the log that tells of it")


class Replay(Model):
    """What the reference scheduler says."""

    era: str
    predicted: str | None = Field(default=None, description="the cause that follows; None where several remain")
    agrees: bool | None = None
    possible: list[str] = Field(default=[], description="every cause that the rules allow and that looks as the record")


class Verdict(Model):
    """What truly ended one request."""

    schema_version: Literal[1] = 1
    rid: str
    matched_by: str = "rid"
    members: list[str] = Field(default=[], description="the rids that SGLang made of this one, for a whole batch")
    status: Status
    cause: str
    title: str
    summary: str
    layer: str
    stage: str
    actor: str
    confidence: Confidence
    effects: list[str] = []
    synthetic: bool = False
    sglang_version: Version = Version()
    steps: list[Step] = []
    chain: list[Link] = []
    ruled_out: list[RuledOut] = []
    candidates: list[Candidate] = []
    contradictions: list[str] = []
    missing: list[str] = []
    attempts: list[Attempt] = []
    known_faults: list[KnownFault] = []
    advice: list[str] = []
    client: Client = Client()
    times: Times = Times()
    replay: Replay | None = None
    evidence: list[EvidenceLine] = []
