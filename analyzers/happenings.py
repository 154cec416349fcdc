"""What happened to the servers of an incident as a whole: deaths, restarts, pauses, weight updates, failed checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.parsers.evidence import Event, Fact


@dataclass(frozen=True, slots=True)
class ServerHappening:
    """Something that happened to a server."""

    cause: str
    at: float | None
    summary: str
    evidence: list[Fact]
    life: tuple[str, int] = ("", 1)
    """The server and the number of its life, where no line tells of it."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from others of its kind: its first line, else the life."""
        first = next(iter(self.evidence), None)
        return (self.cause, first.source, first.line) if first is not None else (self.cause, *self.life)


def of(incident: Incident) -> Iterator[ServerHappening]:
    """What happened to the servers of an incident, in the order of each server's lines."""
    for scene in incident.scenes:
        yield from _calls(scene)
        for fact in scene.life.of(Event.SERVER_HEALTH_FAILED)[:1]:
            seconds = fact.detail.get("seconds")
            yield ServerHappening(
                "health-check-failed", fact.at, f"no answer from the engine for {seconds:g} s", [fact]
            )
        end = deaths.death(scene)
        if end is not None:
            yield ServerHappening(end.cause, end.at, end.summary, end.evidence)
        if scene.life.restarted:
            text = "another life of this server follows"
            yield ServerHappening("server-restarted", scene.life.end, text, [], (scene.life.server, scene.life.number))


def _calls(scene: Scene) -> Iterator[ServerHappening]:
    for call in scene.calls:
        if call.kind == "pause" and call.fact.detail.get("http_status") == 200:
            yield ServerHappening("engine-paused", call.at, "/pause_generation was called", [call.fact])
        elif call.kind == "weights":
            status = call.fact.detail.get("http_status")
            yield ServerHappening("weights-updated", call.at, f"a weight update answered {status}", [call.fact])
