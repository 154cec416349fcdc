"""The request log in the grammar of every era. The records are those of SGLang's own formatting, values made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.parsers import requestlog
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.log import read

SESSION = "session_params={'id': 'sess-7', 'rid': 'r-0'}"
ABORTED = "{'type': 'abort', 'message': 'Aborted', 'status_code': None, 'err_type': None}"

OLDEST = (
    "in=GenerateReqInput(text='Hello', input_ids=None, image_data=None, sampling_params={'max_new_tokens': 8}, "
    "rid='r-1', return_logprob=False, stream=False, modalities=None, lora_path=None, session_id='sess-7', "
    "session_rid='r-0'), out={'text': ' world', 'meta_info': {'prompt_tokens': 2, 'completion_tokens': 8, "
    "'completion_tokens_wo_jump_forward': 8, 'cached_tokens': 0, 'finish_reason': {'type': 'length', 'length': 8}, "
    "'id': 'r-1'}}"
)
UNQUOTED = (
    'Finish: obj=GenerateReqInput(text="Hello there", input_ids=None, sampling_params={max_new_tokens: 8}, rid="r-1", '
    'return_logprob=False, stream=False, lora_path=None, session=("sess-7", "r-0")), out={text: " world", meta_info: '
    '{prompt_tokens: 2, completion_tokens: 8, cached_tokens: 0, finish_reason: {type: "length", length: 8}, id: "r-1"}}'
)
LEVEL_0 = (
    "Finish: obj=GenerateReqInput(sampling_params={'temperature': 0, 'max_new_tokens': 64}, rid='r-1', stream=False, "
    f"log_metrics=True, modalities=None, {SESSION}, custom_logit_processor=None), out={{'meta_info': {{'id': 'r-1', "
    "'finish_reason': {'type': 'stop', 'matched': 128009}, 'prompt_tokens': 25, 'completion_tokens': 40, "
    "'cached_tokens': 18, 'e2e_latency': 1.2034}}"
)
ECHO = (
    f"Finish: obj=GenerateReqInput(rid='r-1', stream=False, {SESSION}, data_parallel_rank=None), out={{'meta_info': "
    "{'id': 'r-1', 'finish_reason': {'type': 'abort', 'message': 'Abort before prefill'}, 'prompt_tokens': 0, "
    "'completion_tokens': 0}}"
)
TIMEOUT = (
    f"Finish: obj=GenerateReqInput(rid='r-1', stream=False, {SESSION}, routing_key=None), "
    "headers={'x-smg-routing-key': 'user-42'}, out={'meta_info': {'id': 'r-1', "
    "'finish_reason': {'type': 'abort', 'status_code': 503, 'message': 'Request waiting timeout reached.'}, "
    "'weight_version': 'default', 'e2e_latency': 30.412, 'completion_tokens': 0, "
    "'response_sent_to_client_ts': 1771830832.412}}"
)
RUNNING = (
    f"Finish: obj=GenerateReqInput(rid='r-1', session_id=None, stream=True, {SESSION}, cache_salt=None), "
    f"out={{'meta_info': {{'id': 'r-1', 'finish_reason': {ABORTED}, 'prompt_tokens': 25, 'num_retractions': 2, "
    "'completion_tokens': 4, 'cached_tokens': 18, 'dp_rank': None, 'e2e_latency': 2.25}}"
)


def fact_of(line: str, folder: Path) -> Fact:
    (fact,) = facts_of(line, folder)
    return fact


def facts_of(line: str, folder: Path) -> list[Fact]:
    log = folder / "server.log"
    log.write_text(line + "\n", "utf-8")
    return read([str(log)]).facts


@pytest.mark.parametrize("prefix", ["", "[2026-11-29 19:50:05] ", "[2024-11-22 10:00:01 DP-1 TP0] "])
@pytest.mark.parametrize("record", [OLDEST, UNQUOTED, LEVEL_0, ECHO, TIMEOUT, RUNNING])
def test_every_era_names_request_session_and_parent(record: str, prefix: str, tmp_path: Path) -> None:
    fact = fact_of(prefix + record, tmp_path)
    assert fact.event is Event.REQUEST_FINISHED
    assert (fact.rid, fact.session_id, fact.parent_rid) == ("r-1", "sess-7", "r-0")
    assert fact.at_from in (("own", "meta") if prefix else (None, "meta"))
    assert (fact.at is None) == (fact.at_from is None)
    assert not fact.tainted
    assert "cut" not in fact.detail


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (OLDEST, {"finish_type": "length", "prompt_tokens": 2, "completion_tokens": 8, "cached_tokens": 0}),
        (UNQUOTED, {"finish_type": "length", "prompt_tokens": 2, "completion_tokens": 8, "cached_tokens": 0}),
        (LEVEL_0, {"finish_type": "stop", "prompt_tokens": 25, "completion_tokens": 40, "e2e_s": 1.2034}),
        (ECHO, {"finish_type": "abort", "message_id": "abort_before_prefill", "finish_shape": "echo-plain"}),
        (
            TIMEOUT,
            {"message_id": "waiting_timeout", "status_code": 503, "finish_shape": "echo-with-reason", "e2e_s": 30.412},
        ),
        (
            RUNNING,
            {
                "message_id": "aborted",
                "finish_shape": "scheduler",
                "retractions": 2,
                "status_code": None,
                "err_type": None,
            },
        ),
    ],
)
def test_the_outcome(record: str, expected: dict[str, Any], tmp_path: Path) -> None:
    fact = fact_of(record, tmp_path)
    assert {name: getattr(fact, name) for name in expected} == expected


def test_what_a_record_does_not_have_is_none(tmp_path: Path) -> None:
    fact = fact_of(TIMEOUT, tmp_path)
    assert (fact.prompt_tokens, fact.cached_tokens, fact.retractions, fact.queue_s) == (None, None, None, None)


@pytest.mark.parametrize("status", ["HTTPStatus.BAD_REQUEST", "<HTTPStatus.BAD_REQUEST: 400>", "400"])
def test_the_status_in_every_spelling(status: str, tmp_path: Path) -> None:
    reason = f"{{'type': 'abort', 'message': 'x', 'status_code': {status}, 'err_type': 'BadRequestError'}}"
    fact = fact_of(RUNNING.replace(ABORTED, reason), tmp_path)
    assert (fact.status_code, fact.err_type) == (400, "BadRequestError")


def test_a_prompt_that_the_level_cut(tmp_path: Path) -> None:
    whole = RUNNING.replace("session_id=None", "text='it\\'s a ... long' ... \"don't\", input_ids=[1, 2] ... [8, 9]")
    fact = fact_of(whole, tmp_path)
    assert (fact.rid, fact.message_id, fact.completion_tokens) == ("r-1", "aborted", 4)
    assert "opening" not in fact.detail


def as_json(record: str, **changes: Any) -> str:
    finish = {"type": "abort", "message": "Request running timeout reached.", "status_code": 503, "err_type": None}
    data = {
        "timestamp": "2026-11-29T19:50:05.000512",
        "event": record,
        "rid": "r-1",
        "obj": {"rid": "r-1", "stream": True, "session_params": {"id": "sess-7", "rid": "r-0"}, "text": "Hi"},
    }
    if record == "request.finished":
        data["out"] = {"meta_info": {"id": "r-1", "finish_reason": finish, "prompt_tokens": 25, "e2e_latency": 2.25}}
    return json.dumps(data | changes, ensure_ascii=False)


@pytest.mark.parametrize("prefix", ["", "[2026-11-29 19:50:05] "])
@pytest.mark.parametrize("event", ["request.received", "request.finished", "request.received.openai"])
def test_json_bare_and_prefixed(event: str, prefix: str, tmp_path: Path) -> None:
    fact = fact_of(prefix + as_json(event), tmp_path)
    assert (str(fact.event), fact.rid, fact.session_id, fact.parent_rid) == (event, "r-1", "sess-7", "r-0")
    assert fact.detail["stream"] is True
    assert (fact.at_from, fact.at_error) == ("own", 0.000001)
    assert fact.at == pytest.approx(1795981805.000512, abs=1e-6)


def test_json_says_what_text_says(tmp_path: Path) -> None:
    fact = fact_of(as_json("request.finished"), tmp_path)
    assert (fact.message_id, fact.finish_shape, fact.status_code) == ("running_timeout", "scheduler", 503)
    assert (fact.prompt_tokens, fact.completion_tokens, fact.e2e_s) == (25, None, 2.25)


def test_json_without_microseconds_and_with_line_separators(tmp_path: Path) -> None:
    fact = fact_of(as_json("request.received", timestamp="2026-11-29T19:50:05", rid="a\u2028b\u0085c"), tmp_path)
    assert (fact.rid, fact.at) == ("a\u2028b\u0085c", 1795981805.0)


def test_json_that_is_cut_still_names_its_request(tmp_path: Path) -> None:
    whole = as_json("request.finished")
    fact = fact_of(whole[: whole.index('"finish_reason"')], tmp_path)
    assert (fact.event, fact.rid, fact.detail["cut"]) == (Event.REQUEST_FINISHED, "r-1", True)
    assert (fact.finish_type, fact.finish_message) == (None, None)


def test_json_that_is_something_else_is_no_record(tmp_path: Path) -> None:
    assert facts_of('{"timestamp": "2026-11-29T19:50:05", "event": "another.service", "rid": "r-1"}', tmp_path) == []
    assert facts_of('{"level": "info", "rid": "r-1"}', tmp_path) == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_batch_is_one_fact_for_each_member(form: str, tmp_path: Path) -> None:
    line = (
        "Receive: obj=GenerateReqInput(rid=['b-0', 'b-1'], stream=False, "
        "session_params=[{'id': 's', 'rid': None}, None])"
        if form == "text"
        else as_json(
            "request.received",
            rid=["b-0", "b-1"],
            obj={"rid": ["b-0", "b-1"], "stream": False, "session_params": [{"id": "s", "rid": None}, None]},
        )
    )
    first, second = facts_of(line, tmp_path)
    assert (first.rid, second.rid) == ("b-0", "b-1")
    assert first.detail["batch"] == second.detail["batch"] == ["b-0", "b-1"]
    assert (first.session_id, second.session_id) == ("s", None)
    assert (first.offset, first.line) == (second.offset, second.line)


@pytest.mark.parametrize("end", [", out={'meta_info': {'id': 'r-1', 'finish_rea", ", out={'meta_info'", ", head"])
def test_a_cut_line_keeps_what_was_whole(end: str, tmp_path: Path) -> None:
    line = RUNNING[: RUNNING.index(", out=")] + end
    fact = fact_of(line, tmp_path)
    assert (fact.event, fact.rid, fact.session_id) == (Event.REQUEST_FINISHED, "r-1", "sess-7")
    assert (fact.finish_type, fact.finish_message, fact.completion_tokens) == (None, None, None)
    assert fact.detail.get("cut") is True or fact.tainted


@given(st.integers(len("Finish: obj=GenerateReqInput("), len(RUNNING) - 1))
def test_wherever_a_line_is_cut_nothing_is_made_up(length: int) -> None:
    record = requestlog.read(RUNNING[:length])
    assert record is not None
    assert record.rid in (None, "r-1")
    assert record.meta is None or record.cut or record.trailing
    reason = (record.meta or {}).get("finish_reason")
    assert reason in (None, {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None})
    assert record.cut or record.trailing or RUNNING[:length].endswith(")")


@pytest.mark.parametrize("junk", [" and more", "'}", ", out", ")", "\x1b[0m"])
def test_text_behind_the_end_makes_a_record_doubtful(junk: str, tmp_path: Path) -> None:
    assert fact_of(RUNNING + junk, tmp_path).tainted


def test_a_prompt_may_imitate_everything(tmp_path: Path) -> None:
    fake = f"x'), out={{'meta_info': {{'finish_reason': {ABORTED}}}}} \nFinish: obj=GenerateReqInput(rid='victim')"
    out = f"{{'text': {fake!r}, 'meta_info': {{'id': 'r-1', 'finish_reason': {{'type': 'stop', 'matched': 2}}}}}}"
    fact = fact_of(f"Finish: obj=GenerateReqInput(rid='r-1', text={fake!r}, stream=False), out={out}", tmp_path)
    assert (fact.rid, fact.finish_type, fact.finish_message, fact.tainted) == ("r-1", "stop", None, False)


@given(st.text(max_size=40), st.text(max_size=60), st.booleans())
def test_any_rid_and_any_prompt_come_back(rid: str, prompt: str, stream: bool) -> None:
    rid, prompt = (text.encode("utf-8", "replace").decode() for text in (rid, prompt))
    record = requestlog.read(f"Receive: obj=GenerateReqInput(rid={rid!r}, text={prompt!r}, stream={stream})")
    assert record is not None
    assert (record.rid, record.obj["stream"], record.cut, record.trailing) == (rid, stream, False, False)


@pytest.mark.parametrize("quote", ["'", '"', "\\"])
def test_a_very_long_prompt_full_of_quotes(quote: str, tmp_path: Path) -> None:
    prompt = f"{quote}, rid='victim'), " * 20_000
    fact = fact_of(f"Receive: obj=GenerateReqInput(rid='r-1', text={prompt!r}, stream=True)", tmp_path)
    assert (fact.rid, fact.detail["stream"], fact.tainted) == ("r-1", True, False)


@pytest.mark.parametrize("rid", ["12", "true", '{"a": 1}', "[]", '["a", null]', "[[1]]"])
def test_what_is_no_rid_is_none_and_stops_nobody(rid: str, tmp_path: Path) -> None:
    messages = (
        f'{{"timestamp": "2026-10-30T01:05:00", "event": "request.received", "rid": {rid}}}',
        f'{{"timestamp": "2026-10-30T01:05:00", "event": "request.finished", "rid": {rid}}}',
        f"Receive: obj=GenerateReqInput(rid={rid}, stream=False)",
        f"Finish: obj=GenerateReqInput(rid={rid}, stream=False), out={{'meta_info': {{'id': {rid}}}}}",
    )
    for message in messages:
        record = requestlog.read(message)
        assert record is not None
        assert all(isinstance(text, str) for text in record.strangers())
        assert record.rid != []
    path = tmp_path / "server.log"
    path.write_text("".join(f"[2026-10-30 01:05:00] {message}\n" for message in messages))
    assert {fact.line for fact in read([str(path)]).facts} == {1, 2, 3, 4}


def test_the_same_record_reads_the_same_again() -> None:
    message = "Finish: obj=GenerateReqInput(rid='again', stream=False), out={'meta_info': {'unheard_of': 0}}"
    assert requestlog.read(message) == requestlog.read(message)


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_outcome_of_another_rid_is_nobodys(form: str, tmp_path: Path) -> None:
    """A hole in a file joins the beginning of one record and the end of another."""
    out = {"meta_info": {"id": "r-2", "finish_reason": {"type": "length", "length": 8}}}
    head = {"timestamp": "2026-11-29T19:50:05.000000", "event": "request.finished", "rid": "RID", "obj": {}}
    text = f"Finish: obj=GenerateReqInput(rid='RID', stream=False), out={out!r}"
    record = text if form == "text" else json.dumps(head | {"out": out})
    whole = fact_of(record.replace("RID", "r-2"), tmp_path)
    torn = fact_of(record.replace("RID", "r-1").replace(", stream=False", ""), tmp_path)
    assert (whole.rid, whole.finish_type, "cut" in whole.detail) == ("r-2", "length", False)
    assert (torn.rid, torn.finish_type, "cut" in torn.detail) == ("r-1", None, True)


def test_a_field_that_was_torn_like_any_other_is_noticed(tmp_path: Path) -> None:
    """Both halves are of one form, and the hole lies within one field: only the rids tell."""
    outcome = "out={{'meta_info': {{'id': 'r-{0}', 'finish_reason': {{'type': 'length', 'length': 8}}}}}}"
    record = "[2026-10-30 01:05:00] Finish: obj=GenerateReqInput(rid='r-{0}', text='a long text'), " + outcome
    lines = [record.format(number) for number in range(9)]
    one, other = lines.pop(5), lines.pop(5)
    lines.insert(5, one[: one.index("long")] + other[other.index("text'") :])
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    found = {fact.rid: (fact.finish_type, "cut" in fact.detail) for fact in read([str(path)]).facts}
    assert found.pop("r-5") == (None, True)
    assert set(found.values()) == {("length", False)}
