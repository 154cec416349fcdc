"""The installed tool tests itself by the rules of the tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_lifecycle.cli import selftest
from sglang_lifecycle.cli.app import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> list[str]:
    """Two scenarios are enough to see how it answers; the tests of the fixtures take them all."""
    names = ["0.5.23/s06_abort", "0.5.23/s14_timeout_prefix"]
    monkeypatch.setattr(selftest, "scenarios", lambda: iter([(name, recorded(name).folder) for name in names]))
    return names


def test_it_finds_every_scenario(all_recorded: list[Any]) -> None:
    assert [name for name, _ in selftest.scenarios()] == [scenario.name for scenario in all_recorded]


def test_right_answers(few: list[str], capsys: Capture) -> None:
    assert main(["selftest"]) == 0
    out, err = capsys.readouterr()
    assert all(f"right  {name}" in out for name in few)
    assert "2 scenarios" in out
    assert err == ""
    assert main(["selftest", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["scenarios"], found["wrong"]) == (2, {})


def test_a_wrong_answer_is_told_by_name(few: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from sglang_lifecycle.analyzers import audit

    whole = audit.audit

    def mistaken(*arguments: Any) -> Any:
        found = whole(*arguments)
        for row in found.requests:
            row.cause = "queue-full" if row.rid == "job-12" else row.cause
        return found

    monkeypatch.setattr(audit, "audit", mistaken)
    assert main(["selftest"]) == 1
    out, err = capsys.readouterr()
    assert "WRONG  0.5.23/s14_timeout_prefix" in out
    assert "right  0.5.23/s06_abort" in out
    assert err == (
        "lifecycle: error: this installation gives wrong answers; install it again\n"
        "  0.5.23/s14_timeout_prefix: job-12: wrong\n"
    )


def test_without_recordings_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(selftest, "scenarios", lambda: iter(()))
    assert main(["selftest"]) == 1
    assert "came without its recordings" in capsys.readouterr().err
