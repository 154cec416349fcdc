"""Where the values of a request-log record stand.

A record is `Class(name=value, …), headers={…}, out={'text': …, 'meta_info': {…}}`. `scan` finds every value, walking
the record once, quote-aware. Thousands of records differ only in a few values, so a scanned record is remembered as a
template: the constant text between the values that vary. The next record is held against it with comparisons of whole
chunks; only the values in between are stepped over, each to its balanced end and to no other, so a template finds
exactly what `scan` would, or nothing. It does so in bytes: what tells values apart is ASCII, which in UTF-8 stands for
nothing else, and of a long record only what is wanted becomes text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import NamedTuple, Protocol, TypeVar

from sglang_lifecycle.parsers import literals

_T = TypeVar("_T")
_CLASS = re.compile(r"\w+ReqInput\(")
_CONSTANT = frozenset({"None", "True", "False", "[]", "{}"})
_SCALAR = re.compile(r"[^,'\"\[\](){}]+")
_STRINGS = "|".join(string.pattern for string in literals.STRING.values())


def _bracket(inner: str) -> str:
    plain = r"""[^\[\](){}'"]*+"""
    return rf"""[\[{{(]{plain}(?:(?:{inner}){plain})*+[\]}})]"""


_TWO = _bracket("|".join((_STRINGS, _bracket(_STRINGS))))
_ANY = f"(?>{_STRINGS}|{_bracket('|'.join((_STRINGS, _TWO)))}|{_SCALAR.pattern})"
_CUT = b" ... "  # between the head and the tail of a value that the level shortens


def _whole(value: str) -> str:
    """An expression for a value of a kind, or for its head and its tail; what it has matched, it keeps."""
    return rf"(?>{value}(?: \.\.\. {value})*+)"


_SCALARS = rf"(?>{_SCALAR.pattern})"
_KINDS = (_SCALARS, _whole(f"(?:{_STRINGS})"), _whole(r"\[[^\[\](){}'\"]*+\]"), _whole(_ANY))
"""Expressions for values: words and numbers, strings, flat lists, and the last for all that a template can tell."""
_BYTES = {quote.encode(): re.compile(string.pattern.encode(), re.DOTALL) for quote, string in literals.STRING.items()}
_FLAT = b"0123456789, "  # of what most lists consist
_NESTING = (b"'", b'"', b"[", b"{", b"(", b")", b"}")
_HOLDERS = frozenset({"out", "out.meta_info"})  # other records have values of their own inside of these
_LONG = 450  # characters from which on constant text is compared as a whole
_PAYLOADS = frozenset({"text", "input_ids", "out.text", "out.output_ids"})  # long: their ends are searched for
_KEPT = 12  # templates of one kind of record that are tried


class Value(NamedTuple):
    """The place of a value: a field of the object by its name, of `meta_info` as `meta.…`, of the output as `out.…`."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Layout:
    """All values of a record, and the names of its fields.

    `cut`: the record ends early. `end`: where its last balanced part ends.
    """

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
    return Layout(values, _names(values, cut), position, cut)


def _names(values: list[Value], cut: bool) -> tuple[str, ...]:
    others = ("out.", "headers", "meta.") if cut else ("out.", "headers")  # of a cut output the names tell too little
    return tuple(v.name for v in values if not v.name.startswith(others))


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
    """The headers or the output that follow the object; returns the position after it.

    Raises `literals.Unbalanced` where it is cut or torn; the values that were complete before are found all the same.
    """
    if name != "out" or message[bracket] != "{":
        _, end = literals.split(message, bracket)
        values.append(Value(name, bracket, end))
        return end
    spans, end = _spans(message, bracket)
    items = list(literals.dict_items(message, spans))
    for key, a, b in items:
        if key == "meta_info" and message[a : a + 1] == "{":
            inner, stop = _spans(message, a)
            found = [item for item in literals.dict_items(message, inner) if stop or _complete(message, *item[1:])]
            values += [Value(f"meta.{k}", *span) for k, *span in found]
            end = end if stop else 0
        elif end or _complete(message, a, b):
            values.append(Value(f"out.{key}", a, b))
    if not end or len(items) < len(spans):
        raise literals.Unbalanced([])
    return end


def _spans(message: str, bracket: int) -> tuple[list[tuple[int, int]], int]:
    """The items of a bracket and the position after it; where it does not end, the last item may be cut, and 0."""
    try:
        return literals.split(message, bracket)
    except literals.Unbalanced as cut:
        return [*cut.spans, (cut.spans[-1][1] + 1 if cut.spans else bracket + 1, len(message))], 0


_HELD = ("'", '"', "[", "{", "(")  # what such a value begins with ends it as well


def _complete(message: str, start: int, end: int) -> bool:
    """Whether a value can't go on where the record was cut."""
    if end < len(message):
        return True
    return message.startswith(_HELD, start) and _any().fullmatch(message[start:].encode("utf-8", "replace")) is not None


class Template:
    """The constant text of records of one layout, and the values in between.

    `varying` names the values of one word (`None`, `True`, `7`) that differ between its records; others of the kind are
    taken for constant text. `settled` has those that are wanted, as they stand in the record that it was made from.
    `varies` names the wanted values that a record has to be asked for, in the order of `find`. `head` is what all of
    the records begin with.
    """

    def __init__(
        self, head: str, message: str, layout: Layout, wanted: Collection[str], alike: Template | None
    ) -> None:
        self.head, self.names = head, layout.names
        texts = {name: message[start:end] for name, start, end in layout.values}
        self.texts = {name: text for name, text in texts.items() if _settled(name, text)}
        self.varying: frozenset[str] = frozenset()
        if alike is not None:
            changed = [name for name, text in alike.texts.items() if texts.get(name) != text]
            self.varying = alike.varying.union(changed)
        self.settled = {n: text for n, text in self.texts.items() if n in wanted and n not in self.varying}
        self._kinds: dict[str, int] = {}
        self._steps: list[_Step] = []
        self._between, self._named = list[str](), list[str]()
        position = 0
        for name, start, end in layout.values:
            if name in self.varying or name not in self.texts:
                self._constant(message[position:start])
                if name in _PAYLOADS:
                    self._payload(name, name in wanted)
                else:
                    kind = _kind(texts[name])
                    before = alike._kinds.get(name, kind) if alike is not None else kind
                    self._value(name, name in wanted, kind if kind == before else len(_KINDS) - 1)
                position = end
        self._constant(message[position:])
        self._close()
        self._steps.append(_End())

    @property
    def varies(self) -> tuple[str, ...]:
        """The names of the values that `find` gives."""
        return tuple(self._named)

    def _constant(self, text: str) -> None:
        """Constant text: a long one is compared as a whole, a short one becomes part of an expression."""
        if len(text) > _LONG:
            self._close()
            self._steps.append(_Constant(text.encode()))
        else:
            self._between.append(re.escape(text))

    def _value(self, name: str, wanted: bool, kind: int) -> None:
        self._kinds[name] = kind
        self._between.append(f"({_KINDS[kind]})" if wanted else _KINDS[kind])
        if wanted:
            self._named.append(name)

    def _payload(self, name: str, wanted: bool) -> None:
        self._close()
        self._steps.append(_Payload(wanted))
        if wanted:
            self._named.append(name)

    def _close(self) -> None:
        """What an expression is for ends here."""
        if any(self._between):
            self._steps.append(_Between("".join(self._between)))
        self._between = []

    def find(self, message: bytes, start: int) -> list[bytes] | None:
        """The wanted values that vary, of a record of exactly this layout that begins at `start`; else None."""
        texts: list[bytes] = []
        at = start
        for step in self._steps:
            at = step.one(message, at, texts)
            if at < 0:
                return None
        return texts

    def every(self, messages: Sequence[bytes], starts: Sequence[int]) -> tuple[list[int], list[list[bytes]]]:
        """What `find` gives for each of some records: the places of those that fit, and their values side by side."""
        places, at, columns = list(range(len(messages))), list(starts), list[list[bytes]]()
        for step in self._steps:
            at, more = step.every(messages, at)
            columns += more
            if -1 in at:
                fits = [end >= 0 for end in at]
                columns = [_fitting(column, fits) for column in columns]
                places, messages, at = _fitting(places, fits), _fitting(messages, fits), _fitting(at, fits)
                if not places:
                    break
        return places, columns


def _fitting(each: Sequence[_T], fits: Sequence[bool]) -> list[_T]:
    return list(compress(each, fits))


class _Step(Protocol):
    """A part of a template. Both ways give where it ends, -1 where it is not there, and the wanted values in it."""

    def one(self, message: bytes, at: int, values: list[bytes]) -> int:
        """Step over it in one record; its values are added."""

    def every(self, messages: Sequence[bytes], at: Sequence[int]) -> tuple[list[int], list[list[bytes]]]:
        """Step over it in many records; a record that lacks it has some value all the same."""


class _Constant:
    """Constant text."""

    def __init__(self, text: bytes) -> None:
        self._text, self._size = text, len(text)

    def one(self, message: bytes, at: int, values: list[bytes]) -> int:
        return at + self._size if message.startswith(self._text, at) else -1

    def every(self, messages: Sequence[bytes], at: Sequence[int]) -> tuple[list[int], list[list[bytes]]]:
        text, size = self._text, self._size
        return [place + size if m.startswith(text, place) else -1 for m, place in zip(messages, at, strict=True)], []


class _Between:
    """Short values and the text around them, as an expression whose groups are the wanted ones."""

    def __init__(self, regex: str) -> None:
        expression = re.compile(regex.encode(), re.DOTALL)
        self._match, self._none = expression.match, (b"",) * expression.groups

    def one(self, message: bytes, at: int, values: list[bytes]) -> int:
        found = self._match(message, at)
        if found is None:
            return -1
        values += found.groups()
        return found.end()

    def every(self, messages: Sequence[bytes], at: Sequence[int]) -> tuple[list[int], list[list[bytes]]]:
        found = list(map(self._match, messages, at))
        values = zip(*[each.groups() if each is not None else self._none for each in found], strict=True)
        return [each.end() if each is not None else -1 for each in found], list(map(list, values))


class _Payload:
    """A long value."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted

    def one(self, message: bytes, at: int, values: list[bytes]) -> int:
        end = _end(message, at)
        if self._wanted and end > 0:
            values.append(message[at:end])
        return end

    def every(self, messages: Sequence[bytes], at: Sequence[int]) -> tuple[list[int], list[list[bytes]]]:
        ends, values = _quick_ends(messages, at)
        if not ends:
            ends = list(map(_end, messages, at))
            values = [message[place:end] for message, place, end in zip(messages, at, ends, strict=True)]
        return ends, [values] if self._wanted else []


class _End:
    """The end of a record."""

    def one(self, message: bytes, at: int, values: list[bytes]) -> int:
        return at if at == len(message) else -1

    def every(self, messages: Sequence[bytes], at: Sequence[int]) -> tuple[list[int], list[list[bytes]]]:
        return [place if place == size else -1 for place, size in zip(at, map(len, messages), strict=True)], []


def _kind(text: str) -> int:
    """The first kind of value that a text is, by its place in `_KINDS`."""
    return next((i for i, kind in enumerate(_KINDS) if re.fullmatch(kind, text, re.DOTALL)), len(_KINDS) - 1)


def _settled(name: str, text: str) -> bool:
    """Whether a value may be constant text: a word that stands for an option is, what a request cost is not."""
    return text in _CONSTANT or ("." not in name and _SCALAR.fullmatch(text) is not None)


def _end(message: bytes, start: int) -> int:
    """Where the value that begins at `start` ends; -1 where only a scan can tell."""
    first = message[start : start + 1]
    if first in _BYTES:
        end = message.find(first, start + 1) + 1
        if end and message.find(b"\\", start, end) >= 0:
            string = _BYTES[first].match(message, start)
            end = string.end() if string is not None else 0
    elif first == b"[":
        end = message.find(b"]", start) + 1
        inside = message[start + 1 : end - 1].translate(None, _FLAT)
        if inside and any(other in inside for other in _NESTING):
            end = _walked(message, start)
    else:
        end = _walked(message, start)
    if end <= 0:
        return -1
    return _end(message, end + len(_CUT)) if message.startswith(_CUT, end) else end


def _quick_ends(messages: Sequence[bytes], starts: Sequence[int]) -> tuple[list[int], list[bytes]]:
    """The ends of values and these, if all are strings or all are flat lists, and none of them is more than that."""
    firsts = {message[start : start + 1] for message, start in zip(messages, starts, strict=True)}
    close = _CLOSES.get(min(firsts)) if len(firsts) == 1 else None
    if close is None:
        return [], []
    ends = [message.find(close, start + 1) + 1 for message, start in zip(messages, starts, strict=True)]
    values = [message[start:end] for message, start, end in zip(messages, starts, ends, strict=True)]
    joined = b"".join(values)
    if close == b"]":
        simple = joined.count(b"[") == len(values) and not joined.translate(None, _FLAT + b"[]")
    else:
        simple = b"\\" not in joined
    cut = any(message.startswith(_CUT, end) for message, end in zip(messages, ends, strict=True))
    return (ends, values) if simple and not cut and 0 not in ends else ([], [])


_CLOSES = {b"'": b"'", b'"': b'"', b"[": b"]"}


def _walked(message: bytes, start: int) -> int:
    value = _any().match(message, start)
    return value.end() if value is not None else -1


@cache
def _any() -> re.Pattern[bytes]:
    return re.compile(_ANY.encode(), re.DOTALL)


class Templates:
    """The templates of the records seen lately, by their beginnings and ends; the last that fitted is tried first."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = frozenset(wanted)
        self._known: dict[tuple[str, bytes], list[Template]] = {}

    def find(self, message: bytes, start: int, head: str) -> tuple[Template, list[bytes]] | None:
        """The template that fits a record which begins at `start`, with what it finds there."""
        known = self._known.get((head, _last_name(message)), [])
        for index, template in enumerate(known):
            texts = template.find(message, start)
            if texts is not None:
                if index:
                    known.insert(0, known.pop(index))
                return template, texts
        return None

    def every(
        self, messages: Sequence[bytes], starts: Sequence[int], head: str
    ) -> Iterator[tuple[Template, list[int], list[list[bytes]]]]:
        """The same for many records: templates, each with the places of those that it fits and their values.

        Values are side by side, as `Template.every` gives them.
        """
        groups: dict[bytes, list[int]] = {}
        for place, message in enumerate(messages):
            groups.setdefault(_last_name(message), []).append(place)
        for name, left in groups.items():
            known = self._known.get((head, name), [])
            often: Counter[Template] = Counter()
            for template in known:
                if not left:
                    break
                fits, columns = template.every([messages[i] for i in left], [starts[i] for i in left])
                if fits:
                    yield template, [left[i] for i in fits], columns
                    often[template] = len(fits)
                    fitting = set(fits)
                    left = [place for i, place in enumerate(left) if i not in fitting]
            known.sort(key=often.__getitem__, reverse=True)

    def scan(self, message: str, head: str, start: int) -> Layout:
        """The layout of a record that no template fits, whose object begins at `start`; the next of its kind may."""
        layout = scan(message, start)
        names = [name for name, _, _ in layout.values]
        once = len(set(names)) == len(names) and _HOLDERS.isdisjoint(names)  # of two, the later one counts
        whole = not layout.cut and layout.end == len(message) and encodable(message)
        if once and whole:
            self._learn(head, message, layout)
        return layout

    def _learn(self, head: str, message: str, layout: Layout) -> None:
        """Make a template of a record; one with the same names is the same, with more that varies."""
        if len(self._known) > _ENDS:
            self._known.clear()
        known = self._known.setdefault((head, _last_name(message.encode())), [])
        alike = next((template for template in known if template.names == layout.names), None)
        if alike is not None:
            known.remove(alike)
        known.insert(0, Template(head, message, layout, self.wanted, alike))
        del known[_KEPT:]


def encodable(message: str) -> bool:
    """Whether a message is what its bytes say: halves of surrogate pairs, which JSON may hold, have none."""
    return message.encode("utf-8", "replace").decode() == message


def _last_name(message: bytes) -> bytes:
    """What stands between the last quotes near the end of a record: the name of its last value, if that is a number."""
    close = message.rfind(b"'", len(message) - _TAIL)
    opening = message.rfind(b"'", len(message) - _TAIL, close) if close > 0 else -1
    return message[opening + 1 : close] if opening >= 0 else b""


_TAIL = 64
_ENDS = 100  # beginnings and ends that are told apart: a client may choose what stands last
