"""Rotated files of one log, put into the order in which they were written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

_PACKED = re.compile(r"\.(?:gz|zst|zstd|xz|bz2)$")
_NUMBER = re.compile(r"(?P<base>.+\.(?:log|out|err|txt|json|jsonl|ndjson))\.(?P<number>\d{1,4})")
_DATE = r"\d{4}-?\d\d-?\d\d(?:[-_T.]?\d\d(?:[:.-]?\d\d){0,2})?"
_DATED = re.compile(rf"(?P<base>.+?)[.-](?P<date>{_DATE})(?:[.-](?P<number>\d{{1,10}}))?")
_DATED_INSIDE = re.compile(rf"(?P<base>.+?)[._-](?P<date>{_DATE})(?P<ending>\.(?:log|txt|json|jsonl))")
_POD = re.compile(r"[^_/]+_[^_/]+_[0-9a-f]{8}-?[0-9a-f-]+/[^/]+/(?P<restart>\d+)\.log")

Order = tuple[int, int, str, int]


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """A path, with `/` or the system's separator."""


N = TypeVar("N", bound=Named)


def logs(files: Iterable[N]) -> list[list[N]]:
    """The files of each log, oldest first; logs in the order of their first file.

    `server.log.2`, `server.log.1`, `server.log` (numbers count back), `server.log.2026-10-30_01`, with or without
    a compression's ending; a container's `0.log`, `1.log` below /var/log/pods (restarts) and the `previous.log` and
    `current.log` of a must-gather.
    """
    files = list(files)
    names = {_PACKED.sub("", file.name) for file in files}
    found: dict[str, list[tuple[Order, int, N]]] = {}
    for index, file in enumerate(files):
        base, order = _place(_PACKED.sub("", file.name), names)
        found.setdefault(base, []).append((order, index, file))
    return [[file for *_, file in sorted(group, key=lambda each: each[:2])] for group in found.values()]


def _place(name: str, names: set[str]) -> tuple[str, Order]:
    """The log that a file belongs to, and its place in it: life, current or rotated, date, number."""
    base, (current, date, number) = _rotated(name, names)
    folder, _, file = base.replace(os.sep, "/").rpartition("/")
    if match := _POD.search(base.replace(os.sep, "/")):
        return f"{folder}/*.log", (int(match["restart"]), current, date, number)
    if file in ("previous.log", "current.log"):
        return f"{folder}/*.log", (file == "current.log", current, date, number)
    return base, (0, current, date, number)


def _rotated(name: str, names: set[str]) -> tuple[str, tuple[int, str, int]]:
    head, file = os.path.split(name)
    if match := _NUMBER.fullmatch(file):
        return os.path.join(head, match["base"]), (0, "", -int(match["number"]))
    if (match := _DATED.fullmatch(file)) and "." in match["base"]:
        return os.path.join(head, match["base"]), (0, re.sub(r"\D", "", match["date"]), int(match["number"] or 0))
    if match := _DATED_INSIDE.fullmatch(file):
        base = os.path.join(head, match["base"] + match["ending"])
        if base in names:
            return base, (0, re.sub(r"\D", "", match["date"]), 0)
    return name, (1, "", 0)
