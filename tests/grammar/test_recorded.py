"""The same properties on recorded logs, for every request in them."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from renderer import Server
from stories import incident_of
from test_properties import CERTAINTY, ORDERS, overclaims, records, says, second, shuffled
from wordings import START, between

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.verdict import Verdict

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TRICKY = ("s13_adversarial", "s13b_injection", "s13b_injection_json")  # their rids are no plain words
SCENARIOS = [
    path.parent.relative_to(FIXTURES).as_posix()
    for path in sorted(FIXTURES.glob("*/*/truth.json"))
    if path.parent.name not in TRICKY and (path.parent / "logs" / "server.log").exists()
]
SAME_SECOND = "lines of one second count as before or after each other"
WRONG: dict[tuple[str, str], str] = {
    ("scheduler-first", "0.5.20/s11d_model_exception"): SAME_SECOND,
    ("scheduler-last", "0.5.20/s11d_model_exception"): SAME_SECOND,
}
"""What is known not to hold yet: a property and a scenario, with the reason."""


def over(property_: str, names: list[str] = SCENARIOS) -> list[Any]:
    """The scenarios as parameters of a test of a property."""
    return [
        pytest.param(n, id=n, marks=[pytest.mark.xfail(reason=WRONG[key], strict=True)] if key in WRONG else [])
        for n in names
        for key in [(property_, n)]
    ]


@cache
def logs(name: str) -> dict[str, str]:
    folder = FIXTURES / name / "logs"
    found = sorted(p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes().decode("utf-8", "surrogateescape") for p in found}


def verdicts(texts: dict[str, str], rids: list[str] | None = None) -> dict[str, Verdict]:
    incident = incident_of(texts)
    return {rid: explain(incident, rid) for rid in (rids if rids is not None else list(incident.by_rid))}


@cache
def whole(name: str) -> dict[str, Verdict]:
    return verdicts(logs(name))


def changed(before: dict[str, Verdict], after: dict[str, Verdict]) -> list[tuple[str, object, object]]:
    return [(rid, says(v), says(after[rid])) for rid, v in before.items() if says(after[rid]) != says(v)]


def stamped(name: str) -> bool:
    return not between(name.split("/")[0], "0.5.8", "0.5.11")


@pytest.mark.parametrize("name", over("traffic"))
def test_traffic_that_comes_and_goes_changes_nothing(name: str) -> None:
    mixed, now = "", START
    for number, record in enumerate(records(logs(name)["server.log"])):
        stamp = second(record)
        now = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() if stamp else now
        mixed += record
        if number % 9 == 0 and now > START and "Receive OpenAI" not in record and "received.openai" not in record:
            server = Server(name.split("/")[0], start=now)
            server.receive(f"brief-{number}")
            server.done(f"brief-{number}")
            mixed += server.text()
    after = verdicts(logs(name) | {"server.log": mixed}, list(whole(name)))
    for rid, verdict in whole(name).items():  # more lines may tell the release, and with it make a verdict surer
        if CERTAINTY[after[rid].confidence] > CERTAINTY[verdict.confidence]:
            after[rid] = after[rid].model_copy(update={"confidence": verdict.confidence})
    assert changed(whole(name), after) == []


@pytest.mark.parametrize(
    ("order", "name"), [pytest.param(o, *p.values, id=f"{o}-{p.id}", marks=p.marks)
                        for o in ("scheduler-first", "scheduler-last")
                        for p in over(o, [n for n in SCENARIOS if stamped(n)])]
)  # fmt: skip
def test_the_order_of_processes_within_a_second_changes_nothing(order: str, name: str) -> None:
    text = shuffled(logs(name)["server.log"], ORDERS[order])
    after = verdicts(logs(name) | {"server.log": text}, list(whole(name)))
    assert changed(whole(name), after) == []


@pytest.mark.parametrize("name", over("rids"))
def test_other_rids_change_nothing(name: str) -> None:
    rids = sorted((r for r in whole(name) if re.fullmatch(r"[\w.-]{4,}", r)), key=len, reverse=True)
    pattern = re.compile(r"(?<![\w.-])(" + "|".join(map(re.escape, rids)) + r")(?=[\W_])(?![.-]?\w{3,})")
    texts = {n: pattern.sub(r"chatcmpl-\1", text) for n, text in logs(name).items()}
    before = {rid: whole(name)[rid] for rid in rids}
    after = verdicts(texts, [f"chatcmpl-{rid}" for rid in rids])
    wrong = [
        (rid, says(v)[:3], says(after[f"chatcmpl-{rid}"])[:3])
        for rid, v in before.items()
        if says(v)[:6] != says(after[f"chatcmpl-{rid}"])[:6]
    ]
    assert wrong == []


@pytest.mark.parametrize("name", over("lines"))
def test_missing_lines_make_nothing_surer(name: str) -> None:
    found = records(logs(name)["server.log"])
    for seed in range(2):
        dice = random.Random(f"{name}{seed}")
        kept = "".join(r for r in found if "server_args=" in r or dice.random() > 0.2)
        after = verdicts(logs(name) | {"server.log": kept}, list(whole(name)))
        surer = [
            (rid, v.cause, v.confidence, after[rid].cause, after[rid].confidence, after[rid].summary)
            for rid, v in whole(name).items()
            if overclaims(v, after[rid]) and not v.attempts
        ]
        assert surer == []
