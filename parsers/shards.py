"""Ranges of large logs in files of their own, for arrays of jobs: each job reads its share, the last one joins them.

A range's file is named by what was read: the log, its size and time, the place, the zone. Reading a share again does
what is missing. Facts are in the file as the evidence table has them; nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict
from datetime import tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from sglang_lifecycle.parsers.forms import packed, unpacked
from sglang_lifecycle.parsers.inputs import expand
from sglang_lifecycle.parsers.log import reader
from sglang_lifecycle.parsers.prefix import zone
from sglang_lifecycle.parsers.ranges import Place, Range, read_range
from sglang_lifecycle.parsers.replacing import replacing
from sglang_lifecycle.parsers.streams import Log

_FORMAT = "3"


class Shard(NamedTuple):
    """One share of `of`; the first is 1."""

    number: int
    of: int


def keep(paths: Sequence[str], shard: Shard, folder: Path, failed: list[str], tz: str | None = None) -> tuple[int, int]:
    """Read a share of the ranges of logs, and keep each in a folder; returns how many were read, and are in the share.

    A path that is missing or can't be read is described in `failed`, in one line each. Raises `UnknownZone`, OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    read = share = 0
    for number, (place, found_in) in enumerate(_ranges(paths, failed, tz)):
        if number % shard.of != shard.number - 1:
            continue
        share += 1
        target = folder / _name(place, found_in)
        if not target.exists():
            _save(read_range(place, found_in), target)
            read += 1
    return read, share


def _ranges(paths: Sequence[str], failed: list[str], tz: str | None) -> Iterator[tuple[Place, tzinfo]]:
    for one in expand(paths, failed):
        if one.problem is None and not one.files[0].exhibit:
            log = Log(one, zone(tz) if tz is not None else None, reader)
            for place in log.places():
                yield place, log.zone


class Kept(Executor):
    """Takes ranges from a folder, and has those that are not there read by another pool, or reads them itself."""

    def __init__(self, folder: Path, pool: Executor | None = None) -> None:
        self._folder, self._pool = folder, pool

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As an executor does; what is kept is not done again."""
        kept = _load(self._folder / _name(*args)) if fn is read_range else None
        if kept is None and self._pool is not None:
            return self._pool.submit(fn, *args, **kwargs)
        done: Future[Any] = Future()
        done.set_result(kept if kept is not None else fn(*args, **kwargs))
        return done


def _name(place: Place, found_in: tzinfo) -> str:
    about = place.path.stat()
    text = repr((_FORMAT, str(place.path), about.st_size, about.st_mtime_ns, *place[1:], str(found_in)))
    return f"{sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.parquet"


def _save(part: Range, target: Path) -> None:
    import polars as pl

    from sglang_lifecycle.parsers import table

    rest = {name: list(v) if isinstance(v, frozenset) else v for name, v in asdict(part).items() if name != "facts"}
    rows = table.frame(unpacked(part.facts, "", 0))
    with replacing(target) as temporary:
        rows.cast({"event": pl.String, "at_from": pl.String}).write_parquet(
            temporary, compression="zstd", metadata={"lifecycle.range": orjson.dumps(rest).decode()}
        )


def _load(path: Path) -> Range | None:
    """The range of a file; None where there is no such file, or it is damaged."""
    import polars as pl

    try:
        return _loaded(path) if path.exists() else None
    except (pl.exceptions.PolarsError, OSError, KeyError, TypeError, ValueError):
        return None


def _loaded(path: Path) -> Range:
    import polars as pl

    from sglang_lifecycle.parsers import table

    rest: dict[str, Any] = orjson.loads(pl.read_parquet_metadata(path)["lifecycle.range"])
    for name in ("received", "unrepeated", "orphaned", "open", "raw"):
        rest[name] = frozenset(rest[name])
    rest["texts"], rest["strangers"] = tuple(rest["texts"]), tuple(rest["strangers"])
    rest["gaps"] = tuple((before, after) for before, after in rest["gaps"])
    facts = list(table.facts(pl.read_parquet(path).cast(table.SCHEMA)))
    return Range(facts=packed(facts), **rest)
