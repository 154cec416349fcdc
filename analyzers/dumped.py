"""What request and crash dumps say of an attempt: the API server's own list of who was open and who had ended."""

from __future__ import annotations

from os.path import basename

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.accounting import apart, held
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import DUMP_OF_DISPATCHED, REFUSED_KEPT
from sglang_lifecycle.analyzers.finding import Finding, undecided
from sglang_lifecycle.analyzers.hidden import hidden
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.analyzers.texts import PLAIN_ABORTS
from sglang_lifecycle.parsers.evidence import Event, Fact

CRASH = "dump.crash"
"""The pattern of a dump that was written because a process had failed."""

_SETTLED = 1.0  # seconds from a request's end to the dump, after which its `Finish` would have been written
_CALLS_BEFORE, _CALLS_AFTER = 3.0, 1.0  # seconds around an aborted end in which a call may be the cause


@per_scene
def crash_dumps(scene: Scene) -> dict[str, Fact]:
    """The whole crash dumps of a life by their source, each with its own fact.

    A life with several HTTP workers writes one for each.
    """
    return {f.source: f for f in scene.life.of(Event.SERVER_DUMPED) if f.pattern == CRASH and "unfinished" in f.detail}


@per_scene
def announced(scene: Scene) -> frozenset[str]:
    """The file names of the dumps that the life's log says it wrote."""
    told = (f for f in scene.life.of(Event.SERVER_DUMPED) if f.pattern == "server.dumped")
    return frozenset(basename(str(f.detail.get("error", "")).rstrip("'\"")) for f in told)


def unfinished(attempt: Attempt) -> Fact | None:
    """The entry that lists it as open."""
    return next((f for f in attempt.of(Event.REQUEST_DUMPED) if not f.detail["finished"]), None)


def finished(attempt: Attempt) -> Fact | None:
    """The entry that lists it as ended, with its output and finish reason."""
    return next((f for f in attempt.of(Event.REQUEST_DUMPED) if f.detail["finished"]), None)


def certain(scene: Scene, entry: Fact) -> bool:
    """Whether the life's own log names the dump of an entry: then it is this life's for sure."""
    return basename(entry.source) in announced(scene)


def missed(scene: Scene, attempt: Attempt) -> Fact | None:
    """The crash dump that should list an attempt, were it open, and does not; None where that can't be told.

    Health checks are left out of dumps; members of a batch and samples (n > 1) are in them under other rids. Up to
    0.5.9 only what was sent to the scheduler is in them
    (`managers/tokenizer_manager.py:dump_requests_before_crash`, 0.4.9 on).
    """
    record = attempt.received
    dumps = crash_dumps(scene)
    if len(dumps) != 1 or record is None or attempt.synthetic or attempt.of(Event.REQUEST_DUMPED):
        return None
    if scene.several_workers or (record.detail.get("n") or 1) > 1 or "batch" in record.detail:
        return None
    if scene.release.may_have(DUMP_OF_DISPATCHED) and (apart(attempt) or held(scene, attempt)):
        return None
    (dump,) = dumps.values()
    if attempt.rid in _listed(scene):
        return None  # it lists the rid; the clocks of dump and log disagree about when it came
    written, arrived = dump.at, attempt.latest_arrival
    early = written is not None and arrived is not None and arrived + _SETTLED < written
    return dump if early and basename(dump.source) in announced(scene) else None


@per_scene
def _listed(scene: Scene) -> frozenset[str | None]:
    """The rids that dumps list, whichever attempt of them is meant."""
    return frozenset(fact.rid for fact in scene.life.of(Event.REQUEST_DUMPED))


def leaked(scene: Scene, attempt: Attempt, gone: Fact) -> Finding | None:
    """Listed as open, although a batch line has no room for it: 0.5.10 to 0.5.12 never forget what is refused early."""
    entry = unfinished(attempt)
    if entry is None or not scene.release.may_have(REFUSED_KEPT):
        return None
    text = "A crash dump lists it as open, and a batch line before has no room for it: its state had been forgotten."
    names = ("invalid-request", "input-too-long", "client-disconnect", "scheduler-crash", "process-killed")
    lines = [fact for fact in (attempt.received, gone, entry) if fact is not None]
    return undecided(text, [(name, "the client's log") for name in names], lines)


def ended(scene: Scene, attempt: Attempt) -> Finding | None:
    """Ended by the scheduler's output path, as a dump shows, without a `Finish`."""
    entry = finished(attempt)
    if entry is None:
        return None
    begin = [attempt.received] if attempt.received is not None else []
    if entry.finish_type != "abort":
        return _delivered(scene, attempt, entry, begin)
    if entry.message_id not in PLAIN_ABORTS:
        return None
    names = [("client-disconnect", "the client's log"), ("explicit-abort", "the access log")]
    written = min(entry.detail.get("written") or 0.0, _logged_until(scene) or 0.0)
    settled = entry.at is not None and written - entry.at >= _SETTLED
    if attempt.received is None or not settled or hidden(scene, attempt) is not None or scene.several_workers:
        names += [(cause, "the access log, and its Finish") for cause in scene.engine_causes(entry.at or 0.0)]
        return undecided("Aborted, as a dump shows; no Finish says whether its client was told.", names, [entry])
    text = "Aborted, as a dump shows, and no Finish was written: nobody waited for it any more."
    finding = Finding("client-disconnect", "likely", text, [*begin, entry], stage="running")
    at = entry.at or 0.0
    calls = [
        c
        for kind in ("abort", "pause", "weights")
        for c in scene.calls_between(kind, at - _CALLS_BEFORE, at + _CALLS_AFTER)
    ]
    if calls:
        finding.evidence.append(calls[0].fact)
        finding.candidates.append(names[1])
    elif scene.sees_access:
        finding.confidence = "proven"
    return finding


def _delivered(scene: Scene, attempt: Attempt, entry: Fact, begin: list[Fact]) -> Finding:
    """It ran to its end. Where the request log is on and shows no `Finish`, its client had gone before that."""
    said = f"It ran to its end ({entry.finish_type}), as a dump shows"
    logged = _logged_until(scene)
    settled = entry.at is not None and logged is not None and logged - entry.at >= _SETTLED
    if not settled or attempt.received is None or hidden(scene, attempt) is not None or not attempt.stream:
        return Finding("finished", "likely", f"{said}.", [*begin, entry], stage="finished")
    text = f"{said}, but no Finish was written: its client had gone."
    return Finding("finished-undelivered", "likely", text, [*begin, entry], stage="finished")


@per_scene
def _logged_until(scene: Scene) -> float | None:
    """The time of the last line of a log, dumps left out, UTC epoch seconds; a `Finish` after it would not show."""
    dumps = (Event.REQUEST_DUMPED, Event.SERVER_DUMPED)
    times = (f.at for f in scene.life.told if f.at is not None and f.event not in dumps)
    return max(times, default=None)


def open_without_death(attempt: Attempt) -> Finding | None:
    """Open in a crash dump, although the logs end before the crash."""
    entry = unfinished(attempt)
    if entry is None or entry.detail.get("written") is None:
        return None
    text = "In flight when the server wrote a crash dump; these logs end before they say what had failed."
    return undecided(text, [(n, "the log's last lines") for n in deaths.CAUSES], [entry])
