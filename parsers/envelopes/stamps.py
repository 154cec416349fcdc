"""The stamps that log collectors write: ISO 8601, epochs, syslog's, Kibana's."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from sglang_lifecycle.parsers.lines import Stamp

ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
SYSLOG = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
KIBANA = r"[A-Z][a-z]{2} \d{1,2}, \d{4} @ \d\d:\d\d:\d\d(?:\.\d{1,9})?"
EPOCH = r"\d{10}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?"

_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|[+-]\d\d:?\d\d)?")
_SYSLOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?")
_KIBANA = re.compile(r"([A-Z][a-z]{2} \d{1,2}, \d{4} @ \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?")
_EPOCH = re.compile(r"(\d{10})(?:\.?(\d{1,9}))?")
_DAY = 86400.0


def stamp(value: object) -> Stamp | None:
    """Read a stamp in whichever of the shapes it is; `None` where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _epoch(value)
    if not isinstance(value, str):
        return None
    if match := _ISO.fullmatch(value):
        seconds = _seconds(match[1], match[3])
    elif match := _EPOCH.fullmatch(value):
        seconds = float(match[1])
        return Stamp(seconds + _fraction(match[2]), _resolution(match[2]), True)
    elif match := _KIBANA.fullmatch(value):
        seconds = _local(match[1], "%b %d, %Y @ %H:%M:%S")
    elif match := _SYSLOG.fullmatch(value):
        seconds = _yearless(match[1])
    else:
        return None
    if seconds is None:
        return None
    zoned = match.re is _ISO and match[3] is not None
    return Stamp(seconds + _fraction(match[2]), _resolution(match[2]), zoned)


def _epoch(value: float) -> Stamp | None:
    """Epoch seconds, milliseconds, microseconds or nanoseconds: told by their size."""
    for scale, resolution in ((1, 1.0 if isinstance(value, int) else 1e-6), (1e3, 1e-3), (1e6, 1e-6), (1e9, 1e-9)):
        if 1e9 <= value / scale < 1e10:
            return Stamp(value / scale, resolution, True)
    return None


def _fraction(digits: str | None) -> float:
    return int(digits) / 10 ** len(digits) if digits else 0.0


def _resolution(digits: str | None) -> float:
    return 10.0 ** -len(digits) if digits else 1.0


@lru_cache(maxsize=4096)
def _seconds(text: str, zone: str | None) -> float | None:
    offset = UTC
    if zone is not None and zone[0] in "+-":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        offset = timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))
    try:
        return datetime.fromisoformat(text).replace(tzinfo=offset).timestamp()
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=4096)
def _local(text: str, form: str) -> float | None:
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _yearless(text: str) -> float | None:
    """Syslog writes no year: the newest one that is not in the future."""
    now = time.time()
    year = datetime.fromtimestamp(now, UTC).year
    for guess in (year, year - 1):
        at = _local(f"{guess} {text}", "%Y %b %d %H:%M:%S")
        if at is not None and at < now + _DAY:
            return at
    return _local(f"{year - 1} {text}", "%Y %b %d %H:%M:%S") or _local(f"{year} {text}", "%Y %b %d %H:%M:%S")
