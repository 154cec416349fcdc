"""A scheduler that the kernel kills while its API server lives on: to 0.5.9 nothing watches the child."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, decode, hold, prefill, said, stream
from lines import used

FAILS = (
    "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
    "tic start time: 10:00:25. last_heartbeat time: 10:00:20"
)
STORY = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(3, "The server is fired up and ready to roll!")
    + used("a", 10, 10)[:1] + stream("s", 10) + prefill(10, 0, new=2) + decode([12, 16, 20], 2) + stream("late", 50)
    + [line for at in range(45, 400, 30) for line in said(at, FAILS)
       + answered(at, "/health", "503 Service Unavailable", "GET")]
)  # fmt: skip
KERNEL = "2026-11-29T10:00:21+00:00 node kernel: Out of memory: Killed process 778 (sglang::schedul) total-vm:9kB"


@pytest.mark.parametrize("rid", ["a", "s", "late"])
def test_who_waits_for_a_scheduler_that_is_dead_is_not_in_flight(rid: str, tmp_path: Path) -> None:
    hold(
        Case(STORY, rid, status="in-flight", says="process-killed", version="0.5.3", beside={"kern": [(0, KERNEL)]}),
        tmp_path,
    )
