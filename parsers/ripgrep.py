"""Looking through a file with ripgrep, where it is installed: it does so as fast as memory is read."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

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
    found: dict[int, int] = {}
    unusual: dict[int, int] = {}
    beside = Thread(target=_places, args=(running[1], unusual))  # whose answer nobody takes stops until it is taken
    beside.start()
    _places(running[0], found)
    beside.join()
    return (found, unusual) if all(each.wait() in (0, 1) for each in running) else None


def _places(running: subprocess.Popen[bytes], found: dict[int, int]) -> None:
    """Take what one of them finds."""
    assert running.stdout is not None
    with running.stdout:
        for line in running.stdout:
            number, _, rest = line.partition(b":")
            offset, _, _ = rest.partition(b":")
            if number.isdigit() and offset.isdigit():
                found[int(offset)] = int(number) - 1
