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
_WINDOW, _WINDOWS = 8 << 20, 64 << 20  # bytes at either end of a file in which others may begin, and those of all
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
    heads = {file: head for file in files if not file.exhibit and (head := _head(file)) is not None}
    begin: dict[bytes, list[tuple[File, bytes]]] = {}
    for file, head in heads.items():
        begin.setdefault(head.partition(b"\n")[0], []).append((file, head))
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


def _head(file: File) -> bytes | None:
    """How a file begins, where that can be told from what other servers say."""
    with file.open(near=True) as stream:
        head = stream.read(_LEAST)
        if len(head) < _LEAST:
            return None
        head += stream.readline(_CHUNK) + stream.read(_LEAST * 16)
    return head if _CLOCK.search(head) else None


def _beginnings(file: File, begin: dict[bytes, list[tuple[File, bytes]]], window: int) -> Iterator[tuple[int, File]]:
    """Where others seem to begin in a file: at its very beginning, or near its end."""
    with file.open(near=True) as stream:
        pieces = [(0, stream.read(window))]
        if file.size > window:
            at = max(window, file.size - window)
            stream.seek(at)
            pieces.append((at + len(stream.readline(_CHUNK)), stream.read(window)))
    for start, text in pieces:
        place = 0
        for line in BytesIO(text):
            for other, head in begin.get(line.rstrip(b"\n"), ()):
                if other is not file and text.startswith(head[: len(text) - place], place):
                    yield start + place, other
            place += len(line)


def _same(file: File, at: int, other: File, length: int) -> bool:
    """Whether two files say the same, from a place in the one and from the beginning of the other."""
    with file.open(near=True) as one, other.open(near=True) as two:
        one.seek(at)
        size = _LEAST
        while length > 0:
            piece = one.read(min(size, length))
            if not piece or piece != two.read(len(piece)):
                return False
            length, size = length - len(piece), min(2 * size, _CHUNK)
    return True
