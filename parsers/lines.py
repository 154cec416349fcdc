"""Physical lines: read forwards or backwards, in bounded memory, each with its place in the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

CAP = 64 << 20
"""Bytes of a physical line that are looked at; what goes beyond is counted and left out."""

_BLOCK = 1 << 20
_STEP = 64 << 10
_FAR = 1 << 62
BOM = b"\xef\xbb\xbf"
"""What some editors and shells of Windows write at the beginning of a file."""


class Stamp(NamedTuple):
    """A collector's time of a line: epoch seconds, the beginning of `resolution` seconds.

    Without a zone (`zoned` false) they are those of a clock in an unknown zone, read as UTC.
    """

    at: float
    resolution: float
    zoned: bool


class Line:
    """One line of a log. `number`, `offset` and `length` are its place in the file, whatever it was wrapped in there.

    `ending` is its line ending. `stamp` is the collector's time, and `stream` names the pod, container or host it comes
    from; both `None` where the file has no such wrapper.
    """

    __slots__ = ("_body", "_text", "ending", "length", "number", "offset", "stamp", "stream")

    def __init__(self, number: int, offset: int, raw: bytes) -> None:
        self.number, self.offset, self.length = number, offset, len(raw)
        self._body: bytes | None = raw.rstrip(b"\r\n")
        self._text: str | None = None
        self.ending = "\r\n" if raw.endswith(b"\r\n") else "\n"
        self.stamp: Stamp | None = None
        self.stream: str | None = None

    @property
    def text(self) -> str:
        """What it says, without its ending; read when it is asked for, as most lines are known by their bytes."""
        if self._text is None:
            self._text = (self._body or b"").decode("utf-8", "replace")
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        self._text, self._body = text, None

    @property
    def body(self) -> bytes:
        """The text as bytes."""
        if self._body is None:
            self._body = (self._text or "").encode("utf-8", "replace")
        return self._body

    @property
    def unended(self) -> bool:
        """Whether a physical line lacks its newline: only the last one of a file may."""
        return self.length == len(self.body)

    def followed_by(self, rest: Line) -> Line:
        """This line with the rest of it, which the next file begins with."""
        return Line(self.number, self.offset, self.body + rest.body + rest.ending.encode())

    def inner(self, text: str, stamp: Stamp | None = None, stream: str | None = None) -> Line:
        """What a wrapper held: the innermost stamp is the nearest to the process, streams add up."""
        line = Line.__new__(Line)
        line.number, line.offset, line.length = self.number, self.offset, self.length
        line._body = None
        line._text, line.ending = (text[:-1], "\r\n") if text.endswith("\r") else (text, self.ending)
        line.stamp = stamp or self.stamp
        line.stream = f"{self.stream}/{stream}" if self.stream and stream else stream or self.stream
        return line

    def split(self, text: str) -> Iterator[Line]:
        """The lines of a text that one physical line holds, told apart by their offsets."""
        texts = text.split("\n")
        for index, piece in enumerate(texts):
            line = self.inner(piece)
            if len(texts) > 1:
                line.offset += index
                line.length = 1 if index < len(texts) - 1 else max(1, self.length - index)
            yield line

    def joined(self, last: Line) -> Line:
        """This line, reaching to the end of a later one; the text is this one's."""
        self.length = max(self.length, last.offset + last.length - self.offset)
        self.ending = last.ending
        return self


class Forward:
    """The lines of a file in their order, split at newlines only: SGLang's JSON keeps U+2028 and U+0085 as they are.

    `lines` and `bytes` count what was read so far, from those of the files before it; `cut` counts the bytes that were
    left out of endless lines. Lines that begin at `end` or later are not read. Lines that are the one before again are
    not given where `again`, called with how many they are and the last one's number and offset, has taken them.
    """

    def __init__(self, file: BinaryIO | Whole, lines: int = 0, bytes: int = 0, end: int | None = None) -> None:
        self.lines, self.bytes, self.cut = lines, bytes, 0
        self.again: Callable[[int, int, int], bool] | None = None
        self._begun = False
        self._file, self._end = file, _FAR if end is None else end

    def __iter__(self) -> Iterator[Line]:
        """Each line once."""
        readline = self._file.readline
        raw = readline(CAP) if self.bytes < self._end else b""
        if raw.startswith(BOM) and not self._begun:
            self.bytes += len(BOM)
            raw = raw[len(BOM) :] or readline(CAP)
        self._begun = True
        before = b""
        while raw:
            if raw == before and self.again is not None:
                first, place, number = self.lines + 1, self.bytes, 0
                while raw == before:
                    number += 1
                    self.bytes += len(raw)
                    raw = readline(CAP) if self.bytes < self._end else b""
                self.lines += number
                if not self.again(number, self.lines, self.bytes - len(before)):
                    yield from (Line(first + i, place + i * len(before), before) for i in range(number))
                continue
            self.lines += 1
            line = Line(self.lines, self.bytes, raw)
            if len(raw) >= CAP - len(BOM) and not raw.endswith(b"\n"):
                self._skip(line)
            self.bytes += line.length
            yield line
            before = raw
            raw = readline(CAP) if self.bytes < self._end else b""

    def _skip(self, line: Line) -> None:
        while rest := self._file.readline(_BLOCK):
            line.length += len(rest)
            self.cut += len(rest)
            if rest.endswith(b"\n"):
                return


class Whole:
    """A file that is still written to: the last line is held back until it has its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or nothing."""
        raw = self._file.readline(size)
        return raw if raw.endswith(b"\n") or len(raw) == size else b""


class Backward:
    """The lines of a file from its last to its first.

    `number` and `offset` count in the order of reading, from the file's end.
    """

    def __init__(self, file: BinaryIO, size: int, lines: int = 0, bytes: int = 0) -> None:
        self.lines, self.bytes, self.cut = lines, bytes, 0
        self._file, self._size = file, size

    def __iter__(self) -> Iterator[Line]:
        """Each line once."""
        pending: deque[bytes] = deque()  # the beginning of the line that is being read, its last piece first dropped
        held = cut = 0
        newline = b""  # the very last line may have none
        position = self._size
        while position:
            step = min(_BLOCK, position)
            position -= step
            self._file.seek(position)
            first, *rest = self._file.read(step).split(b"\n")
            for piece in reversed(rest):
                pending.appendleft(piece)
                yield from self._line(b"".join(pending) + newline, cut)
                pending.clear()
                held = cut = 0
                newline = b"\n"
            pending.appendleft(first)
            held += len(first)
            while held > CAP:
                dropped = len(pending.pop())
                held, cut = held - dropped, cut + dropped
        yield from self._line(b"".join(pending) + newline, cut)

    def _line(self, raw: bytes, cut: int) -> Iterator[Line]:
        if raw:
            self.lines += 1
            self.cut += cut
            line = Line(self.lines, self.bytes, raw)
            line.text = line.text.removeprefix("\ufeff")
            line.length += cut
            self.bytes += line.length
            yield line


def line_start(file: BinaryIO, offset: int) -> int:
    """Where the line begins that a place is in, `CAP` bytes before it at the furthest."""
    start = offset
    while start and offset - start < CAP:
        step = min(_STEP, start)
        file.seek(start - step)
        newline = file.read(step).rfind(b"\n")
        if newline >= 0:
            return start - step + newline + 1
        start -= step
    return start
