"""An incident: the evidence of a set of logs, cut into scenes and indexed by rid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglang_lifecycle.analyzers import attempts, fingerprint, lives, responses
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.fingerprint import Release
from sglang_lifecycle.analyzers.killed import assign
from sglang_lifecycle.analyzers.lives import Life
from sglang_lifecycle.analyzers.scene import Call, Scene
from sglang_lifecycle.parsers.evidence import BATCHES, OUTSIDE, Event, Evidence

CALLS = {
    "/abort_request": "abort",
    "/pause_generation": "pause",
    "/continue_generation": "continue",
    "/open_session": "open",
    "/close_session": "close",
    "/update_weights": "weights",
    "/update_weight_version": "weights",
}
"""The HTTP calls that matter to a request's life, by the beginning of their path."""

_CALLED = tuple(CALLS)


class Incident:
    """Everything that a set of logs says, ready to be asked."""

    def __init__(
        self,
        evidence: Evidence,
        version: str | None = None,
        limits: Mapping[str, float] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """What the user knows better than the logs.

        `version`: the SGLang release, where the logs leave it open; `limits`: the servers' `waiting_timeout` and
        `running_timeout` in seconds; `names`: what the servers are called, by globs of their logs. Logs of one name are
        one server's.
        """
        self.evidence = evidence
        told = fingerprint.told(version) if version else None
        inside = [f for f in evidence.facts if f.event not in OUTSIDE]
        self.outside = [f for f in evidence.facts if f.event in OUTSIDE]
        """What gateways, platforms and traces say: they are no server's own words."""
        self.scenes = [self._scene(life, told) for life in lives.lives(inside, names)]
        assign(self.outside, [scene.life for scene in self.scenes])
        every = {(scene.life.server, scene.life.number): scene for scene in self.scenes}
        for scene in self.scenes:
            scene.every = every
            scene.limits = limits or {}
            scene.partial = evidence.partial
        self.by_rid: dict[str, list[tuple[Scene, Attempt]]] = {}
        for scene in self.scenes:
            for attempt in scene.attempts:
                self.by_rid.setdefault(attempt.rid, []).append((scene, attempt))
        self.batches = self._batches()
        self.verdicts: dict[tuple[str, float | None, float | None], Any] = {}
        """What was explained already, by what was asked."""

    def _batches(self) -> dict[str, list[str]]:
        """Rids that a client sent for a whole batch, with those SGLang made of them: `x` of `x_0`, `x_1` (0.4.9 on)."""
        found: dict[str, list[str]] = {}
        for rid, peers in list(self.by_rid.items()):
            record = peers[0][1].received
            rids = record.detail.get("batch", []) if record is not None else []
            base = rid.removesuffix("_0")
            if rids and base != rid and rids == [f"{base}_{i}" for i in range(len(rids))] and base not in self.by_rid:
                found[base] = rids
                self.by_rid[base] = [peer for member in rids for peer in self.by_rid.get(member, ())]
        return found

    @staticmethod
    def _scene(life: Life, told: Release | None) -> Scene:
        found = attempts.attempts(life)
        scene = Scene(life, found, fingerprint.fingerprint(life, told))
        scene.responses = responses.assign(life, found)
        scene.batches = [(order, fact) for order, fact in life.placed() if fact.event in BATCHES and not fact.tainted]
        for order, fact in life.placed():
            if fact.event is not Event.HTTP_ACCESS or fact.tainted or fact.detail["http_status"] in responses.UNREACHED:
                continue
            if fact.detail["path"].startswith(_CALLED):
                kind = next(k for p, k in CALLS.items() if fact.detail["path"].startswith(p))
                scene.calls.append(Call(kind, order, fact))
        return scene

    def dissolve(self) -> None:
        """Cut what refers to each other, so that all of it goes at once and not when garbage is looked for."""
        for scene in self.scenes:
            scene.every = {}
            scene.memo.clear()

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
