"""The files behind paths, and whether they have grown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

Files = dict[Path, tuple[int, int]]
"""Files by where they truly are, each with its inode and its size in bytes."""


def files(paths: Sequence[str]) -> Files:
    """The files behind some paths, as they are now."""
    found: Files = {}
    for path in paths:
        inside = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        for file in map(Path, inside or [path]):
            try:
                state = file.stat()
            except OSError:  # gone meanwhile
                continue
            found[file.resolve()] = state.st_ino, state.st_size
    return found


def bare(paths: Sequence[str]) -> list[str]:
    """Those of the paths that are folders without a file in them, at any depth."""
    folders = (path for path in dict.fromkeys(paths) if path and os.path.isdir(path))
    return [folder for folder in folders if not any(names for _, _, names in os.walk(folder))]


def added(before: Files, now: Files) -> list[Path] | None:
    """The files that have grown, if nothing else has changed; None if anything has."""
    if before.keys() != now.keys():
        return None
    if any(now[file][0] != inode or now[file][1] < size for file, (inode, size) in before.items()):
        return None
    return [file for file, (_, size) in before.items() if now[file][1] > size]
