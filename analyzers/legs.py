"""The attempts of one rid in order, and those that are the two sides of one disaggregated request.

A router hands a request to a prefill and to a decode server (0.4.6 on); where a client chose the rid both have it, and
both log a `Receive`. They meet in one bootstrap room.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.skew import skew
from sglang_lifecycle.parsers.evidence import Fact

Judged = tuple[Scene, Attempt, Finding]
"""An attempt and what ended it."""

_AT_ONCE = 5.0  # seconds within which both sides get a request, clocks included


def in_time(peers: list[tuple[Scene, Attempt]]) -> list[tuple[Scene, Attempt]]:
    """The attempts of a rid in the order of time, whichever log was named first; those of a server in their own."""
    clocks: dict[str, float] = {}
    keyed = []
    for scene, attempt in peers:
        at = attempt.received_at or attempt.ended_at
        if at is None:
            return peers
        server = scene.life.server
        clocks[server] = max(at, clocks.get(server, at))
        keyed.append((clocks[server], server, (scene, attempt)))
    return [peer for _, _, peer in sorted(keyed, key=lambda each: each[:2])]


def first(interrupted: Sequence[Judged]) -> Judged:
    """The newest interruption; of one on a prefill and on a decode server, the side that ended first."""
    newest = interrupted[-1]
    legs = [each for each in interrupted if each is newest or _two_sides(each, newest)]
    ends = [(ended, leg[0].life.server, leg) for leg in legs if (ended := _ended(newest[0], leg)) is not None]
    return min(ends, key=lambda each: each[:2])[2] if len(ends) == len(legs) else newest


def last(judged: Sequence[Judged]) -> Judged:
    """The newest attempt; of one on a prefill and on a decode server, the decode server's or the side that goes on."""
    newest = judged[-1]
    legs = [each for each in judged if each is newest or _two_sides(each, newest)]
    decoding = [each for each in legs if each[0].mode == "decode"]
    going_on = [each for each in legs if each[2].status == "in-flight"]
    return (decoding or going_on or [newest])[-1]


def _two_sides(one: Judged, other: Judged) -> bool:
    """Whether two attempts of a rid are one request on a prefill and on a decode server."""
    if one[0].life.server == other[0].life.server:
        return False
    rooms = [_room(attempt) for _, attempt, _ in (one, other)]
    if None not in rooms:
        return rooms[0] == rooms[1]
    came = [attempt.received_at for _, attempt, _ in (one, other)]
    apart = abs(came[0] - came[1]) if came[0] is not None and came[1] is not None else 0.0
    return {one[0].mode, other[0].mode} == {"prefill", "decode"} and apart <= _AT_ONCE


def _room(attempt: Attempt) -> int | None:
    """The bootstrap room in which its two sides meet."""
    records = (attempt.received, attempt.finish)
    return next((record.room for record in records if record is not None and record.room is not None), None)


def _ended(scene: Scene, judged: Judged) -> float | None:
    """When one was cut, by the clock of another scene, UTC epoch seconds."""
    own, attempt, finding = judged
    at = attempt.ended_at or last_seen(finding, attempt)
    return at - skew(scene, own).seconds if at is not None else None


def last_seen(finding: Finding, attempt: Attempt) -> float | None:
    """The time of the line that shows its end, where there is one besides its `Receive`; UTC epoch seconds."""
    line = shows_end(finding, attempt)
    return line.at if line is not None else None


def shows_end(finding: Finding, attempt: Attempt) -> Fact | None:
    """The line with a time that shows its end, where there is one besides its `Receive`."""
    if finding.status == "in-flight":
        return None
    return next((f for f in reversed(finding.evidence) if f is not attempt.received and f.at is not None), None)
