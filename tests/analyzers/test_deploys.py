"""A deploy: what a drain did not wait for is not in flight when the server is there again, or its container is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, decode, hold, prefill, said, started, stream, told
from lines import Story, used

TERM = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
AGAIN = started(60) + used("later", 70, 72)[:1] + prefill(70, 0) + used("later", 70, 72)[1:]
POD = """Name:             sglang-0
Namespace:        default
Containers:
  sglang:
    State:          Terminated
      Reason:       Error
      Exit Code:    137
      Started:      Sun, 29 Nov 2026 10:00:00 +0000
      Finished:     Sun, 29 Nov 2026 10:00:50 +0000
Events:           <none>
"""


def listed(*rids: str) -> str:
    left = f"Remaining number of requests {len(rids)}. Remaining requests remaining_rids={list(rids)}."
    return f"Gracefully exiting... {left}"


def drained(text: str) -> Story:
    runs = stream("a", 10) + used("b", 10, 10)[:1] + prefill(10, 0, new=2) + decode([12, 16, 20], 2)
    return started() + runs + said(20, TERM) + said(20, text) + decode([24], 2) + said(25, text) + decode([28], 2)


OLD = "Gracefully exiting... remaining number of requests 2"
LATE = (
    started() + used("b", 10, 10)[:1] + prefill(10, 0) + decode([12, 16, 20], 1) + said(20, TERM)
    + said(20, listed("b")) + stream("late", 22) + prefill(22, 1) + decode([24], 2)
)  # fmt: skip
CASES = {
    **{
        f"{rid} in {version}": Case(
            drained(text) + AGAIN, rid, status="in-flight", says="server-shutdown", version=version
        )
        for version, text in (("0.5.10", listed("a", "b")), ("0.5.3", listed("a", "b")), ("0.4.9", OLD))
        for rid in ("a", "b")
    },
    "one that came after the last list": Case(LATE + AGAIN, "late", status="in-flight", says="server-shutdown"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_deploy_cuts_is_not_in_flight(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


def test_nor_is_what_the_end_of_the_grace_time_cuts(tmp_path: Path) -> None:
    (tmp_path / "describe.txt").write_text(POD)
    verdict = told(Case(drained(listed("a", "b")) + said(48, listed("a", "b")), "b", version="0.5.10"), tmp_path)
    assert verdict.status != "in-flight"
    assert "server-shutdown" in {verdict.cause, *(each.cause for each in verdict.candidates)}
