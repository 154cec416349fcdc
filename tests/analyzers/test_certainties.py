"""What must not be doubted, though it looks like what must."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, Case, answered, changed, decode, prefill, said, started, stream, told
from lines import ABORTED, Story, used

LEFT = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='{}'"
CONFIGURED = "Config logging: obj=ConfigureLoggingReq(rid=None, log_requests={}, log_requests_level=1)"
OTHER = used("b", 0, 30, LENGTH)


def left(rid: str, *more: Story) -> Story:
    """A stream that leaves, beside one that goes on."""
    lines = started() + OTHER[:1] + prefill(4, 0) + stream(rid, 5) + answered(5, "/generate") + prefill(5, 1)
    return lines + decode([8, 12], 1) + [line for story in more for line in story] + OTHER[1:]


SESSIONS = (
    said(5, "Session opened: s (active=1)", " DP0 TP0") + used("a", 5, 6, LENGTH)
    + said(6, "Session opened: s (active=1)", " DP1 TP1") + answered(6, "/open_session")
)  # fmt: skip
OVERLAPPING = (
    said(5, "Session opened: s (active=1)") + used("a", 5, 6, LENGTH) + said(6, "Session opened: t (active=2)")
    + answered(6, "/open_session") + said(7, "Session opened: u (active=3)") + answered(7, "/open_session")
    + answered(8, "/open_session")
)  # fmt: skip
UNANSWERED = (
    said(5, "Session opened: s (active=1)") + used("a", 5, 6, LENGTH) + said(7, "Session opened: t (active=2)")
)  # fmt: skip
CASES = {
    "a stream of a batch without media": (
        Case(changed(left("a"), "stream=True", "stream=True, image_data=[None, None]"), "a"), "client-disconnect",
    ),
    "a stream that left long before the logging changed": (
        Case(left("a", said(28, CONFIGURED.format("False"))), "a"), "client-disconnect",
    ),
    "a stream beside a change that leaves the request log on": (
        Case(left("a", said(6, CONFIGURED.format("True"))), "a"), "client-disconnect",
    ),
    "a stream after a pause that was refused": (
        Case(answered(1, "/pause_generation", "400 Bad Request") + left("a"), "a"), "client-disconnect",
    ),
    "a stream long after a weight update whose answer is not logged": (
        Case(said(0, "Start update_weights. Load format=auto") + left("a"), "a"), "client-disconnect",
    ),
    "a client that was found gone before its request ended": (
        Case(started() + used("a", 5, 40, LENGTH)[:1] + said(10, LEFT.format("a")) + used("a", 5, 40, LENGTH)[1:], "a"),
        "finished-undelivered",
    ),
    "an abort call before the client of a prefix left": (
        Case(
            started() + used("job-1", 5, 5)[:1] + used("job-12", 6, 20, ABORTED)[:1] + answered(20, "/abort_request")
            + used("job-12", 6, 20, ABORTED)[1:] + said(21, LEFT.format("job-1")), "job-12",
        ),
        "explicit-abort",
    ),
    "one that ends while the ranks open a session": (Case(started() + SESSIONS, "a"), "finished"),
    "one that ends between sessions whose openings have no access line": (
        Case(started() + UNANSWERED, "a"), "finished",
    ),
    "one that ends while several sessions are opened": (Case(started() + OVERLAPPING, "a"), "finished"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_so_is_said(name: str, tmp_path: Path) -> None:
    case, cause = CASES[name]
    verdict = told(case, tmp_path)
    assert verdict.cause == cause
    assert verdict.confidence == ("proven" if cause.startswith("finished") else "likely")
