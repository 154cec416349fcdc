"""Files that a rotated log lacks: what ended in one of them left no trace."""

from __future__ import annotations

import re

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Finding, undecided
from sglang_lifecycle.analyzers.scene import Scene, per_scene

_NUMBERED = re.compile(r"(?P<base>.+?)(?:\.(?P<number>\d{1,4}))?(?:\.(?:gz|zst|zstd|xz|bz2))?", re.DOTALL)


def ended_there(scene: Scene, attempt: Attempt) -> Finding | None:
    """What may have become of a request without an end that was there when a file begins that is missing."""
    if attempt.received is None or not any(place > attempt.order for place in holes(scene)):
        return None
    text = "A file of the rotated log is missing after it came; how it ended may stand there."
    names = ("finished", "client-disconnect", "explicit-abort", "process-killed", "scheduler-crash")
    return undecided(text, [(name, "the file that is missing") for name in names], [attempt.received])


@per_scene
def holes(scene: Scene) -> list[int]:
    """The places at which a file of a life's log is missing: its number is left out."""
    newest: dict[str, str] = {}
    found = []
    for place, fact in scene.life.placed():
        before = newest.get(fact.process)
        if before is not None and before != fact.source and _skips(before, fact.source):
            found.append(place)
        newest[fact.process] = fact.source
    following = next((s.life for s in scene.others if _follows(scene, s)), None)
    if following is not None and following.told:
        first = following.told[0]
        if _skips(newest.get(first.process, first.source), first.source):
            found.append(scene.life.size)
    return found


def _follows(scene: Scene, other: Scene) -> bool:
    return (other.life.server, other.life.number) == (scene.life.server, scene.life.number + 1)


def _skips(older: str, newer: str) -> bool:
    """Whether numbers of rotated files are left out between two: they count back, and the newest has none."""
    one, other = _NUMBERED.fullmatch(older), _NUMBERED.fullmatch(newer)
    if one is None or other is None or one["base"] != other["base"] or one["number"] is None:
        return False
    return int(one["number"]) - int(other["number"] or 0) > 1
