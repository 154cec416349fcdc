"""Whose abort it was: a call, a pause, an abort of all, or a client that left whose rid is a prefix."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, Case, answered, decode, hold, prefill, said, told
from lines import ABORTED, Story, used

GONE = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='job-1'"
CALL = "/abort_request"


def came(*rids: str, second: int = 0) -> Story:
    return [line for number, rid in enumerate(rids) for line in used(rid, second, second)[:1] + prefill(second, number)]


def ended(second: int, *rids: str, reason: str = ABORTED, since: int = 0) -> Story:
    finishes = [line for rid in rids for line in used(rid, since, second, reason)[1:]]
    return finishes + [line for _ in rids for line in answered(second, "/generate")]


def later(second: int) -> Story:
    """Another request, once all is over."""
    return (
        used("later", second, second)[:1] + prefill(second, 0) + ended(second + 2, "later", reason=LENGTH, since=second)
    )


PREFIX_LEFT = (
    came("job-1", "job-12", "other", second=10) + decode([12, 14], 3) + used("q-1", 15, 15)[:1] + prefill(15, 3)
    + ended(16, "q-1", reason=LENGTH, since=15) + decode(range(18, 27, 2), 3) + answered(26, CALL) + decode([28], 3)
    + said(30, GONE) + answered(30, "/generate", "400 Bad Request") + ended(30, "job-12", since=10)
    + decode(range(32, 60, 4), 1) + ended(60, "other", reason=LENGTH, since=10)
)  # fmt: skip
JOBS = ("job-1", "job-2", "job-3", "job-4", "job-10", "job-11")
ALL = came(*JOBS) + decode([3], 6) + answered(5, CALL) + ended(5, *JOBS) + later(10)
RESUMED = answered(50, "/continue_generation") + later(51)
PAUSED_AT_ONCE = (
    came("x-a", "x-b", "x-c") + decode([3], 3) + answered(5, CALL) + ended(5, "x-a") + ended(6, "x-b", "x-c")
    + answered(7, "/pause_generation") + RESUMED
)  # fmt: skip
PAUSED_LATER = (
    came("x", "y") + decode([5], 2) + answered(10, CALL) + ended(10, "x") + decode([12], 1) + ended(15, "y")
    + answered(16, "/pause_generation") + RESUMED
)  # fmt: skip
CAME_AFTER = (
    came("r") + decode([5], 1) + answered(10, CALL) + used("new", 10, 10)[:1] + ended(10, "r") + prefill(10, 0)
    + ended(13, "new", reason=LENGTH, since=10)
)  # fmt: skip
CASES = {
    "one whose prefix's client left, after a call that ended nobody": Case(
        PREFIX_LEFT, "job-12", says="abort-prefix-collision"
    ),
    **{
        f"{rid} of a stroke in which all ended after one call": Case(
            ALL, rid, {"abort-prefix-collision"}, says="abort-all"
        )
        for rid in ("job-10", "job-11")
    },
    "one that a pause ended a second after another's call": Case(PAUSED_AT_ONCE, "x-b", says="pause-abort"),
    "one that a pause ended five seconds after another's call": Case(PAUSED_LATER, "y", says="pause-abort"),
    "one that a call ended with all that were there, before another came": Case(CAME_AFTER, "r", says="abort-all"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_abort_is_not_another_s(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


def test_who_came_after_the_call_does_not_speak_against_an_abort_of_all(tmp_path: Path) -> None:
    verdict = told(Case(CAME_AFTER, "r"), tmp_path)
    assert "abort-all" not in {each.cause for each in verdict.ruled_out}
