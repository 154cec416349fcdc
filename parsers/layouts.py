"""Where the values of a request-log record stand.

A record is `Class(name=value, …), headers={…}, out={'text': …, 'meta_info': {…}}`. `scan` finds every value, walking
the record once, quote-aware. Thousands of records differ only in a few values, so a scanned record is remembered as a
template: the constant text between the values that vary. The next record is held against it with comparisons of whole
chunks; only the values in between are walked, each to its balanced end, so a template finds exactly what `scan` would,
or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sglang_lifecycle.parsers import literals

_CLASS = re.compile(r"\w+ReqInput\(")
_CONSTANT = frozenset({"None", "True", "False", "[]", "{}"})
_SCALAR = re.compile(r"[^,'\"\[\](){}]+")
_FLAT = re.compile(
    r"""[\[{(](?:[^\[\](){}'"]++|'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+[\]})]""", re.DOTALL
)  # a bracket that holds no other
_CUT = " ... "  # between the head and the tail of a value that the level shortens
_KEPT = 12  # templates of one kind of record that are tried


class Value(NamedTuple):
    """The place of a value: a field of the object by its name, of `meta_info` as `meta.…`, of the output as `out.…`."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Layout:
    """Every value of a record. `cut`: the record ends early. `end`: where its last balanced part ends."""

    values: list[Value]
    names: tuple[str, ...]
    end: int
    cut: bool = False


def scan(message: str, start: int) -> Layout:
    """Find every value of the record whose object begins at `start`."""
    values: list[Value] = []
    cut, position = False, start
    try:
        position = _object(message, start, values)
        while message.startswith(", ", position):
            equals = message.find("=", position)
            if equals < 0 or message[equals + 1 : equals + 2] not in ("{", "["):
                break
            name = message[position + 2 : equals]
            position = _part(message, name, equals + 1, values)
    except literals.Unbalanced:
        cut = True
    return Layout(values, _names(values), position, cut)


def _names(values: list[Value]) -> tuple[str, ...]:
    return tuple(v.name for v in values if not v.name.startswith(("out.", "headers")))


def _object(message: str, start: int, values: list[Value]) -> int:
    """The fields of `Class(…)` or of an OpenAI body `{…}`; returns the position after it."""
    match = _CLASS.match(message, start)
    if match is None and message[start : start + 1] != "{":
        return len(message)
    bracket = match.end() - 1 if match is not None else start
    items = literals.call_fields if match is not None else literals.dict_items
    try:
        spans, end = literals.split(message, bracket)
    except literals.Unbalanced as cut:
        values += [Value(*item) for item in items(message, cut.spans)]
        raise
    values += [Value(*item) for item in items(message, spans)]
    return end


def _part(message: str, name: str, bracket: int, values: list[Value]) -> int:
    """The headers or the output that follow the object; returns the position after it."""
    spans, end = literals.split(message, bracket)
    if name != "out" or message[bracket] != "{":
        values.append(Value(name, bracket, end))
        return end
    for key, a, b in literals.dict_items(message, spans):
        if key == "meta_info" and message[a : a + 1] == "{":
            inner, _ = literals.split(message, a)
            values += [Value(f"meta.{k}", start, stop) for k, start, stop in literals.dict_items(message, inner)]
        else:
            values.append(Value(f"out.{key}", a, b))
    return end


class Template:
    """The constant text of a record that was scanned, and the values in between."""

    __slots__ = ("_parts", "_tail", "names")

    def __init__(self, message: str, layout: Layout, wanted: Collection[str]) -> None:
        self.names = layout.names
        self._parts: list[tuple[str, str | None]] = []
        position = 0
        for name, start, end in layout.values:
            if name in wanted or not _settled(name, message[start:end]):
                self._parts.append((message[position:start], name if name in wanted else None))
                position = end
        self._tail = message[position:]

    def find(self, message: str) -> list[Value] | None:
        """The wanted values of a record of exactly this layout, else None."""
        if not message.endswith(self._tail):
            return None
        values = []
        position = 0
        for chunk, name in self._parts:
            if not message.startswith(chunk, position):
                return None
            start = position + len(chunk)
            position = _end(message, start)
            if position < 0:
                return None
            if name is not None:
                values.append(Value(name, start, position))
        return values if len(message) - position == len(self._tail) else None


def _settled(name: str, text: str) -> bool:
    """Whether a value that nobody wants is taken for constant text: options of a request are, what it cost is not."""
    return text in _CONSTANT or ("." not in name and _SCALAR.fullmatch(text) is not None)


def _end(message: str, start: int) -> int:
    """Where the value that begins at `start` ends; -1 where only a scan can tell."""
    first = message[start : start + 1]
    if first in ("'", '"'):
        match = literals.STRING[first].match(message, start)
    elif first in ("[", "{", "("):
        match = _FLAT.match(message, start)
        if match is None:
            try:
                end = literals.split(message, start)[1]
            except literals.Unbalanced:
                return -1
            return _end(message, end + len(_CUT)) if message.startswith(_CUT, end) else end
    else:
        match = _SCALAR.match(message, start)
    if match is None:
        return -1
    return _end(message, match.end() + len(_CUT)) if message.startswith(_CUT, match.end()) else match.end()


class Templates:
    """The templates of the records seen lately, by the head of the record; the last that fitted is tried first."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = frozenset(wanted)
        self._by_head: dict[str, list[Template]] = {}

    def layout(self, message: str, head: str, start: int) -> Layout:
        """The layout of a record: of a known one the wanted values, of another one all."""
        known = self._by_head.setdefault(head, [])
        for index, template in enumerate(known):
            values = template.find(message)
            if values is not None:
                if index:
                    known.insert(0, known.pop(index))
                return Layout(values, template.names, len(message))
        layout = scan(message, start)
        if not layout.cut and layout.end == len(message):
            known.insert(0, Template(message, layout, self.wanted))
            del known[_KEPT:]
        return layout
