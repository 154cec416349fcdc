"""What the rules of the debugging order hand to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sglang_lifecycle.analyzers.verdict import Confidence, Status
from sglang_lifecycle.parsers.evidence import Fact

NOT_INTERRUPTED: dict[str, Status] = {
    "finished": "finished",
    "finished-undelivered": "finished",
    "in-flight": "in-flight",
}
"""The status of requests that nothing interrupted, by their causes."""


@dataclass(slots=True)
class Cause:
    """One link of a chain: a cause, the request that it is about where that is another one, and its lines."""

    cause: str
    summary: str
    evidence: Sequence[Fact] = ()
    rid: str | None = None


Possible = tuple[str, str]
"""A cause that remains possible, and what would decide."""


@dataclass(slots=True)
class Finding:
    """What ended an attempt, and how sure that is."""

    cause: str
    confidence: Confidence
    summary: str
    evidence: list[Fact] = field(default_factory=list)
    stage: str = "unknown"
    actor: str | None = None
    chain: list[Cause] = field(default_factory=list)
    """From the proximate cause's own cause to the root; the proximate cause itself is not repeated here."""
    ruled_out: list[Cause] = field(default_factory=list)
    candidates: list[Possible] = field(default_factory=list)
    notes: list[tuple[str, list[Fact]]] = field(default_factory=list)
    """What the lines around it say of the server, with those lines."""
    contradictions: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    client_saw: str | None = None
    http_status: int | None = None

    @property
    def status(self) -> Status:
        """What its cause makes of the attempt."""
        return NOT_INTERRUPTED.get(self.cause, "interrupted")

    def soften(self, *others: Possible) -> None:
        """Take back that it is proven, and admit what remains as well."""
        if self.confidence == "proven":
            self.confidence = "likely"
        for other in others:
            self.admit(*other)

    def doubt(self, contradiction: str, *others: Possible) -> None:
        """Note what does not fit: a verdict with a contradiction is never proven. `others` are as for `soften`."""
        self.contradictions.append(contradiction)
        self.soften(*others)

    def admit(self, cause: str, decides: str) -> None:
        """Name what remains as well, with what would decide; beside what is proven, or named already, nothing does."""
        if self.confidence != "proven" and cause not in {self.cause, *dict(self.candidates)}:
            self.candidates.append((cause, decides))


def undecided(summary: str, candidates: Sequence[Possible], evidence: Sequence[Fact] = ()) -> Finding:
    """A finding that names what remains possible and what would decide."""
    return Finding("not-established", "not-established", summary, list(evidence), candidates=list(candidates))
