"""Limits that the user tells: they confirm a timeout or refute it, and the verdict says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from lines import as_of

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.evidence import Evidence, Fact

WAITING, RUNNING = "0.5.23/s14_timeout_prefix", "0.5.23/s14b_timeout_prefix_running"
LIMITS = {"waiting_timeout": 3.0, "running_timeout": 4.0}
OWN, OTHERS = "waiting-timeout", "timeout-prefix-collision"


def asked(evidence: Evidence, rid: str, limits: dict[str, float], version: str | None = None) -> Verdict:
    return explain(as_of(evidence, version, limits), rid)


def without(evidence: Evidence, rids: Sequence[str]) -> Evidence:
    return replace(evidence, facts=[fact for fact in evidence.facts if fact.rid not in rids])


def lasting(evidence: Evidence, rid: str, seconds: float) -> Evidence:
    """The same, but for how long a request took by SGLang's own measure."""

    def changed(fact: Fact) -> Fact:
        return replace(fact, e2e_s=seconds) if fact.rid == rid and fact.e2e_s is not None else fact

    return replace(evidence, facts=[changed(fact) for fact in evidence.facts])


@pytest.mark.parametrize("name", [WAITING, RUNNING])
def test_the_true_limits_make_every_verdict_right(name: str, recorded: Any) -> None:
    scenario = recorded(name)
    for rid, (row, *_) in scenario.sent.items():
        verdict = asked(scenario.evidence, rid, LIMITS)
        assert verdict.cause == row["cause"], rid
        assert verdict.confidence == "proven", rid
        assert not verdict.contradictions, rid


def test_a_limit_that_was_reached_confirms(recorded: Any) -> None:
    evidence = recorded(WAITING).evidence
    assert asked(evidence, "job-2", {}).confidence == "likely"
    verdict = asked(evidence, "job-2", LIMITS)
    assert (verdict.cause, verdict.confidence, verdict.candidates) == (OWN, "proven", [])
    assert "limit of 3 s, as told," in verdict.summary
    assert asked(evidence, "job-2", {"running_timeout": 4.0}).confidence == "likely"


def test_a_limit_that_was_not_reached_refutes_where_no_root_is_seen(recorded: Any) -> None:
    evidence = without(recorded(WAITING).evidence, ["job-1"])
    assert asked(evidence, "job-11", {}).cause == OWN
    verdict = asked(evidence, "job-11", LIMITS)
    assert (verdict.cause, verdict.confidence) == (OTHERS, "likely")
    assert "0.6 s, before the limit of 3 s that was told" in verdict.summary
    assert [candidate.cause for candidate in verdict.candidates] == [OWN]


def test_the_root_is_one_that_reached_the_limit(recorded: Any) -> None:
    verdict = asked(recorded(WAITING).evidence, "job-11", LIMITS)
    assert [(link.cause, link.rid) for link in verdict.chain][1:] == [(OWN, "job-1")]
    assert "the limit is 3 s, as told" in verdict.summary


@pytest.mark.parametrize(
    ("seconds", "cause", "confidence"),
    [(2.6, OTHERS, "proven"), (2.9, OWN, "likely"), (3.1, OWN, "likely"), (3.4, OWN, "proven")],
)
def test_beside_a_root_the_margin_decides(seconds: float, cause: str, confidence: str, recorded: Any) -> None:
    verdict = asked(lasting(recorded(WAITING).evidence, "job-11", seconds), "job-11", LIMITS)
    assert (verdict.cause, verdict.confidence) == (cause, confidence)


def test_a_slow_poll_of_the_root_does_not_make_a_victim(recorded: Any) -> None:
    evidence = lasting(lasting(recorded(WAITING).evidence, "job-1", 4.0), "job-11", 3.5)
    assert asked(evidence, "job-11", {}).cause == OTHERS
    assert asked(evidence, "job-11", LIMITS).cause == OWN


def test_a_limit_that_fits_nothing_proves_nothing(recorded: Any) -> None:
    for name in (WAITING, RUNNING):
        scenario = recorded(name)
        for rid, (row, *_) in scenario.sent.items():
            if row["cause"] != "finished":
                verdict = asked(scenario.evidence, rid, {"waiting_timeout": 60.0, "running_timeout": 60.0})
                assert verdict.confidence == "likely", rid


def test_before_aborts_by_prefix_a_limit_that_was_not_reached_is_a_contradiction(recorded: Any) -> None:
    verdict = asked(recorded(WAITING).evidence, "job-2", {"waiting_timeout": 30.0}, "0.5.18")
    assert (verdict.cause, verdict.confidence) == (OWN, "likely")
    assert any("less than the limit of 30 s that was told" in text for text in verdict.contradictions)


def test_a_running_time_that_may_hold_a_wait_confirms_nothing(recorded: Any) -> None:
    evidence = without(recorded(RUNNING).evidence, ["x", "xyz"])
    verdict = asked(evidence, "run-1", LIMITS)
    assert (verdict.cause, verdict.confidence) == ("running-timeout", "likely")
    assert "how long it ran" in verdict.candidates[0].would_decide
    facts = [replace(f, queue_s=0.01) if f.rid == "run-1" and f.finish_type else f for f in evidence.facts]
    assert asked(replace(evidence, facts=facts), "run-1", LIMITS).confidence == "proven"


def test_a_coarse_clock_neither_confirms_nor_refutes(recorded: Any) -> None:
    evidence = recorded(WAITING).evidence
    coarse = [replace(f, e2e_s=None, at_error=0.5) if f.rid == "job-2" else f for f in evidence.facts]
    for limit in (2.9, 3.9):
        verdict = asked(replace(evidence, facts=coarse), "job-2", {"waiting_timeout": limit})
        assert (verdict.cause, verdict.confidence) == (OWN, "likely"), limit
    verdict = asked(replace(evidence, facts=coarse), "job-2", {"waiting_timeout": 9.0})
    assert verdict.cause == OTHERS


@pytest.mark.parametrize(("seconds", "confidence"), [(3.1, "likely"), (3.4, "proven")])
def test_a_root_without_an_end_counts_as_one(seconds: float, confidence: str, recorded: Any) -> None:
    evidence = lasting(recorded(WAITING).evidence, "job-11", seconds)
    facts = [fact for fact in evidence.facts if fact.rid != "job-1" or not fact.finish_type]
    verdict = asked(replace(evidence, facts=facts), "job-11", LIMITS)
    assert (verdict.cause, verdict.confidence) == (OWN, confidence)
