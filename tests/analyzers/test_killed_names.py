"""The kernel's line names the pid that the log names: whatever the process is called, it is the server's."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, decode, hold, prefill, said
from lines import used

RUNS = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(2, "INFO:     Started server process [4242]")
    + said(3, "The server is fired up and ready to roll!") + used("a", 10, 10)[:1] + prefill(10, 0)
    + decode([12, 16, 20], 1)
)  # fmt: skip
KERNEL = "2026-11-29T10:00:22+00:00 node kernel: Out of memory: Killed process {pid} (pt_main_thread) total-vm:9kB"


@pytest.mark.parametrize("pid", [4242, 31007])
def test_what_torch_calls_the_main_thread_is_a_server(pid: int, tmp_path: Path) -> None:
    """`pt_main_thread` is what torch names every process that imports it; 31007: seen from outside a container."""
    beside = {"kern": [(0, KERNEL.format(pid=pid))]}
    hold(Case(RUNS, "a", status="in-flight", says="process-killed", beside=beside), tmp_path)
