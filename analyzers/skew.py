"""How far the clocks of two servers stand apart: told by requests that both received, and never guessed.

A router hands the prefill and the decode side a request of one bootstrap room at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from sglang_lifecycle.analyzers.scene import Scene, per_scene

ROOMS = 3
"""How many rooms have to agree."""

_AGREEING = 0.8  # the part of the rooms that both saw which has to agree
_APART = 1.5  # seconds from the usual within which a room agrees: the stamps are of seconds


@dataclass(frozen=True, slots=True)
class Skew:
    """The second clock is `seconds` ahead of the first, give or take `error`."""

    seconds: float = 0.0
    error: float = 0.0


def shared_rooms(first: Scene, second: Scene) -> list[float]:
    """How much later the second received each request of a room that both saw, in seconds."""
    one, other = _rooms(first), _rooms(second)
    return [other[room] - at for room, at in one.items() if room in other]


def skew(first: Scene, second: Scene) -> Skew:
    """How far apart the clocks of two scenes are; none where too few rooms tell, or where they disagree."""
    if first.life.server == second.life.server:
        return Skew()
    apart = shared_rooms(first, second)
    usual = median(apart) if apart else 0.0
    off = [abs(each - usual) for each in apart if abs(each - usual) <= _APART]
    if len(off) < ROOMS or len(off) < _AGREEING * len(apart):
        return Skew()
    return Skew(usual, max(off))


@per_scene
def _rooms(scene: Scene) -> dict[int, float]:
    received = (a.received for a in scene.attempts if a.received is not None)
    return {f.room: f.at for f in received if f.room is not None and f.at is not None}
