"""What lies near to what, and what reaches into a window: what is not known is neither near nor far."""

from __future__ import annotations

import pytest

from sglang_lifecycle.analyzers.spans import near, overlaps
from sglang_lifecycle.parsers.evidence import Event, Fact


def fact(at: float | None) -> Fact:
    return Fact(Event.UNKNOWN, "x", 1, 0, 1, at=at)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(10.0, 12.0, True), (12.0, 10.0, True), (10.0, 12.5, False), (None, 10.0, None), (10.0, None, None)],
)
def test_two_lines_are_near_whichever_comes_first(
    one: float | None, other: float | None, expected: bool | None
) -> None:
    assert near(fact(one), fact(other), 2.0) is expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0.0, 9.0, False),
        (0.0, 10.0, True),
        (0.0, 30.0, True),
        (12.0, 15.0, True),
        (20.0, 30.0, True),
        (21.0, 30.0, False),
        (None, 9.0, False),
        (None, 30.0, True),
        (0.0, None, True),
        (21.0, None, False),
        (None, None, True),
    ],
)
def test_a_span_reaches_into_a_window(start: float | None, end: float | None, expected: bool) -> None:
    assert overlaps(start, end, 10.0, 20.0) is expected
    assert overlaps(start, end, None, None)
