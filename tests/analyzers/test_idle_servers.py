"""A stream that left an idle server hours before it died was no victim: the batch lines show that nothing ran."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, decode, hold, prefill, said, stream
from lines import used

READY = "The server is fired up and ready to roll!"
LEFT = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(2, "INFO:     Started server process [10]")
    + said(3, READY) + stream("s", 10) + answered(10, "/generate") + prefill(10, 0) + decode([12, 14], 1)
)  # fmt: skip
NEXT = used("x", 7200, 7200)[:1] + prefill(7200, 0) + decode([7202, 7204], 1)
CRASH = said(7205, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error")
AGAIN = said(7300, "server_args=ServerArgs(model_path='m', port=30000)") + said(7303, READY)
KERNEL = "2026-11-29T12:00:05+00:00 node kernel: Out of memory: Killed process 10 (python3) total-vm:9kB"
DEATHS = frozenset({"scheduler-crash", "process-killed"})
CASES = {
    "a crash": Case(LEFT + NEXT + CRASH, "s", DEATHS, says="client-disconnect"),
    "another start": Case(LEFT + NEXT + AGAIN, "s", DEATHS, says="client-disconnect"),
    "a kill": Case(LEFT + NEXT, "s", DEATHS, says="client-disconnect", beside={"kern": [(0, KERNEL)]}),
}


@pytest.mark.parametrize("name", CASES)
def test_who_left_before_the_only_one_came_did_not_die_with_it(name: str, tmp_path: Path) -> None:
    """`#running-req: 0, #queue-req: 0, #new-seq: 1`, and one arrival since the batch line before."""
    hold(CASES[name], tmp_path)
