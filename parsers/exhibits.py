"""Evidence that is no log: dumps, traces, what a platform says of a death. Each becomes lines, one fact each.

A kind of exhibit is recognised by a file's beginning and turned into its facts, which are written as JSON, a line
each, into a temporary copy. From there on it is like a log: a fact has its line, and the line can be shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from sglang_lifecycle.parsers.evidence import Event, Fact, Source
from sglang_lifecycle.parsers.spool import Budget

Row = dict[str, Any]
"""The columns of a fact that an exhibit states; `event` is one of them, its place is not."""


class Unreadable(Exception):
    """A file that is no such exhibit after all, or one that can't be read; the text says why."""


KINDS = {
    "dumps": re.compile(rb"\x80[\x02-\x05]", re.DOTALL),  # a pickle of the protocols that SGLang writes
    "platform": re.compile(
        rb"Name:[ \t]+\S+\r?\nNamespace:[ \t]+\S"
        rb"|(?:NAMESPACE +)?LAST SEEN +(?:FIRST SEEN +)?(?:COUNT +)?(?:NAME +)?(?:KIND +)?TYPE +REASON +"
    ),
    "traces": re.compile(rb'\s*\{\s*"(?:resourceSpans"\s*:|data"\s*:\s*\[\s*\{\s*"traceID"\s*:)'),
}
"""How the kinds of exhibits begin. The module of that name has `rows(path)`, which may raise `Unreadable`, OSError."""


def kind(head: bytes) -> str | None:
    """The kind of exhibit that a file beginning with `head` is."""
    return next((name for name, begins in KINDS.items() if begins.match(head)), None)


def lines(name: str, path: Path) -> Iterator[bytes]:
    """The facts of an exhibit of a kind, as lines. Raises `Unreadable`, `Refused`, OSError."""
    rows: Callable[[Path], Iterator[Row]] = import_module(f"sglang_lifecycle.parsers.{name}").rows
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
