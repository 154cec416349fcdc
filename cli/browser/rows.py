"""The requests of an incident as columns: what the list shows, filters, sorts and counts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import polars as pl

from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.cli.text import clean

_FEW = pl.Categorical  # columns of few values: counted and compared as numbers

SCHEMA: dict[str, Any] = {
    "rid": pl.String,
    "status": _FEW,
    "cause": _FEW,
    "stage": _FEW,
    "actor": _FEW,
    "confidence": _FEW,
    "at": pl.Float64,  # when it ended, else when it was received: UTC epoch seconds
    "waited": pl.Float64,
    "ran": pl.Float64,
    "prompt": pl.Int64,
    "completion": pl.Int64,
    "session": pl.String,
    "synthetic": pl.Boolean,
    "text": pl.String,  # what free text is looked for in
}

Row = tuple[Any, ...]
"""The values of one request, in the order of `SCHEMA`."""


def sound(text: str) -> str:
    """Text that columns can hold: lone surrogates, which JSON in a log can smuggle in, become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def row(verdict: Verdict, session_id: str | None) -> Row:
    """What the list says about a request."""
    times = verdict.times
    words = [verdict.rid, verdict.cause, verdict.stage, verdict.actor, session_id or ""]
    if verdict.status == "interrupted":  # those that nobody asks about would fill the memory
        words.append(verdict.summary)
    return (
        sound(verdict.rid),
        verdict.status,
        verdict.cause,
        verdict.stage,
        verdict.actor,
        verdict.confidence,
        _epoch(times.ended or times.received),
        times.waited_s,
        times.ran_s,
        times.prompt_tokens,
        times.completion_tokens,
        sound(session_id) if session_id is not None else None,
        verdict.synthetic,
        " ".join(map(clean, words)).lower(),
    )


def _epoch(moment: str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None


def frame(rows: Iterable[Row] = ()) -> pl.DataFrame:
    """Rows as a frame."""
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


class Rows:
    """All requests judged so far. It only grows, so that a row's index stays its own."""

    def __init__(self) -> None:
        self.frame = frame()

    def __len__(self) -> int:
        """How many requests were judged."""
        return self.frame.height

    def extend(self, more: pl.DataFrame) -> None:
        """Take a chunk in."""
        self.frame = self.frame.vstack(more)
        if self.frame.n_chunks() > 64:  # each look at one row goes through the chunks
            self.frame = self.frame.rechunk()

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One row, by its index."""
        return self.frame.row(index, named=True)

    def find(self, rid: str) -> int | None:
        """The row of a request."""
        return self.frame["rid"].index_of(rid)
