"""Where logs are: files, folders, standard input."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_SNIFF = 8192
_spooled: dict[str, Path] = {}


@dataclass(frozen=True, slots=True)
class Input:
    """One stream of bytes. `name` is what the user knows it by; `named` says that the command line names it."""

    name: str
    path: Path
    size: int
    named: bool

    def open(self) -> BinaryIO:
        """Open it for reading. Raises OSError."""
        return self.path.open("rb", buffering=1 << 20)


def expand(paths: Sequence[str], failed: list[str]) -> Iterator[Input]:
    """The inputs behind the paths of a command line, folders searched in the order of their names.

    A path that is missing or can't be read is described in `failed`, in one line each.
    """
    seen: set[Path] = set()
    for name in paths:
        if name == "-":
            path = _spool()
            yield Input("-", path, path.stat().st_size, named=True)
            continue
        path = Path(name)
        if path.is_dir():
            for root, folders, files in os.walk(path):
                folders.sort()
                for file in sorted(files):
                    yield from _one(Path(root, file), False, failed, seen)
        else:
            yield from _one(path, True, failed, seen)


def _one(path: Path, named: bool, failed: list[str], seen: set[Path]) -> Iterator[Input]:
    try:
        real = path.resolve(strict=True)
        if not real.is_file():
            raise OSError(0, "not a regular file")
        if real in seen:
            return
        with real.open("rb") as stream:
            binary = b"\0" in stream.read(_SNIFF)
    except FileNotFoundError:
        failed.append(f"{path}: no such file or folder")
        return
    except OSError as error:
        failed.append(f"{path}: cannot be read: {error.strerror or error}")
        return
    if binary:
        failed.append(f"{path}: a binary file, not a log") if named else None
        return
    seen.add(real)
    yield Input(str(path), real, real.stat().st_size, named)


def _spool() -> Path:
    """Standard input as a file, so that evidence lines can be shown again; removed at exit."""
    if "-" not in _spooled:
        with tempfile.NamedTemporaryFile(prefix="lifecycle-", suffix=".log", delete=False) as file:
            _spooled["-"] = Path(file.name)
            atexit.register(_spooled["-"].unlink, missing_ok=True)
            shutil.copyfileobj(sys.stdin.buffer, file)
    return _spooled["-"]


def read_span(name: str, offset: int, length: int) -> bytes:
    """The bytes of a record. Raises OSError where the input is gone."""
    with _spooled.get(name, Path(name)).open("rb") as stream:
        stream.seek(offset)
        return stream.read(length)
