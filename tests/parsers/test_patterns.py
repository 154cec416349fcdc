"""The table of messages: each has a real line, which it alone is the first to match, and reads it rightly."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.facts import note_message
from sglang_lifecycle.parsers.log import read
from sglang_lifecycle.parsers.patterns import table
from sglang_lifecycle.parsers.versions import RELEASES

SAMPLES = tomllib.loads((Path(__file__).parent / "samples.toml").read_text("utf-8"))
LINES: dict[str, dict[str, Any]] = SAMPLES["line"]
MESSAGES = [(id, sample) for id, samples in SAMPLES["message"].items() for sample in samples]

STAMP = "[2026-11-29 19:50:05 TP0] "


def stated(fact: Fact, name: str) -> Any:
    return getattr(fact, name) if name in Fact.__slots__ else fact.detail.get(name)


def facts_of(text: str, folder: Path) -> list[Fact]:
    log = folder / "server.log"
    log.write_text(text, "utf-8")
    return read([str(log)]).facts


def test_every_pattern_has_a_sample() -> None:
    assert [pattern.id for pattern in table().lines if pattern.id not in LINES] == []
    assert LINES.keys() <= {pattern.id for pattern in table().lines}


@pytest.mark.parametrize("id", LINES)
def test_a_sample_is_read_as_its_pattern(id: str, tmp_path: Path) -> None:
    pattern = next(pattern for pattern in table().lines if pattern.id == id)
    (fact,) = facts_of(f"{STAMP}{LINES[id]['text']}\n", tmp_path)
    assert (fact.pattern, fact.event, fact.rank) == (id, pattern.event, "TP0")
    says = {"tainted": False, "args": {}} | LINES[id]["says"]
    arguments = says.pop("args")
    assert {name: stated(fact, name) for name in says} == says
    assert arguments.items() <= fact.detail.get("args", {}).items()


@pytest.mark.parametrize("id", LINES)
def test_no_earlier_pattern_takes_a_sample(id: str) -> None:
    text = LINES[id]["text"]
    beginning = [p for p in table().lines if p.head and text.startswith(p.head)]
    inside = [p for p in table().lines if p.within and p.within in text]
    taken = [p.id for p in (*beginning, *inside) if p.compiled.fullmatch(text)]
    assert taken[0] == id


@pytest.mark.parametrize("id", [p.id for p in table().lines if p.may_be_bare])
def test_a_sample_is_read_without_its_prefix(id: str, tmp_path: Path) -> None:
    (fact,) = facts_of(f"{LINES[id]['text']}\n", tmp_path)
    assert (fact.pattern, fact.at) == (id, None)


def test_a_sample_with_more_text_behind_it_is_another_line(tmp_path: Path) -> None:
    facts = facts_of(f"{STAMP}The server is fired up and ready to roll! Or is it?\n", tmp_path)
    assert facts == []


def test_ids_are_unique() -> None:
    assert [id for id, n in Counter(pattern.id for pattern in table().lines).items() if n > 1] == []


def test_releases_are_known_and_in_order() -> None:
    for row in (*table().lines, *table().messages):
        assert RELEASES.index(row.since) <= RELEASES.index(row.until), row.id


def test_every_pattern_says_what_it_means() -> None:
    assert all(pattern.means and pattern.event in Event for pattern in table().lines)
    assert all(bool(pattern.head) != bool(pattern.within) for pattern in table().lines)


def test_raw_text_has_an_end() -> None:
    raw = [pattern for pattern in table().lines if pattern.raw]
    assert raw
    for pattern in raw:
        assert pattern.closer, pattern.id
        assert pattern.closes.search(LINES[pattern.id]["text"]), pattern.id


def test_every_message_has_a_sample() -> None:
    texts = [sample["text"] for _, sample in MESSAGES]
    assert [m.id for m in table().messages if not any(m.compiled.fullmatch(text) for text in texts)] == []


@pytest.mark.parametrize(("id", "sample"), MESSAGES, ids=[sample["text"][:40] for _, sample in MESSAGES])
def test_a_message_is_recognised_with_what_it_names(id: str, sample: dict[str, Any]) -> None:
    fact = Fact(Event.REQUEST_FINISHED, "server.log", 1, 0, 1)
    note_message(fact, sample["text"])
    assert (fact.message_id, fact.finish_message) == (id, sample["text"])
    assert {name: stated(fact, name) for name in sample if name != "text"} == {
        name: value for name, value in sample.items() if name != "text"
    }


def test_a_text_that_only_contains_a_message_is_none() -> None:
    fact = Fact(Event.REQUEST_FINISHED, "server.log", 1, 0, 1)
    note_message(fact, "it said: Request waiting timeout reached.")
    assert fact.message_id is None


@pytest.mark.parametrize("number", ["0..0", "1.2.3", ".", "..5"])
@pytest.mark.parametrize("id", [id for id in LINES if re.search(r"\d\.\d", LINES[id]["text"])])
def test_a_damaged_number_stops_no_reader(id: str, number: str, tmp_path: Path) -> None:
    """A line that was torn may hold anything where a number stood."""
    for found in re.finditer(r"\d+\.\d+", LINES[id]["text"]):
        text = LINES[id]["text"]
        facts = facts_of(f"{STAMP}{text[: found.start()]}{number}{text[found.end() :]}\n", tmp_path)
        assert len(facts) <= 1


@pytest.mark.parametrize(
    ("end", "rids"),
    [
        (", input_ids=[1])]", ["d4424f3eb90345f0a863068978c0f17c"]),
        ("......................", ["d4424f3eb90345f0a863068978c0f17c"]),
        ("…", ["d4424f3eb90345f0a863068978c0f17c"]),
        ("-2......", None),
        ("", None),
    ],
)
def test_a_rid_that_may_go_on_is_none(end: str, rids: list[str] | None, tmp_path: Path) -> None:
    """A dump that was cut, or out of which its reporter left something."""
    dump = "self.cur_batch.batch_size()=2, self.cur_batch.reqs=[Req(rid=d4424f3eb90345f0a863068978c0f17c"
    (fact,) = facts_of(f"{STAMP}{dump}{end}\n", tmp_path)
    assert (fact.detail.get("rids"), fact.tainted) == (rids, True)
