import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers import catalogue
from sglang_lifecycle.analyzers.catalogue import Cause, Confusion, UnknownCause, cause, load, read
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.parsers.versions import RELEASES, in_range

GROUPS = {
    "not-interrupted": "finished finished-undelivered in-flight",
    "client": ("client-disconnect explicit-abort abort-prefix-collision abort-all pause-abort weight-update-abort"),
    "refused": "invalid-request input-too-long duplicate-rid multimodal-error never-received",
    "session": (
        "session-unknown session-closed session-reaped session-misrouted session-parent-unknown"
        " session-parent-unfinished session-mode-unsupported session-busy session-stuck session-empty-input"
        " session-replaced session-branch-cleared"
    ),
    "scheduler": (
        "waiting-timeout running-timeout timeout-prefix-collision queue-full priority-evicted priority-disabled"
        " grammar-failed grammar-timeout kv-out-of-memory model-output-error"
    ),
    "disaggregation": "pd-bootstrap-failed pd-transfer-failed pd-peer-lost",
    "server": ("scheduler-crash process-killed watchdog-timeout server-shutdown output-lost not-established"),
    "finding": (
        "engine-paused weights-updated server-restarted health-check-failed abort-without-effect retracted context-lost"
    ),
}
CONTRACT = {id: group for group, ids in GROUPS.items() for id in ids.split()}
CAUSES = list(load().values())


def table(**changes: Any) -> dict[str, Any]:
    good: dict[str, Any] = {
        "group": "server",
        "title": "ended",
        "meaning": "It\nended.",
        "actor": "host",
        "layer": "process",
        "stages": ["running"],
        "evidence": ["A line."],
        "since": "0.5.9",
        "until": "0.5.10",
        "client_sees": "Nothing.",
    }
    return good | changes


def test_every_id_of_the_contract_is_there_and_no_other() -> None:
    assert {item.id: item.group for item in CAUSES} == CONTRACT
    assert set(catalogue.GROUPS) == set(GROUPS)


def test_the_catalogue_is_shared_and_cannot_be_changed() -> None:
    assert load() is load()
    with pytest.raises(TypeError):
        load()["finished"] = cause("in-flight")  # type: ignore[index]
    with pytest.raises(AttributeError):
        cause("finished").title = "x"  # type: ignore[misc]


def test_a_cause_is_found_by_its_id() -> None:
    found = cause("waiting-timeout")
    assert isinstance(found, Cause)
    assert (found.id, found.actor, found.layer, found.stages[0]) == (
        "waiting-timeout",
        "scheduler",
        "scheduler",
        "waiting",
    )
    assert "timeout-prefix-collision" in [other.id for other in found.confused_with]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("waiting-timout", "waiting-timeout"),
        ("session_busy", "session-busy"),
        ("client-disconnected", "client-disconnect"),
        ("queue_full", "queue-full"),
    ],
)
def test_an_unknown_id_suggests_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(UnknownCause) as caught:
        cause(wrong)
    assert caught.value.id == wrong
    assert caught.value.suggestions[0] == right
    assert right in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_id_like_no_other_suggests_nothing() -> None:
    with pytest.raises(UnknownCause) as caught:
        cause("zzz")
    assert caught.value.suggestions == ()
    assert str(caught.value) == "unknown cause 'zzz'"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("item", CAUSES, ids=lambda item: item.id)
def test_the_texts_are_complete(item: Cause) -> None:
    texts = [item.meaning, item.client_sees, *item.evidence, *item.advice, *(other.how for other in item.confused_with)]
    assert item.evidence
    assert item.stages
    for text in texts:
        assert text == text.strip()
        assert text.endswith((".", "`")), text
        assert "\n" not in text
        assert text.count("`") % 2 == 0, text
    assert item.title == item.title.strip()
    assert not item.title.endswith(".")
    assert item.title[0].islower()
    assert 1 <= len(re.findall(r"[.!?](?: |$)", item.meaning)) <= 5


def test_titles_differ() -> None:
    assert len({item.title for item in CAUSES}) == len(CAUSES)


@pytest.mark.parametrize("item", CAUSES, ids=lambda item: item.id)
def test_version_ranges_name_known_releases(item: Cause) -> None:
    first, last = item.versions.split(" to ")
    assert first in RELEASES
    assert last in RELEASES
    assert in_range(last, first, last)


@pytest.mark.parametrize("item", CAUSES, ids=lambda item: item.id)
def test_every_version_in_the_texts_exists(item: Cause) -> None:
    named = re.findall(r"\b0\.[345]\.\d+(?:rc\d+|\.post\d+)?\b", " ".join(_texts(item)))
    assert set(named) <= set(RELEASES)


def _texts(item: Cause) -> list[str]:
    return [item.meaning, item.client_sees, item.versions, *item.evidence, *item.advice]


@pytest.mark.parametrize("item", CAUSES, ids=lambda item: item.id)
def test_look_alikes_are_other_causes_named_once(item: Cause) -> None:
    others = [other.id for other in item.confused_with]
    assert len(set(others)) == len(others)
    assert item.id not in others
    assert set(others) <= set(CONTRACT)


def test_the_three_ways_to_read_aborted_point_at_each_other() -> None:
    assert {"abort-all", "pause-abort", "session-replaced", "abort-prefix-collision", "grammar-failed"} <= {
        other.id for other in cause("explicit-abort").confused_with
    }


def test_a_cause_is_read_from_its_table() -> None:
    causes = read({"a": table(confused_with=[{"id": "b", "how": "It differs."}]), "b": table(effects=["zombie"])})
    assert list(causes) == ["a", "b"]
    assert causes["a"].id == "a"
    assert causes["a"].meaning == "It ended."
    assert causes["a"].confused_with == (Confusion("b", "It differs."),)
    assert causes["a"].effects == ()
    assert causes["b"].effects == ("zombie",)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"group": "nobody"}, "group"),
        ({"actor": "nobody"}, "actor"),
        ({"layer": "nobody"}, "layer"),
        ({"stages": ["running", "nowhere"]}, "nowhere"),
        ({"effects": ["boom"]}, "boom"),
        ({"advise": []}, "advise"),
        ({"confused_with": [{"id": "nothing", "how": "So."}]}, "nothing"),
        ({"confused_with": [{"id": "a", "how": "So."}]}, "confused_with"),
    ],
)
def test_a_contradictory_table_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read({"a": table(**changes)})


@pytest.mark.parametrize("key", ["group", "title", "meaning", "actor", "layer", "stages", "evidence", "client_sees"])
def test_a_missing_key_is_named(key: str) -> None:
    incomplete = table()
    del incomplete[key]
    with pytest.raises(ValueError, match=key):
        read({"a": incomplete})


def test_the_vocabulary_of_a_cause_is_the_public_one() -> None:
    used = {stage for item in CAUSES for stage in item.stages}
    assert used == set(catalogue.STAGES)
    assert {item.actor for item in CAUSES} == set(catalogue.ACTORS)
    assert {item.layer for item in CAUSES} == set(catalogue.LAYERS)
    assert {effect for item in CAUSES for effect in item.effects} == set(catalogue.EFFECTS)


@pytest.mark.parametrize("item", CAUSES, ids=lambda item: item.id)
def test_the_status_of_a_finding_is_that_of_its_group(item: Cause) -> None:
    interrupted = Finding(item.id, "likely", "").status == "interrupted"
    assert interrupted is (item.group != "not-interrupted")


def test_the_data_file_is_in_reading_order() -> None:
    path = Path(catalogue.__file__).with_name("causes.toml")
    assert list(tomllib.loads(path.read_text("utf-8"))) == list(CONTRACT)
