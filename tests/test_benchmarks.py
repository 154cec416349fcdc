"""What the generator of large logs calls true of them is what the command finds in them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
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
def generate(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import generate
    import templates

    monkeypatch.setattr(templates, "POOL", 512)
    yield generate.generate
    for name in ("generate", "templates"):
        del sys.modules[name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_the_truth_is_found(
    case: dict[str, Any], generate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "server.log"
    truth = generate(log, 1_200_000, **case)
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


def test_prompts_imitate_log_lines(generate: Any, tmp_path: Path) -> None:
    generate(tmp_path / "server.log", 1_200_000)
    text = (tmp_path / "server.log").read_text()
    assert text.count("'message': 'spoof'") > 0 or text.count("rid='imitated'") > 0
    assert "' ... '" in text
