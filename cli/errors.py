"""Exit codes, the one error a command raises, and the plain lines on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum

from sglang_lifecycle.cli.text import clean


class ExitCode(IntEnum):
    """What the command ended with; the numbers are a public contract."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREADABLE = 4
    THRESHOLD = 5
    INTERRUPTED = 130


class LifecycleError(Exception):
    """Ends the command with `code` and one line that names the input and what to do; `details` follow below it."""

    def __init__(self, code: ExitCode, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = tuple(details)


class UsageError(LifecycleError):
    """The command line asks for something that can't be."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(ExitCode.USAGE, message, details)


class ClosedPipe(Exception):
    """Whoever read our output has gone. Not an `OSError`, which Typer would turn into an exit code of its own."""


def error(message: str, details: Sequence[str] = ()) -> None:
    """Say on stderr what went wrong."""
    _say(f"lifecycle: error: {clean(message)}", *(f"  {clean(detail)}" for detail in details))


_silent = False


def silence(silent: bool) -> None:
    """Leave out warnings from now on, or no longer."""
    global _silent
    _silent = silent


def silenced() -> bool:
    """Whether nothing but errors is to be said."""
    return _silent


def warning(message: str) -> None:
    """Say on stderr what the answer may lack."""
    if _silent:
        return
    _say(f"lifecycle: warning: {clean(message)}")


def _say(*lines: str) -> None:
    with suppress(OSError, ValueError):  # where nobody listens, the exit code still speaks
        print(*lines, sep="\n", file=sys.stderr, flush=True)
