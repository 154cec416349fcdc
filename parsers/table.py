"""The evidence table as a Polars frame, and back.

One row per fact, the columns of `Fact`; `event` and `at_from` are Enums, and what only some kinds of facts have sits in
the struct column `detail`. Nothing is lost on the way: `facts(frame(evidence))` gives the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from sglang_lifecycle.parsers.evidence import Event, Fact

_TEXT, _INT, _FLOAT, _BOOL, _TEXTS = pl.String, pl.Int64, pl.Float64, pl.Boolean, pl.List(pl.String)

DETAIL: dict[str, Any] = {
    "again": _INT,
    "args": pl.List(pl.Struct({"name": _TEXT, "value": _TEXT})),
    "background": _BOOL,
    "batch": _TEXTS,
    "chunked_prefill_size": _INT,
    "context_len": _INT,
    "count": _INT,
    "created": _FLOAT,
    "cut": _BOOL,
    "dp_rank": _INT,
    "drop_previous_output": _BOOL,
    "durations": _TEXT,
    "elsewhere": _INT,
    "entry_time": _FLOAT,
    "error": _TEXT,
    "exception": _TEXT,
    "exit_code": _INT,
    "failed": _TEXT,
    "fields": _TEXTS,
    "finished": _BOOL,
    "forced": _BOOL,
    "forward_entry_time": _FLOAT,
    "frames": _TEXTS,
    "grammar": _BOOL,
    "has_output": _BOOL,
    "http_status": _INT,
    "kind": _TEXT,
    "last_line": _INT,
    "last_offset": _INT,
    "lora": _TEXT,
    "max_new_tokens": _INT,
    "max_running_requests": _INT,
    "max_total_tokens": _INT,
    "media": _BOOL,
    "method": _TEXT,
    "n": _INT,
    "name": _TEXT,
    "new_seq": _INT,
    "new_token": _INT,
    "offset": _INT,
    "opening": _TEXT,
    "path": _TEXT,
    "peer": _TEXT,
    "peer_rank": _INT,
    "pid": _INT,
    "place": _TEXT,
    "priority": _INT,
    "prompt_ids": _INT,
    "queued_rids": _TEXTS,
    "raw": _BOOL,
    "reason": _TEXT,
    "replace": _BOOL,
    "request_received_ts": _FLOAT,
    "response_sent_to_client_ts": _FLOAT,
    "request_id": _TEXT,
    "rids": _TEXTS,
    "running_rids": _TEXTS,
    "seconds": _FLOAT,
    "scheduler_rank": _INT,
    "session": _BOOL,
    "soft": _BOOL,
    "stop_nan": _BOOL,
    "stream": _BOOL,
    "trace_id": _TEXT,
    "unfinished": _INT,
    "worker": _BOOL,
    "worker_url": _TEXT,
    "written": _FLOAT,
    "aborted": _BOOL,
}
"""The keys of a fact's `detail`, with their types."""

_SPECIAL = {
    "event": pl.Enum([str(e) for e in Event]),
    "at_from": pl.Enum(["own", "neighbours", "meta", "wrapper"]),
    "detail": pl.Struct(DETAIL),
}
_INTEGERS = frozenset(
    "line offset length room status_code prompt_tokens completion_tokens cached_tokens retractions running "
    "queued".split()
)
_FLOATS = frozenset("at at_error e2e_s queue_s forward_s token_usage".split())
COLUMNS: dict[str, Any] = {
    name: _SPECIAL.get(name, _INT if name in _INTEGERS else _FLOAT if name in _FLOATS else _TEXT)
    for name in Fact.__slots__
} | {"tainted": _BOOL, "room": pl.UInt64}
"""The columns of the table, with their types."""

SCHEMA = pl.Schema(COLUMNS)


def frame(facts: Sequence[Fact]) -> pl.DataFrame:
    """The evidence table of some facts, in their order."""
    columns: dict[str, list[Any]] = {
        name: [_storable(getattr(f, name), kind) for f in facts] for name, kind in COLUMNS.items() if name != "detail"
    }
    columns["event"] = [str(e) for e in columns["event"]]
    columns["detail"] = [_packed(f.detail) for f in facts]
    try:
        return pl.DataFrame(columns, schema=SCHEMA)
    except UnicodeEncodeError:  # what a file is called need not be text
        return pl.DataFrame(columns | {name: list(map(_text, columns[name])) for name in _NAMES}, schema=SCHEMA)


_NAMES = ("source", "process")
"""What is told of the file in which a fact stands."""


def _text(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def facts(table: pl.DataFrame) -> Iterator[Fact]:
    """The facts of an evidence table, in its order; of the keys of `detail` some may be missing."""
    events = [_EVENTS[text] for text in table["event"].cast(_TEXT).to_list()]
    rest = [table[name].to_list() for name in COLUMNS if name not in ("event", "detail")]
    return map(Fact, events, *rest, _details(table["detail"]))  # COLUMNS has the order of a fact's fields


_EVENTS = {str(event): event for event in Event}


def _details(column: pl.Series) -> list[dict[str, Any]]:
    """What each row has of its own, without the keys that only others have."""
    found: list[dict[str, Any]] = [{} for _ in range(len(column))]
    parts = column.struct.unnest()
    for key, missing in parts.null_count().row(0, named=True).items():
        if missing < len(parts):
            values = parts[key].to_list()
            if key in _PLAIN:
                values = [None if value is None else _PLAIN[key](value) for value in values]
            for detail, value in zip(found, values, strict=True):
                if value is not None:
                    detail[key] = value
    return found


def _storable(value: Any, kind: Any) -> Any:
    """A value as its column can hold it: an integer that a stranger chose may be of any size."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if _LOWEST[kind == pl.UInt64] <= value < _HIGHEST[kind == pl.UInt64] else None
    return value


_LOWEST, _HIGHEST = (-(2**63), 0), (2**63, 2**64)


def _packed(detail: dict[str, Any]) -> dict[str, Any]:
    packed = {k: _storable(v, DETAIL.get(k)) for k, v in detail.items()}
    if "args" in packed:
        packed["args"] = [{"name": k, "value": _typed(v)} for k, v in packed["args"].items()]
    if "kind" in packed:
        packed["kind"] = str(packed["kind"])
    return packed


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "args": lambda items: {each["name"]: _untyped(each["value"]) for each in items},
    "fields": tuple,
    "kind": lambda text: int(text) if text.isdigit() else text,
}
"""How the values of a key become what they were, where they are kept as something else."""


def _typed(value: Any) -> str:
    """A server argument as text that keeps its type."""
    text = "\n".join(map(str, value)) if isinstance(value, list) else value
    return f"{type(value).__name__}:{text}"


def _untyped(text: str) -> Any:
    kind, _, value = text.partition(":")
    readers: dict[str, Any] = {"int": int, "float": float, "bool": "True".__eq__, "NoneType": lambda _: None}
    readers["list"] = lambda text: text.split("\n") if text else []
    return readers.get(kind, str)(value)


def keys(facts_: Iterable[Fact]) -> set[str]:
    """All keys that occur in the facts' `detail`."""
    return {key for fact in facts_ for key in fact.detail}
