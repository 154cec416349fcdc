"""Workers, and what was copied, are gone when whoever started them is; they begin nothing more once it has failed."""

from __future__ import annotations

import os
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


INTERRUPTED = """
import sys
from sglang_lifecycle import __main__
from sglang_lifecycle.cli import app
from sglang_lifecycle.parsers import spool

def interrupted():
    print(spool.spool([b"unpacked"]).exists())
    raise KeyboardInterrupt

app._run = lambda _: interrupted()
sys.exit(__main__.main())
"""


def test_no_copy_stays_and_no_word_is_lost(tmp_path: Path) -> None:
    """Whoever is interrupted ends without waiting, but not without tidying up."""
    command, there = [sys.executable, "-c", INTERRUPTED], {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, timeout=30, env=there)
    assert (done.returncode, done.stdout) == (130, b"True\n")
    assert list(tmp_path.iterdir()) == []
