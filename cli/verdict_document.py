"""A verdict as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.cli.document import Block, Code, Document, Grid, Items, Section
from sglang_lifecycle.cli.text import seconds
from sglang_lifecycle.cli.times import Clock, error
from sglang_lifecycle.cli.words import (
    CONFIDENCE,
    STEPS,
    VERSION_SOURCES,
    circumstances,
    client_text,
    fault_text,
    replay_text,
    servers,
)


def document(verdict: Verdict, clock: Clock) -> Document:
    """The whole verdict."""
    title = f"Request {verdict.rid} {verdict.title.rstrip('.')}: {CONFIDENCE[verdict.confidence]}"
    return Document(title, list(_lead(verdict, clock)), list(_sections(verdict, clock)))


def _lead(verdict: Verdict, clock: Clock) -> Iterator[Block]:
    yield circumstances(verdict, clock)
    if verdict.summary and verdict.summary != verdict.title:
        yield verdict.summary
    times = verdict.times
    version = verdict.sglang_version
    tokens = (times.prompt_tokens, times.completion_tokens)
    facts = {
        "request": verdict.rid,
        "cause": verdict.cause,
        "layer": verdict.layer,
        "stage": verdict.stage,
        "actor": verdict.actor,
        "effects": ", ".join(verdict.effects),
        "waited": seconds(times.waited_s) if times.waited_s is not None else "",
        "ran": seconds(times.ran_s) if times.ran_s is not None else "",
        "tokens": ""
        if tokens == (None, None)
        else " in, ".join("?" if t is None else f"{t:,}" for t in tokens) + " out",
        "SGLang": f"{version.value}, {VERSION_SOURCES[version.source]}" if version.value else "",
        "client saw": client_text(verdict),
    }
    yield Grid(("what", "value"), [(name, Code(text)) for name, text in facts.items() if text])


def _sections(verdict: Verdict, clock: Clock) -> Iterator[Section]:
    yield Section(
        "Candidates, and what would decide", _grid([(Code(c.cause), c.would_decide) for c in verdict.candidates])
    )
    yield Section("Contradictions", _items(verdict.contradictions))
    yield Section("Missing", _items(verdict.missing))
    yield Section("Debugging order", _grid([(STEPS[s.step], _with(s.finding, s.evidence)) for s in verdict.steps]))
    if len(verdict.chain) > 1:
        links = [(Code(link.cause), _with(link.summary, link.evidence)) for link in verdict.chain]
        yield Section("Chain to the root", _grid(links))
    lines = [
        (
            str(number),
            Code(f"{line.source}:{line.line}"),
            " ".join(part for part in (clock.full(line.at), error(line.at_error_s)) if part) if line.at else "–",
            Code(line.event),
            Code(line.text),
        )
        for number, line in enumerate(verdict.evidence, 1)
    ]
    yield Section("Evidence", [Grid(("", "line", "at", "event", "text"), lines)] if lines else [])
    names = servers(attempt.server for attempt in verdict.attempts)
    attempts = [
        (
            f"{a.life} of {names[a.server]}" if a.server in names else str(a.life),
            clock.full(a.received),
            clock.full(a.ended),
            Code(a.cause),
            CONFIDENCE[a.confidence],
        )
        for a in verdict.attempts
    ]
    yield Section("Attempts", [Grid(("life", "received", "ended", "cause", "verdict"), attempts)] if attempts else [])
    yield Section("Ruled out", _grid([(Code(r.cause), _with(r.because, r.evidence)) for r in verdict.ruled_out]))
    yield Section("Known faults of SGLang", _items([fault_text(fault) for fault in verdict.known_faults]))
    yield Section("Reference scheduler", [replay_text(verdict.replay)] if verdict.replay else [])
    yield Section("What to do", _items(verdict.advice, numbered=True))


def _items(texts: Sequence[str], numbered: bool = False) -> list[Block]:
    return [Items(texts, numbered)] if texts else []


def _grid(rows: Sequence[tuple[str, str]]) -> list[Block]:
    return [Grid(("what", "finding"), rows)] if rows else []


def _with(text: str, evidence: Sequence[int]) -> str:
    """The text and the numbers of the lines that it rests on."""
    return f"{text} ({', '.join(str(index + 1) for index in evidence)})" if evidence else text
