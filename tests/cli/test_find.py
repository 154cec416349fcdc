"""`lifecycle find`: by time, peer, session, status and prompt, and that a prompt's text is its own, not the line's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.cli.app import main
from sglang_lifecycle.parsers.log import read
from sglang_lifecycle.parsers.prompts import prompts

ROOT = Path(__file__).parents[2] / "fixtures"
ABORTS = str(ROOT / "0.5.23/s06_abort/logs")
OK = "out={'text': 'y', 'meta_info': {'id': '%s', 'finish_reason': {'type': 'stop', 'matched': 2}}}"


def found(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> list[str]:
    assert main(["find", *arguments, "--json"]) == code
    out = capsys.readouterr().out
    return [each["rid"] for each in json.loads(out)["candidates"]] if out else []


def log(folder: Path, *entries: tuple[str, str], extra: str = "") -> str:
    lines = []
    for second, (rid, fields) in enumerate(entries):
        at = f"[2026-04-06 12:50:{second:02}]"
        obj = f"GenerateReqInput(rid='{rid}', {fields}, stream=False{extra})"
        lines += [f"{at} Receive: obj={obj}", f"{at} Finish: obj={obj}, {OK % rid}"]
    (folder / "server.log").write_text("\n".join(lines) + "\n")
    return str(folder)


def test_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    rids = found([ABORTS, "--at", "18:31:48", "--within", "0.5"], capsys)
    assert {"job-1", "job-10", "job-11"} <= set(rids)
    assert not {"all-r0", "ar-ns"} & set(rids)
    assert set(found([ABORTS, "--since", "18:31:59.9"], capsys)) == {"ok-3"}


def test_those_in_flight_then_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    logs = str(ROOT / "0.5.23/s14_timeout_prefix/logs")
    then = found([logs, "--at", "19:50:07", "--within", "0"], capsys)
    assert len(then) == 5
    assert found([logs, "--at", "19:50:07"], capsys)[:5] == then
    assert main(["find", logs, "--at", "19:50:07", "--json"]) == 0
    distances = {each["rid"]: each["distance"] for each in json.loads(capsys.readouterr().out)["candidates"]}
    assert {rid for rid, distance in distances.items() if not distance} == set(then)
    assert distances["cal-0"] == pytest.approx(-1.5, abs=0.6)
    assert distances["job-11"] == pytest.approx(0.965, abs=0.1)
    assert main(["find", logs, "--at", "19:50:07"]) == 0
    out = capsys.readouterr().out
    assert out.count("in flight") == 5
    assert "1.5s before" in out
    assert "965ms after" in out


@pytest.mark.parametrize("columns", ["60", "80", "", "160"])
def test_rids_and_causes_are_whole(
    columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = (ROOT / "0.5.23/s06_abort/logs/server.log").read_text()
    (tmp_path / "server.log").write_text(text.replace("'job-1", "'chatcmpl-0123456789abcdef0123456789abcde1"))
    assert main(["find", str(tmp_path), "--status", "abort-prefix-collision"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("chatcmpl-0123456789abcdef0123456789abcde10" in line for line in lines) == 1
    assert sum("abort-prefix-collision" in line for line in lines) == 2
    assert max(map(len, lines)) <= int(columns or 100)


def test_by_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(found([ABORTS, "--status", "abort-prefix-collision"], capsys)) == {"job-10", "job-11"}
    assert "ok-3" in found([ABORTS, "--status", "finished"], capsys)
    assert found([ABORTS, "--status", "418"], capsys, code=3) == []


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        ("bananas", "none of interrupted, finished, in-flight, an HTTP status, a cause's id; lifecycle causes lists"),
        ("waiting-timeot", "did you mean waiting-timeout?"),
        ("Interrupted", "did you mean interrupted?"),
        ("5030", "an HTTP status"),
    ],
)
def test_a_status_that_none_can_have(status: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", ABORTS, "--status", status]) == 2
    assert hint in capsys.readouterr().err


def test_that_nobody_fits_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", ABORTS, "--status", "418", "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "total": 0, "candidates": []}


def test_by_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert found([ABORTS, "--peer", "127.0.0.1:44946"], capsys) == ["msg-1"]
    assert len(found([ABORTS, "--peer", "127.0.0.1"], capsys)) > 3
    assert found([ABORTS, "--peer", "127.0.0"], capsys, code=3) == []


def test_by_session(capsys: pytest.CaptureFixture[str]) -> None:
    logs = str(ROOT / "0.5.23/s02a_session/logs")
    some = found([logs, "--session", "sess-A", "--limit", "500"], capsys)
    assert some
    assert found([logs, "--session", "nobody"], capsys, code=3) == []


def test_by_text_and_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, ("a", "text='the moon, \\'it\\' said'"), ("b", "text='the sun'"))
    assert found([path, "--text", "moon, 'it' s"], capsys) == ["a"]
    assert found([path, "--text", "the "], capsys) == ["a", "b"]
    for name in ("sha256", "sha1", "md5"):
        digest = hashlib.new(name, b"the sun").hexdigest()
        assert found([path, "--hash", digest], capsys) == ["b"]
        assert found([path, "--hash", digest[:12].upper()], capsys) == ["b"]


def test_text_outside_the_prompt_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the output nor another field, nor what a prompt only imitates."""
    path = log(tmp_path, ("a", "text='x'"), ("b", "text=\"rid='moon', text='sun'\""), extra=", user='moon'")
    assert found([path, "--text", "moon"], capsys) == ["b"]
    assert found([path, "--text", "sun'"], capsys) == ["b"]
    assert found([path, "--text", "y"], capsys, code=3) == []


def test_conversations(tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "moon"}, {"role": "user", "content": [{"text": "sun"}]}]}
    (tmp_path / "server.log").write_text(f"[2026-04-06 12:50:00] Receive OpenAI: obj={body!r}\n")
    (fact,) = read([str(tmp_path)]).facts
    assert list(prompts(fact)) == ["moon", "sun"]
    (tmp_path / "server.log").unlink()
    assert list(prompts(fact)) == []


def test_a_json_request_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        "timestamp": "2026-04-06T12:50:59",
        "event": "request.received",
        "rid": "a",
        "obj": {"text": "moon\u2028"},
    }
    (tmp_path / "server.log").write_text(json.dumps(record, ensure_ascii=False) + "\n")
    assert found([str(tmp_path), "--text", "moon\u2028"], capsys) == ["a"]


@given(st.text(min_size=1, max_size=30))
def test_any_prompt_is_found_by_its_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("logs")
    path = folder / "server.log"
    line = f"[2026-04-06 12:50:00] Receive: obj=GenerateReqInput(rid='a', text={text!r}, stream=False)\n"
    path.write_bytes(line.encode("utf-8", "replace"))
    (fact,) = read([str(path)]).facts
    assert list(prompts(fact)) == [text]


@pytest.mark.parametrize(
    "arguments", [["--text", ""], ["--hash", "abc"], ["--hash", "not-hexadecimal"], ["--at", "soon"], ["--limit", "0"]]
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", ABORTS, *arguments]) == 2
    assert capsys.readouterr().out == ""


def test_it_says_how_sure_it_is_as_an_audit_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = str(Path(ABORTS).parents[1] / "s05_disconnect/logs")
    assert main(["find", logs, "--status", "not-established"]) == 0
    assert "undecided" in capsys.readouterr().out


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", ABORTS, "--at", "18:31:59", "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert "more not shown" in out.splitlines()[0]
    assert "abort-all" in out or "explicit-abort" in out
