"""Stories: small logs in which one thing happens to one request, told for the releases that write it differently.

A story is a function that lets a `Server` write what SGLang would write, and returns how the request ended. The tests
of causes ask whether the verdict says so; the property tests change what must not matter and ask again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from renderer import Server
from wordings import START

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.log import read

MAIN = "server.log"
ANY = ("proven", "likely")
LIKELY = ("likely",)
UNDECIDED = ("not-established",)


@dataclass
class Ending:
    """How the request of a story ended, as far as its log can tell."""

    rid: str = "r-1"
    cause: str = ""
    """Set by the story; `also` are causes that the log cannot tell from it."""
    also: tuple[str, ...] = ()
    stage: str | None = None
    confidence: tuple[str, ...] = ANY
    effects: tuple[str, ...] = ()
    chain: tuple[tuple[str, str | None], ...] = ()
    """Links that follow the first one, in this order; others may stand between them."""
    among: tuple[str, ...] = ()
    """Causes that have to be among the candidates of an undecided verdict."""
    others: dict[str, Server] = field(default_factory=dict)
    """The logs of other servers of the same deployment, by name."""


@dataclass(frozen=True)
class Story:
    """One story in one release."""

    cause: str
    release: str
    name: str
    build: Callable[[Server], Ending]
    options: dict[str, Any]
    wrong: str | None = None

    @property
    def id(self) -> str:
        return "-".join([self.cause, self.name, self.release, *(f"{k}={v}" for k, v in self.options.items())])

    def tell(self) -> Telling:
        server = Server(self.release, **self.options)
        server.boot(**({"disaggregation_mode": "null"} if server.since("0.4.6") else {}))
        server.receive("u-0")
        server.wait(1)
        server.done("u-0")
        server.wait(3)
        ending = self.build(server)
        ending.cause = ending.cause or self.cause
        logs = {MAIN: server.text()} | {name: other.text() for name, other in ending.others.items()}
        return Telling(self, logs, ending)


@dataclass
class Telling:
    """A story told: its logs, and how its request ended."""

    story: Story
    logs: dict[str, str]
    ending: Ending

    def verdict(self) -> Verdict:
        return judge(self.logs, self.ending.rid)


STORIES: list[Story] = []


def story(
    cause: str, *releases: str, wrong: str | dict[str, str] | None = None, **options: Any
) -> Callable[[Callable[[Server], Ending]], Callable[[Server], Ending]]:
    """Register a story for some releases; `wrong` says why today's verdict is not the right one (in which releases)."""

    def register(build: Callable[[Server], Ending]) -> Callable[[Server], Ending]:
        for release in releases:
            reason = wrong.get(release) if isinstance(wrong, dict) else wrong
            STORIES.append(Story(cause, release, build.__name__, build, options, reason))
        return build

    return register


def judge(logs: dict[str, str], rid: str) -> Verdict:
    """The verdict on a request by some logs, given by their names."""
    return judge_all(logs, [rid])[0]


def judge_all(logs: dict[str, str], rids: list[str]) -> list[Verdict]:
    incident = incident_of(logs)
    return [explain(incident, rid) for rid in rids]


def incident_of(logs: dict[str, str]) -> Incident:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in logs.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return Incident(read([str(folder)]))


def problems(verdict: Verdict, ending: Ending) -> Iterator[str]:
    """What a verdict says wrongly about an ending."""
    if verdict.cause not in (ending.cause, *ending.also):
        yield f"cause {verdict.cause!r} ({verdict.confidence}), not {ending.cause!r}: {verdict.summary}"
        return
    if verdict.confidence not in ending.confidence:
        yield f"{verdict.confidence}, not {' or '.join(ending.confidence)}: {verdict.summary}"
    if ending.stage is not None and verdict.stage != ending.stage:
        yield f"stage {verdict.stage!r}, not {ending.stage!r}"
    if not set(ending.effects) <= set(verdict.effects):
        yield f"effects {verdict.effects}, not {list(ending.effects)}"
    links = iter((link.cause, link.rid) for link in verdict.chain[1:])
    for cause, rid in ending.chain:
        if not any(c == cause and (rid is None or r == rid) for c, r in links):
            yield f"no link {(cause, rid)} in its place in {[(c.cause, c.rid) for c in verdict.chain]}"
    candidates = [c.cause for c in verdict.candidates]
    if verdict.cause == "not-established" and not set(ending.among) <= set(candidates):
        yield f"candidates {candidates}, without {set(ending.among) - set(candidates)}"


def another(server: Server, **options: Any) -> Server:
    """A second server of the same release, on the same clock."""
    return Server(server.release, start=START, **options)
