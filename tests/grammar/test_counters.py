"""What looks like another cause is not taken for it."""

from __future__ import annotations

from typing import Any

import pytest
from counter_stories import COUNTERS, Build
from renderer import Server
from stories import MAIN, judge


@pytest.mark.parametrize(
    ("truth", "release", "build", "options"), COUNTERS, ids=[f"{b.__name__}-{r}" for _, r, b, _ in COUNTERS]
)
def test_the_truth_is_told_or_left_open(truth: str, release: str, build: Build, options: dict[str, Any]) -> None:
    server = Server(release, **options)
    server.boot(**({"disaggregation_mode": "null"} if server.since("0.4.6") else {}))
    rid = build(server)
    verdict = judge({MAIN: server.text()}, rid)
    assert truth in {verdict.cause, *(each.cause for each in verdict.candidates)}, verdict.summary
    assert verdict.cause == truth or verdict.confidence != "proven", verdict.summary
