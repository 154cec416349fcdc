"""Start-up: a command imports nothing that it doesn't use. Only a fresh interpreter can prove it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sglang_lifecycle.cli.app import application, main

HEAVY = {"polars", "textual", "rich", "pydantic", "pydantic_core", "orjson", "numpy", "dask"}

PROBE = """
import contextlib, io, sys
from sglang_lifecycle.cli.app import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    code = main(sys.argv[1:])
assert code == 0 and out.getvalue(), (code, out.getvalue())
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported(*arguments: str) -> set[str]:
    result = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain", "--help"], ["audit", "--help"]])
def test_help_and_version_import_nothing_heavy(arguments: list[str]) -> None:
    assert imported(*arguments) & HEAVY == set()


def test_json_for_programs_needs_no_rendering_and_no_tables(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-11-29 19:50:05] Receive: obj=GenerateReqInput(rid='job-12', stream=True)\n")
    assert imported("explain", "job-12", str(log), "--json") & {"rich", "textual", "polars"} == set()


def test_json_of_the_catalogue_needs_no_rendering() -> None:
    assert imported("causes", "--json") & (HEAVY - {"orjson"}) == set()


def test_the_probe_sees_what_is_imported() -> None:
    assert "rich" in imported("causes", "finished")


def test_help_is_that_of_the_whole_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    application()(["--help"], prog_name="lifecycle", standalone_mode=False)
    assert shown == capsys.readouterr().out
