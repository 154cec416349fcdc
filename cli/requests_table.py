"""The request table: one row a request of an audit. The single source of CSV, Parquet and the library's frame."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sglang_lifecycle.analyzers.listing import Audit
from sglang_lifecycle.cli.text import sound

if TYPE_CHECKING:
    import polars as pl

COLUMNS: dict[str, tuple[str, str]] = {
    "rid": ("text", "the request id"),
    "status": ("text", "interrupted, finished or in-flight"),
    "cause": ("text", "what ended it; the id of a cause"),
    "confidence": ("text", "proven, likely or not-established"),
    "candidates": ("texts", "causes that remain possible"),
    "layer": ("text", "where the decision fell"),
    "stage": ("text", "where the request stood"),
    "actor": ("text", "who ended it"),
    "effects": ("texts", "what else followed"),
    "chain": ("texts", "the causes from the proximate one to the root"),
    "synthetic": ("bool", "sent by SGLang itself, or to be ignored: left out of the totals"),
    "members": ("texts", "of a batch: the rids SGLang made of this one; such a row is left out of the totals"),
    "session_id": ("text", "the session that its newest attempt belongs to"),
    "server": ("text", "the name of its server, else the log that tells of it"),
    "received": ("time", "when it arrived, UTC"),
    "received_error_s": ("float", "how many seconds that may be off, either way"),
    "ended": ("time", "when it ended, UTC"),
    "ended_error_s": ("float", "how many seconds that may be off, either way"),
    "waited_s": ("float", "seconds from its arrival to its first batch, or to its end in the queue"),
    "ran_s": ("float", "seconds from its first batch to its end"),
    "prompt_tokens": ("int", "tokens of its prompt"),
    "completion_tokens": ("int", "tokens that it produced"),
}
"""The columns in their order: the kind of value and what it means. Unknown values are null."""

_TRIGGERS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet takes a cell that begins so for a formula, or strips what hides one."""


def rows(audit: Audit) -> Iterator[dict[str, Any]]:
    """The rows, in the audit's order; times are text."""
    for request in audit.requests:
        candidates = [each.cause for each in request.candidates]
        values = request.__dict__ | request.times.__dict__ | {"candidates": candidates}
        yield {name: values[name] for name in COLUMNS}


def frame(audit: Audit) -> pl.DataFrame:
    """The table in Polars; times are `Datetime("ms", "UTC")`, lists are lists of text."""
    import polars as pl

    kinds: dict[str, Any] = {
        "text": pl.String,
        "texts": pl.List(pl.String),
        "bool": pl.Boolean,
        "time": pl.String,
        "float": pl.Float64,
        "int": pl.Int64,
    }
    schema = {name: kinds[kind] for name, (kind, _) in COLUMNS.items()}
    try:
        table = pl.DataFrame(list(rows(audit)), schema=schema, orient="row")
    except UnicodeEncodeError:  # lone surrogates
        held = [{name: _encodable(value) for name, value in row.items()} for row in rows(audit)]
        table = pl.DataFrame(held, schema=schema, orient="row")
    times = [name for name, (kind, _) in COLUMNS.items() if kind == "time"]
    return table.with_columns(pl.col(times).str.to_datetime("%+", time_unit="ms", time_zone="UTC"))


def _encodable(value: Any) -> Any:
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    return sound(value) if isinstance(value, str) else value


def parquet(audit: Audit) -> bytes:
    """The table as a Parquet file."""
    buffer = io.BytesIO()
    frame(audit).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def comma_separated(audit: Audit) -> str:
    """The table as CSV with a header; lists are separated by spaces, unknown values are empty."""
    lines = [",".join(COLUMNS), *(",".join(map(_cell, row.values())) for row in rows(audit))]
    return "".join(f"{line}\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str | list):
        return str(value).lower()
    text = value if isinstance(value, str) else " ".join(value)
    text = f"'{text}" if text.startswith(_TRIGGERS) else text
    # Not by the module csv: with Unix line ends it leaves a lone carriage return unquoted, which its reader refuses.
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text
