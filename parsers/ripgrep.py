"""Looking through a file with ripgrep, where it is installed: it does so as fast as memory is read."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_COMMON = ("--no-config", "--text", "--encoding=none", "--no-mmap", "--line-number", "--byte-offset", "--no-filename",
           "--color=never", "--max-columns=80")  # fmt: skip
"""Of a long line its place is enough."""


def places(path: Path, needles: Sequence[bytes], routine: bytes) -> tuple[dict[int, int], dict[int, int]] | None:
    """Where the lines are that fit one of the needles, and those that `routine` does not fit: regular expressions.

    Both by the byte at which the line begins, with the number of lines before it. None where ripgrep is not installed,
    or fails.
    """
    program = shutil.which("rg")
    if program is None:
        return None
    named = [f"--regexp=(?-u:{needle.decode()})" for needle in needles]
    asked = (named, ["--invert-match", f"--regexp=(?-u){routine.decode()}"])
    try:
        running = [
            subprocess.Popen(
                [program, *_COMMON, *each, "--", path],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )
            for each in asked
        ]  # fmt: skip
    except OSError:
        return None
    found, unusual = (_places(each) for each in running)
    return (found, unusual) if all(each.wait() in (0, 1) for each in running) else None


def _places(running: subprocess.Popen[bytes]) -> dict[int, int]:
    found = {}
    assert running.stdout is not None
    with running.stdout:
        for line in running.stdout:
            number, _, rest = line.partition(b":")
            offset, _, _ = rest.partition(b":")
            if number.isdigit() and offset.isdigit():
                found[int(offset)] = int(number) - 1
    return found
