"""Files that a rotated log lacks: what ended in one of them left no trace."""

from __future__ import annotations

import re

from sglang_lifecycle.analyzers.accounting import gone_by
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Finding, undecided
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact

_LONG = 600.0  # seconds
_NUMBERED = re.compile(r"(?P<base>.+?)(?:\.(?P<number>\d{1,4}))?(?:\.(?:gz|zst|zstd|xz|bz2))?", re.DOTALL)


def ended_there(scene: Scene, attempt: Attempt, until: int) -> Finding | None:
    """What may have become of a request without an end that was there when lines began that are missing.

    `until` is the place from which on its server answers nobody any more: what is missing behind it hides no end.
    """
    first = next((place for place in holes(scene) if attempt.order < place <= until), None)
    if attempt.received is None or first is None:
        return None
    gone = gone_by(scene, attempt)
    if gone is not None and scene.places[id(gone)] < first:
        return None
    text = "Lines of the log are missing after it came; how it ended may stand there."
    names = (
        "finished",
        "client-disconnect",
        "explicit-abort",
        "process-killed",
        "scheduler-crash",
        "in-flight",
        "invalid-request",
    )
    lost = [f for f in scene.life.of(Event.LINES_LOST) if scene.places[id(f)] > attempt.order]
    return undecided(text, [(name, "what is missing") for name in names], [attempt.received, *lost[:1]])


@per_scene
def holes(scene: Scene) -> list[int]:
    """The places at which a life's log lacks lines.

    A file's number is left out, as is what was said for long; or a collector says that it let lines go. `grep` leaves
    out what follows its last match as well; a single `--` in a log that has its beginning may be anybody's.
    """
    newest: dict[str, Fact] = {}
    found = []
    grepped = [fact for fact in scene.life.of(Event.LINES_LOST) if fact.pattern == "grep.separator"]
    sole = grepped if len(grepped) == 1 and scene.life.whole else []
    for place, fact in scene.life.placed():
        before = newest.get(fact.process)
        if fact.event is Event.LINES_LOST and fact not in sole:
            found.append(place)
        if before is not None and before.source != fact.source and _skips(before, fact):
            found.append(place)
        if fact.at is not None:
            newest[fact.process] = fact
    if scene.following is not None and scene.following.life.told:
        first = scene.following.life.told[0]
        if _skips(newest.get(first.process, first), first):
            found.append(scene.life.size)
    if grepped and not sole:
        found.append(scene.life.size)
    return found


@per_scene
def silently(scene: Scene) -> bool:
    """Whether a log lacks lines of which nothing tells: a request ends in it that came while it was written, unseen.

    Samples of a request have rids of their own, which never come (all releases); 0.3.6 logs nobody as coming.
    """
    if scene.partial or scene.life.of(Event.LOGGING_CONFIGURED) or not scene.life.of(Event.REQUEST_RECEIVED):
        return False
    return any(a.received is None and a.finish is not None and _came_within(scene, a) for a in scene.attempts)


def _came_within(scene: Scene, attempt: Attempt) -> bool:
    """Whether a request for one answer came after its log begins, by how long its `Finish` says that it took."""
    finish, begin, end = attempt.finish, scene.life.begin, attempt.ended_at
    if finish is None or finish.tainted or (finish.detail.get("n") or 1) > 1:
        return False
    return begin is not None and end is not None and end - (attempt.latency or end) > begin + _SLACK


_SLACK = 2.0  # seconds by which that may be wrong


def _skips(before: Fact, after: Fact) -> bool:
    """Whether numbers of rotated files are left out between two facts: they count back, and the newest has none.

    A file of which nothing was recognised is none that is missing; it does not hold a long time.
    """
    one, other = _NUMBERED.fullmatch(before.source), _NUMBERED.fullmatch(after.source)
    if one is None or other is None or one["base"] != other["base"] or one["number"] is None:
        return False
    long = before.at is None or after.at is None or after.at - before.at >= _LONG
    return long and int(one["number"]) - int(other["number"] or 0) > 1
