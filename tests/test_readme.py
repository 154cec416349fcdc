"""What the README shows is what the command does, and its tables are those of the code.

Run as a program, this brings the README's examples and its table of causes up to date.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_lifecycle.analyzers.catalogue import load
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.causes import GROUPS
from sglang_lifecycle.cli.errors import ExitCode

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")

Capture = pytest.CaptureFixture[str]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def causes_table() -> str:
    """The README's table of causes."""
    rows = ["| cause | ended by | the request … |", "|---|---|---|"]
    group = None
    for cause in load().values():
        if cause.group != group:
            group = cause.group
            rows.append(f"| **{GROUPS[group]}** | | |")
        rows.append(f"| `{cause.id}` | {cause.actor} | {cause.title} |")
    return "\n".join(rows)


def test_the_table_of_causes_is_the_catalogue() -> None:
    assert f"\n\n{causes_table()}\n\n" in README


def test_the_table_of_exit_codes_is_the_codes() -> None:
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)]
    assert codes == [int(code) for code in ExitCode]


def test_the_examples_of_the_command_are_its_output(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(ROOT)
    shown = [block for block in blocks("console") if block.startswith("$ lifecycle ")]
    assert shown
    for block in shown:
        command, _, output = block.partition("\n")
        assert main(shlex.split(command)[2:]) == 0
        assert capsys.readouterr().out == output


def test_the_grep_finds_what_it_is_shown_to_find() -> None:
    shown = [block for block in blocks("console") if block.startswith("$ grep ")]
    assert shown
    for block in shown:
        command, _, output = block.partition("\n")
        result = subprocess.run(["bash", "-c", command[2:]], cwd=ROOT, capture_output=True, text=True, check=True)
        assert result.stdout == output
        assert "waiting timeout" in output


def test_the_first_command_explains_the_example(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(ROOT)
    install, test = blocks("sh")
    command = shlex.split(install.replace(".venv/bin/lifecycle", "&& lifecycle"))
    arguments = command[command.index("lifecycle") + 1 :]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("Request job-12 was hit by the timeout of another request: proven.")
    assert all("-c constraints.txt" in block for block in (install, test))


def test_the_places_it_names_exist() -> None:
    named = set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", README))
    assert {"parsers/patterns.toml", "fixtures/README.md", ".ci/run"} <= named
    missing = {place for place in named if not (ROOT / place).exists()}
    assert missing <= {"logs/"}


def test_constraints_pin_exactly_and_name_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[\w.]+", line) for line in lines)
    assert {"orjson", "polars", "pydantic", "rich", "typer", "pytest", "ruff", "mypy"} <= {
        line.partition("==")[0] for line in lines
    }


def refresh() -> None:
    """Put into the README what the command prints and what the catalogue holds."""
    text = README
    for block in blocks("console"):
        command = block.partition("\n")[0]
        if command.startswith("$ lifecycle "):
            arguments = [sys.executable, "-m", "sglang_lifecycle", *shlex.split(command)[2:]]
            printed = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True).stdout
            text = text.replace(block, f"{command}\n{printed}")
    old = re.search(r"^\| cause \|.*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    assert old is not None
    (ROOT / "README.md").write_text(text.replace(old[0], causes_table()), "utf-8")


if __name__ == "__main__":
    refresh()
