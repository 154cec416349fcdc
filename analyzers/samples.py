"""Parallel sampling: with n > 1 every sample gets a rid of its own, and the rids of `Receive` never finish."""

from __future__ import annotations

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Finding, undecided
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Fact


def resolve(scene: Scene, attempt: Attempt) -> Finding | None:
    """With n > 1 every sample gets a rid of its own: the rids of `Receive` never finish (0.3.6 to 0.5.23)."""
    record = attempt.received
    if record is None or (record.detail.get("n") or 1) < 2:
        return None
    samples = [s for s in _samples(scene).get(_kind(record), ()) if _place(scene, s) > attempt.order]
    mine = [s for s in samples if _began(s) is None or _near_arrival(attempt, s)]
    if not samples:
        return None
    if not mine:
        text = f"It asked for n={record.detail['n']} samples, and those that ended are of requests that came later."
        names = ("client-disconnect", "in-flight", "finished")
        return undecided(text, [(n, "the client's log, and the lines that follow") for n in names], [record])
    text = f"It asked for n={record.detail['n']} samples, which SGLang answers under rids of their own."
    aborted = [s for s in mine if s.finish_type == "abort"]
    if aborted:
        names = ("finished", "explicit-abort", "client-disconnect")
        return undecided(text, [(n, "which sample's rid belongs to it") for n in names], [record, aborted[0]])
    return Finding("finished", "likely", text, [record, mine[0]], stage="finished", status="finished")


_ARRIVED = 2.5  # seconds by which a sample's arrival may be reckoned off its request's `Receive`


def _kind(record: Fact) -> tuple[object, ...]:
    """What a sample's record has in common with that of its request."""
    return tuple(record.detail.get(name) for name in ("n", "stream", "max_new_tokens"))


def _place(scene: Scene, fact: Fact) -> int:
    return scene.places[id(fact)]


def _began(sample: Fact) -> float | None:
    """When a sample's request came, by what the sample's `Finish` tells; UTC epoch seconds."""
    return sample.at - sample.e2e_s if sample.at is not None and sample.e2e_s is not None else None


def _near_arrival(attempt: Attempt, sample: Fact) -> bool:
    came, began = attempt.received_at, _began(sample)
    return came is None or began is None or abs(began - came) <= _ARRIVED


@per_scene
def _samples(scene: Scene) -> dict[tuple[object, ...], list[Fact]]:
    """The ends of what was never received, as samples are, by what they have in common with their requests."""
    found: dict[tuple[object, ...], list[Fact]] = {}
    for attempt in scene.attempts:
        if attempt.received is None and attempt.finish is not None:
            found.setdefault(_kind(attempt.finish), []).append(attempt.finish)
    return found
