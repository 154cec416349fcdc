"""The lines of SGLang's gateway (`smg`, before that `sglang_router_rs`): what became of a request in front of servers.

Rust's `tracing` writes them, as text `time LEVEL span{fields}: target: file:line: message` or as JSON; a span within
another follows it behind a colon. The span `http_request` names the request: `request_id` is the client's x-request-id
or one that the gateway made (`chatcmpl-…`, `cmpl-…`, `gnt-…`, `resp-…`). Each server gives the request an rid of its
own.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from sglang_lifecycle.parsers.evidence import Event

_STAMP = r"(?P<stamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
_FIELDS = r'(?:[^{}"]|"(?:[^"\\]|\\.)*+")*+'
_INNER = rf"(?::http_request\{{method=\w+ uri={_FIELDS}\}})*"  # a path may imitate a span, but it holds no blank
_PROGRAM = r"(?:smg|sglang_router_rs|sglang_router|sgl_model_gateway)"
_LINE = re.compile(
    rf"{_STAMP}\s+(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) (?P<spans>(?:\w+\{{{_FIELDS}\}}{_INNER}: )*)"
    rf"(?P<target>{_PROGRAM}(?:::[\w:-]+)?): (?:(?:\S+\.rs:\d+): )?(?P<message>.*)",
    re.DOTALL,
)
_FIELD = re.compile(r'(?<!\w)(\w+)=((?:[^\s{}"]|"(?:[^"\\]|\\.)*+")++)')
_TARGET = re.compile(rf"{_PROGRAM}\b")
_URL = re.compile(r"https?://[\w.:\[\]-]+")

_DONE = {
    "finished processing request": Event.GATEWAY_ANSWERED,
    "request failed with server error": Event.GATEWAY_ANSWERED,
    "request failed with client error": Event.GATEWAY_ANSWERED,
    "started processing request": Event.GATEWAY_RECEIVED,
}
_REFUSED = re.compile(
    r"Failed to select PD pair|No available (?:prefill |decode )?(?:workers|servers)|No healthy workers"
    r"|no_available_workers|server_selection_failed|[Rr]ate limit(?:ed| exceeded)|Queue: request timed out"
    r"|Request already timed out in queue|queue is full|circuits open",
)
"""Refusals that come before any server is asked."""


class Record(NamedTuple):
    """One line: `stamp` as written, and what it says."""

    stamp: str
    event: Event
    detail: dict[str, Any]


def read(line: str) -> Record | None:
    """A line of a gateway, or None where it is none, or says nothing of a request."""
    if line[:2] == "20":
        match = _LINE.match(line)
        if match is None:
            return None
        fields = {name: _text(value) for name, value in _FIELD.findall(match["spans"])}
        return _record(match["stamp"], match["level"], fields, match["message"])
    if line[:2] == '{"' and '"target"' in line:
        return _json(line)
    return None


def _json(line: str) -> Record | None:
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(data, dict) or not _TARGET.match(str(data.get("target"))):
        return None
    said = data.get("fields")
    said = said if isinstance(said, dict) else {"message": data.get("message")}
    spans = [data.get("span"), *(data["spans"] if isinstance(data.get("spans"), list) else ())]
    fields = {k: str(v) for span in reversed(spans) if isinstance(span, dict) for k, v in span.items()}
    fields |= {k: str(v) for k, v in said.items() if k not in ("message", "error")}
    message = " ".join(str(said[k]) for k in ("message", "error") if said.get(k) is not None)
    return _record(str(data.get("timestamp")), str(data.get("level")), fields, message)


def _text(value: str) -> str:
    """A field's value without its quotes; `tracing` escapes as Rust does, which JSON reads where it is the same."""
    if not value.startswith('"'):
        return value
    try:
        return str(orjson.loads(value))
    except orjson.JSONDecodeError:
        return value[1:-1]


def _record(stamp: str, level: str, fields: dict[str, str], message: str) -> Record | None:
    request_id = fields.get("request_id")
    if not request_id or request_id == "None":
        return None
    event = next((e for text, e in _DONE.items() if message.startswith(text)), None)
    if event is None:
        if level not in ("ERROR", "WARN"):
            return None
        event = Event.GATEWAY_REFUSED if _REFUSED.search(message) else Event.GATEWAY_FAILED
    detail: dict[str, Any] = {"request_id": request_id, "error": message[:400]}
    status = fields.get("status_code") or fields.get("status") or ""
    if status[:3].isdigit():
        detail["http_status"] = int(status[:3])
    if fields.get("uri"):
        detail["path"] = fields["uri"]
    worker = fields.get("worker_url") or fields.get("worker") or next(iter(_URL.findall(message)), None)
    if worker:
        detail["worker_url"] = worker
    return Record(stamp, event, detail)


_ID_HEADERS = ("x-request-id", "x-correlation-id", "x-trace-id", "request-id")  # those that a gateway takes its id from
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def outer_ids(headers: Any, trace_header: Any) -> dict[str, str]:
    """The ids under which those in front of a server know a request, as its request log has them.

    `headers` are those of SGLANG_LOG_REQUEST_HEADERS (0.5.9 on), `trace_header` is W3C's `traceparent` (0.5.7 on).
    """
    found: dict[str, str] = {}
    if not headers and not trace_header:
        return found
    for holder in (headers, trace_header):
        if not isinstance(holder, dict):
            continue
        texts = {str(name).lower(): value for name, value in holder.items() if isinstance(value, str)}
        request_id = next((texts[name] for name in _ID_HEADERS if texts.get(name)), None)
        if request_id is not None:
            found.setdefault("request_id", request_id[:1000])
        if match := _TRACEPARENT.fullmatch(texts.get("traceparent", "")):
            found.setdefault("trace_id", match[1])
    return found
