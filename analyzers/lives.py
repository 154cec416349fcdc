"""Servers and their lives: which lines speak of the same process, from one start to the next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import accumulate, takewhile
from operator import attrgetter

from sglang_lifecycle.analyzers import forgeries
from sglang_lifecycle.analyzers.deliveries import restored
from sglang_lifecycle.parsers import requestlog
from sglang_lifecycle.parsers.evidence import Event, Fact

_PROCESS_EVENTS = frozenset({
    Event.BATCH_PREFILL, Event.BATCH_DECODE, Event.SERVER_ARGS, Event.SERVER_READY, Event.SERVER_CAPACITY,
    Event.SERVER_STARTED, Event.PROCESS_CRASHED, Event.PROCESS_EXITED, Event.PD_FAILED, Event.KV_RETRACTED,
    Event.WATCHDOG_FIRED, Event.PROCESS_FATAL,
})  # fmt: skip
DEATHS = frozenset({
    Event.PROCESS_CRASHED, Event.PROCESS_EXITED, Event.PROCESS_SIGQUIT, Event.WATCHDOG_FIRED, Event.SERVER_SIGTERM,
    Event.PROCESS_FATAL,
})  # fmt: skip


_PROCESS = attrgetter("process")


def times(fact: Fact) -> int:
    """How often a line was said that a fact tells of: at once, or at any time where the fact counts for others."""
    return int(fact.detail.get("again", 0)) + 1


def last(fact: Fact) -> Fact:
    """The last time that a line was said, where it was repeated."""
    if "again" not in fact.detail:
        return fact
    newest = fact.copy()
    del newest.detail["again"]
    newest.line, newest.offset = newest.detail.pop("last_line"), newest.detail.pop("last_offset")
    return newest


@dataclass(slots=True)
class Life:
    """One life of one server: the facts from one start to the next, in the order in which they happened."""

    server: str
    """Its name, else the log that speaks of its processes."""
    number: int
    told: list[Fact] = field(default_factory=list)
    """Its facts; of a line that was repeated only the first."""
    restarted: bool = False
    """Another life of the same server follows."""
    killed: list[Fact] = field(default_factory=list)
    """What the host, its kernel or an orchestrator says of its end."""
    _facts: list[Fact] | None = field(default=None, repr=False)
    _suspects: frozenset[int] | None = field(default=None, repr=False)
    _places: Sequence[int] | None = field(default=None, repr=False)
    _by_event: dict[Event, list[Fact]] = field(default_factory=dict, repr=False)

    @property
    def facts(self) -> list[Fact]:
        """Its facts, each as often as it was said; the place among them is the order of things."""
        if self._facts is None:
            often = len(self.told) < self.size
            self._facts = [f for f in self.told for _ in range(times(f))] if often else self.told
        return self._facts

    @property
    def places(self) -> Sequence[int]:
        """The place of each fact that it was told among `facts`, the first time that it was said; then their number."""
        if self._places is None:
            self._places = range(len(self.told) + 1)
            if any("again" in fact.detail for fact in self.told):
                self._places = list(accumulate(map(times, self.told), initial=0))
        return self._places

    @property
    def size(self) -> int:
        """The number of its facts."""
        return self.places[-1]

    def placed(self) -> Iterator[tuple[int, Fact]]:
        """What it was told, each with its place."""
        return zip(self.places, self.told, strict=False)

    @property
    def begin(self) -> float | None:
        """The time of its first dated fact, UTC epoch seconds."""
        return next((f.at for f in self.told if f.at is not None), None)

    @property
    def end(self) -> float | None:
        """The time of its last dated fact, UTC epoch seconds."""
        return max((f.at for f in self.told if f.at is not None), default=None)

    def of(self, *events: Event) -> list[Fact]:
        """Of what it was told, some kinds that no stranger could have written; one kind after the other."""
        if not self._by_event:
            for fact in self.told:
                if not fact.tainted:
                    self._by_event.setdefault(fact.event, []).append(fact)
        return [fact for event in events for fact in self._by_event.get(event, ())]

    @property
    def whole(self) -> bool:
        """Whether its start was read: nothing of it came before."""
        return bool(self.of(Event.SERVER_ARGS, Event.SERVER_STARTED, Event.SERVER_READY))

    @property
    def suspects(self) -> frozenset[int]:
        """The identities of facts that a stranger may have written, though they are not tainted."""
        if self._suspects is None:
            several = len(self.of(*forgeries.SAID)) > 1
            self._suspects = forgeries.suspects(self.told) if several else frozenset()
        return self._suspects

    @property
    def args(self) -> dict[str, object]:
        """The server arguments that were read."""
        told = self.of(Event.SERVER_ARGS, Event.SERVER_DUMPED)
        return next((f.detail["args"] for f in told if "args" in f.detail), {})


def lives(facts: Sequence[Fact], names: Mapping[str, str] | None = None) -> list[Life]:
    """Cut facts into servers, and each server's into lives. `names` are those of servers by globs of their logs.

    Servers come in the order of their logs' names: that in which logs were given, or read, decides nothing.
    """
    servers = _servers(facts, names or {})
    ordered = sorted(servers.items(), key=_first_log) if len(servers) > 1 else servers.items()
    return [life for server, own in ordered for life in _cut(server, own)]


def _first_log(server: tuple[str, list[Fact]]) -> str:
    return min(map(_PROCESS, server[1]), default="")


def _servers(facts: Sequence[Fact], names: Mapping[str, str]) -> dict[str, list[Fact]]:
    """Each log that speaks of a server's processes is a server, as are those of one name; the others go by path.

    Where none speaks, request logs that are named after several hosts are as many servers'.
    """
    sources = list(dict.fromkeys(map(_PROCESS, facts)))
    speaking = list(dict.fromkeys(f.process for f in facts if f.event in _PROCESS_EVENTS))
    named = {source: name for source in sources if (name := _named(source, names)) is not None}
    home = {source: named.get(source, source) for source in (*speaking, *named)}
    if not home:
        hosts = {source: requestlog.host(source) for source in sources}
        home = {source: host for source, host in hosts.items() if host is not None}
    servers = list(dict.fromkeys(home.values()))
    if len(servers) <= 1:
        server = servers[0] if servers else (sources[0] if sources else "")
        return {server: _merge(facts)}
    owner = {source: home.get(_nearest(source, list(home)) or source, source) for source in sources}
    grouped: dict[str, list[Fact]] = {server: [] for server in servers}
    for fact in facts:
        grouped.setdefault(owner[fact.process], []).append(fact)
    return {server: _merge(own) for server, own in grouped.items()}


def _named(source: str, names: Mapping[str, str]) -> str | None:
    """The name that the first fitting glob gives: one of the whole source, or of its last parts."""
    return next(
        (
            name
            for glob, name in names.items()
            if source == glob or fnmatchcase(source, glob) or fnmatchcase(source, f"*/{glob}")
        ),
        None,
    )


def _nearest(source: str, servers: Sequence[str]) -> str | None:
    """The server whose log lies nearest, by folders, then by words of the names; None where that is no one."""
    if source in servers:
        return source
    near = {server: (_shared_folders(source, server), _shared_words(source, server)) for server in servers}
    first, *others = sorted(near, key=lambda server: near[server], reverse=True)
    return first if not others or near[first] != near[others[0]] else None


def _shared_words(first: str, second: str) -> int:
    """How many words of what differs in two paths are the same: `req_a/host-a_0.log` and `a.log` share one."""
    folders = _shared_folders(first, second)
    words = [set(_WORDS.findall("/".join(path.split("/")[folders:]))) - _COMMON for path in (first, second)]
    return len(words[0] & words[1])


_WORDS = re.compile(r"[A-Za-z0-9]+")
_COMMON = frozenset({"log", "gz", "zst", "txt", "json"})


def _shared_folders(first: str, second: str) -> int:
    """How many folders two paths begin with alike, whether they are relative, absolute or URLs."""
    both = zip(first.split("/"), second.split("/"), strict=False)
    return sum(1 for _ in takewhile(lambda names: names[0] == names[1], both))


def _merge(facts: Sequence[Fact]) -> list[Fact]:
    """One order for the facts of several logs: by time, each log's own lines never out of turn."""
    sources = set(map(_PROCESS, facts))
    if len(sources) <= 1:
        return restored(facts)
    logs: dict[str, list[Fact]] = {}
    for fact in facts:
        logs.setdefault(fact.process, []).append(fact)
    facts = [fact for _, log in sorted(logs.items()) for fact in restored(log)]
    clocks: dict[str, float] = {}
    keyed = []
    for index, fact in enumerate(facts):
        at = fact.at if fact.at is not None else clocks.get(fact.process, 0.0)
        clocks[fact.process] = max(clocks.get(fact.process, 0.0), at)
        keyed.append((clocks[fact.process], index, fact))
    keyed.sort(key=lambda item: item[:2])
    return [fact for _, _, fact in keyed]


def _cut(server: str, facts: Sequence[Fact]) -> list[Life]:
    """A life begins where the arguments are printed again, or where a server that had died is ready again.

    `server_args=` is printed once per start by the main process (0.3.6 to 0.5.23). `The server is fired up` alone
    does not cut: with several HTTP workers each prints it. A request log without stamps of its own tells of no order.
    """
    begins = [0]
    served = died = False
    dated = {fact.process for fact in facts if fact.at is not None}
    for place, fact in enumerate(facts):
        if (served and fact.event not in _TURNS) or fact.tainted:
            continue
        starts = fact.event is Event.SERVER_ARGS and fact.pattern == "server.args"
        if (starts and (served or died)) or (fact.event is Event.SERVER_READY and died):
            begins.append(place)
            served = died = False
        served = served or (fact.event in _SERVED and fact.process in dated)
        died = died or fact.event in DEATHS
    ends = [*begins[1:], len(facts)]
    return [
        Life(server, number, list(facts[begin:end]), restarted=end < len(facts))
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1)
    ]


_SERVED = frozenset({Event.SERVER_READY, Event.REQUEST_FINISHED, Event.REQUEST_RECEIVED})
_TURNS = DEATHS | {Event.SERVER_ARGS, Event.SERVER_READY}
"""What ends a life or begins one."""
