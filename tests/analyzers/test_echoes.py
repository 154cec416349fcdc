"""A rank that is killed, and the gloo error of the rank that lives on: the error is an echo, never the cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, decode, hold, prefill, said
from lines import Story, used

READY = "The server is fired up and ready to roll!"
QUIT = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
ECHO = (
    "Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/sgl/managers/scheduler.py", line 2967, in run_scheduler_process\n    scheduler.event_loop_overlap()\n'
    '  File "/sgl/utils/common.py", line 1198, in broadcast_pyobj\n    dist.broadcast(tensor_size, src=src)\n'
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:51742"
)
EXIT = "Subprocess scheduler_1 (pid=778) crashed with exit code {}. Triggering SIGQUIT for cleanup..."
TERM = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
KERNEL = "2026-11-29T10:00:21+00:00 node kernel: Out of memory: Killed process 778 (sglang::schedul) total-vm:9kB"
SEGFAULT = [
    (22, 'Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):\n  File "x.py", line 1')
]
FOLLOWER = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000, tp_size=2, nnodes=2, node_rank=1)")
    + said(21, "SIGTERM received on node_rank 1. signum=15 frame=None. Shutting down...")
)  # fmt: skip


def served(more: Story) -> Story:
    start = said(0, "server_args=ServerArgs(model_path='m', port=30000, tp_size=2)") + said(3, READY)
    runs = used("a", 10, 10)[:1] + prefill(10, 0, rank=" TP0") + decode([12, 16, 20], 1, rank=" TP0")
    return start + runs + more


DUMP = said(22, "Dumped 0 finished and 1 unfinished requests before crash to /dumps/host/crash_dump.pkl")
ECHOED = said(22, ECHO, " TP0") + said(22, QUIT)
WRONG = frozenset({"scheduler-crash"})
CASES = {
    "a rank that was killed, with its exit code": Case(
        served(ECHOED + DUMP + said(23, EXIT.format(-9))), "a", WRONG, says="process-killed"
    ),
    "a rank that the kernel killed, in a release without exit codes": Case(
        served(ECHOED + DUMP), "a", WRONG, says="process-killed", version="0.5.9", beside={"kern": [(0, KERNEL)]}
    ),
    "a rank that fell over in native code": Case(
        served(SEGFAULT + ECHOED + said(23, EXIT.format(-11))), "a", WRONG, says="process-killed"
    ),
    "a follower node that was told to stop": Case(
        served(ECHOED), "a", WRONG, says="server-shutdown", beside={"node1/server": FOLLOWER}, name="node0/server"
    ),
    "a rank that got the SIGTERM of the whole group first": Case(
        served(said(21, TERM) + ECHOED + said(22, EXIT.format(-15))), "a", WRONG, says="server-shutdown"
    ),
    "an echo alone": Case(served(ECHOED + DUMP), "a", unproven=WRONG, says="process-killed"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_echo_is_not_the_cause(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)
