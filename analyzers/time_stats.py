"""Step 5 of the debugging order: do the durations fit the stage that the earlier steps claim?

Not every number is believed: up to 0.5.2 the time-stats line has no real stamps, up to 0.5.11 an unset stamp gives
absurd values, and a negative queue time is the mark of a retraction (0.5.3 to 0.5.20; observability/req_time_stats.py).
"""

from __future__ import annotations

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import STATS_UNSTAMPED
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.texts import ECHOES
from sglang_lifecycle.parsers.evidence import Event, Fact

_ABSURD = 1e5  # seconds: an unset stamp, not a duration


def durations(scene: Scene, attempt: Attempt) -> tuple[float | None, float | None]:
    """Seconds that it waited and ran, where a record that can be believed says so.

    Up to 0.5.2 nothing stamps what the time stats are made of (`metrics/collector.py:TimeStats`, 0.4.7 on).
    """
    finish = attempt.finish
    waited = ran = None
    stats = next((f for f in attempt.of(Event.REQUEST_STATS) if f.detail.get("kind") != "unknown"), None)
    if stats is not None and not scene.release.has(STATS_UNSTAMPED):
        waited, ran = _believable(stats.queue_s), _believable(stats.forward_s)
    if finish is not None:
        latency = attempt.latency
        if waited is None:
            waited = _believable(finish.queue_s)
        if latency is not None:
            echo = finish.finish_shape in ECHOES
            if echo and not finish.completion_tokens:
                waited, ran = latency, None
            elif waited is not None and ran is None:
                ran = max(0.0, latency - waited)
    return waited, ran


def _believable(seconds: float | None) -> float | None:
    return seconds if seconds is not None and 0 <= seconds < _ABSURD else None


def check(scene: Scene, attempt: Attempt, finding: Finding) -> None:
    """Note in `finding` what the durations and counts speak against."""
    finish = attempt.finish
    known = (*durations(scene, attempt), finish.completion_tokens if finish is not None else None)
    if any(each is not None for each in known):
        for doubt in _doubts(attempt, finding):
            finding.doubt(doubt)


def describe(scene: Scene, attempt: Attempt, finding: Finding) -> tuple[str, list[Fact]]:
    """The finding of step 5, and its lines."""
    waited, ran = durations(scene, attempt)
    finish = attempt.finish
    parts = []
    if waited is not None:
        parts.append(f"waited {waited:.2f} s")
    if ran is not None:
        parts.append(f"ran {ran:.2f} s")
    if finish is not None and finish.completion_tokens is not None:
        parts.append(f"{finish.completion_tokens} token{'' if finish.completion_tokens == 1 else 's'} out")
    stats = attempt.of(Event.REQUEST_STATS)
    lines = [f for f in (finish, *stats[:1]) if f is not None]
    if not parts:
        return "no durations in these logs", lines
    fits = "they do not fit" if finding.contradictions else "they fit the stage"
    return f"{', '.join(parts)}; {fits}", lines


def _doubts(attempt: Attempt, finding: Finding) -> list[str]:
    finish = attempt.finish
    if finish is None:
        return []
    doubts = []
    if finding.stage == "waiting" and attempt.of(Event.REQUEST_STATS) and (finish.completion_tokens or 0) > 1:
        doubts.append("a time-stats line exists, which only requests that ran have")
    if finding.stage == "running" and finish.finish_shape == "echo-plain" and not finish.completion_tokens:
        doubts.append("the finish reason has the form of an answer from the queue")
    return doubts
