"""Files that hold the same lines: a log saved twice, a rotation that overlaps, a copy beside its original.

`kubectl logs > a.txt` twice, `copytruncate`, `cp server.log server.log.1`: what stands in two files was written once.
It is told by the bytes alone: from where one file begins in another, both say the same to the end of either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO

from sglang_lifecycle.parsers.file import File, Input

_LEAST = 256  # bytes that have to be the same: less may be said by two servers
_WINDOW, _WINDOWS = 16 << 20, 64 << 20  # bytes before a file's end in which others may begin, and those of all files
_CHUNK = 1 << 20
_CLOCK = re.compile(rb"\d\d:\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class _Shared:
    """What a file has in common with an `other`: everything from a place on."""

    at: int
    other: File


def once(logs: Sequence[Input]) -> list[Input]:
    """The same logs with every line in one file only.

    A file that goes on in another is read up to there, and one log with it, whatever their names. Raises OSError.
    """
    files = [file for log in logs for file in log.files]
    shared = _all_shared(files) if len(files) > 1 else {}
    if not shared:
        return list(logs)
    homes = {file: log.files for log in logs for file in log.files}
    for file, found in shared.items():
        mine, theirs = homes[file], homes[found.other]
        if mine is not theirs:
            homes |= dict.fromkeys(mine + theirs, mine + theirs)
    return [Input(tuple(_cut(file, shared.get(file)) for file in group)) for group in dict.fromkeys(homes.values())]


def _cut(file: File, found: _Shared | None) -> File:
    if found is None:
        return file
    what = f"its end stands in {found.other.name} too" if found.at else f"all of it stands in {found.other.name} too"
    return replace(file, size=found.at, until=found.at, note=f"{what}, and is read there")


def _all_shared(files: Sequence[File]) -> dict[File, _Shared]:
    """The files of which something stands in another that keeps it: the newer one, or the whole of two."""
    begin: dict[bytes, list[File]] = {}
    for file in files:
        if (first := _first_line(file)) is not None:
            begin.setdefault(first, []).append(file)
    found: dict[File, _Shared] = {}
    window = max(_WINDOW >> 6, min(_WINDOW, _WINDOWS // len(files)))
    for file in (file for file in files if not file.exhibit and begin):
        for at, other in _beginnings(file, begin, window):
            if other is file or file in found or other in found:
                continue
            length = min(file.size - at, other.size)
            if length < _LEAST or not _same(file, at, other, length):
                continue
            if length == other.size and (at or length < file.size):
                found[other] = _Shared(0, file)
            else:
                found[file] = _Shared(at, other)
    return found


def _first_line(file: File) -> bytes | None:
    """A file's first line, where what begins with it can be told from what other servers say."""
    with file.open(near=True) as stream:
        head = stream.read(_LEAST)
        if len(head) < _LEAST or file.exhibit:
            return None
        head += stream.readline(_CHUNK) + stream.read(_LEAST * 16)
    return head.partition(b"\n")[0] if _CLOCK.search(head) else None


def _beginnings(file: File, begin: dict[bytes, list[File]], window: int) -> Iterator[tuple[int, File]]:
    """Where the first lines of others stand in a file: at its very beginning, or near its end."""
    with file.open(near=True) as stream:
        for other in begin.get(stream.readline(_CHUNK).rstrip(b"\n"), ()):
            yield 0, other
        at = max(0, file.size - window)
        stream.seek(at)
        text = stream.read(window)
    for number, line in enumerate(BytesIO(text)):
        if (number or not at) and at and (others := begin.get(line.rstrip(b"\n"))):
            yield from ((at, other) for other in others)
        at += len(line)


def _same(file: File, at: int, other: File, length: int) -> bool:
    """Whether two files say the same, from a place in the one and from the beginning of the other."""
    with file.open() as one, other.open() as two:
        one.seek(at)
        while length > 0:
            piece = one.read(min(_CHUNK, length))
            if not piece or piece != two.read(len(piece)):
                return False
            length -= len(piece)
    return True
