"""What is looked for in the bytes of a large log: lines that hold a needle, and those that are no routine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

STAMP = rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]\n]{0,60}\] "
_RECORDS = (
    rb"(?:(?:Receive|Finish): obj=|in=)\w+\(|"
    rb'\{"timestamp": "[^"\n]*", "event": "request\.(?:received|finished)", '
)
_NAMING = rb"Req ?Time ?Stats\(|Received output for |[^\n]*, self\."
_OTHERS = (
    rb'Receive OpenAI: obj=|\{"timestamp": "[^"\n]*", "event": "request\.received\.|'
    rb'(?:INFO: +)?\S+ - "(?:GET |POST /(?:generate|encode|v1/[a-z/]+)[ ?])|'
    rb"\[http_server\] Error: |(?:Prefill|Decode) batch[ ,.]"
)
_RID = rb'"?rid(?:=|": )'
_ROUTINE = rb"(?:" + STAMP + rb")?(?:" + _RECORDS + rb"|(?:" + _NAMING + rb")" + _RID + rb"|" + _OTHERS + rb")"
USUAL = rb"^" + _ROUTINE
"""A regular expression for the lines that a busy server writes of its requests."""
_LATE = re.compile(rb"(?:" + STAMP + rb")?(?:" + _RECORDS + rb")(?!" + _RID + rb")")
"""How a record begins whose first field is not the rid."""
_UNUSUAL = re.compile(rb"\n(?!" + _ROUTINE + rb")")


class Sought:
    """What is looked for on behalf of some ids of requests or sessions, the needles."""

    def __init__(self, needles: Sequence[bytes]) -> None:
        self._needles = needles
        self._shorter = [re.compile(_shorter(needle)) for needle in needles if len(needle) > 1]
        self._telling = _telling(needles)

    def find(self, buffer: bytearray, end: int) -> tuple[set[int], list[int]]:
        """Where lines begin, after the first newline of a buffer and before an end, that hold a needle or are unusual.

        Records whose rid is a beginning of a needle count as those that hold it (see `_shorter`). To look for these
        everywhere takes longer than all else: where all records begin with their rids, these are looked at as they are
        told from what is unusual.
        """
        hits = {buffer.rfind(b"\n", 0, hit) + 1 for needle in self._needles for hit in _find(buffer, needle, end)}
        unusual = self._places(self._telling, buffer, end)
        if self._telling is not _UNUSUAL and any(_LATE.match(buffer, place) for place in unusual):
            self._telling = _UNUSUAL
            unusual = self._places(_UNUSUAL, buffer, end)
        for each in self._shorter:
            if self._telling is _UNUSUAL:
                hits.update(buffer.rfind(b"\n", 0, match.start()) + 1 for match in each.finditer(buffer, 0, end))
            else:
                hits.update(place for place in unusual if each.search(buffer, place, _line_end(buffer, place, end)))
        return hits, unusual

    @staticmethod
    def _places(pattern: re.Pattern[bytes], buffer: bytearray, end: int) -> list[int]:
        return [match.end() for match in pattern.finditer(buffer, 0, end)]


def _line_end(buffer: bytearray, place: int, end: int) -> int:
    newline = buffer.find(b"\n", place, end)
    return newline if newline >= 0 else end


def _telling(needles: Sequence[bytes]) -> re.Pattern[bytes]:
    """Finds what is unusual, and of records those whose rid, their first field, is a beginning of a needle."""
    begins = b"|".join(each for needle in needles if (each := _beginnings(needle)))
    if not begins:
        return _UNUSUAL
    other = rb"(?:" + _RECORDS + rb"|" + _NAMING + rb")" + _RID + rb"(?!['\"](?:" + begins + rb")['\"])"
    return re.compile(rb"\n(?!(?:" + STAMP + rb")?(?:" + other + rb"|" + _OTHERS + rb"))")


def _find(buffer: bytearray, needle: bytes, end: int) -> Iterator[int]:
    at = buffer.find(needle, 0, end)
    while at >= 0:
        yield at
        newline = buffer.find(b"\n", at, end)
        at = buffer.find(needle, newline, end) if newline >= 0 else -1


def expressions(needles: Sequence[bytes]) -> list[bytes]:
    """Regular expressions for the lines that hold a needle."""
    return [each for needle in needles for each in (_literal(needle), _shorter(needle)) if len(needle) > 1]


def _literal(needle: bytes) -> bytes:
    """A regular expression for a text."""
    return _ESCAPED.sub(rb"\\\g<0>", needle)


def _shorter(needle: bytes) -> bytes:
    """A regular expression for the records whose rid is a beginning of a needle.

    An abort takes in all rids that begin with its own, a timeout as well since 0.5.20 (`Scheduler.abort_request`): what
    ends one of these may end the other.
    """
    return b'rid(?:=|": )[\'"](?:' + _beginnings(needle) + b")['\"]"


def _beginnings(needle: bytes) -> bytes:
    return b"|".join(_literal(needle[:length]) for length in range(1, min(len(needle), _BEGINNING)))


_ESCAPED = re.compile(rb"[\\.+*?()|\[\]{}^$]")
_BEGINNING = 100  # characters of a rid beyond which no other is looked for
