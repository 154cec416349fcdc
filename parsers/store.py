"""The evidence of a set of logs in one Parquet file: written once, read instead of the logs.

Rows keep the order of the facts (`place`), those about a server as a whole before all others: a question about one
request reads these and the row groups around its own. Raw lines are not in it: a quote still needs the logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from sglang_lifecycle.parsers.evidence import Evidence, Source
from sglang_lifecycle.parsers.replacing import replacing

if TYPE_CHECKING:
    import polars as pl

SUFFIX = ".parquet"
_MAGIC = b"PAR1"
_FORMAT = "2"
_ROWS = 8_000  # rows of a group: a question about one request reads a few
_SERVER = (
    "server.",
    "process.",
    "watchdog.",
    "platform.",
    "engine.",
    "weights.",
    "logging.",
    "kv.exhausted",
    "kv.leaked",
)
_AROUND = (10.0, 3.0, 1.0)  # seconds around a named request's facts that are read, as far as they are not too many
_NEAR, _MANY, _EDGE = 100, 2_000, 100  # facts: always read around a named one; too many; at either end


class StoreError(ValueError):
    """A file that looks like a store and isn't one, or one of another format."""


def is_store(path: str) -> bool:
    """Whether a file is Parquet, by its first bytes."""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(4) == _MAGIC
    except OSError:
        return False


def save(evidence: Evidence, path: str | Path) -> None:
    """Write the evidence; the file appears whole or not at all. Raises OSError."""
    import polars as pl

    from sglang_lifecycle.parsers import table

    event = pl.col("event").cast(pl.String)
    fields = pl.col("detail").struct.field("fields").is_not_null()  # they tell the release
    server = pl.any_horizontal(fields, *(event.str.starts_with(kind) for kind in _SERVER))
    rows = table.frame(evidence.facts).with_row_index("place").with_columns(server=server)
    rows = rows.sort(pl.col("server").not_(), "place")
    metadata = {
        "lifecycle.format": _FORMAT,
        "lifecycle.sources": orjson.dumps([asdict(s) for s in evidence.sources]).decode(),
    }
    with replacing(Path(path)) as temporary:
        rows.cast({"event": pl.String, "at_from": pl.String}).write_parquet(
            temporary, compression="zstd", row_group_size=_ROWS, metadata=metadata
        )


def load(path: str | Path, about: Sequence[str] = ()) -> Evidence:
    """Read a store; where `about` has ids of requests or sessions, only what may have to do with them.

    Raises `StoreError` where it is none, OSError where it can't be read.
    """
    import polars as pl

    from sglang_lifecycle.parsers import table

    try:
        metadata = pl.read_parquet_metadata(path)
        if metadata.get("lifecycle.format") != _FORMAT:
            raise StoreError(
                f"{path}: a Parquet file, but not one of `lifecycle ingest` of this version; give the logs instead"
            )
        rows = pl.scan_parquet(path)
        part, narrow = _part(rows, about) if about else (None, False)
        chosen = (rows.filter(part) if part is not None else rows).drop("server").collect().sort("place")
        chosen = chosen.drop("place").cast(table.SCHEMA)
        sources = [Source(**s) for s in orjson.loads(metadata["lifecycle.sources"])]
        return Evidence(list(table.facts(chosen)), sources, partial=part is not None, narrow=narrow)
    except (pl.exceptions.PolarsError, KeyError, TypeError, orjson.JSONDecodeError) as problem:
        raise StoreError(f"{path}: a damaged store; make it again with `lifecycle ingest`") from problem


def _part(rows: pl.LazyFrame, about: Sequence[str]) -> tuple[pl.Expr | None, bool]:
    """Which rows a question about some ids needs: theirs, those around them, and all about the servers.

    None where that would be most of them, or there are none. Whether less than 10 seconds around them are among these.
    """
    import polars as pl

    own = [pl.col(name) for name in ("rid", "session_id", "parent_rid")]
    shorter = [pl.lit(text).str.starts_with(pl.col("rid")) for text in about]  # what ends them may end it as well
    detail = pl.col("detail").struct
    outer = [pl.col("room").cast(pl.String), *(detail.field(name) for name in ("request_id", "trace_id"))]
    lists = [detail.field(name).list.contains(text) for name in ("rids", "batch") for text in about]
    for ids, more in ((own, shorter), (outer, lists)):
        named = pl.any_horizontal(*(each.str.starts_with(text) for each in ids for text in about), *more)
        index = rows.select("place", "at", named=named).collect().sort("place")
        found = index.filter("named")
        if len(found):
            break
    if not 0 < len(found) <= _NEAR or len(index) <= _MANY:
        return None, False
    near = [pl.col("place").is_between(max(0, place - _NEAR), place + _NEAR) for place in found["place"]]
    ends = (pl.col("place") < _EDGE) | (pl.col("place") >= len(index) - _EDGE)
    times = found["at"].drop_nulls().to_list()
    for seconds in _AROUND if times else ():
        around = pl.any_horizontal(*(pl.col("at").is_between(at - seconds, at + seconds) for at in times))
        if len(index.filter(around)) <= _MANY:
            return pl.any_horizontal(pl.col("server"), ends, *near, around), seconds < _AROUND[0]
    return pl.any_horizontal(pl.col("server"), ends, *near), True


def merge(parts: Sequence[Evidence]) -> Evidence:
    """The evidence of several inputs as one."""
    whole = Evidence()
    for part in parts:
        whole.facts += part.facts
        whole.sources += part.sources
        whole.failed += part.failed
        whole.partial, whole.narrow = whole.partial or part.partial, whole.narrow or part.narrow
    return whole
