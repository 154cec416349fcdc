"""A neighbour's death is not the server's."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, decode, hold, prefill, said
from lines import used

READY = "The server is fired up and ready to roll!"
RUNS = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(2, "INFO:     Started server process [4242]")
    + said(3, READY) + used("a", 10, 10)[:1] + prefill(10, 0) + decode([12, 16, 20], 1)
)  # fmt: skip
UNIT = "2026-11-29T10:00:19+00:00 node systemd[1]: {}: Main process exited, code=killed, status=9/KILL"
POD = """Name:             sglang-0
Namespace:        default
Containers:
  sglang:
    State:          Running
      Started:      Sun, 29 Nov 2026 09:59:50 +0000
    Ready:          True
    Restart Count:  0
  fluent-bit:
    State:          Running
      Started:      Sun, 29 Nov 2026 10:00:20 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Sun, 29 Nov 2026 09:00:00 +0000
      Finished:     Sun, 29 Nov 2026 10:00:19 +0000
    Ready:          True
    Restart Count:  1
Events:           <none>
"""


def test_another_unit_is_none_of_its_business(tmp_path: Path) -> None:
    beside = {"journal": [(0, UNIT.format("fluent-bit.service"))]}
    hold(Case(RUNS, "a", {"process-killed"}, says="in-flight", beside=beside), tmp_path)


@pytest.mark.parametrize("name", ["server", "sglang-0/server"])
def test_nor_is_another_container_of_its_pod(name: str, tmp_path: Path) -> None:
    """Its own container runs, as the same description says."""
    (tmp_path / "describe.txt").write_text(POD)
    hold(Case(RUNS, "a", {"process-killed"}, says="in-flight", name=name), tmp_path)
