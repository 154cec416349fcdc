"""The lines of a large log that the story of a few requests needs, found at the speed of a scan.

Nearly all lines of a busy server are routine: other requests' records, their answers, batch lines. A question about a
few requests needs the lines that name them, those written around these, and every line that is not routine: calls,
sessions, crashes, starts. Only these are decoded and read; the rest is looked at as bytes, in windows that
stay in the processor's cache, by several processes at once, or by ripgrep where it is installed.
"""

from __future__ import annotations

import bisect
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from os import cpu_count
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sglang_lifecycle.parsers import ripgrep
from sglang_lifecycle.parsers.blocks import Block, blocks
from sglang_lifecycle.parsers.evidence import CONTEXT, NEAR
from sglang_lifecycle.parsers.lines import BOM, CAP, Forward, Line, line_start
from sglang_lifecycle.parsers.needles import STAMP, USUAL, Sought, expressions

SMALLEST = 24 << 20
"""Bytes of a file from which on it is worth while to leave lines out."""

_BLOCK = 1 << 20  # bytes of a window: a few of them stay in the processor's cache
_RANGE = 128 << 20  # bytes that a process looks through at a time
_EDGE = 512 << 10  # bytes at both ends of a file that are read whole: its arguments, its newest time
_AROUND, _STEP = 10.0, 256 << 10  # seconds around a named request's lines that are read whole; bytes of a step
_WIDEST = 2 << 20  # bytes to either side that such a window reaches at most
_STROKE, _FARTHEST = (8.0, 2.0), 64 << 20  # seconds and bytes around an abort, which may have hit others as well
_WHOLE = 8 << 20  # bytes of a request's life that are read whole
_LONG = 1 << 20  # bytes of lines that are worth while to be taken in blocks

_BEGUN = re.compile(
    rb"(?:" + STAMP + rb")?"
    rb'(?:Receive(?: OpenAI)?: obj=|in=\w+ReqInput\(|\{"timestamp": "[^"\n]*", "event": "request\.received)'
)
"""How the record of an arrival begins."""
_OPENS = (b"[http_server] Error: ", b"Stats(rid=", b"Received output for rid=", b", self.rid=")
_BEFORE = (4 << 10, 16 << 10)  # bytes before a line in which the beginning of a stranger's text is looked for
_ABORT = re.compile(rb"""['"]type['"]: ['"]abort['"](?!.{0,80}(?:timeout reached|queue is full))""")
_DATED = re.compile(rb'(?:\n|^)(?:\[|\{"timestamp": ")(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)')


@dataclass(frozen=True, slots=True)
class Places:
    """Where lines begin in a file, in order: `offsets` in bytes, `numbers` how many lines are before each of them.

    `named` are those of the lines that hold a needle, `newlines` counts those of the range that was looked through.
    """

    offsets: Sequence[int]
    numbers: Sequence[int]
    named: frozenset[int]
    newlines: int


def scan(path: Path, start: int, end: int, needles: Sequence[bytes]) -> Places:
    """Look through the lines that begin in a range of bytes. Raises `TooLong`, OSError."""
    offsets, numbers = array("Q"), array("Q")
    named: set[int] = set()
    sought = Sought(needles)
    buffer, held, lines = bytearray(_BLOCK + 1), 1, 0
    with path.open("rb", buffering=0) as file:
        at = _next_line(file, start)  # where buffer[1] is; buffer[0] stands for the newline before it
        buffer[0] = 10
        file.seek(at)
        more = at < end
        while more:
            if held == len(buffer):
                if held > CAP:
                    raise TooLong
                buffer += bytes(len(buffer))
            with memoryview(buffer) as view:
                got: int = file.readinto(view[held:])
            held += got
            whole = buffer.rfind(b"\n", 0, held) if got else held
            if got and whole < 1:
                continue
            if end - at <= whole:  # a line that begins beyond the range belongs to the next one
                whole = buffer.find(b"\n", max(1, end - at), whole + 1) if got else whole
            more = bool(got) and end - at > whole
            hits, unusual = sought.find(buffer, whole)
            last = 1
            for place in sorted(hits.union(unusual)):
                lines += buffer.count(b"\n", last, place)
                last = place
                offsets.append(at + place - 1)
                numbers.append(lines)
                if place in hits:
                    named.add(at + place - 1)
            lines += buffer.count(b"\n", last, min(whole + 1, held))
            at += whole
            buffer[1 : held - whole] = buffer[whole + 1 : held]
            held -= whole
    return Places(offsets, numbers, frozenset(named), lines)


def _next_line(file: BinaryIO, offset: int) -> int:
    """Where the first line begins that begins at a place or after it."""
    at = offset - 1
    file.seek(max(0, at))
    while at >= 0 and (piece := file.read(_STEP)):
        newline = piece.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        at += len(piece)
    return max(0, at)


class TooLong(ValueError):
    """A line is longer than any that is looked at: the file has to be read as a whole."""


def everywhere(path: Path, size: int, needles: Sequence[bytes], report: Callable[[int], None] | None = None) -> Places:
    """Look through a whole file, a large one by several processes; `report` is called with the bytes looked through.

    Raises `TooLong`, OSError.
    """
    looked_for = path, size, path.stat().st_mtime_ns, *needles
    if looked_for not in _found:
        if len(_found) == _REMEMBERED:
            _found.clear()
        _found[looked_for] = _everywhere(path, size, needles, report)
    return _found[looked_for]


_found: dict[tuple[object, ...], Places] = {}  # more around them may be asked for
_REMEMBERED = 8


def _everywhere(path: Path, size: int, needles: Sequence[bytes], report: Callable[[int], None] | None) -> Places:
    number = max(1, size // _RANGE)
    if number == 1:
        return scan(path, 0, size, needles)
    found = ripgrep.places(path, expressions(needles), USUAL)
    if found is not None:
        return _counted(path, *found)
    from concurrent.futures import ProcessPoolExecutor

    from sglang_lifecycle.parsers.processes import context

    whole = Places(array("Q"), array("Q"), frozenset(), 0)
    with ProcessPoolExecutor(min(cpu_count() or 1, number), context()) as pool:
        bounds = [size * i // number for i in range(number + 1)]
        tasks = [(end, pool.submit(scan, path, start, end, needles)) for start, end in pairwise(bounds)]
        for end, task in tasks:
            whole = _joined(whole, task.result())
            if report is not None:
                report(end)
    return whole


def _counted(path: Path, named: Mapping[int, int], unusual: Mapping[int, int]) -> Places:
    """The places of lines by their offsets and numbers, in order, and how many lines there are in all."""
    merged = sorted({**unusual, **named}.items())
    last, number = merged[-1] if merged else (0, 0)
    with path.open("rb", buffering=0) as file:
        file.seek(last)
        while piece := file.read(_BLOCK):
            number += piece.count(b"\n")
    return Places(array("Q", [o for o, _ in merged]), array("Q", [n for _, n in merged]), frozenset(named), number)


def _joined(first: Places, then: Places) -> Places:
    numbers = array("Q", first.numbers)
    numbers.extend(first.newlines + number for number in then.numbers)
    return Places(
        array("Q", [*first.offsets, *then.offsets]), numbers, first.named | then.named, first.newlines + then.newlines
    )


class Span(NamedTuple):
    """Bytes of a file that are read whole, and how many lines are before them."""

    start: int
    end: int
    number: int


class Selected:
    """The selected lines of a file, as `Forward` gives all of them; `lines` and `bytes` count the whole file.

    `wide` asks for more around the named ones than their story needs as a rule; where all of these are the records of
    arrivals, some of it is read in any case.
    """

    def __init__(
        self, file: BinaryIO, size: int, places: Places, lines: int = 0, bytes: int = 0, wide: bool = False
    ) -> None:
        self.lines, self.bytes, self.cut = lines, bytes, 0
        self.narrow = False
        """Whether less was read around an abort than may have to do with it."""
        self.stretch: tuple[int, int] | None = None if places.named else (0, 0)
        """The bytes around the named lines that are read whole, so many that a line's place tells whose it is."""
        self._wide = wide
        self._file, self._size, self._places = file, size, places

    def __iter__(self) -> Iterator[Line | Block | None]:
        """Each line once, in their order; None where lines were left out."""
        first, base = self.lines, self.bytes
        file, at, number = self._file, -1, 0
        for start, end, before in sorted([*self._spans(), *self._lines()]):
            if start > at:
                if at >= 0:
                    yield None
                file.seek(start)
                at, number = start, before
            if at > 0 and end - at > _LONG:  # a file's first line may go on with the last of the file before
                ahead = Forward(file, first + number, base + at)
                yield from blocks(file, ahead, base + end)
                number, at = ahead.lines - first, ahead.bytes - base
            while at < end:
                raw = file.readline(CAP)
                if not raw:
                    break
                if at == 0 and raw.startswith(BOM):
                    at, raw = len(BOM), raw[len(BOM) :]
                number += 1
                yield Line(first + number, base + at, raw)
                at += len(raw)
                while len(raw) == CAP and not raw.endswith(b"\n") and (rest := file.readline(_BLOCK)):
                    at += len(rest)
                    self.cut += len(rest)
                    if rest.endswith(b"\n"):
                        break
        self.lines = first + self._places.newlines + self._unended()
        self.bytes = base + self._size

    def _unended(self) -> int:
        """Whether the last line has no newline."""
        self._file.seek(max(0, self._size - 1))
        return self._file.read(1) not in (b"", b"\n")

    def _lines(self) -> Iterator[Span]:
        """Lines that are not routine; with those before that may have begun a text of a stranger which they go on."""
        for offset, number in zip(self._places.offsets, self._places.numbers, strict=True):
            lines = self._before(offset)
            began = next(
                (index for index, line in enumerate(lines) if any(each in line for each in _OPENS)), len(lines)
            )
            yield Span(offset - sum(map(len, lines[began:])), offset + 1, number - len(lines[began:]))

    def _before(self, offset: int) -> list[bytes]:
        """The last two lines before a place where one begins, as far as they are near."""
        for near in _BEFORE:
            self._file.seek(max(0, offset - near))
            piece = self._file.read(min(near, offset))
            last = piece.rfind(b"\n", 0, max(0, len(piece) - 1)) + 1
            first = piece.rfind(b"\n", 0, max(0, last - 1)) + 1
            if first or near >= offset:
                break
        whole = near >= offset  # else what the piece begins with has its beginning before it
        return [line for start, line in ((first, piece[first:last]), (last, piece[last:])) if line and (start or whole)]

    def _spans(self) -> Iterator[Span]:
        """Both ends of the file, and what was written around the named lines."""
        yield Span(0, min(_EDGE, self._size), 0)
        tail = line_start(self._file, max(0, self._size - _EDGE))
        yield Span(tail, self._size, self._places.newlines - self._newlines(tail, self._size))
        named = [
            pair
            for pair in zip(self._places.offsets, self._places.numbers, strict=True)
            if pair[0] in self._places.named
        ]
        near = named and named[-1][0] - named[0][0] <= _WHOLE
        around = [self._around(named[0], named[-1][0])] if near else list(self._among(named))
        around += [self._around(place, place[0], _FARTHEST, *_STROKE) for place in named if self._aborted(place[0])]
        yield from around
        if named and named[-1][0] - named[0][0] <= _FARTHEST and (self._wide or self._only_begun(named)):
            (offset, number), (last, _) = named[0], named[-1]
            lines = CONTEXT if self._wide else NEAR
            start = min(self._passed(offset, -_STEP, lines), *(span.start for span in around))
            end = max(self._passed(last, _STEP, lines), *(span.end for span in around))
            self.stretch = line_start(self._file, start), end
            yield Span(*self.stretch, number - self._newlines(self.stretch[0], offset))

    def _passed(self, offset: int, step: int, lines: int) -> int:
        """A place so many lines before or after another, or a little farther."""
        at, left = offset, lines
        for _ in range(_FARTHEST // _STEP):
            to = max(0, min(self._size, at + step))
            left -= self._newlines(min(at, to), max(at, to))
            at = to
            if left <= 0 or at in (0, self._size):
                break
        return at

    def _among(self, named: Sequence[tuple[int, int]]) -> Iterator[Span]:
        """What was written around each of the named lines: those that lie within each other's reach share a span."""
        offsets = [offset for offset, _ in named]
        first = 0
        while first < len(named):
            last = first
            while (reached := bisect.bisect_right(offsets, self._far(offsets[last], _STEP, None, None)) - 1) > last:
                last = reached
            yield self._around(named[first], offsets[last])
            first = last + 1

    def _only_begun(self, named: Sequence[tuple[int, int]]) -> bool:
        """Whether none of the named lines can tell an end: each is the record of an arrival."""
        return all(_BEGUN.match(self._line(offset)) for offset, _ in named)

    def _line(self, offset: int) -> bytes:
        self._file.seek(offset)
        return self._file.readline(CAP)

    def _aborted(self, offset: int) -> bool:
        """Whether a line is of a request that an abort ended, not a limit."""
        line = self._line(offset)
        return b"abort" in line and _ABORT.search(line) is not None

    def _around(
        self,
        first: tuple[int, int],
        last: int,
        widest: int | None = None,
        before: float | None = None,
        after: float | None = None,
    ) -> Span:
        offset, number = first
        start = line_start(self._file, self._far(offset, -_STEP, widest, before))
        return Span(start, self._far(last, _STEP, widest, after), number - self._newlines(start, offset))

    def _far(self, offset: int, step: int, widest: int | None, seconds: float | None) -> int:
        """How far the lines around a place reach in one direction: some seconds, but not more than `widest` bytes."""
        at, moment = offset, None
        while 0 < at < self._size or at == offset:
            self._file.seek(max(0, min(at, at + step)))
            stamps = [_epoch(match) for match in _DATED.finditer(self._file.read(abs(step)))]
            at = max(0, min(self._size, at + step))
            if stamps:
                moment = moment if moment is not None else stamps[-1 if step < 0 else 0]
                if max(abs(moment - stamps[0]), abs(moment - stamps[-1])) > (seconds or _AROUND):
                    break
            if abs(at - offset) >= (widest or _WIDEST) or at in (0, self._size):
                self.narrow = self.narrow or (widest is not None and at not in (0, self._size))
                break
        return at

    def _newlines(self, start: int, end: int) -> int:
        self._file.seek(start)
        count = 0
        while start < end and (piece := self._file.read(min(_BLOCK, end - start))):
            count += piece.count(b"\n")
            start += len(piece)
        return count


def _epoch(stamp: re.Match[bytes]) -> float:
    try:
        return datetime.fromisoformat(f"{stamp[1].decode()} {stamp[2].decode()}").timestamp()
    except ValueError:
        return 0.0
