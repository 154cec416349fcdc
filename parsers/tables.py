"""Tables of log entries: what Datadog, Grafana, Kibana, CloudWatch, Azure, Splunk and Google export as CSV or TSV.

A cell may hold quotes and newlines. A row is turned into one JSON object a line, which `envelopes.objects` reads.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from sglang_lifecycle.parsers.envelopes import objects
from sglang_lifecycle.parsers.lines import CAP
from sglang_lifecycle.parsers.spool import Budget, Plain, Refused

_NAME = re.compile(r"[\w@][\w@. /-]{0,63}")
_ZONE = re.compile(r" ?[(\[]UTC[)\]]$", re.IGNORECASE)  # Azure says so of a column of times
_LABELS = "labels"
_SEPARATORS = ",\t;"
_KNOWN = {name.lower(): name for name in reversed(objects.NAMES)}


def is_table(head: bytes) -> bool:
    """Whether a text that begins like `head` is such a table: its first line names columns, one of them of the text."""
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    line = first.decode("utf-8", "replace").strip()
    names = _names(line, _separator(line))
    quoted = rest.startswith(b'"')
    texts = objects.TEXTS if objects.STAMPS.isdisjoint(names) else objects.TEXTS | objects.ALIKE
    return not texts.isdisjoint(names) and (len(names) > 1 or (quoted and line.startswith('"')))


def entries(path: Path) -> Iterator[bytes]:
    """The rows as lines. Raises `Plain` where most are of another width: a log may begin so; `Refused`, OSError."""
    csv.field_size_limit(CAP)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        line = file.readline().strip()
        separator = _separator(line)
        names = _names(line, separator)
        budget = Budget(path.stat().st_size)
        rows = others = 0
        for row in _rows(file, separator):
            rows, others = rows + bool(row), others + (row is not None and len(row) not in (0, len(names)))
            entry = orjson.dumps(_entry(names, row) if row is not None else _LEFT_OUT) + b"\n"
            budget.take(len(entry))
            yield entry
        if others * 2 > rows:
            raise Plain


_LEFT_OUT = {"message": f"Left out: a row of {CAP >> 20} MiB or more"}
"""What stands in the place of a row that is too long."""


def _rows(lines: Iterable[str], separator: str) -> Iterator[list[str] | None]:
    """The rows of a table; None in the place of one that has too long a cell. Raises `Refused`."""
    within = False

    def counted() -> Iterator[str]:
        nonlocal within
        for line in lines:
            within ^= line.count('"') % 2 == 1
            yield line

    rest = counted()
    reader = csv.reader(rest, delimiter=separator)
    while True:
        within = False
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if not str(error).startswith(_TOO_LONG):
                raise Refused(f"a table that cannot be read: {error}") from error
            while within and next(rest, None) is not None:
                pass  # what is within its quotes is no row
            yield None
        else:
            yield row


_TOO_LONG = "field larger than field limit"


def _entry(names: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    """A row as an object; Grafana writes the labels of a stream as JSON."""
    entry: dict[str, Any] = dict(zip(names, row, strict=False))
    if _LABELS in entry:
        with suppress(orjson.JSONDecodeError):
            entry[_LABELS] = orjson.loads(entry[_LABELS])
    return entry


def _separator(line: str) -> str:
    return max(_SEPARATORS, key=line.count)


def _names(line: str, separator: str) -> Sequence[str]:
    """The names of columns as collectors have them; none where the line is no list of names."""
    try:
        cells = [_ZONE.sub("", cell) for cell in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:  # a carriage return within the line
        return ()
    if len(set(cells)) < len(cells) or not all(map(_NAME.fullmatch, cells)):
        return ()
    return [_KNOWN.get(cell.lower(), cell) for cell in cells]
