"""Lines that a terminal broke at its width: the width is found, the lines are joined again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from sglang_lifecycle.parsers.lines import CAP, Line

_NARROWEST, _WIDEST = 40, 600  # columns of terminals
_BEGINNING = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]|\[(?:pod/|rank)|Receive|Finish|Traceback|\(\w+ pid=|[A-Z][a-z]{2} +\d+[, ]"
    r"|[\w.-]+\s+\| |\{|\d{10}"
)


def width(sample: Sequence[str]) -> int | None:
    """The width that lines were broken at, or None where they were not: the longest are equally long and go on."""
    longest = max(map(len, sample), default=0)
    if not _NARROWEST <= longest <= _WIDEST:
        return None
    after = [follower for line, follower in pairwise(sample) if len(line) == longest]
    goes_on = sum(not _BEGINNING.match(follower) for follower in after)
    return longest if goes_on and goes_on * 10 >= len(after) * 9 else None


def rejoin(lines: Iterable[Line], width: int) -> Iterator[Line]:
    """The lines as they were before they were broken."""
    whole: Line | None = None
    parts: list[str] = []
    for line in lines:
        if whole is not None and (not _BEGINNING.match(line.text)) and len(parts) * width < CAP:
            parts.append(line.text)
            whole.joined(line)
        else:
            if whole is not None:
                whole.text = "".join(parts)
                yield whole
            whole, parts = line, [line.text]
        if len(line.text) != width:
            whole.text = "".join(parts)
            yield whole
            whole = None
    if whole is not None:
        whole.text = "".join(parts)
        yield whole
