"""`lifecycle replay run`: exit codes, the JSON and the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_lifecycle.analyzers.replay_models import ForbiddenStep, ReplayRow, ReplayRun
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.output import render
from sglang_lifecycle.cli.replay_table import report
from sglang_lifecycle.cli.times import Clock

FIXTURES = Path(__file__).parents[2] / "fixtures"
STUCK = str(FIXTURES / "0.5.18" / "s16_stuck_session" / "logs")
PREFIX = str(FIXTURES / "0.5.23" / "s14_timeout_prefix" / "logs")

Capture = pytest.CaptureFixture[str]


def test_json(capsys: Capture) -> None:
    assert main(["replay", "run", STUCK, "--json"]) == 0
    out, err = capsys.readouterr()
    run = ReplayRun.model_validate_json(out)
    assert {row.rid for row in run.requests if row.predicted == "session-stuck"} == {"q-3", "f-2", "w-3"}
    assert run.totals.covered == run.totals.agree == sum(row.covered for row in run.requests)
    assert run.what_if is None
    assert err == ""


def test_the_screen(capsys: Capture) -> None:
    assert main(["replay", "run", STUCK]) == 0
    out = capsys.readouterr().out
    assert out.startswith("10 interrupted requests: the reference scheduler covers 9, 9 agree, 0 differ.\n")
    assert "session-stuck    session-stuck    agrees" in out
    assert "Not covered" in out
    assert max(map(len, out.splitlines())) <= 100


def test_what_if(capsys: Capture) -> None:
    arguments = ["replay", "run", PREFIX, "--what-if", "waiting-timeout=off", "--what-if", "no-zombies"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["what_if"]
    assert found["changes"] == ["waiting-timeout=off", "no zombies"]
    assert {"job-1", "job-12"} <= {each["rid"] for each in found["saved"]}
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "What if waiting-timeout=off and no zombies" in out
    assert "Would have lived" in out
    assert "█" in out
    assert "Assumptions" in out


@pytest.mark.parametrize("columns", [60, 80])
def test_a_bar_stays_on_its_line(columns: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["replay", "run", PREFIX, "--what-if", "waiting-timeout=60"]) == 0
    bars = [line for line in capsys.readouterr().out.splitlines() if "█" in line]
    assert bars
    assert [line for line in bars if "before" not in line and "after" not in line] == []


def test_another_release(capsys: Capture) -> None:
    assert main(["replay", "run", PREFIX, "--sglang-version", "0.5.18", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["what_if"]
    assert found["after"].get("timeout-prefix-collision", 0) == 0
    assert found["before"]["timeout-prefix-collision"] > 0


def test_one_rid(capsys: Capture) -> None:
    assert main(["replay", "run", STUCK, "--rid", "q-3", "--json"]) == 0
    assert [row["rid"] for row in json.loads(capsys.readouterr().out)["requests"]] == ["q-3"]


def test_a_window_limits_what_is_reported(capsys: Capture) -> None:
    assert main(["replay", "run", STUCK, "--json"]) == 0
    ends = sorted(row["ended"] for row in json.loads(capsys.readouterr().out)["requests"] if row["ended"])
    assert main(["replay", "run", STUCK, "--json", "--until", ends[0][:19]]) == 0
    assert len(json.loads(capsys.readouterr().out)["requests"]) < len(ends)


def test_a_rid_that_is_not_there(capsys: Capture) -> None:
    assert main(["replay", "run", STUCK, "--rid", "nobody"]) == 3
    assert "no request 'nobody'" in capsys.readouterr().err


def test_a_path_that_is_not_there(capsys: Capture) -> None:
    assert main(["replay", "run", "/nowhere/server.log"]) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["--what-if", "nonsense"],
        ["--what-if", "waiting-timeout"],
        ["--what-if", "waiting-timeout=soon"],
        ["--what-if", "waiting-timeout=-1"],
        ["--what-if", "waiting-timeout=nan"],
        ["--what-if", "max-running-requests=0"],
        ["--sglang-version", "9.9.9"],
        ["--sglang-version", "new"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: Capture) -> None:
    assert main(["replay", "run", STUCK, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_texts_of_strangers_are_escaped(nasty: str) -> None:
    run = ReplayRun(
        requests=[ReplayRow(rid=nasty, observed="session-unknown", covered=True, predicted="session-unknown")],
        forbidden=[ForbiddenStep(summary=f"its session {nasty}", rid=nasty, session_id=nasty)],
    )
    shown = render(report(run, Clock(None), 100), 100, False)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]" in shown


def test_whom_a_what_if_says_nothing_of_is_named(capsys: Capture) -> None:
    arguments = ["replay", "run", PREFIX, "--what-if", "waiting-timeout=60"]
    assert main([*arguments, "--json"]) == 0
    what_if = json.loads(capsys.readouterr().out)["what_if"]
    assert what_if["not_reproduced"] == ["job-2"]
    assert what_if["replayed"] - what_if["reproduced"] == 1
    assert main(arguments) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Of 1 of 15 it says nothing, and counts them as unchanged: job-2." in said


def test_a_limit_that_is_told_is_not_said_to_have_struck(capsys: Capture) -> None:
    assert main(["replay", "run", PREFIX, "--waiting-timeout", "60"]) == 0
    assert "release 0.5.23; a waiting timeout of 60.0 s" in capsys.readouterr().out
