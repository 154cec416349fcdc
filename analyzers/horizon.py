"""What can be seen of requests where a log, or the part of one that was read, goes on: who may still come to an end."""

from __future__ import annotations

from itertools import count

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import RequestRow
from sglang_lifecycle.analyzers.strokes import OF_ALL
from sglang_lifecycle.analyzers.verdict import Verdict


def possible(found: RequestRow | Verdict) -> set[str]:
    """The causes that a judgement leaves open, its own among them."""
    return {found.cause, *(each.cause for each in found.candidates)}


def left(found: RequestRow | Verdict) -> bool:
    """Whether a request without an end is said to have left its engine, while the server lived."""
    return "in-flight" not in possible(found) and found.cause not in deaths.CAUSES


class Horizon:
    """What can be seen at one point: all before `settled`, a place among the facts, is known by now.

    Without one the log has ended, and nothing more comes.
    """

    def __init__(self, incident: Incident, settled: int | None) -> None:
        self.incident, self.settled = incident, settled
        self.places = dict(zip(map(id, incident.evidence.facts), count()))
        self._open = sorted(
            self.places.get(id(attempt.received), 0)
            for peers in incident.by_rid.values()
            for _, attempt in peers
            if attempt.finish is None and attempt.received is not None and not attempt.facts
        )

    def mentioned(self, rid: str) -> bool:
        """Whether lines name a rid that has no record of its own."""
        return all(attempt.received is attempt.finish is None for _, attempt in self.incident.peers(rid))

    def known(self, attempt: Attempt) -> bool:
        """Whether the end of an attempt is settled."""
        return self._end(attempt) < (self.settled or 0)

    def ended(self, rid: str) -> bool:
        """Whether the newest use of a rid on each server has an end, which is settled, as those of the others."""
        newest = {scene.life.server: attempt for scene, attempt in self.incident.peers(rid)}
        ended = [attempt for _, attempt in self.incident.peers(rid) if attempt.finish is not None]
        return all(attempt.finish is not None for attempt in newest.values()) and all(map(self.known, ended))

    def _end(self, attempt: Attempt) -> int:
        return self.places.get(id(attempt.finish), 0)

    def may_change(self, found: RequestRow | Verdict, rid: str) -> bool:
        """Whether what comes may decide: requests that outlived the cause, a timeout that took as long."""
        causes = possible(found)
        if found.cause in ("waiting-timeout", "running-timeout") and "timeout-prefix-collision" in causes:
            return True
        if not causes & OF_ALL:
            return False
        end = max(self._end(attempt) for _, attempt in self.incident.peers(rid))
        return bool(self._open) and self._open[0] < end

    def quiet(self, rid: str) -> bool:
        """Whether a request without an end has not been heard of for long."""
        facts: set[int] = set()  # a line that was repeated is among an attempt's as often
        for _, attempt in self.incident.peers(rid):
            facts.update(map(id, (attempt.received, attempt.finish, *attempt.facts, *attempt.errors)))
        return all(self.places.get(fact, 0) < (self.settled or 0) for fact in facts)
