"""Every recorded scenario, audited by the public command and held against the truth of who ended what."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.cli import selftest
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.parsers.evidence import Event

Capture = pytest.CaptureFixture[str]

LARGEST = 3_500_000  # bytes of recorded scenarios that a clone may be asked to carry


def compare(scenario: Any, rows: list[dict[str, Any]]) -> dict[str, str]:
    return selftest.compare(scenario.truth, scenario.raw, rows)


def audited(scenario: Any, capsys: Capture) -> list[dict[str, Any]]:
    assert main(["audit", str(scenario.logs), "--format", "json"]) == 0
    return list(json.loads(capsys.readouterr().out)["requests"])


def test_audit_agrees_with_the_truth(scenario: Any, capsys: Capture) -> None:
    rows = audited(scenario, capsys)
    assert len({row["rid"] for row in rows}) == len(rows), "one row per rid"
    assert scenario.sent
    bad = {rid: how for rid, how in compare(scenario, rows).items() if how not in ("right", "undecided")}
    assert bad == {}


def test_little_is_left_undecided(all_recorded: Any, capsys: Capture) -> None:
    counts: Counter[str] = Counter()
    for scenario in all_recorded:
        counts.update(compare(scenario, audited(scenario, capsys)).values())
    assert counts["right"] > 400
    assert counts["undecided"] / counts.total() < 0.05


def test_explain_and_audit_give_the_same_verdicts(scenario: Any, capsys: Capture) -> None:
    rows = audited(scenario, capsys)
    first, *others = [row["rid"] for row in rows]
    more = [argument for rid in others for argument in ("--rid", rid)]
    assert main(["explain", "--json", *more, "--", first, str(scenario.logs)]) == 0
    verdicts = [json.loads(line) for line in capsys.readouterr().out.split("\n") if line]
    assert {v["rid"] for v in verdicts} == {row["rid"] for row in rows}
    by_rid = {row["rid"]: row for row in rows}
    shared = "status cause candidates confidence layer stage actor effects synthetic times".split()
    for verdict in verdicts:
        row = by_rid[verdict["rid"]]
        assert {key: verdict[key] for key in shared} == {key: row[key] for key in shared}, verdict["rid"]
        assert [link["cause"] for link in verdict["chain"]] == row["chain"]


def test_whose_client_left_has_no_aborted_finish(scenario: Any) -> None:
    left = {rid for rid, rows in scenario.sent.items() if {row["cause"] for row in rows} == {"client-disconnect"}}
    ends = {fact.rid: fact.finish_type for fact in scenario.evidence.facts if fact.event is Event.REQUEST_FINISHED}
    assert "abort" not in {ends.get(rid) for rid in left}


@pytest.mark.parametrize(
    ("accepted", "row", "named", "expected"),
    [
        ({"finished"}, {"cause": "finished", "candidates": []}, True, "right"),
        ({"finished"}, {"cause": "abort-all", "candidates": []}, True, "wrong"),
        ({"abort-all"}, {"cause": "not-established", "candidates": [{"cause": "abort-all"}]}, True, "undecided"),
        ({"abort-all"}, {"cause": "not-established", "candidates": [{"cause": "queue-full"}]}, True, "wrong"),
        ({"abort-all"}, None, True, "missed"),
        ({"abort-all"}, None, False, "right"),
        ({"never-received"}, None, True, "right"),
    ],
)
def test_the_comparison_tells_outcomes_apart(
    accepted: set[str], row: dict[str, Any] | None, named: bool, expected: str
) -> None:
    assert selftest.outcome(accepted, row, named) == expected


def test_the_comparison_sees_what_nobody_sent(recorded: Any, capsys: Capture) -> None:
    scenario = recorded("0.5.23/s06_abort")
    rows = audited(scenario, capsys)
    stranger = next(row for row in rows if row["cause"] == "abort-all") | {"rid": "nobody-sent-this"}
    assert compare(scenario, [*rows, stranger])["nobody-sent-this"] == "invented"
    assert "invented" not in compare(scenario, [*rows, stranger | {"synthetic": True}]).values()


def test_the_recordings_stay_small(all_recorded: Any) -> None:
    size = sum(path.stat().st_size for one in all_recorded for path in one.folder.rglob("*") if path.is_file())
    assert size <= LARGEST


def test_every_recorded_file_is_read_or_a_truth(scenario: Any) -> None:
    read = {Path(source.path) for source in scenario.evidence.sources}
    assert read == set(scenario.files)
    assert all(source.recognised for source in scenario.evidence.sources)
    beside = {path for path in scenario.folder.rglob("*") if path.is_file()} - set(scenario.files)
    assert beside == {scenario.folder / "truth.json"}
