"""A file of text and a log in one or several of them, as they are found among the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO


@dataclass(frozen=True, slots=True)
class File:
    """A file of text. `name` is what the user knows it by, `named` says that the command line names it.

    `path` is where its bytes are: the file itself or a temporary copy. `problem` says why it is not read, `note` what
    is missing of it. `exhibit` says that it is no log: its lines are facts, made by `exhibits`. What lies behind
    `until`, a place in it, is not read.
    """

    name: str
    path: Path
    named: bool
    size: int = 0
    problem: str | None = None
    note: str | None = None
    exhibit: bool = False
    until: int | None = None

    def open(self, near: bool = False) -> BinaryIO:
        """Open it for reading, little at a time where only what is `near` some places is read. Raises OSError."""
        buffering = 1 << 14 if near else 1 << 20
        if self.until is None:
            return self.path.open("rb", buffering=buffering)
        return BufferedReader(_Beginning(self.path, self.until), buffering)


class _Beginning(FileIO):
    """The first bytes of a file."""

    def __init__(self, path: Path, until: int) -> None:
        super().__init__(path, "rb")
        self._until = until

    def readinto(self, buffer: Any) -> int | None:
        """As a file does, up to the end of the beginning."""
        left = max(0, self._until - self.tell())
        return super().readinto(memoryview(buffer)[:left])


@dataclass(frozen=True, slots=True)
class Input:
    """One log, in one or several files, the oldest first."""

    files: tuple[File, ...]

    @property
    def name(self) -> str:
        """The name of its newest file."""
        return self.files[-1].name

    @property
    def size(self) -> int:
        """Bytes of text."""
        return sum(file.size for file in self.files)

    @property
    def problem(self) -> str | None:
        """Why it is not read."""
        return self.files[0].problem
