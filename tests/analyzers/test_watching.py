"""Watching: in the end the same is said as of the whole log, each thing once, and old facts are let go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest

from sglang_lifecycle.analyzers import watching
from sglang_lifecycle.analyzers.watching import News, Watch, kept
from sglang_lifecycle.parsers import clock
from sglang_lifecycle.parsers.evidence import Event, Fact, Source
from sglang_lifecycle.parsers.lines import Forward
from sglang_lifecycle.parsers.log import reader

PLAIN = ["0.5.23/s06_abort", "0.5.23/s11a_kill9_scheduler", "0.5.23/s14_timeout_prefix", "0.5.18/s16_stuck_session"]


def _watched(scenario: Any, steps: int) -> Iterator[News]:
    """What is said of a recorded log that is written in so many steps."""
    watch, source = Watch(), reader(Source(str(scenario.server_log)), UTC)
    with scenario.server_log.open("rb") as file:
        every = list(Forward(file))
    size = max(1, len(every) // steps)
    for start in range(0, len(every), size):
        for line in every[start : start + size]:
            source.feed(line)
        facts = source.facts
        clock.settle(facts)
        yield from watch.news(facts)
        source.forget(kept(facts))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("steps", [1, 7])
def test_in_the_end_it_says_what_an_audit_says(name: str, steps: int, recorded: Any) -> None:
    scenario = recorded(name)
    said = {n.verdict.rid: n.verdict for n in _watched(scenario, steps) if n.verdict is not None}
    wanted = {rid: row for rid, row in scenario.rows.items() if row.status == "interrupted" and not row.synthetic}
    assert {r: v.cause for r, v in said.items() if v.status == "interrupted"} == {r: w.cause for r, w in wanted.items()}
    assert {r: v.confidence for r, v in said.items() if r in wanted} == {r: w.confidence for r, w in wanted.items()}


def test_each_thing_is_said_once(recorded: Any) -> None:
    news = list(_watched(recorded("0.5.23/s11a_kill9_scheduler"), 200))
    said = [(n.verdict.rid, n.verdict.cause, n.verdict.confidence) for n in news if n.verdict is not None]
    assert len(said) == len(set(said))
    happened = [n.happening.cause for n in news if n.happening is not None]
    assert happened.count("process-killed") == 1


def test_what_happens_to_a_server_again_is_said_again() -> None:
    paused = {"path": "/pause_generation", "http_status": 200}
    facts = [
        Fact(Event.HTTP_ACCESS, "x", line, 0, 1, at=at, at_error=0.0, at_from="own", detail=paused)
        for line, at in ((1, 10.0), (2, 20.0))
    ]
    watch = Watch()
    said = [n.happening for step in (1, 2, 2) for n in watch.news(facts[:step])]
    assert [(one.cause, one.at) for one in said if one is not None] == [
        ("engine-paused", 10.0),
        ("engine-paused", 20.0),
    ]


def test_two_servers_that_were_restarted_are_two(recorded: Any) -> None:
    facts = recorded("0.5.23/s18_two_lives").incident.evidence.facts
    twins = [fact.copy() for fact in facts]
    for twin in twins:
        twin.source = twin.process = "another.log"
    happened = [n.happening.cause for n in Watch().news([*facts, *twins]) if n.happening is not None]
    assert happened.count("server-restarted") == 2


def test_a_change_is_an_update(recorded: Any) -> None:
    seen: set[str] = set()
    for each in _watched(recorded("0.5.23/s06_abort"), 300):
        if each.verdict is not None:
            assert each.update == (each.verdict.rid in seen)
            seen.add(each.verdict.rid)


def test_a_request_that_may_still_be_in_flight_is_no_news(recorded: Any) -> None:
    log = recorded("0.5.23/s11a_kill9_scheduler").server_log
    watch, source = Watch(), reader(Source(str(log)), UTC)
    with log.open("rb") as file:
        source.feed(next(line for line in Forward(file) if "Receive" in line.text and "k9-r0" in line.text))
    assert list(watch.news(source.facts)) == []


def test_what_was_said_stands_when_its_lines_are_gone(recorded: Any) -> None:
    source = reader(Source("x"), UTC)
    with recorded("0.5.23/s11a_kill9_scheduler").server_log.open("rb") as file:
        for line in Forward(file):
            source.feed(line)
    facts = source.finish()
    watch = Watch()
    assert any(n.verdict is not None for n in watch.news(facts))
    end = max(f.at for f in facts if f.at is not None)
    begun = [f for f in facts if f.event is Event.REQUEST_RECEIVED]
    later = _fact(Event.BATCH_DECODE, end + watching.SETTLE + 1)
    assert list(watch.news([*begun, later])) == []


def _fact(event: Event, at: float | None, rid: str | None = None) -> Fact:
    return Fact(event, "x", 1, 0, 1, at=at, at_error=0.0, at_from="own", rid=rid)


def test_what_is_over_is_let_go() -> None:
    facts = [
        _fact(Event.SERVER_ARGS, 0.0),
        _fact(Event.BATCH_DECODE, 0.0),
        _fact(Event.REQUEST_RECEIVED, 0.0, "done"),
        _fact(Event.REQUEST_RECEIVED, 1.0, "open"),
        _fact(Event.REQUEST_FINISHED, 2.0, "done"),
        _fact(Event.BATCH_DECODE, watching.KEEP + 10),
    ]
    keep = kept(facts)
    assert [f.event for f in facts if id(f) in keep] == [
        Event.SERVER_ARGS,
        Event.REQUEST_RECEIVED,
        Event.BATCH_DECODE,
    ]


def test_facts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_FACTS", 10)
    facts = [_fact(Event.REQUEST_RECEIVED, float(i), f"r-{i}") for i in range(100)]
    assert kept(facts) == {id(f) for f in facts[-10:]}
    assert len(kept([_fact(Event.REQUEST_RECEIVED, i * 1e4, f"r-{i}") for i in range(5)])) < 5
