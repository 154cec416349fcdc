"""Whole documents that hold log entries: answers of Loki, CloudWatch, Elasticsearch, Datadog, Azure, Splunk, Google.

They are turned into one JSON object a line, in the order of time, which `envelopes.objects` reads; a log that was
copied out of a document as one escaped string is turned into its lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from sglang_lifecycle.parsers import blockyaml
from sglang_lifecycle.parsers.envelopes import objects
from sglang_lifecycle.parsers.envelopes.stamps import stamp
from sglang_lifecycle.parsers.prefix import Prefix
from sglang_lifecycle.parsers.spool import Refused

MAX_BYTES = 64 << 20
"""Bytes of a document that is read: it has to be held in memory as a whole."""

_LISTS = (
    "data.result", "streams", "events", "hits.hits", "data", "logs", "results", "resourceLogs", "entries", "logEvents",
    "tables", "items", "data.actor.account.nrql.results",
)  # fmt: skip
_BEGINS = re.compile(rb'\s*(?:\[\s*[\[{"]|\{\s*[\n"])')
_HEAD = 4096
_SNIFF = 8192  # bytes in which entries of YAML show their texts
_ESCAPED = re.compile(rb"\\n\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_BARE_QUOTE = re.compile(rb'(?<!\\)(?:\\\\)*"')
_FIRST = 1 << 20  # bytes in which quotes are looked for


def is_document(head: bytes) -> bool:
    """Whether a text that begins like `head` may be such a document rather than lines."""
    return _BEGINS.match(head[:_HEAD]) is not None or blockyaml.is_document(head)


def entries(path: Path) -> Iterator[bytes] | None:
    """The entries as lines, oldest first, or None where the file is no such document. Raises `Refused`, OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.readline(MAX_BYTES)
        if size > MAX_BYTES:
            if first.endswith(b"\n") and (first.startswith(b'{"') or first.rstrip()[-1:] == b"}"):
                return None  # lines after all, of which the first may be cut
            raise Refused(f"a document of more than {MAX_BYTES >> 20} MiB; export it as lines")
        if first.startswith(b'{"') and _is_one(first):
            return None
        text = first + file.read()
    documents, whole = _documents(text)
    found = [entry for document in documents for entry in _entries(document)]
    return _lines(found) if any(map(objects.holds, found)) or (found and whole) else None


def _is_one(line: bytes) -> bool:
    """Whether a line is an object of its own, and not one that holds a list of entries."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return not isinstance(document, dict) or _list(document) is None


def is_escaped(path: Path, head: bytes) -> bool:
    r"""Whether a file that begins with `head` is a log as one escaped string.

    Every quote in it is `\"` then, which neither `repr` nor JSON leaves in a log without a bare one, and newlines are
    `\n`: a prompt that holds such text doesn't make a file one.
    """
    if b"\n" in head.strip() or _ESCAPED.search(head) is None:
        return False
    with path.open("rb") as file:
        text = file.read(_FIRST).strip()
    inside = text.removeprefix(b'"').removesuffix(b",").removesuffix(b'"')
    return b"\n" not in text and b'"' in text and _BARE_QUOTE.search(inside) is None


def unescaped(path: Path) -> Iterator[bytes]:
    """The lines of an escaped log. What is no valid escape is kept. Raises OSError."""
    with path.open("rb") as file:
        while raw := file.readline(MAX_BYTES):
            text = raw.strip().removesuffix(b",").removeprefix(b'"').removesuffix(b'"')
            try:
                yield orjson.loads(b'"%s"' % text).removesuffix("\n").encode("utf-8", "replace") + b"\n"
            except orjson.JSONDecodeError:
                yield raw


def _documents(text: bytes) -> tuple[list[Any], bool]:
    """The documents in a text, and whether it is one from its beginning to its end: then no line of it is a log's."""
    if blockyaml.is_document(text[:_SNIFF]):
        return blockyaml.documents(text.decode("utf-8", "replace")), False
    try:
        return [orjson.loads(text)], True
    except orjson.JSONDecodeError:
        pass
    decoder, string, position = json.JSONDecoder(), text.decode("utf-8", "replace"), 0
    found: list[Any] = []
    while True:  # several documents one after the other, as `jq` prints them; or a part of an array
        while position < len(string) and (string[position].isspace() or string[position] == ","):
            position += 1
        try:
            document, position = decoder.raw_decode(string, position)
        except (ValueError, RecursionError):
            return (found if position * 2 > len(string) else []), False  # the last may be cut; more is no document
        found.append(document)


def _entries(document: Any) -> list[dict[str, Any]]:
    found = document if isinstance(document, list) else _list(document) if isinstance(document, dict) else []
    if found is None:
        return [document]
    texts = [each for each in found if isinstance(each, str)]
    if texts and len(texts) == len(found):
        records = sum(Prefix().split(text) is not None for text in texts)  # a list of prompts has few
        return [{"message": text} for text in texts] if records * 2 >= len(texts) else []
    return [each for entry in found for each in _entry(entry)]


def _list(document: dict[str, Any]) -> list[Any] | None:
    """The list of entries that a document holds, on the first of the known paths to one."""
    for path in _LISTS:
        value: Any = document
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, list):
            return value
    return None


def _entry(entry: Any) -> list[dict[str, Any]]:
    """The entries in one element: a Loki stream holds many, a row of Logs Insights is a list of fields."""
    if isinstance(entry, list):
        cells = [cell for cell in entry if isinstance(cell, dict) and "field" in cell]
        return [{str(cell["field"]): cell.get("value") for cell in cells}] if cells else []
    if not isinstance(entry, dict):
        return []
    if isinstance(entry.get("columns"), list) and isinstance(entry.get("rows"), list):  # Azure's
        names = [str(column.get("name")) for column in entry["columns"] if isinstance(column, dict)]
        return [dict(zip(names, row, strict=False)) for row in entry["rows"] if isinstance(row, list)]
    if isinstance(entry.get("values"), list) and isinstance(entry.get("stream"), dict):
        return [
            {"timestamp": value[0], "labels": entry["stream"], "line": value[1]}
            for value in _forward([v for v in entry["values"] if isinstance(v, list) and len(v) > 1])
        ]
    if isinstance(entry.get("scopeLogs"), list):
        resource = _resource(entry)
        return [
            {**record, **resource}
            for scope in entry["scopeLogs"]
            if isinstance(scope, dict)
            for record in scope.get("logRecords", [])
            if isinstance(record, dict)
        ]
    return [entry]


def _resource(entry: dict[str, Any]) -> dict[str, Any]:
    """Whom OpenTelemetry's records are of: `resource.k8s.pod.name` and the like."""
    resource = entry.get("resource")
    attributes = resource.get("attributes") if isinstance(resource, dict) else None
    told = [each for each in attributes or () if isinstance(each, dict) and isinstance(each.get("value"), dict)]
    return {f"resource.{each.get('key')}": each["value"].get("stringValue") for each in told}


def _forward(values: list[Any]) -> list[Any]:
    """Loki lists the newest first unless asked otherwise."""
    return values[::-1] if len(values) > 1 and str(values[0][0]) > str(values[-1][0]) else values


def _lines(found: list[dict[str, Any]]) -> Iterator[bytes]:
    stamps = [stamp(entry.get("timestamp")) for entry in found]
    if all(each is not None for each in stamps):
        at = [each.at for each in stamps if each is not None]
        if at[0] > at[-1] and not any("labels" in entry for entry in found):
            found, at = found[::-1], at[::-1]
        found = [found[index] for index in sorted(range(len(found)), key=at.__getitem__)]
    for entry in found:
        yield orjson.dumps(entry) + b"\n"
