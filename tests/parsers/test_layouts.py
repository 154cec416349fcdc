"""A remembered layout finds exactly what a scan finds, or nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.parsers import literals, requestlog
from sglang_lifecycle.parsers.layouts import Templates, scan
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


def test_templates_find_what_a_scan_finds() -> None:
    templates = Templates(WANTED)
    found = 0
    for message in recorded():
        layout = templates.layout(message, message[:8], message.index("=") + 1)
        values = {name: message[start:end] for name, start, end in layout.values if name in WANTED}
        if layout.template is not None:
            assert not values.keys() & layout.template.settled.keys()
            values |= layout.template.settled
            found += 1
        assert values == scanned(message)
    assert found > len(recorded()) * 0.8  # most records come from a template


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
        layout = templates.layout(record, "F", 12)
        values = {name: record[start:end] for name, start, end in layout.values}
        values |= layout.template.settled if layout.template is not None else {}
        assert literals.value(values["rid"]) == rid
        assert literals.value(values["meta.finish_reason"]) == reason
        assert values["stream"] == str(stream)


def test_a_record_that_goes_on_after_its_end_fits_no_template() -> None:
    record = "Finish: obj=GenerateReqInput(rid='a', stream=False), out={'meta_info': {'id': 'a'}}"
    templates = Templates(WANTED)
    assert templates.layout(record, "F", 12).end == len(record)
    assert templates.layout(record + " does not exist", "F", 12).end == len(record)


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
]


FIELDS = st.sampled_from([*DAMAGED, "input_ids=[3, 4]", "input_ids=None", "text='a'"])


@given(st.lists(st.tuples(FIELDS, st.sampled_from(ENDS)), min_size=2, max_size=8))
def test_damaged_records_read_alike_after_others(parts: list[tuple[str, str]]) -> None:
    """What earlier records left behind changes nothing."""
    messages = [f"Finish: obj=GenerateReqInput(rid='a', {field}, stream=False){end}" for field, end in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requestlog, "_templates", Templates(requestlog._templates.wanted))
        together = [requestlog.read(message) for message in messages]
        alone = []
        for message in messages:
            patch.setattr(requestlog, "_templates", Templates(requestlog._templates.wanted))
            alone.append(requestlog.read(message))
    assert together == alone
