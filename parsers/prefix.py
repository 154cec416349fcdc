"""The prefix of a record: time, ranks, uvicorn's level; and the places where a record begins without one.

`configure_logger` in `utils.py` (0.3.6 to 0.5.2) and `utils/common.py` (0.5.3 on) writes `[time ranks] message`; the
request log of 0.5.8 to 0.5.11 writes the bare message; uvicorn puts its level between prefix and message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sglang_lifecycle.parsers.requestlog import REQUEST_HEADS

_PREFIX = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))?"
    r"((?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP|CP)-?\d+| encode_server| encode_dp_worker\[\d+\])*)\] ?",
    re.ASCII,
)
_SECONDS = len("[2025-01-01 00:00:00")
_LONGEST = 96  # bytes of a prefix that is looked for by its bytes
LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):\s++"
"""What uvicorn puts before its messages."""

LATEST = 253_000_000_000.0
"""Epoch seconds, in the year 9987: what is later is no time, in some zone."""

_LEVEL = re.compile(LEVEL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_UP = r"\x1b\[[A-Z]"  # the cursor goes to another bar
_BARS = re.compile(
    rf"""(?:(?:[^\[\]'"]|{_UP}){{0,400}}\[\d+:[\d:]+<[\d:?]+, +[\d.?]+ ?\w{{0,4}}/\w{{1,4}}[^\[\]'"]{{0,80}}\]"""
    rf"(?:[\r ]|{_UP})*)+"
)
"""Progress bars (of `tqdm`), which are drawn without a newline: what another process or thread writes stands behind."""

_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
BLANKS = " \t\r"
"""What terminals and pages leave at the end of a line: no record of a request ends in them."""


class UnknownZone(ValueError):
    """A time zone that is neither an IANA name nor an offset."""


def zone(name: str | None) -> tzinfo:
    """The zone of a log: an IANA name (`Europe/Berlin`), an offset (`+05:30`) or None for UTC."""
    if name is None or name.upper() in ("UTC", "Z"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UnknownZone(
            f"unknown time zone {name!r}: use a name such as Europe/Berlin or an offset +05:30"
        ) from error


@dataclass(slots=True)
class Head:
    """What stands before a message. `at` is UTC epoch seconds: the beginning of `resolution` seconds."""

    at: float | None
    resolution: float
    rank: str | None
    message: str


class Prefix:
    """Reads prefixes; remembers the last stamps, since thousands of lines share a second."""

    def __init__(self, zone_of_log: tzinfo = UTC) -> None:
        self.zone = zone_of_log
        self._seconds: dict[str, float] = {}
        self._known: dict[bytes, Head] = {}

    def known(self, line: bytes) -> tuple[Head, int] | None:
        """What stands before a message, and where that begins, where lines before began with the same bytes.

        Those are prefixes of whole seconds; the message is left out of what comes back.
        """
        start = line.find(b"] ", 0, _LONGEST) + 2
        head = self._known.get(line[:start])
        return (head, start) if head is not None else None

    @staticmethod
    def starts(lines: Iterable[bytes]) -> list[int]:
        """Where a message begins in each of some lines, if what stands before it is a prefix."""
        return [line.find(b"] ", 0, _LONGEST) + 2 for line in lines]

    def of(self, prefix: bytes) -> Head | None:
        """What some bytes say that may be a prefix of whole seconds, which is remembered."""
        if prefix not in self._known and prefix[_SECONDS : _SECONDS + 1] not in (b".", b","):
            self.learn(prefix)
        return self._known.get(prefix)

    def learn(self, line: bytes) -> None:
        """Remember the prefix of a line, where it is one of whole seconds."""
        prefix = line[: line.find(b"] ", 0, _LONGEST) + 2]
        head = self.split(prefix.decode("utf-8", "replace")) if prefix.startswith(b"[") else None
        if head is not None and head.resolution == 1.0 and not head.message:
            if len(self._known) > 4096:
                self._known.clear()
            self._known[prefix] = head

    def rest(self, head: Head, message: str) -> Head:
        """A known prefix with the message that follows it."""
        message = message.rstrip(BLANKS) if message.startswith(REQUEST_HEADS) else self._plain(message)
        return Head(head.at, head.resolution, head.rank, message)

    def split(self, line: str) -> Head | None:
        """Split a physical line into prefix and message, or None where no record can begin here."""
        if line.startswith("["):
            match = _PREFIX.match(line)
            if match is None:
                return None
            at = self.epoch(match[1])
            resolution = 1.0
            if match[2]:
                at, resolution = (at + int(match[2]) / 1000 if at is not None else None), 0.001
            return self.rest(Head(at, resolution, match[3].strip() or None, ""), line[match.end() :])
        if line.startswith((*REQUEST_HEADS, '{"request_parameters"')):
            return Head(None, 0.0, None, line.rstrip(BLANKS))
        if "/s]" in line or "/it]" in line:
            bars = _BARS.match(line)
            return self.split(line[bars.end() :]) if bars is not None else None
        return None

    def bare(self, line: str) -> Head:
        """A line without a prefix, read as a record."""
        return Head(None, 0.0, None, self._plain(line))

    @staticmethod
    def _plain(message: str) -> str:
        if "\x1b[" in message:
            message = _COLOUR.sub("", message)
        level = _LEVEL.match(message)
        return message[level.end() :] if level else message

    def epoch(self, stamp: str) -> float | None:
        """UTC epoch seconds of `YYYY-MM-DD HH:MM:SS` in the log's zone; None for an impossible date."""
        known = self._seconds.get(stamp)
        if known is None:
            try:
                known = datetime.fromisoformat(stamp).replace(tzinfo=self.zone).timestamp()
            except (ValueError, OverflowError):
                return None
            if not 0 <= known < LATEST:
                return None
            if len(self._seconds) > 4096:
                self._seconds.clear()
            self._seconds[stamp] = known
        return known
