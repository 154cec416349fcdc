"""SGLang's request log: `Receive:`, `Receive OpenAI:` and `Finish:` in text, `request.*` in JSON, and `in=…, out=…`.

Observed in `managers/tokenizer_manager.py` (0.3.6 to 0.5.6), `utils/request_logger.py` (0.5.7 on) and
`utils/common.py:dataclass_to_string_truncated`. Only the fields that say something about a request's life are read;
prompts and outputs are stepped over, quote-aware.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from sglang_lifecycle.parsers import literals

TEXT_HEADS = {
    "Receive: obj=": "request.received",
    "Finish: obj=": "request.finished",
    "Receive OpenAI: obj=": "request.received.openai",
    "in=GenerateReqInput(": "request.finished",
    "in=EmbeddingReqInput(": "request.finished",
}
JSON_HEAD = '{"timestamp": "'
REQUEST_HEADS = (*TEXT_HEADS, JSON_HEAD)
_EVENTS = frozenset({"request.received", "request.finished", "request.received.openai"})
_CLASS = re.compile(r"\w+ReqInput\(")
_CUT_JSON = re.compile(
    r'\{"timestamp": "(?P<timestamp>[^"]+)", "event": "(?P<event>request\.[a-z.]+)"'
    r'(?:, "rid": (?P<rid>"(?:[^"\\]|\\.)*"))?'
)

OBJ_FIELDS = frozenset(
    "rid stream session_params session_id session session_rid sampling_params priority bootstrap_room background "
    "text input_ids http_worker_ipc routed_dp_rank data_parallel_rank n user model".split()
)
META_FIELDS = frozenset(
    "id finish_reason prompt_tokens completion_tokens cached_tokens e2e_latency queue_time num_retractions "
    "total_retractions dp_rank response_sent_to_client_ts request_received_ts forward_entry_time "
    "request_finished_ts".split()
)
SAMPLING_FIELDS = frozenset("n max_new_tokens json_schema regex ebnf structural_tag".split())
OPENING = 80  # characters of a prompt that are kept in memory, to tell warm-up and health checks


@dataclass(slots=True)
class RequestRecord:
    """One record of the request log, payload left out."""

    event: str
    rid: str | list[str] | None
    obj: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] | None = None
    timestamp: str | None = None
    fields: tuple[str, ...] = ()
    """Names of all fields of `obj`, then of `meta_info` as `meta.<name>`: they tell the release."""
    has_output: bool = False
    finish_keys: tuple[str, ...] = ()
    """The keys of `finish_reason` in their order, which tells where the request was ended."""
    cut: bool = False
    trailing: bool = False
    """Text follows the record's balanced end: it is the tail of something else, and the record an imitation."""


def read(message: str) -> RequestRecord | None:
    """Read a record from its message (what follows the prefix), or None where it is no request-log record."""
    if message.startswith(JSON_HEAD):
        return _read_json(message)
    for head, event in TEXT_HEADS.items():
        if message.startswith(head):
            return _read_text(message, event)
    return None


def _read_text(message: str, event: str) -> RequestRecord:
    record = RequestRecord(event, None)
    start = message.index("=") + 1
    names: list[str] = []
    try:
        position = _read_obj(message, start, record, names)
        while message.startswith(", ", position):
            equals = message.find("=", position)
            bracket = equals + 1
            if equals < 0 or message[bracket : bracket + 1] not in ("{", "["):
                break
            spans, end = literals.split(message, bracket)
            if message[position + 2 : equals] == "out" and message[bracket] == "{":
                _read_out(message, spans, record, names)
            position = end
        record.trailing = position < len(message) and event != "request.received.openai"
    except literals.Unbalanced:
        record.cut = True
    record.fields = tuple(names)
    return record


def _read_obj(message: str, start: int, record: RequestRecord, names: list[str]) -> int:
    """Read `ClassName(…)` or the OpenAI body `{…}` that begins at `start`; returns the position after it."""
    match = _CLASS.match(message, start)
    items = literals.call_fields
    if match is None:
        if message[start : start + 1] != "{":
            return len(message)
        items = literals.dict_items
        bracket = start
    else:
        bracket = match.end() - 1
    try:
        spans, end = literals.split(message, bracket)
    except literals.Unbalanced as cut:
        spans, end = cut.spans, -1
    for name, a, b in items(message, spans):
        names.append(name)
        if name in OBJ_FIELDS:
            record.obj[name] = _field(name, message, a, b)
    record.rid = record.obj.pop("rid", None)
    if end < 0:
        raise literals.Unbalanced(spans)
    return end


def _field(name: str, message: str, start: int, end: int) -> Any:
    if name in ("text", "input_ids"):  # payload: its opening and its size are enough
        return _payload(name, message, start, end)
    parsed = literals.value(message[start:end])
    return _sampling(parsed) if name == "sampling_params" else parsed


def _payload(name: str, message: str, start: int, end: int) -> Any:
    """The opening of a prompt, or `Size` of one; of a prompt that the level cut short neither is known."""
    if message.startswith("None", start):
        return None
    if " ... " in message[start:end] and _CUT_VALUE.search(message, start, end):
        return None
    if message[start] == "[" and (name == "text" or message.startswith("[[", start)):
        return None  # a batch: the prompts of several
    if name == "input_ids":
        ids = message.count(",", start, end) + 1
        return [0] if message[start:end] == "[0]" else Size(ids)
    return message[start + 1 : min(end - 1, start + OPENING)] if end - start > 1 else ""


_CUT_VALUE = re.compile(r"""['"\]] \.\.\. ['"\[]""")


class Size(int):
    """How many tokens a prompt has, where the prompt itself is not kept."""


def _sampling(params: Any) -> Any:
    """Of the sampling parameters only what decides about a life; a grammar is reduced to its presence."""
    if isinstance(params, list):
        return [_sampling(p) for p in params[:1]]
    if not isinstance(params, dict):
        return None
    kept = {k: params[k] for k in SAMPLING_FIELDS if params.get(k) is not None}
    return {k: v if isinstance(v, int) else True for k, v in kept.items()}


def _read_out(message: str, spans: list[tuple[int, int]], record: RequestRecord, names: list[str]) -> None:
    record.meta = {}
    for key, a, b in literals.dict_items(message, spans):
        if key == "meta_info" and message[a : a + 1] == "{":
            inner, _ = literals.split(message, a)
            for name, start, end in literals.dict_items(message, inner):
                names.append(f"meta.{name}")
                if name in META_FIELDS:
                    record.meta[name] = literals.value(message[start:end])
        elif key in ("text", "output_ids"):
            record.has_output = record.has_output or message[a:b].strip() not in ("''", '""', "[]", "None")
    _note_finish_keys(record)


def _note_finish_keys(record: RequestRecord) -> None:
    reason = (record.meta or {}).get("finish_reason")
    if isinstance(reason, dict):
        record.finish_keys = tuple(reason)


def _read_json(message: str) -> RequestRecord | None:
    try:
        data = orjson.loads(message)
    except orjson.JSONDecodeError:
        return _read_cut_json(message)
    if not isinstance(data, dict) or data.get("event") not in _EVENTS:
        return None
    obj = data.get("obj")
    obj = obj if isinstance(obj, dict) else {}
    out = data.get("out")
    record = RequestRecord(data["event"], data.get("rid", obj.get("rid")), timestamp=data.get("timestamp"))
    record.obj = {k: v for k, v in obj.items() if k in OBJ_FIELDS and k != "rid"}
    if isinstance(record.obj.get("text"), str):
        record.obj["text"] = record.obj["text"][:OPENING]
    if isinstance(ids := record.obj.get("input_ids"), list) and ids != [0]:
        known = all(isinstance(i, int) for i in ids)
        record.obj["input_ids"] = Size(len(ids)) if known else None
    if "sampling_params" in record.obj:
        record.obj["sampling_params"] = _sampling(record.obj["sampling_params"])
    names = list(obj)
    if isinstance(out, dict):
        meta = out.get("meta_info")
        meta = meta if isinstance(meta, dict) else {}
        names += [f"meta.{k}" for k in meta]
        record.meta = {k: v for k, v in meta.items() if k in META_FIELDS}
        record.has_output = bool(out.get("text") or out.get("output_ids"))
        _note_finish_keys(record)
    record.fields = tuple(names)
    return record


def _read_cut_json(message: str) -> RequestRecord | None:
    head = _CUT_JSON.match(message)
    if head is None or head["event"] not in _EVENTS:
        return None
    rid = orjson.loads(head["rid"]) if head["rid"] else None
    return RequestRecord(head["event"], rid, timestamp=head["timestamp"], cut=True)
