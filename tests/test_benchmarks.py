"""What the generator of large logs calls true of them is what the command finds in them."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_lifecycle.cli.app import main

ROOT = Path(__file__).resolve().parents[1]
CASES = [
    {"format": "text", "level": 1},
    {"format": "text", "level": 2},
    {"format": "json", "level": 1},
    {"format": "json", "level": 2},
    {"format": "text", "level": 2, "flood": "undelivered"},
    {"format": "json", "level": 2, "flood": "probe"},
]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The folder's modules by name, as they see each other when one of them is run."""
    names = ("generate", "measure", "peers", "summary", "templates")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    modules = SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    monkeypatch.setattr(modules.templates, "POOL", 512)
    monkeypatch.setattr(modules.templates, "IMITATING", 0.1)
    yield modules
    for name in names:
        del sys.modules[name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_the_truth_is_found(
    case: dict[str, Any], benchmarks: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "server.log"
    truth = benchmarks.generate.generate(log, 1_000_000, **case)
    assert truth == json.loads((tmp_path / "server.log.truth.json").read_text())
    assert log.stat().st_size == truth["bytes"]
    assert log.read_bytes().count(b"\n") == truth["lines"]

    assert main(["audit", str(log), "--format", "json", "--quiet"]) == 0
    audit = json.loads(capsys.readouterr().out)
    assert {key: audit["totals"][key] for key in ("requests", "finished", "interrupted", "by_cause")} == {
        key: truth[key] for key in ("requests", "finished", "interrupted", "by_cause")
    }
    assert audit["totals"]["in_flight"] == 0
    by_rid = {row["rid"]: row["cause"] for row in audit["requests"]}
    assert {cause: by_rid[rid] for cause, rid in truth["samples"].items()} == {
        cause: cause for cause in truth["samples"]
    }
    [source] = audit["inputs"]
    assert source["unknown"] < 70, "the recorded start-up has some lines of no interest"


def test_a_peer_is_not_fooled_by_prompts_that_imitate_log_lines(benchmarks: Any, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    truth = benchmarks.generate.generate(log, 1_000_000)
    text = log.read_text()
    assert "'message': 'spoof'" in text
    assert "' ... '" in text
    assert benchmarks.peers.polars(str(log)) == truth["aborts_by_message"]


def test_what_is_wrong_counts_for_nothing(benchmarks: Any) -> None:
    def measured(name: str, seconds: float, answer: str = "right") -> Any:
        return benchmarks.measure.Measurement(name, "", 100_000_000, seconds, answer=answer)

    found = [measured("text audit", 0.2), measured("text polars", 2.0), measured("text duckdb", 0.1, "wrong")]
    goals = {goal.name: goal.value for goal in benchmarks.summary.goals({each.name: each for each in found})}
    assert goals["text: 3 × the fastest right peer : audit"] == pytest.approx(0.3)
    assert not any(name.startswith(("json", "start", "growth")) for name in goals), "they were not measured"


def test_a_command_is_measured_with_its_children(benchmarks: Any) -> None:
    child = "b = bytearray(60_000_000); import time; time.sleep(0.2); print('done')"
    command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"]
    found = benchmarks.measure.measure("name", "what", command, 1, check=lambda out: out == b"done\n")
    assert found.answer == "right"
    assert found.largest > 60
