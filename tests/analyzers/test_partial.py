"""A part of a log is enough only where the verdict is that of the whole log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers import partial
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers import selection
from sglang_lifecycle.parsers.log import read

SAMPLED = 6
JUDGED = {"status", "cause", "confidence", "stage", "actor", "candidates", "effects", "contradictions"}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded logs are small: as if they were large."""
    sizes = {"SMALLEST": 0, "_EDGE": 8 << 10, "_STEP": 4 << 10, "_WIDEST": 32 << 10, "_WHOLE": 64 << 10}
    for name, size in sizes.items():
        monkeypatch.setattr(selection, name, size)
    monkeypatch.setattr(selection, "_AROUND", 3.0)


def test_part_and_whole_agree(scenario: Any, narrow: None) -> None:
    whole = scenario.incident
    rids = [rid for rid in whole.by_rid if partial.searchable(rid)]
    for rid in rids[:: max(1, len(rids) // SAMPLED)]:
        part = Incident(read([str(scenario.logs)], about=[rid]))
        if more := partial.related(part, [rid]):
            part = Incident(read([str(scenario.logs)], about=[rid, *sorted(more)]))
        if partial.enough(part, [rid]):
            found, wanted = explain(part, rid), explain(whole, rid)
            assert found.model_dump(include=JUDGED) == wanted.model_dump(include=JUDGED), rid


def test_what_no_line_names_needs_all(recorded: Any, narrow: None) -> None:
    """A request without an end may have been ended by anything."""
    logs = recorded("0.5.23/s11a_kill9_scheduler").logs
    part = Incident(read([str(logs)], about=["kill-r"]))
    silent = [rid for rid, peers in part.by_rid.items() if peers[-1][1].finish is None]
    assert silent
    assert not partial.enough(part, silent[:1])


def test_a_rid_that_is_nowhere_is_settled(tmp_path: Path, narrow: None, recorded: Any) -> None:
    part = Incident(read([str(recorded("0.5.10/s06_abort").logs)], about=["no-such-request"]))
    assert part.evidence.partial
    assert partial.enough(part, ["no-such-request"])


@pytest.mark.parametrize(
    ("text", "fits"), [("chatcmpl-1234", True), ("a'b-c-d", False), ("r1", False), ("rid-ü-1", False)]
)
def test_ids_that_logs_write_in_several_ways(text: str, fits: bool) -> None:
    assert partial.searchable(text) is fits
