"""The evidence of a set of logs in one Parquet file: written once, read instead of the logs.

Rows are sorted by rid, so that the row groups of one request lie together; `place` keeps the order of the facts. Raw
lines are not in it: a quote still needs the logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson

from sglang_lifecycle.parsers.evidence import Evidence, Source
from sglang_lifecycle.parsers.replacing import replacing

SUFFIX = ".parquet"
_MAGIC = b"PAR1"
_FORMAT = "1"
_ROWS = 50_000  # rows of a group: a question about one rid reads one or two


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

    rows = table.frame(evidence.facts).with_row_index("place").sort("rid", "place", nulls_last=True)
    metadata = {
        "lifecycle.format": _FORMAT,
        "lifecycle.sources": orjson.dumps([asdict(s) for s in evidence.sources]).decode(),
    }
    with replacing(Path(path)) as temporary:
        rows.cast({"event": pl.String, "at_from": pl.String}).write_parquet(
            temporary, compression="zstd", row_group_size=_ROWS, metadata=metadata
        )


def load(path: str | Path) -> Evidence:
    """Read a store. Raises `StoreError` where it is none, OSError where it can't be read."""
    import polars as pl

    from sglang_lifecycle.parsers import table

    try:
        metadata = pl.read_parquet_metadata(path)
        if metadata.get("lifecycle.format") != _FORMAT:
            raise StoreError(f"{path}: a Parquet file, but not one of `lifecycle ingest`; give the logs instead")
        rows = pl.read_parquet(path).sort("place").cast(table.SCHEMA)
        sources = [Source(**s) for s in orjson.loads(metadata["lifecycle.sources"])]
        return Evidence(list(table.facts(rows)), sources)
    except (pl.exceptions.PolarsError, KeyError, TypeError, orjson.JSONDecodeError) as problem:
        raise StoreError(f"{path}: a damaged store; make it again with `lifecycle ingest`") from problem


def merge(parts: Sequence[Evidence]) -> Evidence:
    """The evidence of several inputs as one."""
    whole = Evidence()
    for part in parts:
        whole.facts += part.facts
        whole.sources += part.sources
        whole.failed += part.failed
    return whole
