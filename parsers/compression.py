"""Compressed streams, told by their first bytes and read in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from sglang_lifecycle.parsers.spool import Budget

_CHUNK = 1 << 20


def _zstd(file: IO[bytes]) -> IO[bytes]:
    import zstandard  # needed for few inputs only

    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
    return cast("IO[bytes]", reader)


_FORMATS: tuple[tuple[bytes, str, Callable[[Any], IO[bytes]]], ...] = (
    (b"\x1f\x8b", "gzip", lambda file: cast("IO[bytes]", gzip.GzipFile(fileobj=file))),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd),
    (b"\xfd7zXZ\x00", "xz", lambda file: cast("IO[bytes]", lzma.LZMAFile(file))),  # noqa: SIM115
    (b"BZh", "bzip2", lambda file: cast("IO[bytes]", bz2.BZ2File(file))),
)


def compressed(head: bytes) -> str | None:
    """The name of the compression that a file beginning with `head` has, or None."""
    return next((name for magic, name, _ in _FORMATS if head.startswith(magic)), None)


class Decompressed:
    """Reads a compressed file; `damage` says why its end is missing, where it is.

    Has `read` for those who want a file. Raises `Refused` where the budget is spent.
    """

    def __init__(self, file: IO[bytes], name: str, budget: Budget) -> None:
        self.damage: str | None = None
        self._reader = next(opened for _, known, opened in _FORMATS if known == name)(file)
        self._budget = budget
        self._peeked = b""

    def peek(self, size: int) -> bytes:
        """The first bytes, which stay to be read."""
        while len(self._peeked) < size and (chunk := self._next(size)):
            self._peeked += chunk
        return self._peeked[:size]

    def read(self, size: int = _CHUNK) -> bytes:
        """At most `size` bytes (a chunk, where it is negative); none at the end."""
        if self._peeked:
            size = len(self._peeked) if size < 0 else size
            data, self._peeked = self._peeked[:size], self._peeked[size:]
            return data
        return self._next(size)

    def _next(self, size: int) -> bytes:
        if self.damage is not None:
            return b""
        try:
            data = self._reader.read(min(size, _CHUNK) if size >= 0 else _CHUNK)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            self.damage = str(error) or type(error).__name__
            return b""
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            self.damage = str(error)
            return b""
        self._budget.take(len(data))
        return data

    def chunks(self) -> Iterator[bytes]:
        """What is left, in chunks."""
        while chunk := self.read():
            yield chunk
