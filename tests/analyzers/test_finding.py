"""What makes a finding less sure, and what it names besides."""

from __future__ import annotations

from typing import get_args

import pytest

from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.verdict import Confidence

OTHER = ("client-disconnect", "the client's log")
AGAIN = ("client-disconnect", "the proxy's log")


def finding(confidence: Confidence) -> Finding:
    return Finding("explicit-abort", confidence, "")


@pytest.mark.parametrize("confidence", get_args(Confidence))
def test_nothing_is_proven_once_softened_and_nothing_gets_surer(confidence: Confidence) -> None:
    softened, doubted = finding(confidence), finding(confidence)
    softened.soften(OTHER)
    doubted.doubt("it does not fit", OTHER)
    expected = "likely" if confidence == "proven" else confidence
    assert (softened.confidence, doubted.confidence) == (expected, expected)
    assert (softened.candidates, doubted.candidates) == ([OTHER], [OTHER])
    assert (softened.contradictions, doubted.contradictions) == ([], ["it does not fit"])


def test_what_is_admitted_is_named_once_and_is_another_cause() -> None:
    likely = finding("likely")
    for cause, decides in (OTHER, AGAIN, ("explicit-abort", "the access log")):
        likely.admit(cause, decides)
    assert likely.candidates == [OTHER]


def test_beside_what_is_proven_nothing_is_possible() -> None:
    proven = finding("proven")
    proven.admit(*OTHER)
    assert (proven.confidence, proven.candidates) == ("proven", [])
