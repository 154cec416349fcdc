"""Following logs that grow: files that are renamed or truncated under the reader, and standard input.

Each source is read by a thread of its own, which takes off the wrappers; whoever watches gets lines from one queue.
"""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from sglang_lifecycle.parsers import clock, envelopes
from sglang_lifecycle.parsers.evidence import Fact, Source
from sglang_lifecycle.parsers.lines import CAP, Line
from sglang_lifecycle.parsers.log import reader
from sglang_lifecycle.parsers.outside import Outside
from sglang_lifecycle.parsers.prefix import Prefix

POLL = 0.25
"""Seconds between two looks at a source that has nothing new."""

_CHUNK = 1 << 16
_SAMPLE = 50  # lines that tell which wrappers there are
_QUEUED = 4096  # lines that wait at most; a reader that is faster has to wait itself


class Tail:
    """A file by its name, from its beginning: followed when it is renamed and made anew, reread when it shrinks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self.restarted = False
        """Whether what comes next is the beginning of another file."""
        self.caught_up = False
        """Whether what was there at first has been read."""

    def read(self) -> bytes | None:
        """What is new; a file that is not there yet has nothing."""
        if self._file is None and not self._open():
            return b""
        assert self._file is not None
        found = self._file.read(_CHUNK)
        if not found and self._replaced():
            found = self._file.read(_CHUNK)  # written between the two looks
            if not found:
                self._file.close()
                self._file, self.restarted = None, True
        return found

    def _open(self) -> bool:
        try:
            self._file = self.path.open("rb")
        except FileNotFoundError:
            return False
        return True

    def _replaced(self) -> bool:
        assert self._file is not None
        mine = os.fstat(self._file.fileno())
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False  # renamed; the new one is still to come
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino) or there.st_size < self._file.tell()


class Pipe:
    """Standard input."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.restarted, self.caught_up = False, True  # a pipe has neither names nor a past
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor

    def read(self) -> bytes | None:
        """What is new, after a while at the most."""
        ready, _, _ = select.select([self._descriptor], [], [], POLL)
        return (os.read(self._descriptor, _CHUNK) or None) if ready else b""


def lines(source: Tail | Pipe, stop: threading.Event) -> Iterator[Line | None]:
    """The whole lines of a source, and None whenever it has no more for now. Raises OSError."""
    pending, number, offset = b"", 0, 0
    while not stop.is_set():
        found = source.read()
        if source.restarted:
            if pending:
                yield Line(number + 1, offset, pending)  # the last line of the file before
            source.restarted, pending, number, offset = False, b"", 0, 0
        if found is None:
            break
        if not found:
            yield None
            source.caught_up = True  # by now the lines before have been taken
            if isinstance(source, Tail):
                stop.wait(POLL)
            continue
        *whole, pending = (pending + found).split(b"\n")
        for raw in whole:
            number += 1
            line = Line(number, offset, raw + b"\n")
            offset += line.length
            yield line
        if len(pending) > CAP:  # no log line: let go of what no reader would take
            offset, pending = offset + len(pending), b""
    if pending:
        yield Line(number + 1, offset, pending)


def unwrapped(source: Tail | Pipe, stop: threading.Event) -> Iterator[Line]:
    """The log's lines within those of a source."""
    physical = lines(source, stop)
    sample: list[Line] = []
    for line in physical:
        if line is not None:
            sample.append(line)
        if sample and (line is None or len(sample) == _SAMPLE):
            break
    prefix = Prefix()
    layers = envelopes.recognise([line.text for line in sample], lambda text: prefix.split(text) is not None)
    rest = (line for line in physical if line is not None)
    yield from envelopes.unwrap(chain(sample, rest), layers)


class Followed:
    """Several sources at once, made into facts as their lines come."""

    def __init__(self, paths: Sequence[str], zone: tzinfo) -> None:
        self._zone = zone
        self._stop = threading.Event()
        self._queue: queue.Queue[tuple[str, Line | None]] = queue.Queue(_QUEUED)
        self._readers: dict[tuple[str, str | None], Outside] = {}
        self.failed: list[str] = []
        self._open = len(paths)
        self._sources: dict[str, Tail | Pipe] = {name: Pipe() if name == "-" else Tail(Path(name)) for name in paths}
        for name, source in self._sources.items():
            threading.Thread(target=self._follow, args=(name, source), daemon=True).start()

    def _follow(self, name: str, source: Tail | Pipe) -> None:
        try:
            for line in unwrapped(source, self._stop):
                self._queue.put((name, line))
        except OSError as problem:
            self.failed.append(f"{name}: cannot be read: {problem.strerror or problem}")
        self._queue.put((name, None))

    def wait(self, seconds: float) -> bool:
        """Take in lines for so long; returns whether any came."""
        until, any_came = time.monotonic() + seconds, False
        while self._open and (left := until - time.monotonic()) > 0:
            try:
                name, line = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                self._open -= 1
            else:
                self._reader(name, line.stream).feed(line)
                any_came = True
        return any_came

    @property
    def caught_up(self) -> bool:
        """Whether all that was in the files at first has been taken in."""
        return all(source.caught_up for source in self._sources.values()) and self._queue.empty()

    @property
    def ended(self) -> bool:
        """Whether every source has come to its end."""
        return not self._open

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()

    def _reader(self, name: str, stream: str | None) -> Outside:
        found = self._readers.get((name, stream))
        if found is None:
            source = Source(f"{name}[{stream}]" if stream else name)
            found = self._readers[name, stream] = reader(source, self._zone)
        return found

    def facts(self) -> list[Fact]:
        """The facts so far, with their times as far as these are settled."""
        found: list[Fact] = []
        for each in self._readers.values():
            if self.ended:
                found += each.finish()
                continue
            own = each.facts
            dated = next((i for i in range(len(own) - 1, -1, -1) if own[i].at_from == "own"), -1)
            clock.settle(own[: dated + 1])  # those after it may yet get a later bound
            found += own
        return found

    def forget(self, keep: frozenset[int]) -> None:
        """Let go of all facts but those whose identity (`id`) is in `keep`."""
        for each in self._readers.values():
            each.forget(keep)
