"""The evidence of a set of logs in one Parquet file: written once, read instead of the logs.

Rows keep the order of the facts (`place`), those about a server as a whole before all others. After them come those of
an index: the ids of requests, sessions and what lies in front of a server, sorted, each with the place that names it. A
question about one request reads the row groups that hold its id, its facts and those around them, and the servers'.
Raw lines are not in it: a quote still needs the logs.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from sglang_lifecycle.parsers.evidence import CONTEXT, NEAR, Evidence, Fact, Source, Stretch
from sglang_lifecycle.parsers.replacing import replacing

if TYPE_CHECKING:
    import polars as pl

_MAGIC = b"PAR1"
_FORMAT = "4"
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
_BESIDE, _MANY, _EDGE = 100, 2_000, 100  # facts: always read around a named one; too many; at either end
_STROKE = 30_000  # facts that are too many around one that an abort ended, which may have hit others as well
_BEGUN = ("request.received", "request.received.openai")  # where all that names a request is of these, it has to


class TooMuch(Exception):
    """Most of a store would have to be read."""


class StoreError(ValueError):
    """A file that looks like a store and isn't one, or one of another format."""


def is_store(path: str) -> bool:
    """Whether a file is Parquet, by its first bytes."""
    try:
        if not Path(path).is_file():  # what is read from a pipe is gone for whoever reads it next
            return False
        with Path(path).open("rb") as stream:
            return stream.read(4) == _MAGIC
    except OSError:
        return False


def save(evidence: Evidence, path: str | Path) -> None:
    """Write the evidence; the file appears whole or not at all. Raises OSError."""
    with writing(path) as store:
        store.add(evidence.facts)
        store.sources += evidence.sources


@contextmanager
def writing(path: str | Path) -> Iterator[Writer]:
    """A store to be; the file appears whole at the end, or not at all. Raises OSError."""
    with replacing(Path(path)) as temporary, TemporaryDirectory(dir=temporary.parent, prefix=".store.") as folder:
        store = Writer(Path(folder))
        yield store
        store.write(temporary)


class Writer:
    """Takes the facts of a store in their order, as many at a time as there are. `sources` go in last."""

    def __init__(self, folder: Path) -> None:
        self.sources: list[Source] = []
        self.facts = 0
        self._keys: set[str] = set()
        self._folder = folder
        self._index: list[pl.DataFrame] = []

    def add(self, facts: Sequence[Fact]) -> None:
        """Take the next facts. Raises OSError."""
        import polars as pl

        from sglang_lifecycle.parsers import table

        event = pl.col("event").cast(pl.String)
        fields = pl.col("detail").struct.field("fields").is_not_null()  # they tell the release
        server = pl.any_horizontal(fields, *(event.str.starts_with(kind) for kind in _SERVER))
        rows = table.frame(facts).with_row_index("place", offset=self.facts).with_columns(server=server, id=pl.lit(""))
        rows = rows.cast({"event": pl.String, "at_from": pl.String})
        with _written():
            rows.write_parquet(self._folder / f"{len(self._index)}.parquet", compression="lz4")
        self._index.append(_index(rows))
        self._keys |= table.keys(facts)
        self.facts += len(facts)

    def write(self, path: Path) -> None:
        """Write it all. Raises OSError."""
        import polars as pl

        index = pl.concat(self._index).sort("id", "about")
        filled = index.with_row_index("place", offset=self.facts).with_columns(server=pl.lit(False), at=pl.lit(0.0))
        # What no fact says is left out: each column counts where the file is opened, however empty it is.
        told = pl.struct(pl.col("detail").struct.field(key) for key in sorted(self._keys) or ("again",))
        parts = [pl.scan_parquet(self._folder / f"{number}.parquet") for number in range(len(self._index))]
        rows = [part.with_columns(detail=told) for part in parts]
        servers = [part.filter(pl.col("server")) for part in rows]
        others = [part.filter(pl.col("server").not_()) for part in rows]
        metadata = {
            "lifecycle.format": _FORMAT,
            "lifecycle.facts": str(self.facts),
            "lifecycle.sources": json.dumps([asdict(s) for s in self.sources]),
        }
        with _written():
            pl.concat([*servers, *others, filled.lazy()], how="diagonal").sink_parquet(
                path, compression="zstd", row_group_size=_ROWS, metadata=metadata
            )


@contextmanager
def _written() -> Iterator[None]:
    """Raises OSError for what Polars makes of a full disk."""
    import polars as pl

    try:
        yield
    except pl.exceptions.ComputeError as problem:
        raise OSError(str(problem)) from problem


def _index(rows: pl.DataFrame) -> pl.DataFrame:
    """The ids that facts name, each with the fact's place and time; `outer` ones are not a server's own.

    What row groups are chosen by has a value in every row, or else Polars has to read them all.
    """
    import polars as pl

    detail = pl.col("detail").struct
    outer = [pl.col("room").cast(pl.String), *(detail.field(name) for name in ("request_id", "trace_id"))]
    lists = [detail.field(name) for name in ("rids", "batch")]
    named = [
        rows.select(id=name, about="place", moment="at", outer=pl.lit(False))
        for name in ("rid", "session_id", "parent_rid")
    ]
    named += [rows.select(id=each, about="place", moment="at", outer=pl.lit(True)) for each in outer]
    named += [rows.select(id=each, about="place", moment="at", outer=pl.lit(False)).explode("id") for each in lists]
    return pl.concat([each.filter(pl.col("id") != "") for each in named])


def load(path: str | Path, about: Sequence[str] = (), little: bool = False, wide: bool = False) -> Evidence:
    """Read a store; where `about` has ids of requests or sessions, only what may have to do with them.

    `wide` asks for more around them (`Evidence.whole`). Raises `StoreError` where it is none, OSError where it can't be
    read, `TooMuch` where `little` is asked for and a part of it isn't enough.
    """
    import polars as pl

    from sglang_lifecycle.parsers import table

    try:
        metadata = pl.read_parquet_metadata(path)
        if metadata.get("lifecycle.format") != _FORMAT:
            raise StoreError(
                f"{path}: a Parquet file, but not one of `lifecycle ingest` of this version; give the logs instead"
            )
        rows, number = pl.scan_parquet(path), int(metadata["lifecycle.facts"])
        part = _part(rows, number, about, wide) if about else None
        if little and part is None and number > _MANY:
            raise TooMuch
        chosen = rows.filter(part.rows if part is not None else pl.col("place") < number).sort("place").collect()
        found = list(table.facts(chosen.select(list(table.SCHEMA))))
        sources = [Source(**s) for s in json.loads(metadata["lifecycle.sources"])]
        if part is None:
            return Evidence(found, sources)
        whole = _stretches(chosen["place"].to_list(), found, part.whole, number, wide)
        return Evidence(found, sources, partial=True, narrow=part.narrow, whole=whole)
    except (pl.exceptions.PolarsError, KeyError, TypeError, ValueError) as problem:
        if isinstance(problem, StoreError):
            raise
        raise StoreError(f"{path}: a damaged store; make it again with `lifecycle ingest`") from problem


def _stretches(
    places: Sequence[int], facts: Sequence[Fact], windows: Iterable[tuple[int, int]], number: int, wide: bool
) -> list[Stretch]:
    """What of the sources lies in windows of places, of which some overlap; `number` facts are in the store."""
    merged: list[tuple[int, int]] = []
    for first, last in windows:
        start = merged.pop()[0] if merged and first <= merged[-1][1] + 1 else first
        merged.append((start, last))
    found = []
    for first, last in merged:
        inside: dict[str, list[Fact]] = {}
        for fact in facts[bisect_left(places, first) : bisect_right(places, last)]:
            inside.setdefault(fact.source, []).append(fact)
        for source, own in inside.items():
            end = None if last == number - 1 else own[-1].offset + own[-1].length
            found.append(Stretch(source, own[0].offset if first else 0, end, wide))
    return found


class _Part(NamedTuple):
    """Rows of a store: which, and between which places so many that a line's place among them tells whose it is.

    `narrow`: whether less than 10 seconds around what was asked about are among these, where an abort may have hit
    others.
    """

    rows: pl.Expr
    whole: list[tuple[int, int]]
    narrow: bool


def _part(rows: pl.LazyFrame, number: int, about: Sequence[str], wide: bool) -> _Part | None:
    """Which of the `number` facts a question about some ids needs: theirs, those around them, all about the servers.

    None where that would be most of them, or there are none.
    """
    import polars as pl

    found = _named(rows, about)
    places = sorted(set(found["about"]))
    if not 0 < len(places) <= _BESIDE or number <= _MANY:
        return None
    named = rows.filter(pl.col("place").is_in(places)).select("event", pl.col("finish_type").cast(pl.String)).collect()
    placed = wide or bool(named["event"].is_in(_BEGUN).all())
    beside = CONTEXT if wide else NEAR if placed else _BESIDE
    if placed and number <= 4 * beside:
        return None
    windows = [(max(0, place - beside), min(number - 1, place + beside)) for place in places]
    near, whole = [pl.col("place").is_between(*window) for window in windows], windows if placed else []
    ends = (pl.col("place") < _EDGE) | pl.col("place").is_between(number - _EDGE, number - 1)
    times = found["moment"].drop_nulls().unique().to_list()
    most = _STROKE if (named["finish_type"] == "abort").any() else _MANY
    for seconds in _AROUND if times else ():
        around = pl.any_horizontal(*(pl.col("at").is_between(at - seconds, at + seconds) for at in times))
        if rows.filter(around).select(pl.len()).collect().item() <= most:
            return _Part(pl.any_horizontal(pl.col("server"), ends, *near, around), whole, seconds < _AROUND[0])
    return _Part(pl.any_horizontal(pl.col("server"), ends, *near), whole, narrow=True)


def _named(rows: pl.LazyFrame, about: Sequence[str]) -> pl.DataFrame:
    """The index on some ids, what begins with one, and their beginnings: what ends these may end those as well.

    Ids by which others know a request count where they are whole, or where no server has one that begins so.
    """
    import polars as pl

    one = pl.col("id")
    shorter = [text[:length] for text in about for length in range(1, len(text))]
    between = [(one >= text) & (one <= text + "\U0010ffff") for text in about]  # what begins with it, and little else
    found = rows.filter(pl.any_horizontal(one.is_in(shorter), *between)).select("id", "about", "moment", "outer")
    index = found.collect()
    named = index.filter(pl.any_horizontal(*(one.str.starts_with(text) for text in about)))
    outer = pl.col("outer")
    if len(own := named.filter(outer.not_() | one.is_in(list(about)))):
        named = own
    return pl.concat([named, index.filter(outer.not_(), one.is_in(shorter))])


def merge(parts: Sequence[Evidence]) -> Evidence:
    """The evidence of several inputs as one."""
    merged = Evidence()
    for part in parts:
        merged.facts += part.facts
        merged.sources += part.sources
        merged.failed += part.failed
        merged.partial, merged.narrow = merged.partial or part.partial, merged.narrow or part.narrow
        merged.whole += part.whole
    if any(part.partial and not part.whole for part in parts):
        merged.whole = []
    return merged
