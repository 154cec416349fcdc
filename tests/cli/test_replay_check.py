"""`lifecycle replay check`: what is printed, and the exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sglang_lifecycle.cli.app import main

NAMED = Path(__file__).parents[2] / "fixtures" / "conformance" / "named" / "0.5.18"
GOOD = NAMED / "retract_then_abort.json"

Capture = pytest.CaptureFixture[str]


def damaged(folder: Path) -> Path:
    transcript = json.loads(GOOD.read_text())
    transcript["ops"][0]["outcome"]["messages"].append({"kind": "abort", "rid": "\x1b[31m"})
    path = folder / "damaged.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(transcript).encode()))
    return path


def test_agreement(capsys: Capture) -> None:
    operations = len(json.loads(GOOD.read_text())["ops"])
    assert main(["replay", "check", str(GOOD)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{operations} of {operations} operations agree in 1 sequences\n"
    assert err == ""


def test_a_difference_is_shown_and_escaped(tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", "check", str(damaged(tmp_path)), str(GOOD)]) == 1
    out, err = capsys.readouterr()
    first, last = out.splitlines()
    assert "operation 0 " in first
    assert "messages expected" in first
    assert "\x1b" not in out
    assert last.endswith(" operations agree in 2 sequences")
    assert err == ""


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"version": "0.5.18", "config": {}, "ops": [7]}'])
def test_bad_input_is_one_line_and_the_rest_is_still_checked(
    content: str | None, tmp_path: Path, capsys: Capture
) -> None:
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content)
    assert main(["replay", "check", str(bad), str(GOOD)]) == 4
    out, err = capsys.readouterr()
    assert out.endswith(" operations agree in 1 sequences\n")
    assert err.startswith(f"lifecycle: error: {bad}: ")
    assert err.count("\n") == 1


def test_nothing_readable_gives_no_summary(tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", "check", str(tmp_path)]) == 4
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [["replay"], ["replay", "check"], ["replay", "chek", "x"]])
def test_wrong_usage(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
