"""The tables described column by column: what `lifecycle schema` and the documentation say of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EVIDENCE = {
    "event": "the kind of fact",
    "source": "the input, as the user knows it",
    "line": "the line in it, from 1",
    "offset": "byte offset of the record",
    "length": "length of the record in bytes",
    "process": "the log that the source is a part of: the same for all files that it was rotated into",
    "rank": "the rank that wrote it, as the line's prefix names it",
    "at": "when it happened, UTC epoch seconds: the middle of the interval",
    "at_error": "half the interval's width, in seconds",
    "at_from": "own: the line's stamp; neighbours: the lines around; meta: inside the record; wrapper: a collector's",
    "tainted": "whether a stranger may have written it: raw user text stands in or just before the record",
    "pattern": "the message that was recognised; an id of parsers/patterns.toml",
    "rid": "the request id",
    "session_id": "the session",
    "parent_rid": "the request that a session request continues",
    "room": "the bootstrap room of a disaggregated deployment",
    "finish_type": "stop, length or abort",
    "finish_message": "the text of the finish reason",
    "finish_shape": "which part of SGLang writes a finish reason of this shape",
    "message_id": "the finish reason's message, as an id of parsers/patterns.toml",
    "status_code": "the status in the finish reason",
    "err_type": "the error type in the finish reason",
    "prompt_tokens": "tokens of the prompt",
    "completion_tokens": "tokens that were produced",
    "cached_tokens": "tokens of the prompt that were cached",
    "retractions": "how often it was sent back to the queue",
    "e2e_s": "seconds from its arrival to its end",
    "queue_s": "seconds in the queue",
    "forward_s": "seconds in batches",
    "running": "how many requests ran",
    "queued": "how many requests waited",
    "token_usage": "the share of the KV cache that was in use",
    "detail": "what only some kinds of facts have; null for the rest",
}
"""What each column of the evidence table means."""

_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": ["string", "null"]},
    "texts": {"type": "array", "items": {"type": "string"}},
    "bool": {"type": "boolean"},
    "time": {"type": ["string", "null"], "format": "date-time"},
    "float": {"type": ["number", "null"]},
    "int": {"type": ["integer", "null"]},
}


def requests() -> dict[str, Any]:
    """The schema of a row of the request table (CSV, Parquet, the library)."""
    from sglang_lifecycle.cli.requests_table import COLUMNS

    properties = {name: _KINDS[kind] | {"description": meaning} for name, (kind, meaning) in COLUMNS.items()}
    return _object(properties, "Request", "A row of the request table.")


def evidence() -> dict[str, Any]:
    """The schema of a row of the evidence table (`lifecycle ingest`, the library)."""
    from sglang_lifecycle.parsers.table import COLUMNS

    properties = {
        name: _of(kind) | ({"description": EVIDENCE[name]} if name in EVIDENCE else {})
        for name, kind in COLUMNS.items()
    }
    return _object(properties, "Fact", "A row of the evidence table.")


def _object(properties: Mapping[str, Any], title: str, description: str) -> dict[str, Any]:
    return {
        "title": title,
        "description": description,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _of(kind: Any) -> dict[str, Any]:
    """The schema of values of a Polars type."""
    import polars as pl

    if isinstance(kind, pl.Enum):
        return {"enum": [*kind.categories, None]}
    if isinstance(kind, pl.List):
        return {"type": ["array", "null"], "items": _of(kind.inner)}
    if isinstance(kind, pl.Struct):
        inner = {each.name: _of(each.dtype) for each in kind.fields}
        return {"type": ["object", "null"], "properties": inner, "additionalProperties": False}
    if kind.is_integer():
        return {"type": ["integer", "null"]}
    names = {pl.String: "string", pl.Float64: "number", pl.Boolean: "boolean"}
    return {"type": [names[kind], "null"]}
