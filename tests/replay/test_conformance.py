"""The reference scheduler against what SGLang's own scheduler was seen to do."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.replay.conformance import check

FIXTURES = Path(__file__).parents[2] / "fixtures" / "conformance"
NAMED = sorted((FIXTURES / "named").iterdir())
THINNED = sorted(FIXTURES.glob("*.jsonl.gz"))


@pytest.mark.parametrize("folder", NAMED, ids=lambda folder: folder.name)
def test_named_sequences_agree(folder: Path) -> None:
    paths = sorted(folder.glob("*.json"))
    report = check(paths)
    assert report.agrees, "\n".join(report.lines())
    assert report.sequences == len(paths) >= 39
    assert report.operations > 3 * len(paths)


@pytest.mark.parametrize("path", THINNED, ids=lambda path: path.name)
def test_random_sequences_agree(path: Path) -> None:
    report = check([path])
    assert report.agrees, "\n".join(report.lines())
    assert report.sequences == 20
    assert report.operations > 600


def test_every_recorded_version_has_fixtures() -> None:
    assert [folder.name for folder in NAMED] == sorted(
        "0.4.9 0.5.3 0.5.8 0.5.9 0.5.10 0.5.12 0.5.14 0.5.18 0.5.20 0.5.21 0.5.22 0.5.23".split()
    )
    assert len(THINNED) >= 5


def named(version: str, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / "named" / version / f"{name}.json").read_text())
    return loaded


def write(folder: Path, transcript: Any) -> Path:
    path = folder / "damaged.json"
    path.write_text(json.dumps(transcript))
    return path


def first(ops: list[dict[str, Any]], operation: str) -> dict[str, Any]:
    found: dict[str, Any] = next(op["outcome"] for op in ops if op["op"] == operation)
    return found


DAMAGES: dict[str, tuple[str, Callable[[list[dict[str, Any]]], Any]]] = {
    "messages": ("retract_then_abort", lambda ops: first(ops, "abort")["messages"].clear()),
    "logs": ("retract_then_abort", lambda ops: first(ops, "abort")["logs"][0].__setitem__(1, "INFO")),
    "built": ("retract_then_abort", lambda ops: first(ops, "arrive")["built"].update(input_len=4)),
    "batch": ("retract_then_abort", lambda ops: first(ops, "admit")["batch"].update(mode="decode")),
    "batches": ("retract_then_abort", lambda ops: first(ops, "step")["batches"].append(None)),
    "noop": ("retract_then_abort", lambda ops: first(ops, "admit").update(noop=True)),
    "state.waiting": ("retract_then_abort", lambda ops: first(ops, "arrive")["state"]["waiting"].clear()),
    "state.running": ("retract_then_abort", lambda ops: first(ops, "admit")["state"]["running"][0].update(out=2)),
    "state.lingering": ("retract_then_abort", lambda ops: first(ops, "admit")["state"]["lingering"].append("a")),
    "state.batch_is_full": ("loop_fcfs", lambda ops: first(ops, "iterate")["state"].update(batch_is_full=False)),
    "state.sessions": ("bos_trim", lambda ops: first(ops, "open")["state"]["sessions"]["s1"].update(timeout=1.0)),
    "crash": ("rid_reuse_in_session", lambda ops: ops[-1]["outcome"]["crash"].update(type="ValueError")),
}


@pytest.mark.parametrize("field", DAMAGES)
def test_damage_in_any_field_is_reported(field: str, tmp_path: Path) -> None:
    name, damage = DAMAGES[field]
    transcript = named("0.5.18", name)
    intact = copy.deepcopy(transcript["ops"])
    damage(transcript["ops"])
    where = next(index for index, op in enumerate(transcript["ops"]) if op != intact[index])

    report = check([write(tmp_path, transcript)])

    assert not report.agrees
    [difference] = report.first.values()
    assert (difference.field, difference.index, difference.name) == (field, where, name)
    assert (report.agreeing, report.operations) == (len(intact) - 1, len(intact))
    lines = report.lines()
    assert f"0.5.18 {name}" in lines[0]
    assert f"operation {where} " in lines[0]
    assert lines[-1] == f"{len(intact) - 1} of {len(intact)} operations agree in 1 sequences"


def test_order_of_sessions_counts(tmp_path: Path) -> None:
    transcript = named("0.5.18", "reap_interval")
    state = transcript["ops"][1]["outcome"]["state"]
    state["sessions"] = dict(reversed(state["sessions"].items()))
    report = check([write(tmp_path, transcript)])
    assert [difference.field for difference in report.first.values()] == ["state.sessions (order)"]


def test_another_era_does_not_agree(tmp_path: Path) -> None:
    """The profiles differ where they should: a rule of one era is wrong in another."""
    for version, other, name in (
        ("0.5.18", "0.5.22", "streaming_stuck_after_queue_abort"),
        ("0.5.18", "0.5.20", "timeout_prefix_waiting"),
        ("0.5.9", "0.5.10", "out_of_memory_last"),
        ("0.5.23", "0.5.22", "loop_fcfs"),
    ):
        transcript = named(version, name)
        assert check([write(tmp_path, transcript)]).agrees
        assert not check([write(tmp_path, transcript | {"version": other})]).agrees, name


def test_cache_crashes_are_not_compared(tmp_path: Path) -> None:
    transcript = named("0.5.10", "streaming_close_second_turn_running")
    assert transcript["ops"][-1]["outcome"]["crash"]["layer"] == "kv"
    report = check([write(tmp_path, transcript)])
    assert report.agrees
    assert report.unpredicted == 1
    assert report.operations == len(transcript["ops"]) - 1
    assert any("1 operations not compared" in line for line in report.lines())


def test_unexpected_crash_fails_the_rest(tmp_path: Path) -> None:
    transcript = named("0.5.18", "replace_rid_none_nonempty")
    *before, crash = transcript["ops"]
    crash["outcome"] = {"messages": [], "logs": [], "state": {}}
    transcript["ops"] = [*before, crash, {"op": "tick", "now": 1030.0, "outcome": before[-1]["outcome"]}]
    report = check([write(tmp_path, transcript)])
    assert (report.agreeing, report.operations) == (len(before), len(before) + 2)


def test_alike_differences_are_counted_not_listed(tmp_path: Path) -> None:
    transcript = named("0.5.18", "abort_unknown")
    transcript["ops"][-1]["outcome"]["logs"] = [["root", "INFO", "x"]]
    path = tmp_path / "three.jsonl"
    path.write_text("\n".join([json.dumps(transcript)] * 3))
    lines = check([path]).lines()
    assert len(lines) == 2
    assert lines[0].endswith("[3 like this]")
    assert f"{path}:1)" in lines[0]


GOOD_OP = {"op": "tick", "now": 1.0, "outcome": {"messages": [], "logs": []}}


def transcript_with(**changes: Any) -> str:
    return json.dumps({"version": "0.5.18", "config": {}, "ops": [GOOD_OP]} | changes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("", "not JSON"),
        ("[1]", "keys version, config and ops"),
        ("{}", "no version, config, ops"),
        (transcript_with(version="9.9.9"), "give a release from 0.3.6 to 0.5.23"),
        (transcript_with(version="main"), "no version of SGLang"),
        (transcript_with(version=5), "version is 5, it must be a string"),
        (transcript_with(config=[]), "config is [], it must be an object"),
        (transcript_with(config={"waiting_timeout": "soon"}), 'waiting_timeout is "soon"'),
        (transcript_with(ops={}), "ops is {}, it must be a list"),
        (transcript_with(ops=["tick"]), "operation 0: not a JSON object"),
        (transcript_with(ops=[GOOD_OP, GOOD_OP | {"op": "explode"}]), "operation 1: unknown op 'explode'"),
        (transcript_with(ops=[{"op": "tick", "now": 1.0}]), "no outcome"),
        (transcript_with(ops=[GOOD_OP | {"now": True}]), "now is true, it must be an integer or a number"),
        (transcript_with(ops=[GOOD_OP | {"op": "admit"}]), "no rid"),
        (transcript_with(ops=[GOOD_OP | {"op": "arrive", "rid": "a", "len": 1}]), "no max_new_tokens"),
        (
            transcript_with(ops=[GOOD_OP | {"op": "arrive", "rid": "a", "len": 1, "max_new_tokens": 1, "session": {}}]),
            "session: no id",
        ),
        (transcript_with(ops=[GOOD_OP | {"outcome": {"crash": "yes"}}]), 'crash is "yes", it must be an object'),
    ],
)
def test_bad_input_is_named_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bad\.json") as error:
        check([path])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(transcript_with() + "\n\n{oops\n")
    with pytest.raises(ValueError, match=r"some\.jsonl:3: not JSON"):
        check([path])


@pytest.mark.parametrize(
    "content",
    [b"not gzip", gzip.compress(b"{}" * 500)[:20], gzip.compress(b"\xff\xfe")],
    ids=["plain", "cut", "binary"],
)
def test_broken_files_are_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"some\.jsonl\.gz: not readable"):
        check([path])


def test_empty_and_missing_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("\n")
    with pytest.raises(ValueError, match=r"some\.jsonl: empty"):
        check([path])
    with pytest.raises(OSError, match="absent"):
        check([tmp_path / "absent.jsonl"])
