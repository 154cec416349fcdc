"""An incident: the evidence of a set of logs, indexed for questions about requests."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from sglang_lifecycle.analyzers import attempts as attempts_module
from sglang_lifecycle.analyzers import fingerprint, lives, responses
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.fingerprint import Release
from sglang_lifecycle.analyzers.lives import Life
from sglang_lifecycle.parsers.evidence import Event, Evidence, Fact

PLAIN_ABORTS = frozenset({"aborted", "unknown_error", "abort_in_waiting_queue", "abort_before_prefill"})
"""Texts of an abort without a reason of its own."""

CALLS = {
    "/abort_request": "abort",
    "/pause_generation": "pause",
    "/continue_generation": "continue",
    "/open_session": "open",
    "/close_session": "close",
    "/update_weights": "weights",
    "/flush_cache": "flush",
    "/release_memory_occupation": "release",
}


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP call that is not a request for text. Its line is written when its response starts; it names no rid."""

    kind: str
    order: int
    fact: Fact

    @property
    def at(self) -> float | None:
        """When its line was written, UTC epoch seconds."""
        return self.fact.at


@dataclass(eq=False)
class Scene:
    """One life with its attempts, calls and batches, each in order."""

    life: Life
    attempts: list[Attempt]
    release: Release
    calls: list[Call] = field(default_factory=list)
    batches: list[tuple[int, Fact]] = field(default_factory=list)
    responses: responses.Responses = field(default_factory=responses.Responses)
    others: list[Scene] = field(default_factory=list)
    """The scenes of the other lives and servers of the incident."""

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each fact among the life's, by the fact's identity."""
        return {id(f): o for o, f in enumerate(self.life.facts)}

    @cached_property
    def sees_access(self) -> bool:
        """Whether access lines are written at all."""
        return any(f.event is Event.HTTP_ACCESS for f in self.life.facts)

    @cached_property
    def sees_requests(self) -> bool:
        """Whether the request log is on."""
        return any(f.event in (Event.REQUEST_RECEIVED, Event.REQUEST_FINISHED) for f in self.life.facts)

    @cached_property
    def several_workers(self) -> bool:
        """Whether several HTTP workers serve the life (`--tokenizer-worker-num`, 0.5.2 on)."""
        number = self.life.args.get("tokenizer_worker_num")
        if isinstance(number, int):
            return number > 1
        return any(f.detail.get("worker") for f in self.life.facts)

    @cached_property
    def hides_finishes(self) -> bool:
        """Whether `Finish` lines are held back (SGLANG_LOG_REQUEST_EXCEEDED_MS, 0.5.7 on).

        Shown by a native request without a stream that has none although an HTTP 200 was written for it.
        """
        answered = [o for o, f in self.responses.unclaimed if f.detail.get("http_status") == 200]
        return any(
            a.finish is None and a.stream is False and not a.facts and not a.errors and a.access is None
            and (a.received is None or (a.received.detail.get("n") or 1) == 1) and any(o > a.order for o in answered)
            for a in self.attempts
        )  # fmt: skip

    @cached_property
    def plain_ends(self) -> list[Attempt]:
        """Attempts ended by an abort without a reason, by the time of their end."""
        ended = [a for a in self.attempts if a.finish is not None and a.finish.message_id in PLAIN_ABORTS]
        return sorted(ended, key=lambda a: (a.ended_at or 0.0, a.finish_order or 0))

    @cached_property
    def sessions(self) -> dict[str, list[Attempt]]:
        """Attempts built from each session, in the order of their arrival."""
        found: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            if attempt.session_id is not None:
                found.setdefault(attempt.session_id, []).append(attempt)
        return found

    def about_session(self, session_id: str, *events: Event) -> list[tuple[int, Fact]]:
        """The life's facts of some kinds about a session, with their places."""
        return [(o, f) for o, f in enumerate(self.life.facts) if f.event in events and f.session_id == session_id]

    def calls_between(self, kind: str, start: float, end: float) -> list[Call]:
        """The calls of a kind whose line was written in a window of UTC epoch seconds."""
        return [c for c in self.calls if c.kind == kind and c.at is not None and start <= c.at <= end]

    @cached_property
    def _alive_changes(self) -> tuple[list[int], list[int]]:
        begins = sorted(a.order for a in self.attempts if a.received is not None and a.finish is not None)
        ends = sorted(a.finish_order for a in self.attempts if a.received is not None and a.finish_order is not None)
        return begins, ends

    def known_alive(self, order: int) -> int:
        """How many attempts that do finish were between `Receive` and `Finish` at a place among the facts."""
        begins, ends = self._alive_changes
        return bisect.bisect_left(begins, order) - bisect.bisect_left(ends, order)

    def open_at(self, order: int) -> list[Attempt]:
        """Attempts received before a place and not finished there."""
        return [
            a
            for a in self.attempts
            if a.received is not None and a.order < order and (a.finish_order is None or a.finish_order > order)
        ]


class Incident:
    """Everything that a set of logs says, ready to be asked."""

    def __init__(self, evidence: Evidence, version: str | None = None) -> None:
        """`version`: the SGLang release, where the user knows better than the fingerprint."""
        self.evidence = evidence
        told = fingerprint.told(version) if version else None
        self.scenes = [self._scene(life, told) for life in lives.lives(evidence.facts)]
        for scene in self.scenes:
            scene.others = [s for s in self.scenes if s is not scene]
        self.by_rid: dict[str, list[tuple[Scene, Attempt]]] = {}
        for scene in self.scenes:
            for attempt in scene.attempts:
                self.by_rid.setdefault(attempt.rid, []).append((scene, attempt))
        self.batches = self._batches()

    def _batches(self) -> dict[str, list[str]]:
        """Rids that a client sent for a whole batch, with those SGLang made of them: `x` of `x_0`, `x_1` (0.4.9 on)."""
        found: dict[str, list[str]] = {}
        for rid, peers in list(self.by_rid.items()):
            record = peers[0][1].received
            rids = record.detail.get("batch", []) if record is not None else []
            base = rid.removesuffix("_0")
            if base != rid and rids == [f"{base}_{i}" for i in range(len(rids))] and base not in self.by_rid:
                found[base] = rids
                self.by_rid[base] = [peer for member in rids for peer in self.by_rid.get(member, ())]
        return found

    @staticmethod
    def _scene(life: Life, told: Release | None) -> Scene:
        found = attempts_module.attempts(life)
        scene = Scene(life, found, told or fingerprint.fingerprint(life))
        scene.responses = responses.assign(life, found)
        for order, fact in enumerate(life.facts):
            if fact.tainted:
                continue
            if fact.event in (Event.BATCH_PREFILL, Event.BATCH_DECODE):
                scene.batches.append((order, fact))
            elif fact.event is Event.HTTP_ACCESS:
                kind = next((k for p, k in CALLS.items() if str(fact.detail["path"]).startswith(p)), None)
                if kind is not None:
                    scene.calls.append(Call(kind, order, fact))
        return scene

    def matches(self, text: str) -> list[str]:
        """The rids that a text names: itself, or all that begin with it."""
        if text in self.by_rid:
            return [text]
        return sorted(rid for rid in self.by_rid if text and rid.startswith(text))

    def peers(self, rid: str) -> Iterator[tuple[Scene, Attempt]]:
        """Every attempt of a rid, in every life."""
        yield from self.by_rid.get(rid, ())

    @property
    def last_time(self) -> float | None:
        """The time of the newest fact, UTC epoch seconds."""
        return max((f.at for f in self.evidence.facts if f.at is not None), default=None)
