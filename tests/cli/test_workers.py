"""Workers are gone when whoever started them is, or is interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
from sglang_lifecycle.cli import workers
workers._LARGE = 0
with workers.workers(sys.argv[1:]) as pool:
    assert pool.submit(os.getpid).result() != os.getpid()
    tasks = [pool.submit(time.sleep, 60) for _ in range(9)]
    {end}
"""


@pytest.mark.parametrize(
    ("end", "code"), [("os.kill(os.getpid(), 9)", -9), ("raise KeyboardInterrupt", 130), ("raise SystemExit(3)", 3)]
)
def test_no_worker_stays(end: str, code: int, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("anything\n")
    # Its output is read to the end: that is when the last of them has gone.
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(end=end), str(log)], capture_output=True, timeout=30)
    assert done.returncode in (code, -2 if code == 130 else code)
