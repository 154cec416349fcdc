"""The requests of an incident as columns: what the list shows, filters, sorts and counts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import polars as pl

from sglang_lifecycle.analyzers.listing import RequestRow
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.cli.text import clean, sound
from sglang_lifecycle.cli.words import WORDS

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
    "provisional": pl.Boolean,  # the logs were not read to their end: the verdict may change
    "text": pl.String,  # what free text is looked for in
}

PROVISIONAL = "provisional"
"""How sure a verdict is before the logs are read to their end."""

SURE = WORDS | {PROVISIONAL: "so far"}
"""How sure a verdict is, as the list says it."""

Row = tuple[Any, ...]
"""The values of one request, in the order of `SCHEMA`."""


def row(verdict: Verdict | RequestRow, session_id: str | None, provisional: bool = False) -> Row:
    """What the list says about a request. Nothing is sure of a provisional verdict."""
    times = verdict.times
    words = [verdict.rid, verdict.cause, verdict.stage, verdict.actor, session_id or ""]
    if verdict.status == "interrupted" and isinstance(
        verdict, Verdict
    ):  # those that nobody asks about would fill the memory
        words.append(verdict.summary)
    return (
        sound(verdict.rid),
        verdict.status,
        verdict.cause,
        verdict.stage,
        verdict.actor,
        PROVISIONAL if provisional else verdict.confidence,
        _epoch(times.ended or times.received),
        times.waited_s,
        times.ran_s,
        times.prompt_tokens,
        times.completion_tokens,
        sound(session_id) if session_id is not None else None,
        verdict.synthetic,
        provisional,
        " ".join(map(clean, words)).lower(),
    )


def _epoch(moment: str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None


def frame(rows: Iterable[Row] = ()) -> pl.DataFrame:
    """Rows as a frame."""
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


class Rows:
    """All requests judged so far. A frame never changes; there is a new one with each chunk."""

    def __init__(self) -> None:
        self.frame = frame()
        self._replacing = False

    def __len__(self) -> int:
        """How many requests were judged."""
        return self.frame.height

    @property
    def provisional(self) -> bool:
        """Whether any verdict may still change."""
        return bool(self.frame["provisional"].any())

    def extend(self, more: pl.DataFrame) -> None:
        """Take a chunk in; what was said before of the same requests is let go."""
        if self._replacing:
            self.frame = self.frame.filter(~pl.col("rid").is_in(more["rid"].implode()))
        self._replacing = self._replacing or bool(more["provisional"].any())
        self.frame = self.frame.vstack(more)
        if self.frame.n_chunks() > 64:  # each look at one row goes through the chunks
            self.frame = self.frame.rechunk()

    def doubt(self) -> None:
        """All that was said may change."""
        self.frame = self.frame.with_columns(
            provisional=pl.lit(True), confidence=pl.lit(PROVISIONAL, dtype=SCHEMA["confidence"])
        )
        self._replacing = True

    def settle(self, replacing: bool) -> None:
        """Everything was judged: what is still provisional is no more. `replacing` says that chunks may yet come."""
        self.frame = self.frame.filter(~pl.col("provisional"))
        self._replacing = replacing
