"""The reference scheduler beside the verdicts, on recorded scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lines import as_of

from sglang_lifecycle.analyzers.explain import explain, judge
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.replay_report import run
from sglang_lifecycle.analyzers.replaying import COVERED, replayer
from sglang_lifecycle.analyzers.what_if import Change, what_if
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.replay.ends import canonical

Recorded = Callable[[str], Any]


def test_predictions_agree_with_what_was_observed(scenario: Any) -> None:
    report = run(scenario.incident)
    assert [row for row in report.requests if row.agrees is False] == []
    assert report.forbidden == []
    for row in report.requests:
        rows = scenario.sent.get(row.rid, [])
        truths = {cause for sent in rows for cause in (sent["cause"], *sent.get("accept", []))}
        if row.agrees:
            assert row.predicted == row.observed
            assert not truths or truths & set(row.possible), row


def test_every_end_that_the_rules_decide_is_covered(scenario: Any) -> None:
    for scene in scenario.incident.scenes:
        for attempt in scene.attempts:
            finish = attempt.finish
            if finish is None or attempt.synthetic or judge(scene, attempt).status != "interrupted":
                continue
            known = canonical(finish.message_id) in COVERED and not attempt.of(Event.GRAMMAR_TOKEN_REFUSED)
            told = attempt.received is not None and bool(scene.release.possible)
            if known and told and scene.sees_access:
                assert replayer(scene).predict(attempt).silent == "", attempt.rid


def test_the_verdict_says_it(recorded: Recorded) -> None:
    verdict = recorded("0.5.23/s14_timeout_prefix").explain("job-12")
    assert verdict.replay is not None
    assert (verdict.replay.predicted, verdict.replay.agrees) == ("timeout-prefix-collision", True)
    assert verdict.replay.era == "0.5.23"
    assert verdict.replay.possible == ["timeout-prefix-collision"]
    assert not verdict.contradictions


def test_a_request_that_the_model_does_not_cover_gets_no_replay(recorded: Recorded) -> None:
    scenario = recorded("0.5.23/s05_disconnect")
    gone = [rid for rid, row in scenario.rows.items() if row.cause == "client-disconnect"]
    assert gone
    assert all(scenario.explain(rid).replay is None for rid in gone)
    assert scenario.explain(next(rid for rid, row in scenario.rows.items() if row.status == "finished")).replay is None


def test_a_disagreement_lowers_the_confidence_and_is_named(recorded: Recorded) -> None:
    """By the rules of 0.5.18 no timeout ends what runs but its own."""
    evidence = recorded("0.5.23/s14_timeout_prefix").evidence
    incident = as_of(evidence, "0.5.18")
    verdict = explain(incident, "job-12")
    assert verdict.replay is not None
    assert verdict.replay.agrees is False
    assert verdict.confidence == "likely"
    assert any("0.5.18" in text for text in verdict.contradictions)
    report = run(incident)
    assert "job-12" in {step.rid for step in report.forbidden}
    assert all(step.evidence for step in report.forbidden)


def test_a_disagreement_leaves_the_cause_alone(recorded: Recorded) -> None:
    evidence = recorded("0.5.23/s14_timeout_prefix").evidence
    incident = as_of(evidence, "0.5.18")
    for rid, [(scene, attempt), *_] in incident.by_rid.items():
        assert explain(incident, rid).cause == judge(scene, attempt).cause


def test_lost_lines_show(recorded: Recorded) -> None:
    """Without the line that opens it, a session accepts turns that the rules refuse."""
    evidence = recorded("0.5.18/s16_stuck_session").evidence
    facts = [f for f in evidence.facts if not (f.event is Event.SESSION_OPENED and f.session_id == "st-Q")]
    assert len(facts) < len(evidence.facts)
    report = run(Incident(replace(evidence, facts=facts)))
    [step, *_] = report.forbidden
    assert (step.rid, step.session_id) == ("q-1", "st-Q")
    assert "session-unknown" in step.summary


def test_only_the_rids_asked_for(recorded: Recorded) -> None:
    report = run(recorded("0.5.18/s16_stuck_session").incident, {"q-3"})
    assert [row.rid for row in report.requests] == ["q-3"]
    assert report.totals.interrupted == 1


def changed(result: Any, kind: str) -> set[str]:
    return {each.rid for each in getattr(result, kind)}


def test_an_older_release_hits_nobody_by_prefix(recorded: Recorded) -> None:
    result = what_if(recorded("0.5.23/s14_timeout_prefix").incident, Change(version="0.5.18"))
    assert {"job-12", "job-10", "job-11"} <= changed(result, "saved")
    assert result.lost == []
    assert result.after.get("timeout-prefix-collision", 0) == 0
    assert result.interrupted_after == result.interrupted_before - len(result.saved)


def test_a_newer_release_leaves_no_session_stuck(recorded: Recorded) -> None:
    incident = recorded("0.5.18/s16_stuck_session").incident
    assert changed(what_if(incident, Change(version="0.5.23")), "saved") == {"q-3", "f-2", "w-3"}
    assert changed(what_if(incident, Change(version="0.5.20")), "saved") == set()


def test_without_a_limit_nobody_dies_of_it(recorded: Recorded) -> None:
    incident = recorded("0.5.23/s14_timeout_prefix").incident
    result = what_if(incident, Change({"waiting-timeout": None}))
    assert result.after == {} or result.reproduced < result.replayed
    assert changed(result, "saved") >= {"job-1", "job-12"}


def test_no_change_changes_nothing(scenario: Any) -> None:
    result = what_if(scenario.incident, Change())
    assert (result.saved, result.lost, result.otherwise) == ([], [], [])
    assert result.before == result.after
    assert sum(result.before.values()) == result.interrupted_before
    assert result.assumptions


def test_a_limit_that_is_told_is_not_said_to_be_estimated(recorded: Recorded) -> None:
    evidence = recorded("0.5.23/s14_timeout_prefix").incident.evidence
    told = what_if(Incident(evidence, limits={"waiting_timeout": 4.0}), Change()).assumptions
    assert "the waiting timeout is 4 s, as told" in told
    assert not any("taken to be" in each for each in told)


def test_a_release_that_is_not_known(recorded: Recorded) -> None:
    with pytest.raises(ValueError, match="not known"):
        what_if(recorded("0.5.23/s14_timeout_prefix").incident, Change(version="9.9.9"))
