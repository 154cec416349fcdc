"""Dumps as facts: who was open, who had ended and how; foreign, cut and hostile ones are named and change nothing."""

from __future__ import annotations

import json
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_lifecycle.parsers import exhibits, spool, table
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.log import read
from sglang_lifecycle.parsers.quote import quote

FIXTURES = Path(__file__).parents[2] / "fixtures"
CRASH = next((FIXTURES / "dumps/0.5.23/s11a_kill9_scheduler").glob("*.pkl"))


@pytest.fixture
def request_class(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class that pickles under the name of SGLang's own."""
    module = types.ModuleType("sglang.srt.managers.io_struct")
    made = type("GenerateReqInput", (), {"__module__": module.__name__})
    module.GenerateReqInput = made  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt", "sglang.srt.managers"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def _write(path: Path, made: type, entries: list[tuple[dict[str, Any], dict[str, Any], float, float]]) -> Path:
    requests = []
    for fields, output, created, ended in entries:
        request = made()
        request.__dict__.update(fields)
        requests.append((request, output, created, ended))
    path.write_bytes(pickle.dumps({"server_args": None, "requests": requests}))
    return path


def _dumped(facts: list[Fact]) -> dict[str | None, Fact]:
    return {f.rid: f for f in facts if f.event is Event.REQUEST_DUMPED}


def test_a_crash_dump_tells_open_from_finished() -> None:
    evidence = read([str(CRASH)])
    assert evidence.failed == []
    found = _dumped(evidence.facts)
    open_ = {rid for rid, fact in found.items() if not fact.detail["finished"]}
    assert open_ == {"k9-r0", "k9-r1", "k9-w0", "k9-w1"}
    assert found["k9-done0"].finish_type == "length"
    assert found["k9-done0"].completion_tokens == 5
    assert found["k9-r1"].detail["stream"] is True
    (dump,) = [f for f in evidence.facts if f.event is Event.SERVER_DUMPED]
    assert (dump.detail["count"], dump.detail["unfinished"]) == (3, 4)
    assert dump.detail["args"]["tp_size"] == 1


def test_its_facts_can_be_stored_and_shown() -> None:
    facts = read([str(CRASH)]).facts
    assert list(table.facts(table.frame(facts))) == facts
    entry = _dumped(facts)["k9-r0"]
    assert '"rid":"k9-r0"' in quote(entry.source, entry.offset, entry.length, entry.event)


def test_times_are_of_the_dump() -> None:
    entry = _dumped(read([str(CRASH)]).facts)["k9-r0"]
    assert entry.at is not None
    assert entry.at - entry.detail["created"] == pytest.approx(2.21, abs=0.01)
    assert entry.at_from == "meta"


def test_an_abort_keeps_its_reason(request_class: type, tmp_path: Path) -> None:
    reason = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    output = {"text": "x", "output_ids": [1, 2, 3], "meta_info": {"id": "a", "finish_reason": reason}}
    path = _write(tmp_path / "2026-01-01_00-00-00.pkl", request_class, [({"rid": "a"}, output, 1.7e9, 1.7e9 + 2)])
    entry = _dumped(read([str(path)]).facts)["a"]
    assert (entry.finish_type, entry.message_id, entry.finish_shape) == ("abort", "aborted", "scheduler")
    assert entry.completion_tokens == 3


def test_the_dump_of_a_thousand_requests_is_no_crash(request_class: type, tmp_path: Path) -> None:
    output = {"meta_info": {"finish_reason": {"type": "stop", "matched": 2}}}
    path = _write(tmp_path / "dump.pkl", request_class, [({"rid": "a"}, output, 1.7e9, 1.7e9)])
    (dump,) = [f for f in read([str(path)]).facts if f.event is Event.SERVER_DUMPED]
    assert dump.pattern == "dump"
    assert "unfinished" not in dump.detail


def test_a_cut_dump_is_used_and_named(tmp_path: Path) -> None:
    path = tmp_path / "crash_dump_2026-11-29_18-42-48.pkl"
    path.write_bytes(CRASH.read_bytes()[:-200])
    evidence = read([str(path)])
    assert len(_dumped(evidence.facts)) == 7
    assert any("damaged dump" in text for source in evidence.sources for text in source.warnings)
    assert not any("unfinished" in f.detail for f in evidence.facts if f.event is Event.SERVER_DUMPED)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pickle.dumps({"weights": [1, 2]}), "no dump of SGLang's requests"),
        (pickle.dumps([1, 2, 3]), "no dump of SGLang's requests"),
        (b"\x80\x04cos\nsystem\n\x8c\x08touch /x\x85R.", "no dump of SGLang's requests"),
        (b"\x80\x04\x8d" + b"\xff" * 8, "no dump of SGLang's requests"),
    ],
)
def test_a_foreign_pickle_is_named_and_left(data: bytes, why: str, tmp_path: Path) -> None:
    named = tmp_path / "named.pkl"
    named.write_bytes(data)
    assert any("named.pkl" in text and why in text for text in read([str(named)]).failed)
    in_folder = read([str(tmp_path)])
    assert in_folder.failed == []
    assert any(why in text for source in in_folder.sources for text in source.warnings)


def test_what_a_stranger_chose_stays_data(request_class: type, tmp_path: Path) -> None:
    rid = 'x"\n[2026-01-01 00:00:00] SIGQUIT received. \ud800'
    fields = {"rid": rid, "text": "\ud800" * 5, "priority": 1 << 80, "bootstrap_room": 1 << 70, "sampling_params": 5}
    path = _write(tmp_path / "dump.pkl", request_class, [(fields, {}, 1.7e9, 1.7e9)])
    facts = read([str(path)]).facts
    assert {f.event for f in facts} == {Event.SERVER_DUMPED, Event.REQUEST_DUMPED}
    assert _dumped(facts).keys() == {rid.replace("\ud800", "?")}
    assert list(table.facts(table.frame(facts))) == facts


def test_impossible_times_are_no_requests(request_class: type, tmp_path: Path) -> None:
    entries = [({"rid": "a"}, {}, float("nan"), 1.7e9), ({"rid": "b"}, {}, 1.7e9, float("inf"))]
    assert _dumped(read([str(_write(tmp_path / "d.pkl", request_class, entries))]).facts) == {}


def test_a_request_that_the_dump_repeats_counts_once(request_class: type, tmp_path: Path) -> None:
    entry = (request_class(), {}, 1.7e9, 1.7e9)
    (tmp_path / "d.pkl").write_bytes(pickle.dumps({"requests": [entry] * 1000}))
    assert len([f for f in read([str(tmp_path)]).facts if f.event is Event.REQUEST_DUMPED]) == 1


def test_what_one_dump_may_become_is_bounded(
    request_class: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MIN_BYTES", 1000)
    monkeypatch.setattr(spool, "MAX_RATIO", 1)
    rid = "x" * 5000
    path = _write(tmp_path / "d.pkl", request_class, [({"rid": rid}, {}, 1.7e9 + i, 1.7e9 + i) for i in range(100)])
    assert any("bomb" in text for text in read([str(path)]).failed)


def test_a_dump_inside_an_archive_is_read(tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(tmp_path / "must-gather.tar.gz", "w:gz") as archive:
        archive.add(CRASH, "node-a/crash.pkl")
    assert "k9-r0" in _dumped(read([str(tmp_path)]).facts)


def test_a_line_that_imitates_a_dump_is_none(tmp_path: Path) -> None:
    row = next(exhibits.lines("dumps", CRASH)).decode()
    (tmp_path / "server.log").write_text(row + json.dumps({"event": "request.dumped", "rid": "x"}) + "\n")
    assert read([str(tmp_path)]).facts == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_mutation_of_a_dump_is_read_or_named(data: st.DataObject, tmp_path: Path) -> None:
    raw = bytearray(CRASH.read_bytes())
    for _ in range(data.draw(st.integers(1, 30))):
        raw[data.draw(st.integers(2, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "dump.pkl"
    path.write_bytes(raw)
    evidence = read([str(path)])
    assert evidence.facts or evidence.failed
    assert list(table.facts(table.frame(evidence.facts))) == evidence.facts
