"""Compressed streams, told by their first bytes and read in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol, cast

from sglang_lifecycle.parsers.spool import Budget

_CHUNK = 32 << 10  # bytes that are unpacked at once: what was unpacked together with damage is lost
_PACKED = 1 << 10  # bytes of zstd that are unpacked at once: they make 32 MiB at most


class _Reader(Protocol):
    def read1(self, size: int, /) -> bytes:
        """What can be unpacked at once: none at the end; an error only once all that lies before it was given."""


class _Zstd:
    """The frames of a zstd file. The package's own reader takes a file that is cut for one that ends."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._packed = b""
        self._frame: Any = None

    def read1(self, _size: int, /) -> bytes:
        """What the next bytes hold. Raises `EOFError` where the last frame has no end."""
        import zstandard  # needed for few inputs only

        while packed := self._packed or self._file.read(_PACKED):
            frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            data = cast("bytes", frame.decompress(packed))
            self._frame, self._packed = (None, frame.unused_data) if frame.eof else (frame, b"")
            if data:
                return data
        if self._frame is not None:
            raise EOFError("Compressed file ended before the end-of-frame marker was reached")
        return b""


_FORMATS: tuple[tuple[bytes, str, Callable[[Any], _Reader]], ...] = (
    (b"\x1f\x8b", "gzip", lambda file: gzip.GzipFile(fileobj=file)),
    (b"\x28\xb5\x2f\xfd", "zstd", _Zstd),
    (b"\xfd7zXZ\x00", "xz", lambda file: lzma.LZMAFile(file)),  # noqa: SIM115
    (b"BZh", "bzip2", lambda file: bz2.BZ2File(file)),
)


def compressed(head: bytes) -> str | None:
    """The name of the compression that a file beginning with `head` has, or None."""
    return next((name for magic, name, _ in _FORMATS if head.startswith(magic)), None)


class Decompressed:
    """Reads a compressed file, up to where it is damaged or cut; `damage` says why its end is missing, where it is.

    Has `read` for those who want a file. Raises `Refused` where the budget is spent.
    """

    def __init__(self, file: IO[bytes], name: str, budget: Budget) -> None:
        self.damage: str | None = None
        self._reader = next(opened for _, known, opened in _FORMATS if known == name)(file)
        self._budget = budget
        self._peeked = b""

    def peek(self, size: int) -> bytes:
        """The first bytes, which stay to be read."""
        while len(self._peeked) < size and (chunk := self._next()):
            self._peeked += chunk
        return self._peeked[:size]

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes (a chunk, where it is negative); none at the end."""
        held = self._peeked or self._next()
        data, self._peeked = (held, b"") if size < 0 else (held[:size], held[size:])
        return data

    def _next(self) -> bytes:
        if self.damage is not None:
            return b""
        try:
            data = self._reader.read1(_CHUNK)
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
