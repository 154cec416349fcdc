"""Which server a request was on, where only request logs tell, or where a log lies beside two servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, WAITED, Case, changed, decode, hold, prefill, said, stream
from lines import Story, used


def started(pid: int) -> Story:
    return said(0, f"INFO:     Started server process [{pid}]") + said(1, "The server is fired up and ready to roll!")


def of_room(story: Story) -> Story:
    return changed(story, "stream=True", "stream=True, bootstrap_room=77")


KILLED = said(20, "Subprocess scheduler_0 (pid=777) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
DEAD = started(10) + prefill(10, 0) + decode([12], 1) + KILLED
ALIVE = started(11) + prefill(10, 0) + decode([12], 1) + prefill(30, 1) + decode([32], 2) + decode([45], 1)
SERVED = stream("b-1", 10) + stream("b-2", 30, 40, LENGTH)
CASES = {
    "one that waited its limit out, beside its prefix on another host": Case(
        used("job-12", 15, 20, WAITED) + used("zz-9", 30, 35, WAITED),
        "job-12", {"timeout-prefix-collision"}, says="waiting-timeout",
        name="chat-pool-0_0", beside={"batch-pool-0_0": used("job-1", 10, 20, WAITED)},
    ),
    "one whose prefill has ended, and whose decode goes on": Case(
        of_room(stream("r-1", 10)) + used("z", 30, 32, LENGTH),
        "r-1", unproven={"finished"}, status="finished", says="in-flight",
        name="decode-0_0", beside={"prefill-0_0": of_room(stream("r-1", 10, 12, LENGTH))},
    ),
    "one of a server that lives, beside one that died": Case(
        SERVED, "b-1", unproven={"process-killed"}, says="in-flight",
        name="req_b/host-b_0", beside={"a": DEAD, "b": ALIVE, "req_a/host-a_0": stream("a-1", 10)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_happened_on_another_server_is_none_of_its_business(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)
