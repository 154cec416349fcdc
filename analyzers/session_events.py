"""What happened to a session itself: opened, expired, closing, closed, its KV given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sglang_lifecycle.analyzers.listing import SessionEventKind
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.spans import near
from sglang_lifecycle.parsers.evidence import Event, Fact

KINDS: dict[Event, SessionEventKind] = {
    Event.SESSION_OPENED: "opened",
    Event.SESSION_OPEN_REFUSED: "open-refused",
    Event.SESSION_REAPED: "reaped",
    Event.SESSION_CLOSE_DEFERRED: "close-deferred",
    Event.SESSION_CLOSE_READY: "close-ready",
    Event.SESSION_KV_RELEASED: "kv-released",
    Event.SESSION_CLOSED: "closed",
    Event.SESSION_CLOSE_UNKNOWN: "close-unknown",
}

_REPEATED = frozenset({"reaped", "close-deferred", "close-ready"})
"""Told again every second for as long as a turn keeps the session from closing (0.5.11 on)."""

_STREAMING = frozenset({Event.SESSION_KV_RELEASED, Event.SESSION_CLOSE_DEFERRED, Event.SESSION_CLOSE_READY})
"""Only a streaming session holds KV between turns, and only its close waits for a turn."""

_RANKS = 1.5  # seconds within which the ranks of a server tell the same


@dataclass(slots=True)
class Happening:
    """One thing that happened to a session, told once or several times. Times are UTC epoch seconds."""

    kind: SessionEventKind
    place: int
    at: float | None
    until: float | None = None
    told: int = 1
    tokens: int | None = None
    evidence: list[Fact] = field(default_factory=list)


def happenings(facts: Sequence[tuple[int, Fact]]) -> list[Happening]:
    """The happenings of one session, in order."""
    found: list[Happening] = []
    newest: dict[SessionEventKind, Happening] = {}
    for place, fact in facts:
        kind = KINDS.get(fact.event)
        if kind is None:
            continue
        same = newest.get(kind)
        if same is not None and (kind in _REPEATED or _of_another_rank(same, fact)):
            same.told, same.until = same.told + 1, fact.at
            continue
        count = fact.detail.get("count")
        tokens = count if kind == "kv-released" and isinstance(count, int) else None
        newest[kind] = Happening(kind, place, fact.at, fact.at, tokens=tokens, evidence=[fact])
        found.append(newest[kind])
        if kind == "opened":  # an id may be opened again: what is told of the new one is not told again
            newest = {"opened": newest["opened"]}
    return found


def _of_another_rank(same: Happening, fact: Fact) -> bool:
    return near(fact, same.evidence[0], _RANKS) is not False and fact.rank not in {f.rank for f in same.evidence}


def server_end(scene: Scene, place: int) -> Happening:
    """A session that was open when its server ended has ended with it: nothing of it outlives the process."""
    fact = scene.life.facts[place]
    return Happening("server-ended", place, fact.at, evidence=[fact])


def streams(facts: Iterable[Fact]) -> bool:
    """Whether a session's own lines show that it streams."""
    return any(fact.event in _STREAMING for fact in facts)
