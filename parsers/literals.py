"""Reading Python literals as SGLang prints them, without ever evaluating anything.

Request-log records are `repr`s with local rules: strings longer than the level allows become `'head' ... 'tail'`,
status codes may be `HTTPStatus.BAD_REQUEST`, 0.4.1 prints dictionary keys unquoted. Everything here walks a record
once, quote-aware, so the cost is linear in its length and text inside a string can never be taken for structure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from http import HTTPStatus
from math import isfinite
from typing import Any

STRING = {
    "'": re.compile(r"'[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL),
    '"': re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL),
}
"""A whole string literal, by its quote."""
_TOP = re.compile(r"['\"\[\](){},]")
_DEEP = re.compile(r"['\"\[\](){}]")  # below the first level a comma separates nothing that we ask for
_KEY = re.compile(r"\s*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\w+)): ?")
_STATUS = re.compile(r"<?HTTPStatus\.([A-Z_]+)(?:: \d{3}>)?")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_CONSTANTS: dict[str, Any] = {"None": None, "True": True, "False": False}
_DIGITS = 21  # a longer integer is no count and no id; reading it would cost more than it is worth
_MAX_DEPTH = 32


class Unbalanced(ValueError):
    """A bracket or a string does not end inside the record: the line was cut."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        super().__init__("the record ends inside a bracket or a string")
        self.spans = spans
        """The items that were complete before the cut, as in `split`."""


def split(text: str, start: int) -> tuple[list[tuple[int, int]], int]:
    """Split the bracket that opens at `text[start]` into its comma-separated items.

    Returns the items' `(start, end)` spans and the position after the closing bracket. Raises `Unbalanced`.
    """
    spans: list[tuple[int, int]] = []
    depth = 1
    item = position = start + 1
    while True:
        stop = (_TOP if depth == 1 else _DEEP).search(text, position)
        if stop is None:
            raise Unbalanced(spans)
        char = stop.group()
        position = stop.end()
        if char in "'\"":
            string = STRING[char].match(text, stop.start())
            if string is None:
                raise Unbalanced(spans)  # what stands in a string that does not end may be anything
            position = string.end()
        elif char == ",":
            spans.append((item, stop.start()))
            item = position
        elif char in "[({":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                if text[item : stop.start()].strip():
                    spans.append((item, stop.start()))
                return spans, position


def call_fields(text: str, spans: list[tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    """The `name=value` items of a call such as `GenerateReqInput(…)`: name, and the span of its value."""
    for start, end in spans:
        equals = text.find("=", start, end)
        if equals > 0 and text[start:equals].strip().isidentifier():
            yield text[start:equals].strip(), equals + 1, end


def dict_items(text: str, spans: list[tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    """The `'key': value` items of a dictionary: key, and the span of its value."""
    for start, end in spans:
        key = _KEY.match(text, start, end)
        if key is not None:
            name = key[1] or key[2] or key[3] or ""
            yield (string(key[0].strip().rstrip(": ")) or name) if "\\" in name else name, key.end(), end


def string(text: str) -> str | None:
    """The value of one string literal, or None where `text` is anything else."""
    if text[:1] in STRING:
        match = STRING[text[0]].fullmatch(text)
        if match is not None and "\\" not in text:  # as it stands; what reads it with escapes takes ten times as long
            return text[1:-1]
        if match is not None:
            try:
                value = ast.literal_eval(text)
            except (SyntaxError, ValueError):  # a raw newline (0.4.1) or a lone surrogate
                return text[1:-1]
            return _printable(value) if isinstance(value, str) else None
    return None


def _printable(text: str) -> str:
    """A text that can be written out again: half of a surrogate pair is no character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def value(text: str, depth: int = 0) -> Any:
    """The value of a literal. What is no literal (an object's `str`, a cut string) comes back as its own text."""
    text = text.strip()
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NUMBER.fullmatch(text):
        if not text.removeprefix("-").isdigit():
            number = float(text)
            return number if isfinite(number) else text
        return int(text) if len(text) <= _DIGITS else text
    first = text[:1]
    if first in STRING:
        whole = string(text)
        return whole if whole is not None else _truncated(text)
    if first in "[({" and first and depth < _MAX_DEPTH:
        try:
            spans, end = split(text, 0)
        except Unbalanced:
            return text
        if end == len(text):
            if first == "{":
                return {key: value(text[a:b], depth + 1) for key, a, b in dict_items(text, spans)}
            return [value(text[a:b], depth + 1) for a, b in spans]
    status = _STATUS.fullmatch(text)
    if status is not None and status[1] in HTTPStatus.__members__:
        return int(HTTPStatus[status[1]])
    return text


def _truncated(text: str) -> str:
    """`'head' ... 'tail'` as one text."""
    head = STRING[text[0]].match(text)
    if head is None or not text.startswith(" ... ", head.end()):
        return text
    tail = string(text[head.end() + 5 :])
    return f"{string(head[0])} ... {tail}" if tail is not None else text


def trailing_string(text: str, marker: str) -> tuple[str, str] | None:
    """Split `<before><marker><one string literal>` at the last place where the literal reaches to the end.

    The search goes from the right because what stands before the marker may be user text that imitates it.
    """
    at = text.rfind(marker)
    for _ in range(16):  # each miss is a marker inside the literal itself; nobody needs more
        if at < 0:
            return None
        literal = string(text[at + len(marker) :])
        if literal is not None:
            return text[:at], literal
        at = text.rfind(marker, 0, at)
    return None
