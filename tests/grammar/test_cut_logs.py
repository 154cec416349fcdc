"""Recorded logs that end early: what is said with any certainty of what they still hold is so, or left open."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SCENARIOS = [
    path.parent.relative_to(FIXTURES).as_posix()
    for path in sorted(FIXTURES.glob("*/*/truth.json"))
    if (path.parent / "logs" / "server.log").exists()
]
OPEN = frozenset({"in-flight", "not-established"})
READY = b"fired up"


def truth(name: str) -> dict[str, set[str]]:
    """The causes that are right, by rid."""
    found: dict[str, set[str]] = {}
    for row in json.loads((FIXTURES / name / "truth.json").read_text())["requests"]:
        if isinstance(row["rid"], str):
            found.setdefault(row["rid"], set()).update([row["cause"], *row.get("accept", [])])
    return found


@pytest.mark.parametrize("within", [False, True], ids=["between lines", "within a line"])
@pytest.mark.parametrize("part", [0.2, 0.4, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_log_that_ends_early_misleads_nobody(name: str, part: float, within: bool, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(FIXTURES / name / "logs", logs)
    raw = (logs / "server.log").read_bytes()
    start = raw.find(READY) + 1
    cut = start + int(part * (len(raw) - start))
    (logs / "server.log").write_bytes(raw[: cut if within else raw.rfind(b"\n", 0, cut) + 1])
    right = truth(name)
    wrong = [
        (row.rid, row.cause, row.confidence)
        for row in audit(Incident(read([str(logs)]))).requests
        if row.rid in right
        and row.cause not in OPEN | right[row.rid]
        and not right[row.rid] & {each.cause for each in row.candidates}
    ]
    assert wrong == []
