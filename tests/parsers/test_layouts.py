"""A remembered layout finds exactly what a scan finds, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.parsers import clock, lineforms, literals, log, ranges, requestlog
from sglang_lifecycle.parsers.evidence import Fact, Source
from sglang_lifecycle.parsers.forms import unpacked
from sglang_lifecycle.parsers.layouts import Templates, scan
from sglang_lifecycle.parsers.lines import Forward
from sglang_lifecycle.parsers.prefix import Prefix

ROOT = Path(__file__).parents[2] / "fixtures"
WANTED = frozenset({"rid", "stream", "text", "session_params", "meta.finish_reason", "meta.e2e_latency", "out.text"})


@cache
def recorded() -> tuple[str, ...]:
    """The messages of every text record of the request logs that were recorded."""
    prefix = Prefix()
    messages = []
    for path in sorted(ROOT.glob("0.*/*/logs/**/*.log")):
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            head = prefix.split(line)
            if head is not None and head.message.startswith(tuple(requestlog.TEXT_HEADS)):
                messages.append(head.message)
    return tuple(messages)


def scanned(message: str) -> dict[str, str]:
    values = scan(message, message.index("=") + 1).values
    return {name: message[start:end] for name, start, end in values if name in WANTED}


def found(templates: Templates, message: str, head: str) -> dict[str, str] | None:
    known = templates.find(message.encode(), 0, head)
    if known is None:
        templates.scan(message, head, message.index("=") + 1)
        return None
    template, texts = known
    varying = dict(zip(template.varies, [text.decode() for text in texts], strict=True))
    assert not varying.keys() & template.settled.keys()
    return {name: text for name, text in (varying | template.settled).items() if name in WANTED}


def test_templates_find_what_a_scan_finds() -> None:
    templates = Templates(WANTED)
    values = [(message, found(templates, message, message[:8])) for message in recorded()]
    assert all(each == scanned(message) for message, each in values if each is not None)
    assert sum(each is not None for _, each in values) > len(values) * 0.8  # most records come from a template


NASTY = st.text(st.sampled_from("ab'\"\\,(){}[]=: \n") | st.characters(codec="utf-8"), max_size=60)


@given(st.lists(st.tuples(NASTY, NASTY, st.booleans(), st.one_of(st.none(), NASTY)), min_size=2, max_size=6))
def test_hostile_values_are_stepped_over(rows: list[tuple[str, str, bool, str | None]]) -> None:
    templates = Templates(WANTED)
    for rid, text, stream, message in rows:
        reason = {"type": "abort", "message": message} if message is not None else None
        record = (
            f"Finish: obj=GenerateReqInput(rid={rid!r}, text={text!r}, n=1, stream={stream}, lora=None), "
            f"out={{'text': {text!r}, 'meta_info': {{'id': {rid!r}, 'finish_reason': {reason!r}, 'e2e_latency': 1.5}}}}"
        )
        values = found(templates, record, "F")
        if values is None:
            values = scanned(record)
        assert literals.value(values["rid"]) == rid
        assert literals.value(values["meta.finish_reason"]) == reason
        assert values["stream"] == str(stream)


def test_a_record_that_goes_on_after_its_end_fits_no_template() -> None:
    record = "Finish: obj=GenerateReqInput(rid='a', stream=False), out={'meta_info': {'id': 'a'}}"
    templates = Templates(WANTED)
    assert templates.scan(record, "F", 12).end == len(record)
    assert templates.find(record.encode(), 0, "F") is not None
    assert templates.find(f"{record} does not exist".encode(), 0, "F") is None


DAMAGED = [
    "input_ids=[3, 378, 204) 77, 78]",
    "input_ids=)[3, 378]",
    "input_ids=",
    "input_ids=[1}, 2]",
    "text='a', text='b'",
    "sampling_params={'n': 1}, sampling_params=None",
]
ENDS = [
    "",
    ", out=[]",
    ", out={'meta_info': 5}",
    ", out={'meta_info': {'id': 'a', 'e2e_latency': 1.5}}",
    ", out={'text': 'x'}",
    ", out={'text': ''}",
]


FIELDS = st.sampled_from([*DAMAGED, "input_ids=[3, 4]", "input_ids=None", "text='a'"])


PREFIX = "[2026-10-30 01:05:00 TP0] "


def told(facts: Sequence[Fact]) -> list[str]:
    """Facts as text, since NaN is not itself; in which order details were found makes no difference."""
    return [repr(replace(fact, detail=dict(sorted(fact.detail.items())))) for fact in facts]


def read(lines: list[bytes]) -> list[str]:
    reader = log.reader(Source("log"), UTC)
    for line in Forward(BytesIO(b"".join(lines))):
        reader.feed(line)
    return told(reader.finish())


def carried(lines: list[bytes], folder: Path) -> list[str]:
    """What a range tells that holds them all, after it went from one process to another."""
    path = folder / "range.log"
    path.write_bytes(b"".join(lines))
    facts = unpacked(ranges.read_range(ranges.Place(path, 0, path.stat().st_size, 0), UTC).facts, "log", 0)
    clock.settle(facts)
    return told(facts)


def alike(lines: list[bytes]) -> bool:
    """Whether lines say the same when each record is scanned, and when they make up a range."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as own:
        patch.setattr(requestlog, "_templates", Templates(requestlog._templates.wanted))
        together, range_ = read(lines), carried(lines, Path(own))
        patch.setattr(requestlog, "find", lambda _line, _start: None)
        patch.setattr(lineforms, "form", lambda _line, _start: None)
        return together == range_ == read(lines)


@given(st.lists(st.tuples(FIELDS, st.sampled_from(ENDS)), min_size=2, max_size=8))
def test_damaged_records_read_alike_after_others(parts: list[tuple[str, str]]) -> None:
    """What earlier records left behind changes nothing."""
    messages = [f"Finish: obj=GenerateReqInput(rid='a', {field}, stream=False){end}" for field, end in parts]
    assert alike([f"{PREFIX}{message}\n".encode() for message in messages])


@pytest.mark.parametrize("path", sorted(ROOT.glob("0.*/*/logs/**/*.log")), ids=lambda path: path.parts[-4])
def test_recorded_logs_say_the_same_with_and_without_templates(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    assert alike([*lines, *lines])


REASONS = [
    "{'type': 'stop', 'matched': 2}",
    "{'type': 'length', 'length': 7}",
    "{'type': 'stop', 'matched': 'NaN happened'}",
    "{'type': 'abort', 'message': 'Aborted'}",
    "{'type': 'abort', 'message': 'Request waiting timeout reached.', 'status_code': 503, 'err_type': None}",
    "{'type': 'abort', 'message': 'a\\nb session s does not exist.', 'status_code': 400}",
    "None",
]
VALUES = {
    "rid": [repr("a"), repr("b" * 32), repr("it's"), repr("é→\n"), "None", "['a', 'b']", repr("x" * 3000)],
    "text": [repr("p" * 500), repr("→" * 90), repr("\"'\\"), "''", "None", "'head' ... 'tail'", "['a', 'b']"],
    "input_ids": ["None", "[0]", "[1, 2, 3]", "[[1], [2]]", "[1, 2] ... [8, 9]"],
    "stream": ["True", "False", "None"],
    "sampling_params": [
        "{}",
        "{'max_new_tokens': 7}",
        "{'max_new_tokens': 9, 'n': 2}",
        "{'stop': ['NaN happened']}",
        "{'json_schema': '{\\n\\n}'}",
        "[{'n': 3}, {'n': 4}]",
        "None",
    ],
    "session_params": ["None", "{}", "{'id': 's', 'rid': 'r', 'replace': True}", "[{'id': 's'}]", "{'id': 'a\\nb'}"],
    "lora_path": ["None", "'adapter'", "'a\\nb c d e f g h'"],
    "priority": ["None", "0", "-3", "1.5"],
    "bootstrap_room": ["None", "123456789012345678901234567890", "77"],
    "external_trace_header": ["None", "{'traceparent': '00-0123456789abcdef0123456789abcdef-0123456789abcdef-01'}"],
}
META = {
    "id": [repr("a")],
    "finish_reason": REASONS,
    "prompt_tokens": ["0", "17", "None", "1.5", "True", "99999999999999999999"],
    "num_retractions": ["0", "2", "None"],
    "e2e_latency": ["1.25", "nan", "inf", "3", "None"],
    "queue_time": ["0.5", "-1.0", "None"],
    "response_sent_to_client_ts": ["1761786300.25", "None"],
}


def fields(names: dict[str, list[str]]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.tuples(*(st.sampled_from(values) for values in names.values()))


OUTS = st.tuples(st.sampled_from(["''", "'out'", "'→\\n'", "None"]), st.sampled_from(["[]", "[1, 2]", "None", "[-1]"]))


@given(st.lists(st.tuples(fields(VALUES), st.one_of(st.none(), st.tuples(OUTS, fields(META)))), min_size=2, max_size=9))
def test_records_of_all_kinds_of_values_read_alike_after_others(
    rows: list[tuple[tuple[str, ...], tuple[tuple[str, str], tuple[str, ...]] | None]],
) -> None:
    lines = []
    for values, out in rows:
        obj = ", ".join(f"{name}={value}" for name, value in zip(VALUES, values, strict=True))
        line = f"Receive: obj=GenerateReqInput({obj})"
        if out is not None:
            (text, ids), meta = out
            info = ", ".join(f"{name!r}: {value}" for name, value in zip(META, meta, strict=True))
            line = f"Finish: obj=GenerateReqInput({obj}), out={{'text': {text}, 'output_ids': {ids}, "
            line += f"'meta_info': {{{info}}}}}"
        lines.append(f"{PREFIX}{line}\n".encode())
    assert alike([*lines, *lines])


def often(usual: str, *others: str) -> st.SearchStrategy[str]:
    """The usual text about as often as all others together."""
    return st.one_of(st.just(usual), st.sampled_from(others))


ANSWERS = st.builds(
    '{}{} - "POST {} HTTP/1.1" {}{}'.format,
    often("INFO:     ", "INFO:\t   ", "ERROR:   ", ""),
    often("127.0.0.1:53660", "::1:53660", "Receive", "٣:1", "[fe80::1]:5"),
    often("/generate", "/health", "/v1/chat/completions?x=1", "/get_load x", "/gene\x1b[0mrate", "/ü"),
    often("1.1", "2.1", "1"),
    often("200", "499", "2000"),
    often(" OK", "", " I'm a teapot", " OK \x1b[0m", ", self.rid='a'"),
)
NUMBERS = often("7", "0", "12345678901234567890", "-1", "1.5", "٣")
BATCHES = st.builds(
    "{}{} #new-seq: {}, #new-token: {}, #running-req: {}, #queue-req: {},{}".format,
    often("Prefill batch", "Decode batch"),
    often(".", ",", " [7],", ""),
    *([NUMBERS] * 4),
    often("", " #running-req: 9", " token usage: 0.5", ", self.rid='a'"),
)
DECODES = st.builds("Decode batch. #running-req: {}, #token: 5, #queue-req: {}".format, NUMBERS, NUMBERS)
STARTS = often(PREFIX, "", "[2026-10-30 01:05:00.123] ", "[2026-10-30 01:05:01]")


@pytest.mark.parametrize("messages", [ANSWERS, BATCHES, DECODES], ids=["answers", "batches", "decodes"])
@given(data=st.data())
def test_messages_read_alike_whether_their_form_is_known(data: st.DataObject, messages: st.SearchStrategy[str]) -> None:
    rows = data.draw(st.lists(st.tuples(STARTS, messages), min_size=4, max_size=16))
    assert alike([f"{start}{message}\n".encode() for start, message in rows])
