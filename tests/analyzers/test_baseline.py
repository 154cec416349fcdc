"""An audit against an earlier one. The probabilities are those of R's `fisher.test`, or counted by hand."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.analyzers.baseline import compare, fisher, holm
from sglang_lifecycle.analyzers.listing import Audit, ServerEvent, Totals


@pytest.mark.parametrize(
    ("table", "p"),
    [
        ((3, 1, 1, 3), 0.4857142857),
        ((8, 2, 1, 5), 0.03496503497),
        ((0, 10, 0, 10), 1.0),
        ((1, 9, 11, 3), 0.002759456185),
        ((0, 0, 3, 4), 1.0),
    ],
)
def test_known_tables(table: tuple[int, int, int, int], p: float) -> None:
    assert fisher(*table) == pytest.approx(p, rel=1e-9)


def counted(a: int, b: int, c: int, d: int) -> Fraction:
    row, column, total = a + b, a + c, a + b + c + d

    def ways(x: int) -> int:
        return comb(row, x) * comb(total - row, column - x)

    possible = range(max(0, column - (c + d)), min(row, column) + 1)
    return Fraction(sum(ways(x) for x in possible if ways(x) <= ways(a)), comb(total, column))


small = st.integers(0, 30)


@given(small, small, small, small)
def test_it_is_exact(a: int, b: int, c: int, d: int) -> None:
    assert fisher(a, b, c, d) == pytest.approx(float(counted(a, b, c, d)), rel=1e-9)
    assert fisher(a, b, c, d) == pytest.approx(fisher(c, d, a, b), rel=1e-9), "before and now are alike to it"


def test_holm_asks_more_of_many_tests_than_of_one() -> None:
    assert holm([0.04]) == [True]
    assert holm([0.04, 0.04]) == [False, False]
    assert holm([0.04, 0.001, None]) == [True, True, False]
    assert holm([0.03, 0.9, 0.01]) == [False, False, True]


def audit(requests: int, causes: dict[str, int], *events: str) -> Audit:
    return Audit(
        totals=Totals(requests=requests, interrupted=sum(causes.values()), by_cause=causes),
        server_events=[ServerEvent(cause=cause, summary="") for cause in events],
    )


def test_what_grew_vanished_and_is_new() -> None:
    before = audit(1000, {"waiting-timeout": 10, "queue-full": 4, "client-disconnect": 6, "abort-all": 1})
    now = audit(2000, {"waiting-timeout": 90, "client-disconnect": 12, "abort-all": 1, "session-busy": 30})
    found = compare(now, before, "old.json")
    changes = {each.cause: each for each in found.causes}
    assert {cause: each.change for cause, each in changes.items()} == {
        "interrupted": "grew",
        "waiting-timeout": "grew",
        "session-busy": "new",
        "queue-full": "vanished",
        "abort-all": "shrank",
        "client-disconnect": "same",
    }
    assert list(changes)[:3] == ["interrupted", "waiting-timeout", "session-busy"], "the largest change first"
    timeouts = changes["waiting-timeout"]
    assert (timeouts.before, timeouts.now, timeouts.rate_before, timeouts.rate_now) == (10, 90, 10.0, 45.0)
    assert timeouts.significant
    assert not changes["abort-all"].significant
    assert changes["client-disconnect"].p == 1.0
    assert "Fisher" in found.test


def test_few_requests_prove_nothing() -> None:
    found = compare(audit(20, {"queue-full": 2}), audit(20, {}), "old.json")
    assert not any(each.significant for each in found.causes)


def test_without_requests_there_is_no_rate_and_no_test() -> None:
    found = compare(audit(0, {}), audit(20, {"queue-full": 2}), "old.json")
    change = found.causes[1]
    assert (change.change, change.rate_now, change.p, change.significant) == ("vanished", None, None, False)


def test_events_of_the_server_are_counted() -> None:
    found = compare(
        audit(1, {}, "scheduler-crash", "scheduler-crash"), audit(1, {}, "scheduler-crash", "server-shutdown"), "o"
    )
    changes = {e.cause: (e.before, e.now, e.change) for e in found.server_events}
    assert changes == {"scheduler-crash": (1, 2, "grew"), "server-shutdown": (1, 0, "vanished")}
