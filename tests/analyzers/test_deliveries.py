"""How a log came to be here changes nothing: saved twice, rotated with an overlap, lines out of turn or told again."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import RequestRow
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.log import read

STAMPED = re.compile(rb"\[\d{4}-")
NEAR = 12  # lines by which a collector's workers overtake each other


def rows(folder: Path) -> dict[str, RequestRow]:
    return {row.rid: row for row in audit(Incident(read([str(folder)]))).requests}


def causes(found: dict[str, RequestRow]) -> dict[str, tuple[str, str]]:
    return {rid: (row.cause, row.confidence) for rid, row in found.items()}


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_a_rotated_file_that_overlaps_with_the_next_is_told_once(scenario: Any, share: float, tmp_path: Path) -> None:
    log = scenario.copied(tmp_path)
    before = causes(rows(tmp_path))
    lines = log.read_bytes().splitlines(keepends=True)
    (tmp_path / "server.log.1").write_bytes(b"".join(lines[: max(60, int(len(lines) * 0.95))]))
    log.write_bytes(b"".join(lines[int(len(lines) * share) :]))
    assert causes(rows(tmp_path)) == before


@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_a_log_that_was_saved_twice_is_told_once(scenario: Any, share: float, tmp_path: Path) -> None:
    log = scenario.copied(tmp_path)
    before = causes(rows(tmp_path))
    lines = log.read_bytes().splitlines(keepends=True)
    (tmp_path / "earlier.txt").write_bytes(b"".join(lines[: int(len(lines) * share)]))
    assert causes(rows(tmp_path)) == before


def pairs(scenario: Any) -> Iterator[tuple[Fact, Fact]]:
    """The records of requests that came and ended within a few lines of the server's log."""
    received: dict[str | None, Fact] = {}
    for fact in scenario.evidence.facts:
        if fact.source != str(scenario.server_log) or fact.tainted:
            continue
        if fact.event is Event.REQUEST_RECEIVED and "batch" not in fact.detail:
            received[fact.rid] = fact
        elif fact.event is Event.REQUEST_FINISHED:
            begin = received.pop(fact.rid, None)
            if begin is not None and 0 < fact.line - begin.line <= NEAR:
                yield begin, fact


def made_wrong(scenario: Any, found: dict[str, RequestRow]) -> dict[str, tuple[str, str]]:
    """What is said of a request that is neither said of the whole log nor true, nor admits it."""
    wrong = {}
    for rid, row in found.items():
        if rid not in scenario.rows or row.confidence == "not-established":
            continue
        attempts = scenario.explain(rid).attempts
        truths = {cause for sent in scenario.sent.get(rid, ()) for cause in (sent["cause"], *sent.get("accept", ()))}
        if not {row.cause, *(each.cause for each in row.candidates)} & {
            scenario.rows[rid].cause, *truths, *(attempt.cause for attempt in attempts)
        }:  # fmt: skip
            wrong[rid] = (row.cause, row.confidence)
    return wrong


def test_a_finish_that_overtakes_its_receive_is_of_the_same_request(scenario: Any, tmp_path: Path) -> None:
    log = scenario.copied(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    chance = random.Random(scenario.name)
    found = list(pairs(scenario))
    for begin, end in chance.sample(found, min(3, len(found))):
        moved = lines[: begin.line - 1] + lines[begin.line : end.line] + [lines[begin.line - 1]] + lines[end.line :]
        log.write_bytes(b"".join(moved))
        told = rows(tmp_path)
        assert made_wrong(scenario, told) == {}
        assert len(told) == len(scenario.rows) or any(file.suffix != ".log" for file in scenario.files)


def test_a_receive_that_is_delivered_again_is_of_the_same_request(scenario: Any, tmp_path: Path) -> None:
    log = scenario.copied(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    chance = random.Random(scenario.name)
    found = [(begin, end) for begin, end in pairs(scenario) if begin.at_from == "own" and (end.e2e_s or 0) > 2]
    for begin, end in chance.sample(found, min(3, len(found))):
        log.write_bytes(b"".join([*lines[: end.line], lines[begin.line - 1], *lines[end.line :]]))
        assert made_wrong(scenario, rows(tmp_path)) == {}


RECORD = re.compile(rb"(?:Receive|Finish): ")


@pytest.mark.parametrize("twice", [re.compile(b""), RECORD], ids=["every line", "records"])
def test_what_a_logger_with_two_handlers_writes_twice_is_told_once(
    scenario: Any, twice: re.Pattern[bytes], tmp_path: Path
) -> None:
    log = scenario.copied(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for each in lines for line in ([each, each] if twice.search(each) else [each])))
    found = rows(tmp_path)
    assert made_wrong(scenario, found) == {}
    assert "duplicate-rid" not in {row.cause for rid, row in found.items() if scenario.rows[rid].cause == "finished"}


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_two_parts_in_the_wrong_order_are_read_in_the_order_of_time(
    scenario: Any, share: float, tmp_path: Path
) -> None:
    log = scenario.copied(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    cut = int(len(lines) * share)
    while cut < len(lines) and not STAMPED.match(lines[cut]):  # a record is not torn
        cut += 1
    log.write_bytes(b"".join(lines[cut:] + lines[:cut]))
    times = [fact.at for fact in scenario.evidence.facts if fact.at is not None and fact.at_from == "own"]
    if max(times) - min(times) > 30:
        assert made_wrong(scenario, rows(tmp_path)) == {}
