"""SGLang's versions: the releases that are known here, and their order."""

from __future__ import annotations

import re
import sys
from functools import lru_cache

RELEASES = (
    "0.3.6",
    "0.4.0",
    "0.4.1",
    "0.4.2",
    "0.4.3",
    "0.4.4",
    "0.4.5",
    "0.4.6",
    "0.4.7",
    "0.4.8",
    "0.4.9",
    "0.4.10",
    "0.5.0rc2",
    "0.5.1",
    "0.5.2",
    "0.5.3",
    "0.5.3.post3",
    "0.5.4",
    "0.5.5",
    "0.5.6",
    "0.5.7",
    "0.5.8",
    "0.5.9",
    "0.5.10",
    "0.5.11",
    "0.5.12",
    "0.5.13",
    "0.5.14",
    "0.5.15",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)
"""The releases whose behaviour is known, oldest first.

The tables of messages, fields, faults and causes say with which release something came and with which it went; what has
not gone has no end there, and is in the newest of these.
"""

Key = tuple[tuple[int, ...], int, int, int, int]
"""What a version sorts by: its numbers, then pre-release, post-release and development snapshot."""

_VERSION = re.compile(
    r"v?(?P<numbers>\d+(?:\.\d+)*)"
    r"(?:[._-]?(?P<pre>a|b|rc)(?P<pre_n>\d*))?"
    r"(?:[._-]?post(?P<post>\d*))?"
    r"(?:[._-]?dev(?P<dev>\d*))?"
    r"(?:\+[a-z0-9._-]*)?",
    re.IGNORECASE | re.ASCII,
)
_PHASES = {"a": 1, "b": 2, "rc": 3}
_SNAPSHOT, _FINAL = 0, 4


@lru_cache(4096)
def key(version: str) -> Key:
    """The sort key of a version such as `0.5.0rc2`, `0.5.3.post3` or `0.5.10.dev7+g1a2b3c`.

    The order is Python's own: development snapshot, pre-release, release, post-release. A build tag after `+` does
    not count. Raises `ValueError` where `version` is none.
    """
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ValueError(f"{version!r} is no version of SGLang; give one such as {RELEASES[-1]}")
    numbers = [int(number) for number in match["numbers"].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    post = -1 if match["post"] is None else int(match["post"] or 0)
    dev = sys.maxsize if match["dev"] is None else int(match["dev"] or 0)
    if match["pre"]:
        phase = _PHASES[match["pre"].lower()]
    else:
        phase = _SNAPSHOT if match["dev"] is not None and post < 0 else _FINAL
    return tuple(numbers), phase, int(match["pre_n"] or 0), post, dev


def in_range(version: str, first: str, last: str) -> bool:
    """Whether `version` lies between `first` and `last`, both included."""
    return key(first) <= key(version) <= key(last)
