"""How a life of a server ended, and what its end tells of the requests that were open then."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sglang_lifecycle.analyzers import killed, missing
from sglang_lifecycle.analyzers.accounting import seen
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Cause, Possible
from sglang_lifecycle.analyzers.lives import DEATHS
from sglang_lifecycle.analyzers.scene import Scene, per_scene
from sglang_lifecycle.analyzers.spans import near
from sglang_lifecycle.parsers.evidence import Event, Fact

_COMMUNICATION = re.compile(
    r"\b(?:NCCL|nccl|ZMQ|zmq|gloo|ProcessGroup|DistBackendError|Connection (?:reset|closed)|Broken pipe|Socket Timeout)"
)
"""What other ranks raise after one has failed: never the first cause."""

_AROUND = 10.0  # seconds around such an error in which the line of the rank that failed stands
_DUMP_KEEPS = 300.0  # seconds for which an ended request stays in the list that a crash dump writes
_RESTARTS = 30.0  # seconds without a line before a start, in which more than the end of a server may be missing
NOTICED = 5.0
"""Seconds within which the API server finds that a connection has gone."""

_SIGNALS = {-9: "SIGKILL (the OOM killer, or kill -9)", -11: "SIGSEGV", -6: "SIGABRT", -15: "SIGTERM", 137: "SIGKILL"}
_WHO_KILLED = "who sent SIGKILL: the end of the grace time, or something else"
_KILLS, _FAULTS = (-9, 137), (-11, -6)


@dataclass(slots=True)
class Death:
    """The end of a life that its lines show."""

    cause: str
    order: int
    summary: str
    evidence: list[Fact]
    chain: list[Cause] = field(default_factory=list)
    candidates: list[Possible] = field(default_factory=list)
    """What else its lines admit."""

    @property
    def at(self) -> float | None:
        """UTC epoch seconds."""
        return self.evidence[0].at


_Placed = tuple[int, Fact]


@dataclass(frozen=True, slots=True)
class _Ends:
    """The first line of each kind that tells of the end of a life, with its place."""

    scene: Scene
    fired: _Placed | None
    crash: _Placed | None
    native: _Placed | None
    exited: _Placed | None
    sigquit: _Placed | None
    term: _Placed | None
    shell: _Placed | None = None
    """The last word of the shell that started it, if nothing of it follows."""

    @classmethod
    def of(cls, scene: Scene) -> _Ends:
        """Soft watchdogs kill nobody; exceptions that tell more than that another rank has gone go first."""
        first: dict[Event, _Placed] = {}
        shell: _Placed | None = None
        for order, fact in scene.life.placed():
            if fact.event not in DEATHS:
                shell = None
                continue
            if fact.tainted or fact.detail.get("soft"):
                continue
            if fact.pattern == "process.shell":
                shell = order, fact
                continue
            known = first.setdefault(fact.event, (order, fact))
            if fact.event is Event.PROCESS_CRASHED and _echo(known[1]) and not _echo(fact):
                first[fact.event] = order, fact
        return cls(
            scene,
            fired=first.get(Event.WATCHDOG_FIRED),
            crash=first.get(Event.PROCESS_CRASHED),
            native=first.get(Event.PROCESS_FATAL),
            exited=first.get(Event.PROCESS_EXITED),
            sigquit=first.get(Event.PROCESS_SIGQUIT),
            term=first.get(Event.SERVER_SIGTERM),
            shell=shell,
        )

    @property
    def echoed(self) -> bool:
        """Whether the exception only tells that another rank has gone."""
        return self.crash is not None and _echo(self.crash[1])

    @property
    def by_sigquit(self) -> bool:
        """Whether what exited got the SIGQUIT that follows an exception."""
        return self.exited is not None and self.exited[1].detail.get("exit_code") == -3


@per_scene
def death(scene: Scene) -> Death | None:
    """What killed a life, or None where its lines show no end.

    The first exception counts, not the SIGQUIT that follows it, nor what other ranks raise because of it.
    """
    ends = _Ends.of(scene)
    return next((found for rule in _RULES if (found := rule(ends)) is not None), None)


def _watchdog(ends: _Ends) -> Death | None:
    """The watchdog fired, and no exception came before it."""
    if ends.fired is None or (ends.crash is not None and ends.crash[0] < ends.fired[0]):
        return None
    order, fact = ends.fired
    limit = fact.detail.get("seconds")
    text = (
        f"the watchdog killed the server: a batch did not finish within {limit:g} s" if limit else "the watchdog fired"
    )
    dumped = list(ends.scene.life.of(Event.WATCHDOG_DUMPED))
    return Death("watchdog-timeout", order, text, [fact, *dumped[:1]])


def _crashed(ends: _Ends) -> Death | None:
    """An exception of a process's own, before any process exited for another reason."""
    if ends.crash is None or ends.echoed:
        return None
    if ends.exited is not None and ends.exited[0] < ends.crash[0] and not ends.by_sigquit:
        return None
    return _raised(ends.scene, *ends.crash)


def _native(ends: _Ends) -> Death | None:
    """A process died inside native code, or without a word, before any exited."""
    if ends.native is None or (ends.exited is not None and ends.exited[0] < ends.native[0]):
        return None
    order, fact = ends.native
    how = _FATAL.get(fact.pattern or "", "a process died inside native code: {}")
    return Death("process-killed", order, how.format(fact.detail.get("error", "")[:120]), [fact])


_FATAL = {"process.warmup_failed": "its warm-up failed, and the server killed itself"}
"""How a process died that could say nothing, by the pattern of the line that tells; others died in native code."""


def _told_by_shell(ends: _Ends) -> Death | None:
    """The shell names the signal that it died of. A server kills itself after all that it says itself of its end."""
    if ends.shell is None:
        return None
    order, fact = ends.shell
    found = Death("process-killed", order, f"the shell that had started it says: {fact.detail['error']}", [fact])
    found.candidates.append(("in-flight", "the port of the server that the shell names: it may be another"))
    return found


def _drained_by(term: Fact) -> str:
    return "the server got SIGTERM" + ("" if term.detail.get("forced") else " and drained")


def _echo(crash: Fact) -> bool:
    """Whether an exception only tells that another rank has gone."""
    return _COMMUNICATION.search(str(crash.detail.get("exception", ""))) is not None


@per_scene
def replaced(scene: Scene) -> Death | None:
    """The start of the life that follows one whose end no line shows: nothing of the old processes is left.

    `kill -9` of the main process writes no line (all releases). None where what was open then went on.
    """
    if not scene.life.restarted:
        return None
    following = scene.following
    if following is None or any(a.received is None and a.rid in scene.by_rid for a in following.attempts):
        return None
    found = Death("process-killed", scene.life.size, "the server was started again", following.life.told[:1])
    found.candidates = [(cause, "the server's exit code") for cause in ("server-shutdown", "scheduler-crash")]
    last, first = scene.life.end, following.life.begin
    if last is not None and first is not None and first - last > _RESTARTS:
        found.candidates.append(("finished", f"the lines of the {first - last:.0f} s before the start"))
    return found


@per_scene
def went_on(scene: Scene) -> bool:
    """Whether requests came and went well after a death: of a life whose start is missing, or of another server."""
    end = death(scene)
    return end is not None and any(
        a.order > end.order and a.received is not None and a.went_well for a in scene.attempts
    )


CAUSES = ("scheduler-crash", "process-killed", "watchdog-timeout", "server-shutdown")
"""What a death is called."""

FINAL = frozenset(CAUSES) - {"server-shutdown"}
"""Deaths after which the same life answers nothing: what it still receives dies of them as well."""


def over(scene: Scene, attempt: Attempt) -> int:
    """The place from which on a life answers an attempt no more: that of its death, if it came before, else its end."""
    end = death(scene)
    final = end is not None and end.cause in FINAL and attempt.order < end.order and not went_on(scene)
    return end.order if end is not None and final else scene.life.size


def outlived(scene: Scene, fact: Fact, notice: float = NOTICED) -> bool:
    """Whether a line was written when its life could answer nobody any more.

    Up to 0.5.9 the API server does not notice that a scheduler or a detokenizer has gone: it goes on, and finds that
    clients give up, within `notice` seconds at most after they did.
    """
    end = death(scene)
    if end is None or end.cause not in FINAL:
        return False
    if end.order < scene.places[id(fact)]:
        return True
    slack = (end.evidence[0].at_error or 0.0) + (fact.at_error or 0.0)
    return end.at is not None and fact.at is not None and fact.at - end.at > notice + slack


def too_late(scene: Scene, fact: Fact, notice: float = NOTICED) -> bool:
    """Whether a line only tells what became of a request that its dead server could not answer any more."""
    return outlived(scene, fact, notice) and not went_on(scene)


def _raised(scene: Scene, order: int, fact: Fact) -> Death:
    name = str(fact.detail.get("name", "a process"))
    exception = str(fact.detail.get("exception") or "an exception")
    found = Death("scheduler-crash", order, f"the {_PROCESSES.get(name, name)} raised {exception}", [fact])
    trigger = _trigger(scene, order, fact)
    if trigger is not None:
        found.chain.append(trigger)
    return found


_PROCESSES = {
    "Scheduler": "scheduler",
    "DetokenizerManager": "detokenizer",
    "TokenizerManager": "tokenizer manager",
    "DataParallelController": "data-parallel controller",
    "MultiTokenizerRouter": "tokenizer router",
    "MultiDetokenizerRouter": "detokenizer router",
}


def _trigger(scene: Scene, order: int, crash: Fact) -> Cause | None:
    """The request that set a crash off, where the traceback and the requests just before it say so."""
    frames = crash.detail.get("frames", [])
    exception = str(crash.detail.get("exception", ""))
    if "create_req" in frames and "dictionary changed size" in exception:
        for attempt in reversed(scene.attempts):
            record = attempt.received
            if record is None or not (attempt.order < order or _same_second(record, crash)):
                continue
            if record.detail.get("replace") and attempt.parent_rid is None:
                text = f"{attempt.rid!r} asked its session to replace without naming a rid, which breaks the scheduler"
                return Cause("scheduler-crash", text, [record], rid=attempt.rid)
    return None


def _same_second(one: Fact, other: Fact) -> bool:
    """Whether two facts may have happened in either order, as far as their clocks tell."""
    if one.at is None or other.at is None:
        return True
    return abs(one.at - other.at) <= (one.at_error or 0.0) + (other.at_error or 0.0)


def _exited(ends: _Ends) -> Death | None:
    """A process exited, and not because of an exception that tells of more than it."""
    if ends.exited is None or (ends.echoed and ends.by_sigquit):
        return None
    scene, term, (order, fact) = ends.scene, ends.term, ends.exited
    code = fact.detail.get("exit_code")
    name = fact.detail.get("name", "a child process")
    if code == -15 and term is not None:
        return Death("server-shutdown", order, "the server and its processes got SIGTERM", [term[1], fact])
    killed_ = code in _KILLS and bool(scene.life.killed) and killed.named(scene.life)
    if term is not None and term[0] < order and code not in _FAULTS and not killed_:
        found = Death("server-shutdown", term[0], "the server got SIGTERM", [term[1], fact])
        if code in _KILLS:
            found.candidates.append(("process-killed", _WHO_KILLED))
        return found
    signal = _SIGNALS.get(code if isinstance(code, int) else 0)
    text = f"{name} ended by {signal}" if signal else f"{name} exited with code {code}"
    found = Death("process-killed", order, text, [fact])
    if term is not None and term[0] < order and code in _FAULTS:
        found.evidence.append(term[1])
        found.candidates.append(("server-shutdown", "the core dump: processes may fail while they are torn down"))
    if code in _KILLS and scene.life.killed:
        found.chain.append(Cause("process-killed", killed.summary(scene.life), scene.life.killed))
    return found


def _echoed(ends: _Ends) -> Death | None:
    """A rank lost another: what had happened to that is told by other lines, or not at all."""
    if ends.crash is None:
        return None
    scene, term, (order, fact) = ends.scene, ends.term, ends.crash
    if scene.life.killed:
        return Death("process-killed", order, killed.summary(scene.life), [*scene.life.killed, fact])
    if term is not None and term[0] < order:
        return Death("server-shutdown", term[0], _drained_by(term[1]), [term[1], fact])
    stopped = [
        f
        for other in scene.others
        for f in other.life.of(Event.SERVER_SIGTERM)
        if other.life.server != scene.life.server and near(fact, f, _AROUND)
    ]
    if stopped:
        found = Death("server-shutdown", order, "another node of the server got SIGTERM", [stopped[0], fact])
        found.candidates.append(("process-killed", "whether that node belongs to this server"))
        return found
    found = _raised(scene, order, fact)
    found.candidates = [
        (cause, "the log of the rank that had failed") for cause in ("process-killed", "server-shutdown")
    ]
    return found


def _sigquit(ends: _Ends) -> Death | None:
    """A SIGQUIT alone: a child failed. A traceback before it makes it a crash, else it died without a word."""
    if ends.sigquit is None:
        return None
    order, fact = ends.sigquit
    before = [f for f in ends.scene.life.facts[:order] if f.event in (Event.HTTP_EXCEPTION, Event.KV_EXHAUSTED)]
    raised = [f for f in before if f.pattern in ("traceback", "kv.exhausted.prefill", "kv.exhausted.decode")]
    if raised:
        what = raised[0].detail.get("exception") or "an exception"
        return Death("scheduler-crash", order, f"a process raised {what}", [raised[0], fact])
    found = Death("process-killed", order, "a child process failed without a word of its own", [fact])
    found.candidates.append(("scheduler-crash", "the child's own lines: a traceback before the SIGQUIT"))
    return found


def _terminated(ends: _Ends) -> Death | None:
    """The server got SIGTERM, and nothing from outside names another end of its own processes."""
    scene, term = ends.scene, ends.term
    if term is None or killed.named(scene.life):
        return None
    found = Death("server-shutdown", term[0], _drained_by(term[1]), [term[1], *scene.life.killed])
    if scene.life.killed:
        found.candidates.append(("process-killed", _WHO_KILLED))
    return found


def _killed(ends: _Ends) -> Death | None:
    """What ended is told from outside alone."""
    scene = ends.scene
    if not scene.life.killed:
        return None
    found = Death("process-killed", scene.life.size, killed.summary(scene.life), scene.life.killed)
    if not killed.named(scene.life):
        found.candidates.append(("in-flight", "the pids of the server's processes: another may have been killed"))
    return found


_RULES: tuple[Callable[[_Ends], Death | None], ...] = (
    _watchdog, _crashed, _native, _exited, _echoed, _sigquit, _terminated, _told_by_shell, _killed,
)  # fmt: skip
"""The first that finds something counts."""


@per_scene
def counted(scene: Scene) -> bool:
    """Whether the crash dump counts exactly the requests that these logs leave open: then all of them were in flight.

    `Dumped N finished and M unfinished requests before crash` (0.4.9 to 0.5.23) counts as finished what ended in the
    five minutes before, but for health checks; open ones it may count. Logs that show fewer ends than that have holes,
    as those have that lack the start, and a number that fits then may fit by chance.
    """
    end = death(scene)
    if end is None or not scene.life.whole or missing.silently(scene):
        return False
    if scene.life.of(Event.LOGGING_CONFIGURED) or _unlogged(scene) or any(h < end.order for h in missing.holes(scene)):
        return False
    dumps = [f for f in scene.life.of(Event.SERVER_DUMPED) if "unfinished" in f.detail]
    open_ = [a for a in scene.open_at(end.order) if a.finish is None]
    if any(a.synthetic or (a.received is not None and (a.received.detail.get("n") or 1) > 1) for a in open_):
        return False  # health checks are not listed; of several samples each is
    if not dumps or int(dumps[0].detail["unfinished"]) != len(open_):
        return False
    written = dumps[0].at or 0.0
    ended = [a for a in scene.attempts if a.ended_at is not None and a.ended_at >= written - _DUMP_KEEPS]
    return int(dumps[0].detail.get("count") or 0) <= len(ended)


def _unlogged(scene: Scene) -> bool:
    """Whether a batch line counts requests before any was logged, and not in the same second: the log was off."""
    first = next((a for a in scene.attempts if a.received is not None), None)
    if first is None or first.received is None or first.received.at is None:
        return False
    since = first.received.at - (first.received.at_error or 0.0)
    early = (fact for order, fact in scene.batches if order < first.order and fact.at is not None)
    return any(fact.at is not None and fact.at + (fact.at_error or 0.0) <= since and seen(fact) for fact in early)


def remembered(scene: Scene, attempt: Attempt) -> bool | None:
    """Whether the API server still remembered an attempt when it drained; None where no line after it lists the rids.

    0.4.9 to 0.5.12 never forget a request that was aborted in the queue: there a remembered rid proves nothing.
    """
    found = _drained(scene)
    if found is None or found[0] < attempt.order:
        return None  # the list is older than the request
    return attempt.rid in found[1] or (None if scene.several_workers else False)  # each worker lists its own


def drained(scene: Scene, attempt: Attempt) -> Fact | None:
    """The line by which a server that had got SIGTERM, and was not forced, ended its own processes.

    It waits until nobody is left (0.5.18 to 0.5.23 as recorded, `managers/tokenizer_manager.py:sigterm_watchdog`).
    """
    end = death(scene)
    if end is None or end.cause != "server-shutdown" or end.evidence[0].detail.get("forced") or scene.several_workers:
        return None
    swept = scene.life.of(Event.PROCESS_TREE_KILLED)
    return next((fact for fact in swept if scene.places[id(fact)] > max(end.order, attempt.order)), None)


@per_scene
def _drained(scene: Scene) -> tuple[int, frozenset[str]] | None:
    """The place of the last list of what is left, and the rids in it."""
    lists = [f for f in scene.life.of(Event.SERVER_DRAINING) if "rids" in f.detail]
    return (scene.places[id(lists[-1])], frozenset(lists[-1].detail["rids"])) if lists else None
