"""Lines of those around a server: its gateway, the kernel, the service manager. They come in streams of their own.

A stream in which SGLang's own lines have been seen is taken to be the server's alone: there such a line could be a
stranger's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from sglang_lifecycle.parsers import gateway
from sglang_lifecycle.parsers.blocks import Block
from sglang_lifecycle.parsers.evidence import Event, Fact, Source
from sglang_lifecycle.parsers.lines import Line
from sglang_lifecycle.parsers.prefix import Prefix

Choose = Callable[[Sequence[Fact]], Sequence[Fact]]
"""Picks some of the facts of a stream, in their order."""


class _Notice(NamedTuple):
    """A wording of a kernel or a service manager; groups are keys of a fact's detail."""

    id: str
    event: Event
    within: str
    regex: re.Pattern[str]


_NOTICES = (
    _Notice(
        "kernel.oom",
        Event.PLATFORM_ENDED,
        "ut of memory: Kill",
        re.compile(
            r"(?P<reason>(?:Memory cgroup o|O)ut of memory): Kill(?:ed)? process (?P<pid>\d{1,9}) \((?P<name>[^)]*)\).*"
        ),
    ),
    _Notice(
        "kernel.oom.task",
        Event.PLATFORM_ENDED,
        "oom-kill:constraint=",
        re.compile(r"(?P<reason>oom-kill):constraint=\S*?,task=(?P<name>[^,]*),pid=(?P<pid>\d{1,9}).*"),
    ),
    _Notice(
        "systemd.exited",
        Event.PLATFORM_ENDED,
        ": Main process exited, code=",
        re.compile(
            r"(?P<name>[\w@.-]+): Main process exited, "
            r"(?P<reason>code=(?:killed|dumped|exited), status=(?P<exit_code>\d{1,3})/\S+)"
        ),
    ),
    _Notice(
        "systemd.oom",
        Event.PLATFORM_NOTED,
        " has been killed by the OOM killer",
        re.compile(r"(?P<name>[\w@.-]+): (?P<reason>A process of this unit has been killed by the OOM killer)\."),
    ),
)
_DMESG = re.compile(r"(?:<\d+>)?\[ *(?:\d+\.\d+|\w{3} (?P<ctime>\w{3} +\d+ \d\d:\d\d:\d\d \d{4}))\] ")
_NUMBERS = ("pid", "exit_code")


class Records(Protocol):
    """A reader of a server's own lines."""

    source: Source
    facts: list[Fact]

    def twin(self, choose: Choose) -> Records:
        """A reader that can be finished in this one's stead."""

    def feed(self, line: Line) -> None:
        """Take the next line."""

    def take(self, block: Block) -> None:
        """Take the next lines, many at once."""

    def skip(self) -> None:
        """Lines are left out here."""

    def turn(self) -> None:
        """The next line is of another file."""

    def again(self, times: int, number: int, offset: int) -> bool:
        """The line before, word for word, follows so often: whether that is all there is to it."""

    def finish(self) -> list[Fact]:
        """The facts, once all lines were taken."""

    def forget(self, keep: frozenset[int]) -> None:
        """Let go of all facts but those whose identity is in `keep`."""


class Outside:
    """Takes the lines of a stream, keeps those of a gateway or a platform, and hands on the others."""

    def __init__(self, inner: Records, prefix: Prefix) -> None:
        self.source: Source = inner.source
        self._inner, self._prefix = inner, prefix
        self._found: list[Fact] = []

    def feed(self, line: Line) -> None:
        """Take the next line."""
        if self.source.recognised > len(self._found) or not self._take(line):
            self._inner.feed(line)

    def take(self, block: Block) -> None:
        """Take the next lines, many at once."""
        if self.source.recognised > len(self._found):
            self._inner.take(block)
            return
        for line in block.lines():
            self.feed(line)

    def skip(self) -> None:
        """Lines are left out here: nothing goes on after them."""
        self._inner.skip()

    def turn(self) -> None:
        """The next line is of another file: what it repeats has a place of its own."""
        self._inner.turn()

    @property
    def again(self) -> Callable[[int, int, int], bool]:
        """Takes repetitions of the line before, as what it is handed on to does."""
        return self._inner.again

    def finish(self) -> list[Fact]:
        """The facts of the stream."""
        own = self._inner.finish()
        return self._found + own

    def twin(self, choose: Choose) -> Outside:
        """A reader of the facts that `choose` picks, copied; it can be finished in this one's stead."""
        twin = Outside(self._inner.twin(choose), self._prefix)
        twin._found = [fact.copy() for fact in choose(self._found)]
        return twin

    @property
    def facts(self) -> list[Fact]:
        """The facts so far, in the order of their lines; their times may still be open."""
        return self._found + self._inner.facts

    def forget(self, keep: frozenset[int]) -> None:
        """Let go of all facts but those whose identity is in `keep`."""
        kept = [fact for fact in self._found if id(fact) in keep]
        self.source.recognised -= len(self._found) - len(kept)
        self._found = kept
        self._inner.forget(keep)

    def adopt(self, facts: list[Fact], outside: int) -> None:
        """Take over what others have read; so many of the facts, the first, are from around the server."""
        self._found, self._inner.facts = facts[:outside], facts[outside:]

    def _take(self, line: Line) -> bool:
        fact = self._gateway(line) or self._notice(line)
        if fact is None:
            return False
        self._found.append(fact)
        self.source.recognised += 1
        return True

    def _blank(self, event: Event, pattern: str, line: Line) -> Fact:
        path = self.source.path
        fact = Fact(event, path, line.number, line.offset, line.length, process=path, pattern=pattern)
        if line.stamp is not None:
            at, width, _ = line.stamp
            fact.at, fact.at_error, fact.at_from = at + width / 2, width / 2, "wrapper"
        return fact

    def _gateway(self, line: Line) -> Fact | None:
        record = gateway.read(line.text)
        if record is None:
            return None
        fact = self._blank(record.event, "gateway", line)
        self._stamp(fact, record.stamp)
        fact.detail = record.detail
        return fact

    def _notice(self, line: Line) -> Fact | None:
        text = line.text
        for notice in _NOTICES:
            if notice.within in text:
                dmesg = _DMESG.match(text)
                match = notice.regex.fullmatch(text, dmesg.end() if dmesg else 0)
                if match is None:
                    return None
                fact = self._blank(notice.event, notice.id, line)
                if dmesg and dmesg["ctime"]:
                    self._ctime(fact, dmesg["ctime"])
                fact.detail = {k: int(v) if k in _NUMBERS else v for k, v in match.groupdict().items()}
                return fact
        return None

    def _stamp(self, fact: Fact, stamp: str) -> None:
        """A time in the record itself: with a zone it stands for itself, without it is the log's."""
        try:
            at = datetime.fromisoformat(stamp)
            seconds = at.timestamp() if at.tzinfo is not None else at.replace(tzinfo=self._prefix.zone).timestamp()
        except (ValueError, OverflowError):
            return
        half = 0.001 if "." in stamp else 0.5
        fact.at, fact.at_error, fact.at_from = seconds if "." in stamp else seconds + half, half, "own"

    def _ctime(self, fact: Fact, text: str) -> None:
        """`dmesg -T`: local time, and wrong by the time that the machine has slept."""
        try:
            at = datetime.strptime(text, "%b %d %H:%M:%S %Y").replace(tzinfo=self._prefix.zone)
        except ValueError:
            return
        fact.at, fact.at_error, fact.at_from = at.timestamp() + 0.5, 0.5, "own"
