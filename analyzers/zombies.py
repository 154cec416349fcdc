"""Requests that the engine goes on decoding although their client has gone, and whom they keep waiting."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Cause, Finding
from sglang_lifecycle.analyzers.lives import last
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact


def outputs(attempt: Attempt) -> list[Fact]:
    """What was written for an attempt that nobody read, if it is many: one alone is the echo of a proper abort."""
    found = attempt.of(Event.OUTPUT_UNDELIVERABLE)
    return found if len(found) > 1 else []


def note(attempt: Attempt, finding: Finding) -> None:
    """Tell that nobody stopped a request whose client had gone."""
    found = outputs(attempt)
    if found:
        finding.effects.append("zombie")
        finding.evidence += [found[0], last(found[-1])]
        finding.notes.append((f"the engine wrote {len(found)} outputs for it that nobody read", found[:1]))


def until(attempt: Attempt) -> float | None:
    """Until when an attempt ran on for nobody, UTC epoch seconds; None where it did not."""
    times = [fact.at for fact in outputs(attempt) if fact.at is not None]
    return max(times) if len(times) > 1 else None


def beside(scene: Scene, attempt: Attempt, end: int) -> list[Cause]:
    """The zombies that held slots between an attempt's arrival and a place, as a link of its chain; else nothing."""
    start = attempt.order
    zombies = [z for z in _zombies(scene) if z.attempt is not attempt and len(z.between(start, end)) > 1]
    if not zombies:
        return []
    text = "a request whose client had gone was decoded on and held a slot while it waited"
    if len(zombies) > 1:
        text = f"{len(zombies)} requests whose clients had gone were decoded on and held slots while it waited"
    lines = [fact for z in zombies[:3] for fact in z.between(start, end)[:1]]
    return [Cause("client-disconnect", text, lines, rid=zombies[0].attempt.rid)]


@dataclass(frozen=True, slots=True)
class _Zombie:
    """An attempt that the engine went on decoding for nobody: its outputs, and their places."""

    attempt: Attempt
    outputs: Sequence[Fact]
    places: Sequence[int]

    def between(self, start: int, end: int) -> Sequence[Fact]:
        """The outputs between two places."""
        return self.outputs[bisect.bisect_left(self.places, start) : bisect.bisect_right(self.places, end)]


@per_scene
def _zombies(scene: Scene) -> list[_Zombie]:
    silent = [(a, outputs(a)) for a in scene.attempts if a.finish is None and not a.health_check]
    return [_Zombie(a, found, [scene.places[id(f)] for f in found]) for a, found in silent if found]
