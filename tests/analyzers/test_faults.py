import re
from typing import Any

import pytest

from sglang_lifecycle.analyzers import catalogue
from sglang_lifecycle.analyzers.faults import Fault, load, read
from sglang_lifecycle.analyzers.fingerprint import told
from sglang_lifecycle.parsers.versions import RELEASES

FAULTS = list(load().values())

KNOWN = {
    "stream-abort-lost": ("0.5.18", "0.5.19", "client-disconnect"),
    "zombie-mixes-into-retry": ("0.5.18", "0.5.19", "finished"),
    "rid-leak": ("0.4.9", "0.5.12", "duplicate-rid"),
    "rid-overwritten": ("0.3.6", "0.5.9", "duplicate-rid"),
    "waiting-abort-hangs": ("0.4.4", "0.4.8", "abort-prefix-collision"),
    "abort-by-prefix": ("0.4.4", "0.5.23", "abort-prefix-collision"),
    "timeout-by-prefix": ("0.5.20", "0.5.23", "timeout-prefix-collision"),
    "session-flag-stuck": ("0.5.11", "0.5.21", "session-stuck"),
    "replace-without-rid-crash": ("0.4.2", "0.5.23", "scheduler-crash"),
    "session-rid-reuse-crash": ("0.4.2", "0.5.23", "scheduler-crash"),
    "tokenizer-workers-lose-ends": ("0.5.10", "0.5.10", "output-lost"),
    "abort-echo-crash": ("0.4.9", "0.5.13", "scheduler-crash"),
    "grammar-queue-abort-crash": ("0.5.5", "0.5.7", "scheduler-crash"),
    "last-request-oom-crash": ("0.3.6", "0.5.9", "scheduler-crash"),
    "streaming-refusal-accounting": ("0.5.10", "0.5.10", "scheduler-crash"),
    "idle-session-holds-slot": ("0.5.18", "0.5.18", "waiting-timeout"),
    "session-history-lost": ("0.4.9", "0.5.23", "context-lost"),
    "retracted-meets-full-queue": ("0.5.3", "0.5.23", "queue-full"),
}


def table(**changes: Any) -> dict[str, Any]:
    good: dict[str, Any] = {
        "title": "it breaks",
        "first": "0.5.9",
        "last": "0.5.10",
        "fixed_in": "0.5.11",
        "shows": "A\nline.",
        "consequence": "A loss.",
        "causes": ["queue-full"],
    }
    return good | changes


@pytest.mark.parametrize(("id", "expected"), KNOWN.items())
def test_known_faults_are_there_with_their_range(id: str, expected: tuple[str, str, str]) -> None:
    fault = load()[id]
    assert (fault.first, fault.last) == expected[:2]
    assert expected[2] in fault.causes


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_references_resolve_and_texts_are_complete(fault: Fault) -> None:
    assert set(fault.causes) <= set(catalogue.load())
    assert len(set(fault.causes)) == len(fault.causes)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.id)
    assert fault.id not in catalogue.load()
    assert fault.title
    assert not fault.title.endswith(".")
    for text in (fault.shows, fault.consequence):
        assert text.endswith("."), text
        assert text.count("`") % 2 == 0, text
    assert fault.url == "" or re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", fault.url)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fix_is_the_release_after_the_last_faulty_one(fault: Fault) -> None:
    if fault.fixed_in:
        assert RELEASES.index(fault.fixed_in) == RELEASES.index(fault.last) + 1


@pytest.mark.parametrize(
    ("version", "id", "expected"),
    [
        ("0.5.17", "stream-abort-lost", False),
        ("0.5.18", "stream-abort-lost", True),
        ("0.5.19.post1", "stream-abort-lost", True),
        ("0.5.20rc1", "stream-abort-lost", True),
        ("0.5.20", "stream-abort-lost", False),
        ("v0.5.19+cu126", "stream-abort-lost", True),
        ("0.5.19", "timeout-by-prefix", False),
        ("0.5.24", "timeout-by-prefix", True),
        ("0.6.0", "stream-abort-lost", False),
        ("0.5.19", "idle-session-holds-slot", False),
        ("0.5.3", "session-rid-unknown", True),
        ("0.5.3.post3", "session-rid-unknown", False),
        ("0.5.0rc2", "session-existing-broken", True),
        ("0.5.0rc1", "session-existing-broken", False),
    ],
)
def test_a_version_has_the_faults_of_its_range(version: str, id: str, expected: bool) -> None:
    fault = load()[id]
    assert told(version).may_be(fault.first, fault.last) is expected


def test_a_fault_is_read_from_its_table() -> None:
    fault = read({"a": table()})["a"]
    assert (fault.id, fault.shows, fault.causes, fault.url) == ("a", "A line.", ("queue-full",), "")


def test_a_fault_without_an_end_is_still_there() -> None:
    incomplete = table()
    del incomplete["last"], incomplete["fixed_in"]
    assert read({"a": incomplete})["a"].last == RELEASES[-1]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"causes": ["queue-ful"]}, "did you mean queue-full"),
        ({"first": "0.5.99"}, "0.5.99"),
        ({"fixed_in": "0.5.9.post1"}, "0.5.9.post1"),
        ({"first": "0.5.10", "last": "0.5.9"}, "out of order"),
        ({"fixed_in": "0.5.10"}, "out of order"),
        ({"fixed_in": "0.5.9"}, "out of order"),
        ({"fix": "0.5.11"}, "fix"),
    ],
)
def test_a_contradictory_table_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read({"a": table(**changes)})


@pytest.mark.parametrize("missing", ["title", "first", "shows", "consequence", "causes"])
def test_a_missing_key_is_named(missing: str) -> None:
    incomplete = table()
    del incomplete[missing]
    with pytest.raises(ValueError, match=missing):
        read({"a": incomplete})


def test_the_catalogue_is_shared_and_cannot_be_changed() -> None:
    assert load() is load()
    with pytest.raises(TypeError):
        load()["x"] = FAULTS[0]  # type: ignore[index]
