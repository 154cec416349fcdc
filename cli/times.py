"""Time zones, the bounds of a question, and how times are shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from sglang_lifecycle.cli.errors import UsageError
from sglang_lifecycle.cli.text import seconds

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d{1,6})?)?")
_RELATIVE = re.compile(r"-(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


def zone(name: str | None, option: str = "--tz") -> tzinfo:
    """The zone that a name of the IANA database or an offset such as `+02:00` stands for; UTC without a name."""
    from sglang_lifecycle.parsers.prefix import zone as named

    try:
        return named(name)
    except ValueError:
        raise UsageError(f"{option} {name!r} is no time zone; give one such as Europe/Berlin or +02:00") from None


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of the question as the command line gives it. What it means may depend on the last time in the logs."""

    option: str
    text: str
    zone: tzinfo
    value: datetime | time | timedelta

    @property
    def absolute(self) -> bool:
        """Whether it names a moment, whatever the logs hold."""
        return isinstance(self.value, datetime)

    def resolve(self, last: float | None) -> float:
        """The bound in epoch seconds, given the time of the last fact."""
        if isinstance(self.value, datetime):
            return self.value.timestamp()
        if last is None:
            raise UsageError(
                f"{self.option} {self.text} depends on the last time in the logs, and they have none; give a full date"
            )
        if isinstance(self.value, timedelta):
            return last - self.value.total_seconds()
        day = datetime.fromtimestamp(last, self.zone).date()
        return datetime.combine(day, self.value, self.zone).timestamp()


def bound(option: str, text: str | None, zone: tzinfo) -> Bound | None:
    """Read a bound: ISO 8601, a time of the logs' last day, or a duration before their end."""
    if text is None:
        return None
    value = _bound(text.strip(), zone)
    if value is None:
        raise UsageError(
            f"{option} {text!r} is no time; give 2026-08-02T12:00:00, 12:00 (on the logs' last day)"
            " or -15m (before their end)"
        )
    return Bound(option, text, zone, value)


def _bound(text: str, zone: tzinfo) -> datetime | time | timedelta | None:
    try:
        if match := _CLOCK.fullmatch(text):
            second, fraction = int(match[3] or 0), float(match[4] or 0)
            return time(int(match[1]), int(match[2]), second, int(fraction * 1_000_000))
        if match := _RELATIVE.fullmatch(text):
            days, hours, minutes, rest = (float(part or 0) for part in match.groups())
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=rest) if any(match.groups()) else None
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


MUCH = 1.0
"""Seconds that a time may be off without a word: stamps of whole seconds are off by half of one."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Shows times in one zone; with the date only where the times span more than a day."""

    zone: tzinfo = UTC
    dated: bool = False

    def spanning(self, moments: Iterable[str | float | None]) -> Clock:
        """The clock to show all these times with."""
        days = {at.date() for moment in moments if (at := self.at(moment))}
        return Clock(self.zone, len(days) > 1)

    def at(self, moment: str | float | None) -> datetime | None:
        """The moment (ISO 8601, or epoch seconds) in the clock's zone; nothing where it can't be read."""
        try:
            if isinstance(moment, str):
                at = datetime.fromisoformat(moment)
                return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(self.zone)
            return None if moment is None else datetime.fromtimestamp(moment, self.zone)
        except (ValueError, OverflowError, OSError):
            return None

    def epoch(self, moment: str | None) -> float | None:
        """The moment in epoch seconds."""
        at = self.at(moment)
        return at.timestamp() if at else None

    def full(self, moment: str | float | None, off: float | None = None) -> str:
        """Date, time and zone; how far it may be `off`, in seconds, where that is much."""
        at = self.at(moment)
        if at is None:
            return "an unknown time"
        if _much(off):
            return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname()} {error(off)}"
        return f"{at:%Y-%m-%d} {_time(at)} {at.tzname()}"

    def short(self, moment: str | float | None, whole: bool = False, off: float | None = None) -> str:
        """The time, after the month and day where the clock is dated; `whole` leaves out the milliseconds.

        How far it may be `off`, in seconds, is said where that is much.
        """
        at = self.at(moment)
        if at is None:
            return "time unknown"
        time = f"{at:%H:%M:%S}" if whole or _much(off) else _time(at)
        time += f" {error(off)}" if _much(off) else ""
        return f"{at:%m-%d} {time}" if self.dated else time

    def name(self, moment: str | float | None) -> str:
        """What the zone is called at that moment."""
        at = self.at(moment)
        return (at.tzname() if at else None) or str(self.zone)


def error(value: float | None) -> str:
    """How far a time may be off."""
    if not value:
        return ""
    return f"±{value:.3g} s" if 0.001 <= value < 1 else f"±{seconds(value)}"


def _much(off: float | None) -> bool:
    return off is not None and off > MUCH


def _time(at: datetime) -> str:
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
