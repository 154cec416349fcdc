"""What --since and --until understand, and in which zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from sglang_lifecycle.cli.errors import UsageError
from sglang_lifecycle.cli.times import Clock, bound, error, zone

LAST = datetime(2026, 8, 2, 23, 30, tzinfo=UTC).timestamp()
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "shown_in", "meant"),
    [
        ("2026-08-02T12:00:00Z", BERLIN, "2026-08-02T12:00:00+00:00"),
        ("2026-08-02T12:00:00+05:30", UTC, "2026-08-02T06:30:00+00:00"),
        ("2026-08-02 12:00", UTC, "2026-08-02T12:00:00+00:00"),
        ("2026-08-02T12:00:00", BERLIN, "2026-08-02T10:00:00+00:00"),
        ("2026-08-02", UTC, "2026-08-02T00:00:00+00:00"),
        ("12:00", UTC, "2026-08-02T12:00:00+00:00"),
        ("9:05:07.25", UTC, "2026-08-02T09:05:07.250000+00:00"),
        ("12:00", BERLIN, "2026-08-03T10:00:00+00:00"),  # in Berlin the last fact is of the next day
        ("-15m", UTC, "2026-08-02T23:15:00+00:00"),
        ("-1h30m", UTC, "2026-08-02T22:00:00+00:00"),
        ("-1d", UTC, "2026-08-01T23:30:00+00:00"),
        ("-0.5s", UTC, "2026-08-02T23:29:59.500000+00:00"),
    ],
)
def test_bounds(text: str, shown_in: tzinfo, meant: str) -> None:
    given = bound("--since", text, shown_in)
    assert given is not None
    assert datetime.fromtimestamp(given.resolve(LAST), UTC).isoformat() == meant


@pytest.mark.parametrize("text", ["", "noon", "25:00", "12:60", "-", "-15", "-m", "15m", "2026-13-01", "-15m-3s"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match=r"--until .* is no time"):
        bound("--until", text, UTC)


def test_no_bound() -> None:
    assert bound("--since", None, UTC) is None


@pytest.mark.parametrize("text", ["12:00", "-15m"])
def test_what_needs_a_last_time_says_so(text: str) -> None:
    given = bound("--since", text, UTC)
    assert given is not None
    with pytest.raises(UsageError, match="give a full date"):
        given.resolve(None)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (None, UTC),
        ("utc", UTC),
        ("Z", UTC),
        ("Europe/Berlin", BERLIN),
        ("+02:00", timezone(timedelta(hours=2))),
        ("-0530", timezone(-timedelta(hours=5, minutes=30))),
    ],
)
def test_zones(name: str | None, meant: tzinfo) -> None:
    assert zone(name) == meant


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "Europe", "/etc/passwd", "../UTC", "+24:00", "\0"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(UsageError, match=r"--display-tz .* is no time zone"):
        zone(name, "--display-tz")


def test_the_date_is_shown_where_the_day_changes() -> None:
    one, two = "2026-08-02T21:59:00Z", "2026-08-02T22:00:00Z"
    clock = Clock(UTC).spanning([one, two, None, "garbage"])
    assert clock.short(one) == "21:59:00.000"
    clock = Clock(BERLIN).spanning([one, two])
    assert [clock.short(one), clock.short(two)] == ["08-02 23:59:00.000", "08-03 00:00:00.000"]
    assert clock.full(two) == "2026-08-03 00:00:00.000 CEST"


def test_unknown_times_are_said_to_be_so() -> None:
    assert Clock().short(None) == "time unknown"
    assert Clock().full("garbage") == "an unknown time"


def test_errors_of_times() -> None:
    assert [error(value) for value in (None, 0, 0.5, 0.0125, 90)] == ["", "", "±0.5 s", "±0.0125 s", "±90.0 s"]
