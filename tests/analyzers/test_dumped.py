"""Crash dumps beside the logs: who was open at the crash, who had ended without a line, and what they can't tell."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers import exhibits
from sglang_lifecycle.parsers.evidence import Event, Evidence
from sglang_lifecycle.parsers.log import read

ROOT = Path(__file__).parents[2] / "fixtures"
KILLED = "0.5.23/s11a_kill9_scheduler"


def _dump(recorded: str) -> Path:
    return next((ROOT / "dumps" / recorded).glob("*.pkl"))


def _evidence(recorded: str) -> Evidence:
    """The logs of a scenario with its crash dump."""
    return read([str(ROOT / recorded / "logs"), str(_dump(recorded))])


def _verdict(evidence: Evidence, rid: str) -> Verdict:
    return explain(Incident(evidence), rid)


@pytest.mark.parametrize(
    ("recorded", "rids", "cause"),
    [
        ("0.5.23/s11a_kill9_scheduler", ["k9-r0", "k9-r1", "k9-w0", "k9-w1"], "process-killed"),
        ("0.5.10/s11d_model_exception", ["mx-r0", "mx-r1", "mx-poison"], "scheduler-crash"),
        ("0.5.20/s11d_model_exception", ["mx-r0", "mx-r1", "mx-poison"], "scheduler-crash"),
        ("0.5.10/s02e_session_clear_tree", ["c-2", "plain-1", "c-4"], "scheduler-crash"),
    ],
)
def test_the_open_ones_of_a_crash_dump_are_its_victims_for_sure(recorded: str, rids: list[str], cause: str) -> None:
    incident = Incident(_evidence(recorded))
    for rid in rids:
        verdict = explain(incident, rid)
        assert (verdict.cause, verdict.confidence) == (cause, "proven")
        assert "request.dumped" in {line.event for line in verdict.evidence}
        assert verdict.candidates == []


def _copied(folder: Path, dump: str | None) -> Evidence:
    """The logs of the killed scheduler with a count that says nothing, and the dump under a name."""
    text = (ROOT / KILLED / "logs" / "server.log").read_text()
    (folder / "server.log").write_text(text.replace("and 4 unfinished", "and 9 unfinished"))
    if dump is not None:
        shutil.copy(_dump(KILLED), folder / dump)
    return read([str(folder)])


def test_the_list_speaks_where_the_count_does_not(tmp_path: Path) -> None:
    """Its file name, which the log says, tells that the dump is of this life."""
    verdict = _verdict(_copied(tmp_path, _dump(KILLED).name), "k9-w1")
    assert (verdict.cause, verdict.confidence) == ("process-killed", "proven")


@pytest.mark.parametrize("name", [None, "copy.pkl"])
def test_without_a_dump_that_the_log_names_it_is_likely(name: str | None, tmp_path: Path) -> None:
    verdict = _verdict(_copied(tmp_path, name), "k9-w1")
    assert (verdict.cause, verdict.confidence) == ("process-killed", "likely")


def test_a_dump_alone_says_who_was_open_not_why() -> None:
    alone = read([str(_dump(KILLED))])
    verdict = _verdict(alone, "k9-w1")
    assert verdict.cause == "not-established"
    assert {"scheduler-crash", "process-killed"} <= {c.cause for c in verdict.candidates}
    assert _verdict(alone, "k9-done0").cause == "finished"
    assert _verdict(alone, "k9-done0").sglang_version.value


def _rewritten(recorded: str, rid: str, **changes: object) -> Evidence:
    """The evidence of a scenario, with the entry of a rid in its dump changed; None takes it out."""
    evidence = _evidence(recorded)
    for fact in [f for f in evidence.facts if f.event is Event.REQUEST_DUMPED and f.rid == rid]:
        if changes.pop("gone", False):
            evidence.facts.remove(fact)
        fact.detail["finished"] = changes.pop("finished", False)
        for name, value in changes.items():
            setattr(fact, name, value)
    return evidence


_ABORTED = {"finished": True, "finish_type": "abort", "finish_message": "Aborted", "message_id": "aborted"}


def test_a_stream_that_was_aborted_before_the_crash_had_lost_its_client() -> None:
    evidence = _rewritten(KILLED, "k9-r1", **_ABORTED, at=1795977767.5)
    verdict = _verdict(evidence, "k9-r1")
    assert (verdict.cause, verdict.confidence) == ("client-disconnect", "proven")


def test_one_that_was_aborted_in_the_moment_of_the_crash_is_left_open() -> None:
    """Its `Finish` may have been on its way."""
    verdict = _verdict(_rewritten(KILLED, "k9-r1", **_ABORTED, at=1795977768.7), "k9-r1")
    assert verdict.cause == "not-established"


def test_one_that_had_run_to_its_end_is_no_victim() -> None:
    evidence = _rewritten(KILLED, "k9-r1", finished=True, finish_type="stop", at=1795977767.5)
    assert _verdict(evidence, "k9-r1").cause == "finished-undelivered"


def test_one_that_the_dump_does_not_list_had_left_before() -> None:
    verdict = _verdict(_rewritten(KILLED, "k9-r1", gone=True), "k9-r1")
    assert (verdict.cause, verdict.confidence) == ("client-disconnect", "likely")
    assert "the crash dump does not list it" in verdict.summary
    other = _verdict(_rewritten(KILLED, "k9-r0", gone=True), "k9-r0")  # no stream
    assert other.cause == "not-established"


def test_an_entry_of_another_time_is_not_of_this_attempt() -> None:
    evidence = _evidence(KILLED)
    for fact in evidence.facts:
        if fact.event is Event.REQUEST_DUMPED and fact.rid == "k9-r1":
            fact.detail["created"] -= 60
    lines = _verdict(evidence, "k9-r1").evidence
    assert "request.dumped" not in {line.event for line in lines}


def test_facts_of_a_dump_survive_their_lines() -> None:
    rows = [orjson.loads(line) for line in exhibits.lines("dumps", _dump(KILLED))]
    assert len(rows) == 8
    assert all(row["event"] in ("server.dumped", "request.dumped") for row in rows)
