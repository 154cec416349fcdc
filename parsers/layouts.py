"""Where the values of a request-log record stand.

A record is `Class(name=value, …), headers={…}, out={'text': …, 'meta_info': {…}}`. `scan` finds every value, walking
the record once, quote-aware. Thousands of records differ only in a few values, so a scanned record is remembered as a
template: the constant text between the values that vary. The next record is held against it with comparisons of whole
chunks; only the values in between are stepped over, each to its balanced end and to no other, so a template finds
exactly what `scan` would, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sglang_lifecycle.parsers import literals

_CLASS = re.compile(r"\w+ReqInput\(")
_CONSTANT = frozenset({"None", "True", "False", "[]", "{}"})
_SCALAR = re.compile(r"[^,'\"\[\](){}]+")
_STRINGS = "|".join(string.pattern for string in literals.STRING.values())


def _bracket(inner: str) -> str:
    return rf"""[\[{{(](?:[^\[\](){{}}'"]++|{inner})*+[\]}})]"""


_TWO = _bracket("|".join((_STRINGS, _bracket(_STRINGS))))
_ANY = re.compile(f"(?>{_STRINGS}|{_bracket('|'.join((_STRINGS, _TWO)))}|{_SCALAR.pattern})", re.DOTALL)
_CUT = " ... "  # between the head and the tail of a value that the level shortens
_NESTING = ("'", '"', "[", "{", "(", ")", "}")
_HOLDERS = frozenset({"out", "out.meta_info"})  # other records have values of their own inside of these
_LONG = 32  # characters from which on constant text is compared as a whole
_Match = Callable[[str, int], "re.Match[str] | None"]
_KEPT = 12  # templates of one kind of record that are tried


class Value(NamedTuple):
    """The place of a value: a field of the object by its name, of `meta_info` as `meta.…`, of the output as `out.…`."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Layout:
    """The values of a record: every one, or of a known `template` those that are wanted and vary.

    `cut`: the record ends early. `end`: where its last balanced part ends.
    """

    values: Sequence[tuple[str, int, int]]
    names: tuple[str, ...]
    end: int
    cut: bool = False
    template: Template | None = None


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
    """The constant text of records of one layout, and the values in between.

    `varying` names the values of one word (`None`, `True`, `7`) that differ between its records; others of the kind are
    taken for constant text. `settled` has those that are wanted, as they stand in the record that it was made from,
    and `memo` is for whoever reads them, once.
    """

    __slots__ = ("_between", "_named", "_steps", "memo", "names", "settled", "texts", "varying")

    def __init__(self, message: str, layout: Layout, wanted: Collection[str], varying: frozenset[str]) -> None:
        self.names, self.varying = layout.names, varying
        texts = {name: message[start:end] for name, start, end in layout.values}
        self.texts = {name: text for name, text in texts.items() if _settled(name, text)}
        self.settled = {name: text for name, text in self.texts.items() if name in wanted and name not in varying}
        self.memo: object = None
        self._steps: list[tuple[_Match | None, str, tuple[str, ...]]] = []
        self._between: list[str] = []
        self._named: list[str] = []
        position = 0
        for name, start, end in layout.values:
            if name in varying or name not in self.texts:
                self._constant(message[position:start])
                self._value(name if name in wanted else "", _SCALAR.fullmatch(message, start, end) is not None)
                position = end
        self._constant(message[position:])
        self._close()

    def _constant(self, text: str) -> None:
        """A step over constant text: a long one is compared as a whole, a short one becomes part of an expression."""
        if len(text) > _LONG:
            self._close()
            self._steps.append((None, text, ()))
        else:
            self._between.append(re.escape(text))

    def _value(self, name: str, scalar: bool) -> None:
        """A step over a value: a number or a word becomes part of an expression, any other is walked."""
        if scalar and name.startswith("meta."):
            self._between.append(f"({_SCALAR.pattern})")
            self._named.append(name)
        elif scalar and not name:
            self._between.append(_SCALAR.pattern)
        else:
            self._close()
            self._steps.append((None, "", (name,)))

    def _close(self) -> None:
        if self._between:
            self._steps.append((re.compile("".join(self._between)).match, "", tuple(self._named)))
            self._between, self._named = [], []

    def find(self, message: str) -> list[tuple[str, int, int]] | None:
        """The wanted values that vary, of a record of exactly this layout, each with its place; else None."""
        values: list[tuple[str, int, int]] = []
        position = 0
        for match, text, names in self._steps:
            if match is not None:
                found = match(message, position)
                if found is None:
                    return None
                values += [(name, *span) for name, span in zip(names, found.regs[1:], strict=True)]
                position = found.end()
            elif names:
                start, position = position, _end(message, position)
                if position < 0:
                    return None
                if names[0]:
                    values.append((names[0], start, position))
            else:
                if not message.startswith(text, position):
                    return None
                position += len(text)
        return values if position == len(message) else None


def _settled(name: str, text: str) -> bool:
    """Whether a value may be constant text: a word that stands for an option is, what a request cost is not."""
    return text in _CONSTANT or ("." not in name and _SCALAR.fullmatch(text) is not None)


def _end(message: str, start: int) -> int:
    """Where the value that begins at `start` ends; -1 where only a scan can tell."""
    first = message[start : start + 1]
    if first in ("'", '"'):
        end = message.find(first, start + 1) + 1
        if end and message.find("\\", start, end) >= 0:
            string = literals.STRING[first].match(message, start)
            end = string.end() if string is not None else 0
    elif first == "[":
        end = message.find("]", start) + 1
        if end and any(message.find(other, start + 1, end) >= 0 for other in _NESTING):
            end = _walked(message, start)
    else:
        end = _walked(message, start)
    if end <= 0:
        return -1
    return _end(message, end + len(_CUT)) if message.startswith(_CUT, end) else end


def _walked(message: str, start: int) -> int:
    value = _ANY.match(message, start)
    return value.end() if value is not None else -1


class Templates:
    """The templates of the records seen lately, by the head of the record; the last that fitted is tried first."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = frozenset(wanted)
        self._by_head: dict[str, list[Template]] = {}

    def layout(self, message: str, head: str, start: int) -> Layout:
        """The layout of a record: of a known one the wanted values that vary, of another one all."""
        known = self._by_head.setdefault(head, [])
        for index, template in enumerate(known):
            values = template.find(message)
            if values is not None:
                if index:
                    known.insert(0, known.pop(index))
                return Layout(values, template.names, len(message), template=template)
        layout = scan(message, start)
        names = [name for name, _, _ in layout.values]
        once = len(set(names)) == len(names)  # of two, the later one counts
        if once and _HOLDERS.isdisjoint(names) and not layout.cut and layout.end == len(message):
            self._learn(known, message, layout)
        return layout

    def _learn(self, known: list[Template], message: str, layout: Layout) -> None:
        """Make a template of a record; one with the same names is the same, with more that varies."""
        varying: frozenset[str] = frozenset()
        alike = next((template for template in known if template.names == layout.names), None)
        if alike is not None:
            known.remove(alike)
            texts = {name: message[start:end] for name, start, end in layout.values}
            varying = alike.varying.union(name for name, text in alike.texts.items() if texts.get(name) != text)
        known.insert(0, Template(message, layout, self.wanted, varying))
        del known[_KEPT:]
