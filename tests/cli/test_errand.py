"""A store is read by another process than the one that answers: what is answered is the same, and so is what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars  # noqa: F401  from now on nothing is forked off here
import pytest

from sglang_lifecycle.cli.app import main

WORKS = """
import os, sys, threading, time
from sglang_lifecycle.cli.errand import Errand
here = os.getpid()
exec(sys.argv[2])
errand = Errand(eval(sys.argv[1]), lambda: "here")
time.sleep(float(sys.argv[3]))
print(errand.result())
"""
EXPLAINS = """
import sys
from sglang_lifecycle.cli.app import main
code = main(sys.argv[1:])
assert "polars" not in sys.modules
sys.exit(code)
"""
REQUEST = "GenerateReqInput(rid='job-{:05}', stream=False)"
OUTPUT = "out={'text': '', 'meta_info': {'finish_reason': {'type': 'stop', 'matched': 2}}}"
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked off")


def fresh(program: str, *arguments: str) -> str:
    """What a program prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def sent(work: str, before: str = "", wait: float = 0) -> str:
    return fresh(WORKS, work, before, str(wait))


@linux
def test_another_process_works() -> None:
    assert sent("lambda: os.getpid() != here") == "True"


@pytest.mark.parametrize(
    ("work", "wait"),
    [
        ("lambda: 1 / 0", 0.0),
        ("lambda: os._exit(1)", 0.0),  # it dies there
        ("lambda: (lambda: 0)", 0.0),  # it can't be carried
        ("lambda: threading.Timer(0.1, os._exit, [1]).start() or bytes(1 << 20)", 0.5),  # it dies while it answers
    ],
)
def test_what_does_not_come_back_is_done_here(work: str, wait: float) -> None:
    assert sent(work, wait=wait) == "here"


@pytest.mark.parametrize(
    "before",
    [
        "def os_fork(): raise BlockingIOError\nos.fork = os_fork",  # no more processes are allowed
        "threading.Thread(target=time.sleep, args=[0.2]).start()",
        "import polars; polars.DataFrame({'a': [1]}).select(polars.len())",  # it has threads of its own
    ],
)
def test_where_nothing_can_be_forked_off_it_is_done_here(before: str) -> None:
    assert sent("int", before) == "here"


@linux
def test_the_answer_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, store = tmp_path / "server.log", str(tmp_path / "night.parquet")
    with log.open("w") as file:
        for number in range(3000):
            stamp, request = f"[2026-11-29 19:{number // 60:02}:{number % 60:02}]", REQUEST.format(number)
            file.write(f"{stamp} Receive: obj={request}\n{stamp} Finish: obj={request}, {OUTPUT}\n")
    assert main(["ingest", str(log), "-o", store]) == 0
    capsys.readouterr()
    asked = ["explain", "job-01500", store, "--json"]
    assert main(asked) == 0
    assert fresh(EXPLAINS, *asked) == capsys.readouterr().out.strip()
