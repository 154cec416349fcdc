"""Thresholds: what they mean, exactly, and what is said of those that mean nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lifecycle.analyzers.listing import Audit, RequestRow, ServerEvent, ThresholdResult, Totals
from sglang_lifecycle.analyzers.thresholds import MalformedThreshold, parse
from sglang_lifecycle.analyzers.verdict import Times


def row(rid: str, cause: str, **changes: Any) -> RequestRow:
    known: dict[str, Any] = {
        "status": "finished" if cause == "finished" else "interrupted",
        "confidence": "proven",
        "layer": "scheduler",
        "stage": "waiting",
        "actor": "scheduler",
        "times": Times(),
    }
    return RequestRow(rid=rid, cause=cause, **(known | changes))


def held(expression: str, requests: list[RequestRow], *events: str, total: int | None = None) -> ThresholdResult:
    number = total if total is not None else sum(not r.synthetic and not r.members for r in requests)
    audit = Audit(
        requests=requests,
        totals=Totals(requests=number),
        server_events=[ServerEvent(cause=cause, summary="") for cause in events],
    )
    return parse(expression).result(audit)


HUNDRED = [row("w0", "waiting-timeout"), *(row(f"f{i}", "finished") for i in range(99))]


@pytest.mark.parametrize(
    ("expression", "crossed"),
    [
        ("waiting-timeout > 1%", False),
        ("waiting-timeout >= 1%", True),
        ("waiting-timeout > 0.99%", True),
        ("waiting-timeout>0", True),
        ("waiting-timeout > 1", False),
        ("finished < 99%", False),
        ("finished <= 99%", True),
        ("finished < 100 %", True),
        ("interrupted > 0", True),
        ("* >= 100", True),
        ("running-timeout > 0", False),
    ],
)
def test_limits_are_exact(expression: str, crossed: bool) -> None:
    assert held(expression, HUNDRED).crossed is crossed


@pytest.mark.parametrize(("count", "total", "percent"), [(3, 1000, "0.3"), (7, 100, "7"), (29, 1000, "2.9")])
def test_a_share_that_is_the_limit_does_not_cross_it(count: int, total: int, percent: str) -> None:
    requests = [row(str(i), "queue-full") for i in range(count)]
    assert not held(f"queue-full > {percent}%", requests, total=total).crossed
    assert held(f"queue-full >= {percent}%", requests, total=total).crossed


def test_a_pattern_and_a_confidence_choose_requests() -> None:
    requests = [
        row("a", "session-busy"),
        row("b", "session-reaped", confidence="likely"),
        row("c", "queue-full"),
        row("d", "session-closed"),
    ]
    result = held("proven session-* > 1", requests)
    assert (result.crossed, result.requests, result.rids) == (True, 2, ["a", "d"])
    assert held("likely session-* > 0", requests).rids == ["b"]
    assert held("session-* > 3", requests).rids == [], "nobody is named where it was kept"


def test_synthetic_requests_and_batches_as_a_whole_do_not_count() -> None:
    requests = [row("a", "queue-full", synthetic=True), row("b", "queue-full", members=["b_0", "b_1"])]
    assert held("queue-full > 0", requests).crossed is False


def test_events_of_the_server_count_where_requests_are_counted() -> None:
    result = held("scheduler-crash > 0", [], "scheduler-crash", "server-restarted")
    assert (result.crossed, result.server_events, result.requests) == (True, 1, 0)
    assert held("scheduler-crash > 1", [row("a", "scheduler-crash")], "scheduler-crash").crossed is True
    assert held("scheduler-crash > 0%", [row("a", "finished")], "scheduler-crash").crossed is False
    assert held("proven scheduler-crash > 0", [], "scheduler-crash").crossed is False


def test_no_requests_are_no_success() -> None:
    result = held("finished < 95%", [])
    assert (result.crossed, result.share, result.of) == (True, None, 0)
    assert held("waiting-timeout > 1%", []).crossed is False


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "compares with nothing"),
        ("waiting-timeout", "compares with nothing"),
        ("> 3", "names no cause"),
        ("wating-timeout > 3", "did you mean waiting-timeout"),
        ("nosuch-* > 3", "no cause is named 'nosuch-*'"),
        ("certain waiting-timeout > 3", "'certain' is no confidence"),
        ("proven likely waiting-timeout > 3", "'proven likely' is no confidence"),
        ("waiting-timeout == 3", "'==' is none of"),
        ("waiting-timeout > x", "'x' is neither a number nor a percentage"),
        ("waiting-timeout > -1", "'-1' is neither"),
        ("waiting-timeout > 1e3", "'1e3' is neither"),
        ("waiting-timeout > %", "'%' is neither"),
        ("waiting-timeout > ", "'' is neither"),
        ("waiting-timeout > 101%", "more than all requests"),
        ("waiting-timeout > 1 > 2", "'1 > 2' is neither"),
    ],
)
def test_a_malformed_threshold_says_what_is_wrong(text: str, names: str) -> None:
    with pytest.raises(MalformedThreshold) as raised:
        parse(text)
    message = str(raised.value)
    assert names in message
    assert "\n" not in message
    assert repr(text) in message
