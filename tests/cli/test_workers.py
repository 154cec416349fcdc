"""Workers are gone when whoever started them is, and begin nothing more once it has failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
from pathlib import Path
from sglang_lifecycle.cli import workers

def work(number, seconds):
    time.sleep(seconds)
    Path(sys.argv[1] + f".{{number}}").touch()

workers._LARGE = 0
with workers.workers(sys.argv[1:]) as pool:
    assert pool.submit(os.getpid).result() != os.getpid()
    tasks = [pool.submit(work, number, {seconds}) for number in range(20)]
    {end}
"""


@pytest.mark.parametrize(
    ("end", "seconds", "codes"),
    [
        ("os.kill(os.getpid(), 9)", 60, {-9}),
        ("raise KeyboardInterrupt", 0.2, {130, -2}),
        ("raise SystemExit(3)", 0.2, {3}),
    ],
)
def test_no_worker_stays(end: str, seconds: float, codes: set[int], tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("anything\n")
    # Its output is read to the end: that is when the last of them has gone.
    program = PROGRAM.format(end=end, seconds=seconds)
    done = subprocess.run([sys.executable, "-c", program, str(log)], capture_output=True, timeout=30)
    assert done.returncode in codes
    assert b"InvalidStateError" not in done.stderr
    assert len(list(tmp_path.glob("server.log.*"))) < 15
