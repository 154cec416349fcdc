"""Parallel sampling: with n > 1 every sample gets a rid of its own, and the rids of `Receive` never finish.

Observed in `managers/tokenizer_manager.py:_handle_batch_request` (0.3.6 to 0.5.23). What a sample's `Finish` prints of
its request, and when that came by the sample's own latency, tells whose it may be.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, field

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Finding, undecided
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Fact

_ARRIVED = 2.5  # seconds by which a sample's arrival may be reckoned off its request's `Receive`


@dataclass(slots=True)
class _Samples:
    """The ends of samples of one kind: those of each request, and those that may be anyone's."""

    last: int = -1
    """The place of the last of them."""
    owned: dict[int, list[Fact]] = field(default_factory=lambda: defaultdict(list))
    """By the identity of an attempt that came last before they did: the members of a batch come at once."""
    rivals: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Those that may have got the same samples, itself included; there is one for each, besides the prompt's own."""
    anyones: list[tuple[int, Fact]] = field(default_factory=list)

    def wanted(self, attempt: int) -> int:
        """How many of an attempt's samples are wanted by it and its rivals, if these got what can only be theirs."""
        rivals, mine = self.rivals.get(attempt, set()), set(map(id, self.owned.get(attempt, ())))
        others = [{id(sample) for sample in self.owned.get(rival, ())} - mine for rival in rivals if rival != attempt]
        served = [samples for samples in others if samples]
        return len(rivals) - min(len(served), len(set().union(*served)))


def resolve(scene: Scene, attempt: Attempt) -> Finding | None:
    """What became of a request for several samples, as far as samples tell."""
    record = attempt.received
    if record is None or (record.detail.get("n") or 1) < 2:
        return None
    samples = _samples(scene).get(_kind(record))
    if samples is None or samples.last < attempt.order:
        return None
    later = bisect.bisect_right(samples.anyones, attempt.order, key=lambda each: each[0])
    mine = samples.owned.get(id(attempt)) or [fact for _, fact in samples.anyones[later:]]
    if not mine:
        text = f"It asked for n={record.detail['n']} samples, and those that ended are of requests that came later."
        names = ("client-disconnect", "in-flight", "finished")
        return undecided(text, [(n, "the client's log, and the lines that follow") for n in names], [record])
    text = f"It asked for n={record.detail['n']} samples, which SGLang answers under rids of their own."
    aborted = [s for s in mine if s.finish_type == "abort"]
    if aborted or len(mine) < samples.wanted(id(attempt)):
        end = deaths.death(scene)
        possible = ["finished", "explicit-abort", "client-disconnect"]
        possible += [end.cause] if end is not None and end.order > attempt.order else []
        return undecided(
            text, [(n, "which sample's rid belongs to it") for n in possible], [record, (aborted or mine)[0]]
        )
    return Finding("finished", "likely", text, [record, mine[0]], stage="finished")


def _kind(record: Fact) -> tuple[object, ...]:
    """What a sample's record has in common with that of its request."""
    return tuple(record.detail.get(name) for name in ("n", "stream", "max_new_tokens"))


@per_scene
def _samples(scene: Scene) -> dict[tuple[object, ...], _Samples]:
    """The ends of what was never received, as samples are, by what they have in common with their requests."""
    askers: defaultdict[tuple[object, ...], list[tuple[float, Attempt]]] = defaultdict(list)
    found: dict[tuple[object, ...], _Samples] = {}
    for attempt in scene.attempts:
        came = attempt.received_at
        if attempt.received is not None and came is not None and (attempt.received.detail.get("n") or 1) > 1:
            askers[_kind(attempt.received)].append((came, attempt))
    for each in askers.values():
        each.sort(key=lambda asker: asker[0])
    for attempt in scene.attempts:
        end = attempt.finish
        if attempt.received is None and end is not None:
            samples = found.setdefault(_kind(end), _Samples())
            samples.last = place = scene.places[id(end)]
            owners = _owners(askers[_kind(end)], end, place)
            for owner in owners:
                samples.owned[id(owner)].append(end)
                samples.rivals[id(owner)].update(map(id, owners))
            if not owners:
                samples.anyones.append((place, end))
    return found


def _owners(askers: list[tuple[float, Attempt]], sample: Fact, place: int) -> list[Attempt]:
    """The attempts that came when a sample's request did, by the latency that its `Finish` tells, else the last before.

    A sample that had to wait for its prompt to be read may tell a later time.
    """
    if sample.at is None or sample.e2e_s is None:
        return []
    began = sample.at - sample.e2e_s
    first, after = (bisect.bisect_left(askers, began + by, key=lambda asker: asker[0]) for by in (-_ARRIVED, _ARRIVED))
    near = [attempt for _, attempt in askers[first:after] if attempt.order < place]
    if near or not first:
        return near
    latest = askers[first - 1][0]
    return [attempt for came, attempt in askers[max(0, first - _BATCH) : first] if came == latest]


_BATCH = 64  # members of a batch that come at once, at most
