"""Evidence that is no log: dumps, traces, what a platform says of a death. Each becomes lines, one fact each.

A kind of exhibit is recognised by a file's beginning and turned into its facts, which are written as JSON, a line
each, into a temporary copy. From there on it is like a log: a fact has its line, and the line can be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from sglang_lifecycle.parsers import pickles
from sglang_lifecycle.parsers.evidence import Event, Fact, Source
from sglang_lifecycle.parsers.spool import Budget

Row = dict[str, Any]
"""The columns of a fact that an exhibit states; `event` is one of them, its place is not."""


class Unreadable(Exception):
    """A file that is no such exhibit after all, or one that can't be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of exhibit. `module` has `rows(path) -> Iterator[Row]`, which may raise `Unreadable` and OSError."""

    name: str
    looks: Callable[[bytes], bool]
    module: str


KINDS = (Kind("dump", pickles.is_pickle, "dumps"),)


def kind(head: bytes) -> str | None:
    """The kind of exhibit that a file beginning with `head` is."""
    return next((each.name for each in KINDS if each.looks(head)), None)


def lines(name: str, path: Path) -> Iterator[bytes]:
    """The facts of an exhibit of a kind, as lines. Raises `Unreadable`, `Refused`, OSError."""
    chosen = next(each for each in KINDS if each.name == name)
    rows: Callable[[Path], Iterator[Row]] = import_module(f"sglang_lifecycle.parsers.{chosen.module}").rows
    budget = Budget(path.stat().st_size)
    for row in rows(path):
        line = orjson.dumps(row) + b"\n"
        budget.take(len(line))
        yield line


def read(name: str, path: Path) -> tuple[Source, list[Fact]]:
    """The facts of an exhibit that was turned into lines, which lie in `path`. Raises OSError."""
    source = Source(name)
    facts = []
    with path.open("rb") as stream:
        for line in stream:
            source.lines += 1
            row = orjson.loads(line)
            if "warning" in row:
                source.warnings.append(f"{name}: {row['warning']}")
            else:
                event, detail = Event(row.pop("event")), row.setdefault("detail", {})
                if "fields" in detail:
                    detail["fields"] = tuple(detail["fields"])
                facts.append(Fact(event, name, source.lines, source.bytes, len(line), process=name, **row))
            source.bytes += len(line)
    source.recognised = len(facts)
    return source, facts
