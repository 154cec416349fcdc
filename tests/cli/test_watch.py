"""`lifecycle watch` as a command: lines, JSON, the exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_lifecycle.cli.app import main

LOG = Path(__file__).parents[2] / "fixtures/0.5.23/s11a_kill9_scheduler/logs/server.log"


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(LOG, os.O_RDONLY)  # a file ends like a pipe whose writer has gone
    monkeypatch.setattr(sys, "stdin", os.fdopen(descriptor))


def test_of_a_pipe_it_says_all_and_ends(piped: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "-"]) == 0
    said = capsys.readouterr().out
    assert "k9-r0  process-killed" in said
    assert "server  process-killed" in said


def test_it_tells_in_the_order_of_time(piped: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "-"]) == 0
    said = [line.split(" UTC ")[0] for line in capsys.readouterr().out.splitlines()]
    assert len(said) > 2
    assert said == sorted(said)


def test_as_json(piped: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "-", "--format", "ndjson"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["kind"] for row in rows} == {"request", "server"}
    (row,) = [row for row in rows if row.get("rid") == "k9-w1"]
    assert (row["cause"], row["update"]) == ("process-killed", False)


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "none.log")]) == 4
    assert "no such file" in capsys.readouterr().err
    assert main(["watch", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("name", "head", "why"),
    [
        ("server.log.gz", b"\x1f\x8b\x08\0", "packed, which can't be followed as it grows"),
        ("core.bin", b"\x7fELF\0\1\2", "a binary file, not a log"),
        ("crash.pkl", b"\x80\x04\x95", "a record of an incident, not a log that grows"),
        ("incident.parquet", b"PAR1", "a store of lifecycle ingest, which doesn't grow"),
    ],
)
def test_what_cannot_be_followed_is_an_error(
    name: str, head: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_bytes(head)
    assert main(["watch", str(file)]) == 4
    assert capsys.readouterr() == ("", f"lifecycle: error: {file}: {why}; lifecycle audit takes what has ended\n")
    assert main(["watch", str(tmp_path)]) == 2
    assert f"{file}: {why}, skipped" in capsys.readouterr().err


def test_a_growing_file_until_it_is_interrupted(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    text = LOG.read_text()
    cut = text.index("crashed with exit code")
    cut = text.rindex("\n", 0, cut) + 1
    log.write_text(text[:cut])
    command = [sys.executable, "-m", "sglang_lifecycle", "watch", "--from-start", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        with log.open("a") as file:
            file.write(text[cut:])
        line = process.stdout.readline()
        while "k9-w1" not in line:
            line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert "interrupted" in process.stderr.read()
