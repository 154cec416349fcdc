"""The members of tar and zip archives. Nothing is written by the names that an archive gives."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import IO, Any, Protocol, cast

MAX_MEMBERS = 100_000
"""How many members of an archive are looked at."""

ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_CHUNK = 32 << 10  # bytes that are read at once: what was read together with damage is lost


_DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)


@dataclass
class Member:
    """One member: what opens it, or the reason why it is refused. `damage` says why its end is missing, once read."""

    name: str
    open: Callable[[], Any] | None = None
    refused: str | None = None
    damage: str | None = None

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, up to where it is damaged or cut."""
        if self.open is None:
            return
        try:
            with self.open() as source:
                while chunk := source.read1(_CHUNK):
                    yield chunk
        except _DAMAGES as error:
            self.damage = str(error) or type(error).__name__


class Readable(Protocol):
    """What a tar archive is read from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class Damaged(Exception):
    """An archive that can't be read further."""


def is_tar(head: bytes) -> bool:
    """Whether a file that begins with `head` (512 bytes) is a tar archive."""
    return head[257:262] == b"ustar"


def tar_members(file: Readable) -> Iterator[Member]:
    """The members of a tar archive, read as a stream: each must be read before the next. Raises `Damaged`."""
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", file), mode="r|") as archive:
            for count, info in enumerate(archive):
                if count >= MAX_MEMBERS:
                    raise Damaged(f"holds more than {MAX_MEMBERS} members; the rest is left out")
                archive.members = []  # type: ignore[attr-defined]  # else it remembers every member
                if info.isdir():
                    continue
                if why := _unsafe(info.name) or _tar_kind(info):
                    yield Member(info.name, refused=why)
                    continue
                yield Member(info.name, partial(archive.extractfile, info))
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise Damaged(f"damaged: {error}") from None


def _tar_kind(info: tarfile.TarInfo) -> str | None:
    if info.issym() or info.islnk():
        return f"a link to {info.linkname}"
    if not info.isreg():
        return "a device or pipe"
    return "a sparse file" if info.issparse() else None


def zip_members(file: IO[bytes]) -> Iterator[Member]:
    """The members of a zip archive. Raises `Damaged`."""
    try:
        with zipfile.ZipFile(file) as archive:
            for count, info in enumerate(archive.infolist()):
                if count >= MAX_MEMBERS:
                    raise Damaged(f"holds more than {MAX_MEMBERS} members; the rest is left out")
                if info.is_dir():
                    continue
                why = _unsafe(info.filename)
                if why is None and info.flag_bits & 1:
                    why = "encrypted"
                if why is None and (info.external_attr >> 28) == 0o12:
                    why = "a link"
                yield Member(info.filename, None if why else partial(archive.open, info), why)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise Damaged(f"damaged: {error}") from None


def _unsafe(name: str) -> str | None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (len(name) > 1 and name[1] == ":"):
        return "a path that leads out of the archive"
    return None
