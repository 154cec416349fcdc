"""Temporary copies of what can't be read in place: unpacked, converted or piped text. Removed at exit."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

MAX_BYTES = 256 << 30
"""Bytes that one input may unpack to."""

MAX_RATIO = 300
"""How many times its size an input may unpack to. Logs reach 20 to 100, bombs 1000 and more."""

MIN_BYTES = 64 << 20
"""Below that nothing is called a bomb."""

MIN_FREE = 1 << 30
"""Bytes that are left free on the disk of temporary files."""

_CHECKED = 64 << 20  # bytes between two looks at the disk


class Refused(Exception):
    """An input that is not unpacked, for the reason that its text gives."""


class Plain(Exception):
    """An input that only begins as an export does: it is read as it is."""


class Budget:
    """Counts what an input unpacks to. `size` is what it takes packed, in bytes."""

    def __init__(self, size: int) -> None:
        self._size = max(size, 1)
        self._taken = 0
        self._checked = -_CHECKED

    def take(self, count: int) -> None:
        """Count bytes. Raises `Refused` where they are too many."""
        self._taken += count
        if self._taken > MAX_BYTES:
            raise Refused(f"unpacks to more than {MAX_BYTES >> 30} GiB")
        if self._taken > MIN_BYTES and self._taken > MAX_RATIO * self._size:
            raise Refused(f"unpacks to more than {MAX_RATIO} times its size, as a decompression bomb does")
        if self._taken - self._checked >= _CHECKED:
            self._checked = self._taken
            if shutil.disk_usage(_folder()).free < MIN_FREE:
                raise Refused(f"too little space left in {_folder().parent} to unpack it")


def spool(chunks: Iterable[bytes]) -> Path:
    """Write chunks to a temporary file. What the chunks raise is raised, and the file removed."""
    with tempfile.NamedTemporaryFile(dir=_folder(), suffix=".log", delete=False) as file:
        path = Path(file.name)
        try:
            for chunk in chunks:
                file.write(chunk)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return path


@cache
def _folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="lifecycle-"))
    atexit.register(clear)
    return path


def clear() -> None:
    """Remove what was copied: for whoever ends the process without Python's own end."""
    if _folder.cache_info().currsize:
        shutil.rmtree(_folder(), ignore_errors=True)
