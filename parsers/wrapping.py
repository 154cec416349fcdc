"""Lines that a terminal broke at its width: the width is found, the lines are joined again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from sglang_lifecycle.parsers import requestlog
from sglang_lifecycle.parsers.lines import CAP, Line

_NARROWEST, _WIDEST = 40, 600  # columns of terminals
_BEGINNING = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|\[pod/|Receive(?: OpenAI)?: obj=|Finish: obj=|Traceback \(most recent"
    r"|\(\w+ pid=\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|[\w.-]+\s+\| \S"
)
_REQUEST = re.compile("|".join(map(re.escape, requestlog.REQUEST_HEADS)))
_TRIMMED = 2  # blanks at the end of a piece that may have been taken off
_HEAD = 300  # characters in which a record's message begins, wrappers and all


def width(sample: Sequence[str]) -> int | None:
    """The width that lines were broken at, or None where they were not: the longest are equally long and go on.

    Some terminals fill lines with blanks, others take off those that a line ends with.
    """
    sample = list(map(_unfilled, sample))
    longest = max(map(len, sample), default=0)
    if not _NARROWEST <= longest <= _WIDEST:
        return None
    goes_on: list[bool] = []
    before: list[str] = []
    for line, after in pairwise(sample):
        before.append(line)
        if len(line) == longest:
            goes_on.append(not _begins(after, before))
        if len(line) != longest or not goes_on[-1]:
            before.clear()
    return longest if any(goes_on) and sum(goes_on) * 10 >= len(goes_on) * 9 else None


def rejoin(lines: Iterable[Line], width: int) -> Iterator[Line]:
    """The lines as they were before they were broken."""
    whole: Line | None = None
    parts: list[str] = []
    for line in lines:
        text = _unfilled(line.text)
        if whole is not None and not (len(parts) * width > CAP or _begins(text, parts)):
            parts[-1] = parts[-1].ljust(width)  # the blanks that it ended with are gone
            parts.append(text)
            whole.joined(line)
        else:
            if whole is not None:
                whole.text = "".join(parts)
                yield whole
            whole, parts = line, [text]
        if len(text) != width and not (len(text) >= width - _TRIMMED and _cut("".join(parts))):
            whole.text = "".join(parts)
            yield whole
            whole = None
    if whole is not None:
        whole.text = "".join(parts)
        yield whole


def _unfilled(text: str) -> str:
    """A line without the blanks that fill it; a single one may be the text's."""
    return text.rstrip(" ") if text.endswith("  ") else text


def _begins(text: str, before: Sequence[str]) -> bool:
    """Whether a line is a record of its own after one that fills the width.

    A prompt may hold what looks like a record just where it was broken: within a request's record nothing begins.
    """
    if not _BEGINNING.match(text):
        return False
    record = "".join(before)
    return _REQUEST.search(record, 0, _HEAD) is None or not _cut(record)


def _cut(record: str) -> bool:
    """Whether a request's record ends early."""
    head = _REQUEST.search(record, 0, _HEAD)
    if head is None:
        return False
    read = requestlog.read(record[head.start() :])
    return read is None or read.cut
