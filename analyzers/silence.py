"""What became of a request that has no `Finish`.

A missing `Finish` is normal for many endings, so it is never proof of one of them: lines that name the rid come
first, then the death of the server, then what the batch lines say of who was still in the engine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from sglang_lifecycle.analyzers import deaths, disconnects, dumped, mentions, missing, unlogged
from sglang_lifecycle.analyzers.accounting import MARGIN, gone_by, held
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import QUEUE_ABORTED_KEPT
from sglang_lifecycle.analyzers.finding import Finding, Possible, undecided
from sglang_lifecycle.analyzers.hidden import FILTER, hidden, switched
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.parsers.evidence import BATCHES, Event, Fact

_SCHEDULED_WITHIN = 10.0  # seconds within which an idle scheduler forms a batch of what it gets


def resolve(scene: Scene, attempt: Attempt) -> Finding:
    """What ended an attempt without a `Finish`, or that nothing shows its end."""
    finding = (
        mentions.resolve(scene, attempt)
        or dumped.ended(scene, attempt)
        or missing.ended_there(scene, attempt, deaths.over(scene, attempt))
    )
    names = []
    if finding is None:
        finding = _untold(scene, attempt)
    elif attempt.guessed:
        end = deaths.death(scene)
        names += ["client-disconnect", end.cause if end is not None and end.order > attempt.order else "in-flight"]
    if (attempt.errors or attempt.access is not None) and missing.silently(scene):
        names += ["finished", "client-disconnect", "in-flight"]
    for fact in attempt.others:
        names += mentions.causes_of(scene, attempt, fact)
    for name in names:
        finding.admit(name, _WHOSE)
    return finding


_WHOSE = "whose answer or error the line is about: it names no rid"


def _untold(scene: Scene, attempt: Attempt) -> Finding:
    """What is to be said where no line tells of its end."""
    gone = gone_by(scene, attempt)
    if gone is not None and deaths.outlived(scene, gone):
        gone = None
    if gone is not None and gone.event is Event.REQUEST_STATS and _just_before_the_end(scene, gone):
        finding = _died(scene, attempt) or _silent(scene, attempt, None)
        for name in ("finished", "client-disconnect"):
            finding.admit(name, "the lines that follow: its time stats were written just before the end")
        return finding
    if gone is not None and dumped.unfinished(attempt) is not None:
        leaked = dumped.leaked(scene, attempt, gone)
        if leaked is not None:
            return leaked
        gone = None
    gone = gone or dumped.missed(scene, attempt)
    return (_died(scene, attempt) if gone is None else None) or _silent(scene, attempt, gone)


def _just_before_the_end(scene: Scene, gone: Fact) -> bool:
    """Whether a line comes so late that a `Finish`, or who left, need not show any more: a death or the end follows."""
    place, end = scene.places[id(gone)], deaths.death(scene)
    if end is not None and end.order > place and end.at is not None and gone.at is not None:
        slack = (gone.at_error or 0.0) + (end.evidence[0].at_error or 0.0)
        if end.cause in deaths.FINAL and end.at - gone.at <= deaths.NOTICED + slack:
            return True
    return scene.life.size - place <= mentions.SOON


def _died(scene: Scene, attempt: Attempt) -> Finding | None:
    """The server died while it was in flight."""
    end = deaths.death(scene) or deaths.replaced(scene)
    if end is None or (end.order < attempt.order and not _dies_of(scene, attempt, end)):
        return dumped.open_without_death(attempt)
    return _idle(scene, attempt, end) or _turned(scene, attempt, end) or _cut(scene, attempt, end)


def _dies_of(scene: Scene, attempt: Attempt, end: deaths.Death) -> bool:
    """Whether what came after the end of a life was never answered because of it."""
    over = end.cause in deaths.FINAL or scene.life.restarted or bool(scene.life.killed)
    return over and attempt.received is not None and not deaths.went_on(scene)


def _idle(scene: Scene, attempt: Attempt, end: deaths.Death) -> Finding | None:
    """An idle server received it long before it died, and formed no batch, though neither it nor its engine stood."""
    known = dumped.unfinished(attempt) is not None or deaths.death(scene) is None
    stuck = end.cause == "watchdog-timeout" or held(scene, attempt)
    if known or stuck or not _never_scheduled(scene, attempt, end):
        return None
    text = "Received by an idle server and never scheduled, long before the server died; no line says why."
    causes = ("client-disconnect", "input-too-long", end.cause)
    found = undecided(text, [(c, "the client's log, and --log-level debug") for c in causes], attempt.begun)
    return _with_lost(scene, attempt, found)


def _turned(scene: Scene, attempt: Attempt, end: deaths.Death) -> Finding | None:
    """A stream whose session had gone on to the next turn."""
    later = _next_turn(scene, attempt, end.order) if attempt.stream else None
    if later is None:
        return None
    text = f"A stream in flight when {end.summary}; its session's next turn had come, so its client may have left."
    names = ("client-disconnect", end.cause)
    return undecided(text, [(n, "the client's log") for n in names], [*attempt.begun, *later.begun])


def _cut(scene: Scene, attempt: Attempt, end: deaths.Death) -> Finding | None:
    """The end of the server was its end; None where a server that drains may have answered it."""
    entry = dumped.unfinished(attempt)
    cut = end.cause != "server-shutdown" or _cut_by_shutdown(scene, attempt, end)
    if not cut and entry is None:
        return None
    listed = cut and entry is not None and dumped.certain(scene, entry)  # while it drains, one may still end
    sure = (listed or deaths.counted(scene)) and not end.candidates
    finding = Finding(
        end.cause,
        "proven" if sure else "likely",
        f"It was in flight when {end.summary}.",
        [*attempt.begun, *end.evidence[:1], *([entry] if entry is not None else [])],
        chain=[link for link in end.chain if link.rid != attempt.rid],
        client_saw="a connection reset, or a 5xx from a proxy",
    )
    for name, decides in _else(scene, attempt, end, sure):
        finding.admit(name, decides)
    return finding


def _else(scene: Scene, attempt: Attempt, end: deaths.Death, sure: bool) -> Iterator[Possible]:
    """What else may have ended who was in flight at the end of a server."""
    if not sure:
        yield "client-disconnect", "the client's log, or the crash dump (--crash-dump-folder)"
        if (decides := hidden(scene, attempt)) is not None:
            yield "finished", decides
        elif attempt.stream is False and _answered(scene, attempt):
            yield "finished", "its Finish: an HTTP 200 that none explains was written after it came"
        elif _fewer(scene):
            yield "finished", "its Finish: the crash dump counts fewer than these logs leave open"
        if missing.silently(scene):
            yield from ((name, _LOST) for name in _lost(scene, attempt))
    if end.cause == "scheduler-crash" and not scene.life.of(Event.PROCESS_SIGQUIT, Event.PROCESS_EXITED):
        yield "finished", "the lines that follow: what it had made by then may still be written"
    if end.cause == "server-shutdown" and not any(f.event is Event.PROCESS_EXITED for f in end.evidence):
        yield "finished", "the lines that follow: while a server drains, requests go on"
    yield from end.candidates


@per_scene
def _fewer(scene: Scene) -> bool:
    """Whether a crash dump counts fewer open requests than the logs leave open: lines of some ends are lost."""
    end = deaths.death(scene)
    order = end.order if end is not None else scene.life.size
    told = [fact.detail["unfinished"] for fact in scene.life.of(Event.SERVER_DUMPED) if "unfinished" in fact.detail]
    return bool(told) and sum(map(int, told)) < sum(a.finish is None for a in scene.open_at(order))


def _never_scheduled(scene: Scene, attempt: Attempt, end: deaths.Death) -> bool:
    """Whether no batch was formed between a request's arrival at an idle server and the server's death."""
    start = attempt.received_at
    if start is None or end.at is None or end.at - start < _SCHEDULED_WITHIN:
        return False
    if scene.open_at(attempt.order):
        return False
    if not scene.batches:
        return True
    order, last = scene.batches[-1]
    earliest = start - (attempt.received.at_error or 0.0 if attempt.received is not None else 0.0)
    return order < attempt.order and (last.at is None or last.at + (last.at_error or 0.0) < earliest)


def _next_turn(scene: Scene, attempt: Attempt, before: int) -> Attempt | None:
    """The turn that follows an unfinished one in a streaming session, whose turns come one after the other."""
    if attempt.session_id is None or attempt.parent_rid is not None:
        return None
    turns = scene.sessions[attempt.session_id]
    for turn in turns[bisect_right(turns, attempt.order, key=lambda turn: turn.order) :]:
        record = turn.received
        if record is not None and attempt.order < turn.order < before:
            return None if turn.parent_rid is not None or record.detail.get("replace") else turn
    return None


_ENDED = frozenset({Event.PROCESS_EXITED, Event.PROCESS_CRASHED})
"""After these nothing goes on."""


def _cut_by_shutdown(scene: Scene, attempt: Attempt, end: deaths.Death) -> bool:
    """Whether a shutdown cut it: the processes have gone, or the drain still listed it and is to be believed."""
    if deaths.remembered(scene, attempt) is False:
        return False  # it had ended before the list of what was left
    if scene.life.restarted or scene.life.killed:
        return True
    if any(f.event in _ENDED for f in end.evidence) or end.evidence[0].detail.get("forced"):
        return True
    return bool(deaths.remembered(scene, attempt)) and not scene.release.may_have(QUEUE_ABORTED_KEPT)


def _silent(scene: Scene, attempt: Attempt, gone: Fact | None) -> Finding:
    forgotten = deaths.remembered(scene, attempt) is False
    over = deaths.drained(scene, attempt) if gone is None and not forgotten else None
    if gone is None and not forgotten and over is None:
        return _in_flight(scene, attempt)
    finding = _left(scene, attempt, gone or over)
    if over is not None:
        finding.admit("server-shutdown", "its Finish: requests go on while a server drains")
    _admit_refusals(scene, finding)
    _admit_compiling(scene, attempt, gone, finding)
    return _with_lost(scene, attempt, finding)


def _left(scene: Scene, attempt: Attempt, gone: Fact | None) -> Finding:
    """It left the engine before a line; without one, before the drain's last list."""
    lines = [*attempt.begun, *([gone] if gone is not None else [])]
    proof = _proof(gone)
    if gone is not None and gone.event is not Event.SERVER_DUMPED and _begins_later(scene, attempt, gone):
        text = f"It left the engine, if it was there ({proof}); the log of the server begins after it came."
        return undecided(text, [(name, "the server's log from before") for name in _EARLY], lines)
    if attempt.stream and hidden(scene, attempt, gone) is None:
        finding = Finding(
            "client-disconnect",
            "likely",
            f"A stream without a Finish that left the engine ({proof}): its client closed the connection, "
            "which SGLang logs no line about.",
            lines,
        )
        finding.stage = disconnects.stage(scene, attempt) or "unknown"
        finding.candidates.append(("finished", FILTER))
        finding.candidates += disconnects.unanswered(
            scene, attempt, scene.places[id(gone)] if gone else scene.life.size
        )
        for name in unlogged.causes(scene, attempt, gone):
            finding.admit(name, "its Finish, if the logs lack it: others ended so just then")
        return finding
    names = ["finished", "client-disconnect"] if _answered(scene, attempt) else ["client-disconnect", "finished"]
    names += ["explicit-abort", "running-timeout", "waiting-timeout", *unlogged.causes(scene, attempt, gone)]
    return undecided(
        f"It left the engine ({proof}), and no Finish says how.",
        [(n, _DECIDES.get(n, "its Finish: --log-requests without SGLANG_LOG_REQUEST_EXCEEDED_MS"))
         for n in dict.fromkeys(names)],
        lines,
    )  # fmt: skip


def _admit_compiling(scene: Scene, attempt: Attempt, gone: Fact | None, finding: Finding) -> None:
    """Whose grammar compiles no batch line counts, and level 0 of the request log does not tell who has one (0.4.9 on).

    It compiles for 300 s at most to 0.5.7 (managers/scheduler.py:move_ready_grammar_requests), later for 10000 polls
    (constrained/grammar_manager.py:get_ready_grammar_requests).
    """
    record, end = attempt.received, deaths.death(scene)
    if gone is None or gone.event not in BATCHES or record is None or "grammar" in record.detail:
        return
    died = end if end is not None and end.order > attempt.order else None
    over = died.at if died is not None else scene.life.end
    if record.at is not None and over is not None and over - record.at <= _COMPILES:
        cause = died.cause if died is not None else "in-flight"
        finding.admit(cause, "--log-requests-level 1: whether it had a grammar, which may have compiled until then")


_COMPILES = 600.0  # seconds for which a grammar compiles, at most


def _admit_refusals(scene: Scene, finding: Finding) -> None:
    """Where no access lines are written (`--log-level-http warning`), OpenAI routes refuse without any line."""
    if not scene.sees_access:
        for name in ("invalid-request", "input-too-long"):
            finding.admit(name, "the status that the client got: these logs have no access lines")


def _with_lost(scene: Scene, attempt: Attempt, finding: Finding) -> Finding:
    """A finding with what a line that is lost may have said besides."""
    for name in _lost(scene, attempt) if missing.silently(scene) else ():
        finding.admit(name, _LOST)
    return finding


_LOST = "the lines that the log lacks"


def _lost(scene: Scene, attempt: Attempt) -> Iterator[str]:
    """What may have ended a request where any line may be lost: what ends most, and what ended others."""
    yield from ("finished", "client-disconnect", "invalid-request", "input-too-long")
    yield from ("explicit-abort", "waiting-timeout", "running-timeout")
    if attempt.session_id is not None:
        yield "session-unknown"
    yield from unlogged.later(scene, attempt)
    if scene.beginnings(attempt.rid):
        yield from ("abort-prefix-collision", "timeout-prefix-collision")


_EARLY = ("client-disconnect", "finished", "invalid-request", "input-too-long")
"""What may have ended a stream of whose time before any batch nothing is known."""


def _begins_later(scene: Scene, attempt: Attempt, gone: Fact) -> bool:
    """Whether the log that shows it gone begins only after it came, as another log tells: errors would not show."""
    first = _first_lines(scene).get(gone.process)
    return first is not None and attempt.received_at is not None and first > attempt.received_at + MARGIN


@per_scene
def _first_lines(scene: Scene) -> dict[str, float]:
    """When each log of a life begins, UTC epoch seconds."""
    found: dict[str, float] = {}
    for fact in scene.life.told:
        if fact.at is not None:
            found.setdefault(fact.process, fact.at - (fact.at_error or 0.0))
    return found


def _proof(gone: Fact | None) -> str:
    if gone is None:
        return "the drain no longer lists it"
    return _PROOFS.get(gone.event, "a later batch line has no room for it")


_PROOFS = {
    Event.SERVER_DUMPED: "the crash dump does not list it",
    Event.REQUEST_STATS: "its time stats are written when it does",
    Event.SCHEDULER_STATUS: "the scheduler's next list of what runs and waits does not have it",
    Event.PROCESS_TREE_KILLED: "the server, which waits for all before it ends its processes, has ended them",
}


_DECIDES = {"client-disconnect": "the client's or proxy's log; OpenAI routes write no line when a client leaves"}


def _answered(scene: Scene, attempt: Attempt) -> bool:
    """Whether an HTTP 200 that nothing else explains was written after it came."""
    return scene.last_answer > attempt.order


def _possible(scene: Scene, attempt: Attempt) -> list[str]:
    """What may have become of a rid that has no record."""
    listed = bool(attempt.of(Event.SERVER_DRAINING))
    names = [*["watchdog-timeout"] * _hung(attempt), "in-flight", "finished", *["server-shutdown"] * listed]
    return [*names, *_kept(scene, attempt)]


def _kept(scene: Scene, attempt: Attempt) -> tuple[str, ...]:
    """What may have ended one that a server lists while it drains.

    It lists what is left, and in 0.4.9 to 0.5.12 what was aborted in the queue as well.
    """
    listed = bool(attempt.of(Event.SERVER_DRAINING)) and scene.release.may_have(QUEUE_ABORTED_KEPT)
    return ("explicit-abort", "client-disconnect") if listed else ()


def _hung(attempt: Attempt) -> bool:
    """Whether a watchdog printed it as running, before it kills the server (0.4.4 on, `watchdog_thread`)."""
    return any(fact.event is Event.WATCHDOG_DUMPED for fact in (*attempt.facts, *attempt.forged))


def _in_flight(scene: Scene, attempt: Attempt) -> Finding:
    if attempt.received is None:
        return undecided(
            "Named by a line, but its Receive and Finish are not in these logs.",
            [(c, "the request log (--log-requests) of the same time") for c in _possible(scene, attempt)],
            attempt.facts[:1],
        )
    if _records_alone(scene) and _last_to_end(scene) > attempt.order:
        text = "No Finish, though later requests have theirs; errors, disconnects and deaths stand in the server's log."
        names = ("client-disconnect", "in-flight", *_ANYTHING)
        return undecided(
            text, [(n, "the server's whole log of that time") for n in dict.fromkeys(names)], [attempt.received]
        )
    if missing.silently(scene) and _last_to_end(scene) > attempt.order:
        text = (
            "No Finish, though later requests have theirs, and the log lacks lines: requests end in it that never came."
        )
        lost = dict.fromkeys(["in-flight", *_lost(scene, attempt)])
        return undecided(text, [(name, _LOST) for name in lost], [attempt.received])
    finding = Finding(
        "in-flight",
        "likely",
        "Nothing shows that it ended before the log does.",
        attempt.begun,
    )
    if any(scene.places[id(fact)] > attempt.order for fact in scene.life.of(Event.SERVER_SIGTERM)):
        finding.candidates.append(("server-shutdown", "the lines that follow: did it end while the server drained?"))
    for name in _kept(scene, attempt):
        finding.admit(name, "its Finish: the list has whoever was aborted in the queue as well")
    if _hung(attempt):
        finding.candidates.append(("watchdog-timeout", "the lines that follow: the watchdog was about to kill it"))
    if attempt.stream or attempt.openai is not None:
        finding.admit("client-disconnect", "the client's log: leaving a stream writes no line")
    if (decides := switched(scene, attempt)) is not None:
        finding.candidates.append(("finished", decides))
    finding.candidates += disconnects.unanswered(scene, attempt, scene.life.size)
    if _records_alone(scene):
        if len(scene.by_rid) == 1:
            finding.confidence = "not-established"
            finding.summary = "Only this request's own lines were given: what may have ended it stands in the others."
        for name in _ANYTHING:
            finding.admit(name, "the server's whole log of that time")
    _admit_refusals(scene, finding)
    return _with_lost(scene, attempt, finding)


@per_scene
def _last_to_end(scene: Scene) -> int:
    """The place of the newest arrival that has an end; -1 where none has."""
    return max((a.order for a in scene.attempts if a.finish is not None), default=-1)


@per_scene
def _records_alone(scene: Scene) -> bool:
    """Whether these are records of requests (`--log-requests-target`, 0.5.8 on) and not a server's log.

    Or what a filter left of one.
    """
    return not scene.sees_access and not scene.life.of(*_OF_A_SERVER)


_OF_A_SERVER = (*BATCHES, Event.SERVER_ARGS, Event.SERVER_READY)

_ANYTHING = ("finished", "client-disconnect", "invalid-request", "input-too-long", "process-killed", "scheduler-crash")
"""What may have become of a request where records of requests are all there is."""
