"""Whether the request log may have hidden a `Finish`: by a filter, or because it was off when the request ended."""

from __future__ import annotations

import re

from sglang_lifecycle.analyzers.accounting import gone_by
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import FAST_HIDDEN
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact

FILTER = "SGLANG_LOG_REQUEST_EXCEEDED_MS: it hides the Finish of fast requests"
"""What would decide whether a `Finish` was filtered (0.5.7 on)."""

_SWITCH = "whether its Finish was logged: the request log was switched off after it came"
_OFF = re.compile(r"\blog_requests=False\b|['\"]log_requests['\"]: False\b")
_AT_ONCE = 0.2  # seconds: a filter that lets such a request through hides next to nothing
_FEW = 3  # streams: fewer may have left early by chance


def hidden(scene: Scene, attempt: Attempt, until: Fact | None = None) -> str | None:
    """What would decide whether its `Finish` was hidden, where that may be; `until`: a line that shows it gone."""
    if scene.hides_finishes or _only_slow(scene):
        return FILTER
    return _SWITCH if switched(scene, attempt, until) else None


@per_scene
def _only_slow(scene: Scene) -> bool:
    """Whether only slow requests seem to have a `Finish`.

    SGLANG_LOG_REQUEST_EXCEEDED_MS hides those of the others (0.5.7 on, `utils/request_logger.py:log_finished_request`).
    More streams without one left the engine than requests with one ended, and none of these ended at once.
    """
    if not scene.release.may_have(FAST_HIDDEN):
        return False
    ended = [a.latency or 0.0 for a in scene.attempts if a.finish is not None and not a.synthetic]
    silent = [a for a in scene.attempts if a.finish is None and a.stream and not a.errors and _DUMPED.issuperset(
        fact.event for fact in a.facts)]  # fmt: skip
    if len(silent) < _FEW or len(silent) <= len(ended) or min(ended, default=_AT_ONCE) < _AT_ONCE:
        return False
    return sum(_left(scene, attempt) for attempt in silent) > max(_FEW - 1, len(ended))


_DUMPED = frozenset({Event.REQUEST_DUMPED})


def _left(scene: Scene, attempt: Attempt) -> bool:
    """Whether it left the engine, as a dump or a batch line shows."""
    return any(fact.detail.get("finished") for fact in attempt.facts) or gone_by(scene, attempt) is not None


def switched(scene: Scene, attempt: Attempt, until: Fact | None = None) -> str | None:
    """What would decide, where the request log was switched off after it came (`/configure_logging`, 0.4.2 on)."""
    end = scene.places[id(until)] if until is not None else scene.life.size
    return _SWITCH if any(attempt.order < order < end for order in _switches(scene)) else None


@per_scene
def _switches(scene: Scene) -> list[int]:
    """The places at which the request log was switched off."""
    facts = scene.life.of(Event.LOGGING_CONFIGURED)
    return [scene.places[id(fact)] for fact in facts if _OFF.search(str(fact.detail.get("error")))]
