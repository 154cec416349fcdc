"""`lifecycle doctor`: its screens, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from sglang_lifecycle.analyzers.coverage import coverage
from sglang_lifecycle.analyzers.coverage_models import (
    Coverage,
    Gap,
    LifeCoverage,
    Offset,
    OpenQuestion,
    Remedy,
    RequestLog,
)
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.doctor_screen import screen
from sglang_lifecycle.cli.output import render
from sglang_lifecycle.cli.text import width
from sglang_lifecycle.cli.times import Clock

Recorded = Callable[[str], Any]
Capture = pytest.CaptureFixture[str]
WIDTHS = [80, 100]


@pytest.fixture
def everything(nasty: str) -> Coverage:
    """Some of all that a screen can show, hostile names among it."""
    life: dict[str, Any] = {
        "server": f"/logs/{nasty}/server.log",
        "processes": ["API server", "scheduler"],
        "ranks": ["DP0 TP0", "DP1 TP1"],
        "sizes": {"tp_size": 4, "dp_size": 2, "pp_size": 1},
        "mode": "decode",
        "start": "2026-08-02T23:59:00Z",
        "end": "2026-08-03T02:00:00Z",
        "times": {"own": 1200, "none": 1},
        "zone_offset_s": 7200.0,
        "gaps": [
            Gap(start=f"2026-08-03T01:{i:02}:00Z", end=f"2026-08-03T01:{i:02}:40Z", seconds=40 + i, open=i + 1)
            for i in range(7)
        ],
        "request_log": RequestLog(switch="unseen"),
        "time_stats": "unseen",
        "access_log": "unknown",
        "debug_lines": "on",
        "session_lines": "off",
        "status_snapshots": "on",
        "metrics_export": "unseen",
        "crash_dump": "on",
        "tainted": 3,
    }
    remedies = [
        Remedy(how="set", what=["SGLANG_A=1", "--b"], brings="b", since="0.3.6", until="0.5.23"),
        Remedy(how="unset", what=["SGLANG_C"], brings="c", since="0.5.8", until="0.5.9"),
    ]
    return Coverage(
        lives=[LifeCoverage(**life), LifeCoverage(**(life | {"life": 2, "start": None, "end": None}))],
        offsets=[
            Offset(first=f"a/{nasty}", second="a/b.log", seconds=-2.5, requests=3),
            Offset(first="/a", second="b", seconds=0, requests=1),
        ],
        questions=[
            OpenQuestion(id="x", asks="What?", because="no line says so", lives=[0, 1], remedies=remedies),
            OpenQuestion(id="y", asks="Who?", because="no line says so", lives=[1], remedies=remedies[:1]),
            OpenQuestion(id="z", asks="Why?", because="nobody knows", lives=[1]),
        ],
    )


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", ["0.5.23/s02a_session", "0.5.23/s12_nolog"])
def test_screen(recorded: Recorded, name: str, columns: int, snapshot: SnapshotAssertion) -> None:
    found = coverage(recorded(name).incident)
    for life in found.lives:
        life.server = "server.log"
    assert render(screen(found, Clock(), columns), columns, False) == snapshot


@pytest.mark.parametrize("columns", WIDTHS)
def test_everything(everything: Coverage, columns: int, snapshot: SnapshotAssertion) -> None:
    text = render(screen(everything, Clock(), columns), columns, False)
    for line in text.split("\n"):
        assert line.isprintable()
        assert width(line) <= columns
    assert text == snapshot


def test_a_long_question_keeps_its_indent(everything: Coverage) -> None:
    everything.questions[0].asks = "Which rid did an abort name, and where did it find the request? " * 2
    text = render(screen(everything, Clock(), 60), 60, False)
    shown = text[text.index("Open questions") : text.index("All settings")].splitlines()
    assert len([line for line in shown if "request?" in line]) == 2
    assert [line for line in shown[1:] if line and not line.startswith("  ")] == []


def test_a_setting_is_named_once_in_the_end(everything: Coverage) -> None:
    text = render(screen(everything, Clock(), 100), 100, False)
    assert text.rsplit("All settings together", 1)[1].split() == ["environment", "SGLANG_A=1", "flags", "--b"]


def test_json(tmp_path: Path, capsys: Capture) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-11-29 12:00:00] The server is fired up and ready to roll!\n")
    assert main(["doctor", str(log), "--json", "--sglang-version", "0.5.10"]) == 0
    found = Coverage.model_validate(json.loads(capsys.readouterr().out))
    assert (found.lives[0].sglang_version.value, found.lives[0].sglang_version.source) == ("0.5.10", "told")


def test_a_missing_path_still_gets_an_answer(tmp_path: Path, capsys: Capture) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-11-29 12:00:00] The server is fired up and ready to roll!\n")
    assert main(["doctor", str(log), str(tmp_path / "gone")]) == 4
    out, err = capsys.readouterr()
    assert out.startswith("0 requests in 1 life of a server")
    assert "no such file" in err


def test_logs_without_a_line_of_sglang_answer_nothing(tmp_path: Path, capsys: Capture) -> None:
    log = tmp_path / "notes.txt"
    log.write_text("call the storage team\n")
    assert main(["doctor", str(log)]) == 0
    assert capsys.readouterr().out.startswith("No line of SGLang is in these logs: they answer nothing.\n")
