"""Where logs are: files, folders, globs, URLs, standard input; packed, in archives, in several rotated files."""

from __future__ import annotations

import codecs
import glob
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO

from sglang_lifecycle.parsers import archives, documents, exhibits, journal, overlaps, remote, rotation, tables
from sglang_lifecycle.parsers.compression import Decompressed, compressed
from sglang_lifecycle.parsers.file import File, Input
from sglang_lifecycle.parsers.spool import Budget, Plain, Refused, spool

DEPTH = 4
"""How deep archives and compressions may be nested."""

_SNIFF = 8192
_CHUNK = 1 << 20
_CUT = "damaged, the end is missing"
_SUBSTITUTED = ("/dev/fd/", "/proc/self/fd/")  # what a shell puts for `<(kubectl logs …)`
_CONTROLS = bytes({*range(1, 32), 127} - set(b"\t\n\r\f\b\x1b"))


def expand(paths: Sequence[str], failed: list[str], progress: Callable[[int, int], None] | None = None) -> list[Input]:
    """The logs behind the paths of a command line, folders searched in the order of their names.

    What is fetched from a URL is reported to `progress`: the bytes so far, and in all.

    A path that is missing or can't be read is described in `failed`, in one line each. Files that are no text come
    with a `problem`.
    """
    files: list[File] = []
    seen: set[Path] = set()
    for file in _walk(paths, failed, progress):
        try:
            real = file.path.resolve(strict=True)
            if real in seen:
                continue
            seen.add(real)
            found = list(_look(replace(file, path=real, size=real.stat().st_size), 0))
        except OSError as error:
            failed.append(f"{file.name}: cannot be read: {error.strerror or error}")
            continue
        failed.extend(f"{each.name}: {each.problem}" for each in found if each.named and each.problem)
        files.extend(each for each in found if not (each.named and each.problem))
    readable = [file for file in files if not file.problem]
    logs = [Input(tuple(group)) for group in rotation.logs(readable)]
    with suppress(OSError):  # whoever reads it says so
        logs = overlaps.once(logs)
    return [*logs, *(Input((file,)) for file in files if file.problem)]


def _walk(paths: Sequence[str], failed: list[str], progress: Callable[[int, int], None] | None) -> Iterator[File]:
    fetched: Counter[str] = Counter()
    for name in dict.fromkeys(paths):
        if not name:  # a shell's unset variable; to `Path` it would be the working folder
            failed.append("'': the path is empty: no such file or folder")
            continue
        if remote.is_url(name):
            try:
                for each in remote.fetch(name, progress):
                    fetched[each.name] += 1
                    number = fetched[each.name]  # URLs may differ in nothing but what isn't shown
                    yield File(each.name if number == 1 else f"{each.name}#{number}", each.path, each.named)
            except remote.Unreachable as problem:
                failed.append(str(problem))
            continue
        if name == "-":
            yield File("-", standard_input(), named=True)
            continue
        matches = [name] if os.path.lexists(name) else sorted(glob.glob(name, recursive=True)) or [name]
        for match in matches:
            path = Path(match)
            if not path.is_dir():
                yield from _one(match, path, failed)
                continue
            for root, folders, files in os.walk(path):
                folders.sort()
                yield from (File(str(Path(root, each)), Path(root, each), named=False) for each in sorted(files))


def _one(name: str, path: Path, failed: list[str]) -> Iterator[File]:
    try:
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode) and name.startswith(_SUBSTITUTED):  # another pipe may have nobody at its other end
            with path.open("rb") as stream:
                path = spool(_chunks(stream))
        elif not stat.S_ISREG(mode):
            failed.append(f"{path}: cannot be read: not a regular file")
            return
    except FileNotFoundError:
        failed.append(f"{path}: no such file or folder")
        return
    except OSError as error:
        failed.append(f"{path}: cannot be read: {error.strerror or error}")
        return
    yield File(str(Path(name)), path, named=True)


@cache
def standard_input() -> Path:
    """A copy of all that standard input has; it is read once."""
    return spool(_chunks(sys.stdin.buffer))


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _look(file: File, depth: int) -> Iterator[File]:
    """The texts that a file is or holds. Raises OSError."""
    if not file.path.is_file():
        yield replace(file, problem="not a regular file")
        return
    with file.path.open("rb") as stream:
        head = stream.read(_SNIFF)
    compression = compressed(head)
    packed = compression or archives.is_tar(head) or head.startswith(archives.ZIP_MAGIC)
    if packed and depth >= DEPTH:
        yield replace(file, problem=f"refused: packed more than {DEPTH} times over")
    elif compression is not None:
        yield from _decompressed(file, compression, depth)
    elif packed:
        with file.path.open("rb") as stream:
            members = archives.tar_members if archives.is_tar(head) else archives.zip_members
            yield from _members(file, members(stream), depth)
    else:
        yield from _exhibit(file, kind) if (kind := exhibits.kind(head)) is not None else _text(file, head)


def unfollowable(path: Path) -> str | None:
    """Why a file is no log that grows line by line, by its beginning; None where it may be one. Raises OSError."""
    if not path.is_file():  # what is read from a pipe is gone for whoever reads it next
        return None
    with path.open("rb") as stream:
        head = stream.read(_SNIFF)
    if compressed(head) or archives.is_tar(head) or head.startswith(archives.ZIP_MAGIC):
        return "packed, which can't be followed as it grows"
    if exhibits.kind(head) is not None:
        return "a record of an incident, not a log that grows"
    return "a binary file, not a log" if _binary(head) else None


def _decompressed(file: File, compression: str, depth: int) -> Iterator[File]:
    with file.path.open("rb") as stream:
        unpacked = Decompressed(stream, compression, Budget(file.size))
        try:
            head = unpacked.peek(_SNIFF)
            if archives.is_tar(head):
                members = list(_members(file, archives.tar_members(unpacked), depth))
                yield from members
                if unpacked.damage and not any(each.problem and each.name == file.name for each in members):
                    yield replace(file, named=False, problem=f"{_CUT}: {unpacked.damage}")
                return
            packed = compressed(head) or head.startswith(archives.ZIP_MAGIC) or exhibits.kind(head)
            if not packed and _binary(head):
                yield replace(file, problem="a binary file, not a log")
                return
            path = spool(unpacked.chunks())
        except Refused as refused:
            yield replace(file, problem=f"refused: {refused}")
            return
    yield from _unpacked(file, path, unpacked.damage, depth)


def _unpacked(file: File, path: Path, damage: str | None, depth: int) -> Iterator[File]:
    """What was unpacked to a path, up to its damage if it has any."""
    note = f"{_CUT}: {damage}" if damage else None
    size = path.stat().st_size
    if not size and note:
        yield replace(file, problem=note)
        return
    yield from _look(replace(file, path=path, size=size, note=note or file.note), depth + 1)


def _members(file: File, members: Iterator[archives.Member], depth: int) -> Iterator[File]:
    budget = Budget(file.size)
    member = replace(file, named=False)
    try:
        for each in members:
            member = replace(file, name=f"{file.name}!{each.name.removeprefix('./')}", named=False, note=None)
            if each.refused is not None:
                yield replace(member, problem=f"refused: {each.refused}")
                continue
            path = spool(_counted(each.chunks(), budget))
            yield from _unpacked(member, path, each.damage, depth)
    except Refused as refused:
        yield replace(file, problem=f"refused: {member.name}: {refused}")
    except (archives.Damaged, OSError, RuntimeError, EOFError) as error:
        yield replace(file, name=file.name, named=False, problem=str(error))


def _counted(chunks: Iterable[bytes], budget: Budget) -> Iterator[bytes]:
    for chunk in chunks:
        budget.take(len(chunk))
        yield chunk


def _exhibit(file: File, kind: str) -> Iterator[File]:
    """What is no log, turned into lines; as a log where it is no exhibit after all."""
    try:
        path = spool(exhibits.lines(kind, file.path))
    except (exhibits.Unreadable, Refused) as problem:
        yield replace(file, problem=str(problem))
        return
    yield replace(file, path=path, size=path.stat().st_size, exhibit=True)


def _text(file: File, head: bytes) -> Iterator[File]:
    encoding = _utf16(head)
    if encoding is not None:
        path = spool(_recoded(file.path, encoding))
        with path.open("rb") as stream:
            head = stream.read(_SNIFF)
        file = replace(file, path=path, size=path.stat().st_size)
    elif _binary(head):
        yield replace(file, problem="a binary file, not a log")
        return
    try:
        lines = _turned(file.path, head)
        if lines is not None:
            path = spool(lines)
            file = replace(file, path=path, size=path.stat().st_size)
    except Plain:
        pass
    except Refused as refused:
        file = replace(file, problem=f"refused: {refused}")
    yield file


def _turned(path: Path, head: bytes) -> Iterator[bytes] | None:
    """The lines of a log that was exported as something else; None where the file has them as they are."""
    if journal.is_export(head):
        return journal.entries(path)
    if tables.is_table(head):
        return tables.entries(path)
    if documents.is_escaped(path, head):
        return documents.unescaped(path)
    return documents.entries(path) if documents.is_document(head) else None


def _binary(head: bytes) -> bool:
    """Whether a beginning is no text. Holes of NULs in a text, left by a truncation under a writer, don't count."""
    if b"\0" not in head:
        return False
    text = head.replace(b"\0", b"")
    return len(text) - len(text.translate(None, _CONTROLS)) > len(text) // 100 or len(text) * 2 < len(head)


def _utf16(head: bytes) -> str | None:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    even, odd = head[:512:2], head[1:512:2]
    if odd and odd.count(0) * 10 > len(odd) * 8 and even.count(0) * 10 < len(even):
        return "utf-16-le"
    if even and even.count(0) * 10 > len(even) * 8 and odd.count(0) * 10 < len(odd):
        return "utf-16-be"
    return None


def _recoded(path: Path, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    with path.open("rb") as stream:
        for chunk in _chunks(stream):
            yield decoder.decode(chunk).encode("utf-8", "replace")


_places: dict[str, Path] = {}


def remember(name: str, path: Path) -> None:
    """Let `read_span` find what goes by a name that is no path."""
    _places[name] = path


def read_span(name: str, offset: int, length: int) -> bytes:
    """The bytes of a record, wrappers and all. Raises OSError where the input is gone."""
    with _places.get(name, Path(name)).open("rb") as stream:
        stream.seek(offset)
        return stream.read(length)
