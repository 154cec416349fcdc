"""The verdicts of a log that grows: each interruption once, and again when later lines change what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sglang_lifecycle.analyzers import happenings
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.happenings import ServerHappening
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.evidence import Event, Evidence, Fact
from sglang_lifecycle.parsers.log import fold

SETTLE = 120.0
"""Seconds of log time after which a verdict is final: what comes later does not change it."""

KEEP = 900.0
"""Seconds of log time for which facts are kept. Longer than `SETTLE`: a verdict needs what was before it."""

MAX_FACTS = 400_000
"""Facts that are kept at most, the newest."""

LASTING = frozenset({
    Event.SERVER_ARGS, Event.SERVER_READY, Event.SERVER_CAPACITY, Event.SERVER_STARTED, Event.SESSION_OPENED,
})  # fmt: skip
"""What is kept however old it is: it holds for as long as its server lives."""

_LASTING_AT_MOST = 20_000


@dataclass(frozen=True, slots=True)
class News:
    """What changed: a verdict, or something that happened to a server.

    `update` says that an earlier verdict is taken back.
    """

    verdict: Verdict | None = None
    happening: ServerHappening | None = None
    update: bool = False


class Watch:
    """Compares what the facts say with what was said of them before."""

    def __init__(self, incident: Callable[[Evidence], Incident] = Incident) -> None:
        """`incident` makes one of the evidence, with what the user knows better than the logs."""
        self._incident = incident
        self._said: dict[tuple[str, str | None], tuple[str, str, str]] = {}
        self._changed: dict[str, float] = {}
        """The log's time when something new was last said of a rid, UTC epoch seconds."""
        self._happened: dict[tuple[str, str, int], None] = {}

    def news(self, facts: Sequence[Fact]) -> Iterator[News]:
        """What is new or changed since the last call, in the order of time."""
        evidence = Evidence(list(facts))
        fold(evidence)
        incident = self._incident(evidence)
        newest = incident.last_time
        for one in happenings.of(incident):
            if one.key not in self._happened:
                self._happened[one.key] = None
                yield News(happening=one)
        for rid in self._unsettled(incident, newest):
            verdict = explain(incident, rid)
            found = self._compare(verdict)
            if found is not None:
                self._changed[rid] = newest or 0.0
                yield found
        self._said = {key: said for key, said in self._said.items() if key[0] in incident.by_rid}
        self._changed = {rid: at for rid, at in self._changed.items() if rid in incident.by_rid}
        while len(self._happened) > _LASTING_AT_MOST:
            del self._happened[next(iter(self._happened))]

    def _compare(self, verdict: Verdict) -> News | None:
        key = (verdict.rid, verdict.times.received)
        now = (verdict.status, verdict.cause, verdict.confidence)
        before = self._said.get(key)
        if before == now or (before is None and verdict.status != "interrupted") or verdict.synthetic:
            return None
        self._said[key] = now
        return News(verdict=verdict, update=before is not None)

    def _unsettled(self, incident: Incident, newest: float | None) -> Iterator[str]:
        """The rids whose verdict may be new or different.

        What was said of one stands once nothing has been heard of it for a while: the lines that it rested on go.
        """
        since = (newest or 0.0) - SETTLE
        for rid, peers in incident.by_rid.items():
            if rid in incident.batches:
                continue
            changed = self._changed.get(rid)
            lately = any(heard(attempt) >= since for _, attempt in peers)
            if changed is not None:
                due = lately or changed >= since
            else:
                due = any(_may_be_cut(attempt, lately) for _, attempt in peers)
            if due:
                yield rid


def heard(attempt: Attempt) -> float:
    """The time of the newest fact about it, UTC epoch seconds."""
    facts = (attempt.received, attempt.finish, *attempt.facts[-1:])
    return max((f.at for f in facts if f is not None and f.at is not None), default=float("inf"))


def _may_be_cut(attempt: Attempt, lately: bool) -> bool:
    """Whether it has no end, or ended lately and not by itself."""
    return attempt.finish is None or (lately and attempt.finish.finish_type == "abort")


def kept(facts: Sequence[Fact]) -> frozenset[int]:
    """The identities of the facts that later verdicts may need.

    These are the recent ones, those of requests that have no end yet, and what a server said of itself at its start.
    """
    newest = max((f.at for f in facts if f.at is not None), default=0.0)
    horizon = newest - KEEP
    ended = {f.rid for f in facts if f.event is Event.REQUEST_FINISHED}
    stale = {f.rid for f in facts if f.rid is not None and f.at is not None and f.at < newest - 24 * KEEP}
    chosen = [
        f for f in facts
        if f.at is None or f.at >= horizon or f.event in LASTING
        or (f.rid is not None and f.rid not in ended and f.rid not in stale)
    ]  # fmt: skip
    return frozenset(map(id, chosen[-MAX_FACTS:]))
