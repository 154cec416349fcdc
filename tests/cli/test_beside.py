"""A store is read by a process beside the one that answers: what is answered is the same, and so is what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars  # noqa: F401  from now on nothing is forked off here
import pytest

from sglang_lifecycle.cli.app import main

WORKS = """
import os, sys
from sglang_lifecycle.cli.beside import Beside
here = os.getpid()
print(Beside(eval(sys.argv[1]), eval(sys.argv[2])).result())
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


@linux
def test_another_process_works() -> None:
    assert fresh(WORKS, "lambda: os.getpid() == here", "lambda _: True") == "False"


@pytest.mark.parametrize(
    ("work", "small"),
    [
        ("lambda: os.getpid() == here", "lambda _: False"),  # too much to be carried
        ("lambda: os.getpid() == here or 1 / 0", "lambda _: True"),  # it fails there
        ("lambda: os.getpid() == here or os._exit(1)", "lambda _: True"),  # it dies there
        ("lambda: os.getpid() == here or (lambda: 0)", "lambda _: True"),  # it can't be carried
    ],
)
def test_what_does_not_come_back_is_done_here(work: str, small: str) -> None:
    assert fresh(WORKS, work, small) == "True"


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
