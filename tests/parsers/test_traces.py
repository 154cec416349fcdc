"""Traces: the spans that name a request, in both shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_lifecycle.parsers import table
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.log import read

TRACE = "4BF92F3577B34DA6A3CE929D0E0E4736"


def _otlp(**attributes: object) -> dict[str, object]:
    kinds = {str: "stringValue", int: "intValue"}
    listed = [{"key": k, "value": {kinds[type(v)]: v if isinstance(v, str) else str(v)}} for k, v in attributes.items()]
    span = {
        "traceId": TRACE,
        "spanId": "00f067aa0ba902b7",
        "name": "Req r-1",
        "startTimeUnixNano": "1775479859000000000",
        "endTimeUnixNano": "1775479861500000000",
        "attributes": listed,
        "status": {"code": 2, "message": "aborted"},
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def _jaeger() -> dict[str, object]:
    tags = [{"key": "rid", "value": "r-1"}, {"key": "bootstrap_room", "value": 77}, {"key": "error", "value": True}]
    span = {
        "traceID": TRACE,
        "operationName": "Req r-1",
        "startTime": 1775479859000000,
        "duration": 2500000,
        "tags": tags,
    }
    return {"data": [{"traceID": TRACE, "spans": [span, {"traceID": TRACE, "tags": []}, "x"]}]}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(_otlp(rid="r-1", bootstrap_room=77)) + "\n",
        json.dumps(_otlp(x="no request")) + "\n" + json.dumps(_otlp(rid="r-1", bootstrap_room=77)) + "\n",
        json.dumps(_otlp(rid="r-1", bootstrap_room=77), indent=2),
        json.dumps(_jaeger()),
        json.dumps(_jaeger(), indent=1),
    ],
)
def test_a_span_that_names_a_request(text: str, tmp_path: Path) -> None:
    (tmp_path / "traces.json").write_text(text)
    (fact,) = read([str(tmp_path)]).facts
    assert (fact.event, fact.rid, fact.room, fact.at) == (Event.TRACE_SPAN, "r-1", 77, 1775479859.0)
    assert fact.detail["trace_id"] == TRACE.lower()
    assert fact.detail["seconds"] == 2.5
    assert fact.detail["error"]
    assert list(table.facts(table.frame([fact]))) == [fact]


@pytest.mark.parametrize("text", ['{"resourceSpans":[{', '{"data":[{"traceID":1,"spans":[{"traceID":{}}', "{"])
def test_damaged_traces_are_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    evidence = read([str(tmp_path / "t.json")])
    assert evidence.facts == []
    assert evidence.failed or evidence.sources[0].warnings


@pytest.mark.parametrize("value", [None, 5, [5], {"scopeSpans": 5}, [{"scopeSpans": [{"spans": [{"attributes": 5}]}]}]])
def test_traces_of_another_shape_say_nothing(value: object, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"resourceSpans": value}) + "\n")
    assert read([str(tmp_path)]).facts == []
