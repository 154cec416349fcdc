"""What a shell completes besides options: request ids, from stores only, since logs would take too long."""

from __future__ import annotations

import os
from collections.abc import Iterable

LIMIT = 50
"""So many ids are offered."""


def rids(incomplete: str) -> list[str]:
    """The ids that begin so, in the stores that the command line names so far, else in those of the working folder."""
    # What the shell has handed over: an option that still lacks its value keeps Typer from parsing the rest.
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    named = [word for word in words.split() if word.endswith(".parquet")]
    return sorted(_found(named or _here(), incomplete))[:LIMIT]


def _here() -> list[str]:
    try:
        return sorted(name for name in os.listdir(".") if name.endswith(".parquet"))
    except OSError:
        return []


def _found(stores: Iterable[str], beginning: str) -> set[str]:
    import polars as pl

    found: set[str] = set()
    for store in stores:
        try:
            table = pl.scan_parquet(store).select("rid").filter(pl.col("rid").str.starts_with(beginning))
            found.update(table.unique().collect()["rid"])
        except (OSError, pl.exceptions.PolarsError):  # not a store: it has nothing to offer
            continue
    return found
