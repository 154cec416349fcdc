"""OpenTelemetry traces: OTLP JSON as the collector's file exporter writes it, and Jaeger's JSON.

Only spans that name a request say something here; of these the ids, the time and an error are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.exhibits import Row, Unreadable

MAX_BYTES = 256 << 20
"""Bytes of one JSON document: a line of OTLP, or a whole answer of Jaeger."""

_RIDS = ("rid", "sglang.rid", "gen_ai.response.id", "gen_ai.request.id")
_REQUEST_IDS = ("request_id", "x-request-id", "http.request.header.x-request-id")
_ROOMS = ("bootstrap_room", "sglang.bootstrap_room")
_ERROR = 0.001  # seconds that a span's time may be off


def rows(path: Path) -> Iterator[Row]:
    """The facts of a file of traces. Raises `Unreadable`, OSError."""
    with path.open("rb") as file:
        first = file.readline(MAX_BYTES)
        whole = not first.rstrip().endswith(b"}") or b'"traceID"' in first[:4096]
        texts = [first + file.read(MAX_BYTES)] if whole else _lines(first, file)
        for text in texts:
            yield from _document(text)


def _lines(first: bytes, file: Any) -> Iterator[bytes]:
    line = first
    while line:
        yield line
        line = file.readline(MAX_BYTES)


def _document(text: bytes) -> Iterator[Row]:
    if not text.strip():
        return
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise Unreadable(f"damaged JSON of traces: {problem}") from None
    if not isinstance(document, dict):
        return
    for resource in _dicts(document.get("resourceSpans")):
        for scope in _dicts(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
            for span in _dicts(scope.get("spans")):
                yield from _otlp(span)
    for trace in _dicts(document.get("data")):
        for span in _dicts(trace.get("spans")):
            yield from _jaeger(span)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _otlp(span: dict[str, Any]) -> Iterator[Row]:
    attributes = {str(a.get("key")): _value(a.get("value")) for a in _dicts(span.get("attributes"))}
    status = span.get("status")
    failed = (
        status.get("message") or "error"
        if isinstance(status, dict) and status.get("code") in (2, "STATUS_CODE_ERROR")
        else None
    )
    start, end = _number(span.get("startTimeUnixNano")), _number(span.get("endTimeUnixNano"))
    yield from _row(span.get("traceId"), span.get("name"), attributes, start, end, 1e9, failed)


def _value(value: Any) -> Any:
    """An OTLP value: `{"stringValue": …}` and the like."""
    return next(iter(value.values()), None) if isinstance(value, dict) else value


def _jaeger(span: dict[str, Any]) -> Iterator[Row]:
    tags = {str(tag.get("key")): tag.get("value") for tag in _dicts(span.get("tags"))}
    start, duration = _number(span.get("startTime")), _number(span.get("duration"))
    end = start + duration if start is not None and duration is not None else None
    failed = str(tags.get("otel.status_description") or "error") if tags.get("error") in (True, "true") else None
    yield from _row(span.get("traceID"), span.get("operationName"), tags, start, end, 1e6, failed)


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _row(
    trace_id: Any, name: Any, attributes: dict[str, Any], start: int | None, end: int | None, unit: float, failed: Any
) -> Iterator[Row]:
    rid, request_id = (_first(attributes, keys) for keys in (_RIDS, _REQUEST_IDS))
    room = _number(_first(attributes, _ROOMS))
    if (rid is None and request_id is None and room is None) or not isinstance(trace_id, str):
        return
    detail = {"trace_id": trace_id.lower(), "request_id": request_id, "name": str(name)[:200], "error": failed}
    row: Row = {"event": Event.TRACE_SPAN, "pattern": "trace", "rid": rid, "room": room}
    row["detail"] = {key: value for key, value in detail.items() if value is not None}
    if start is not None:
        row |= {"at": start / unit, "at_error": _ERROR, "at_from": "meta"}
        if end is not None:
            row["detail"]["seconds"] = (end - start) / unit
    yield row


def _first(attributes: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((str(attributes[key])[:1000] for key in keys if attributes.get(key) not in (None, "")), None)
