"""Log entries as YAML in blocks: what `gcloud logging read` prints unless told otherwise, and `aws --output yaml`.

Only what these write is read: mappings, lists, quoted, plain and literal texts. A text is quoted or indented, so that
no stranger's can begin a document, or a field beside its own.
"""

from __future__ import annotations

import re
from typing import Any

_BEGINS = re.compile(rb"(?:---\r?\n)?[A-Za-z]\w*:(?: [^\n]*)?\r?\n(?:[ -][^\n]*|[A-Za-z]\w*:(?: [^\n]*)?)\r?\n")
_TEXT = re.compile(rb"^ *(?:- )?(?:textPayload|jsonPayload|message|log|msg):(?: |\r?$)", re.MULTILINE)
_RECORD = re.compile(rb"^\[", re.MULTILINE)  # of a log: what is in blocks begins no line so
_DOCUMENT = re.compile(r"^(?:---|\.\.\.)\r?\n", re.MULTILINE)
_FIELD = re.compile(r""" *(?:- )?(?P<key>[^\s'"#:-][^\s'":]*|'[^']*'|"[^"\\]*"):(?: +(?P<value>.*)|$)""")
_ITEM = re.compile(r" *-(?: +(?P<value>.*)|$)")
_LITERAL = re.compile(r"[|>](?P<indent>\d?)[+-]?")
_ENDS = {"'": re.compile(r"(?:[^']|'')*'"), '"': re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL)}
_ESCAPE = re.compile(r"\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = dict(zip("0abtnvfre_NLP", "\0\a\b\t\n\v\f\r\x1b\xa0\x85\u2028\u2029", strict=True))
_JOINED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n[ \t]*")
_DEPTH = 24
"""How deep what is within something may be."""


class _Unread(Exception):
    """What is no such YAML."""


def is_document(head: bytes) -> bool:
    """Whether a text that begins like `head` may be such entries."""
    return _BEGINS.match(head) is not None and _TEXT.search(head) is not None and _RECORD.search(head) is None


def documents(text: str) -> list[Any]:
    """The documents in a text, but for those that can't be read; none where most can't."""
    parts = [part for part in _DOCUMENT.split(text) if part.strip()]
    found = []
    for part in parts:
        reader = _Reader(part, cut=part is parts[-1])
        try:
            found.append(reader.block(0))
        except _Unread:
            continue
    return found if len(found) * 2 > len(parts) or len(found) == len(parts) - 1 > 0 else []


class _Reader:
    """Reads one document, of which the end may be cut."""

    def __init__(self, text: str, cut: bool) -> None:
        self._lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        self._at, self._cut = 0, cut

    def block(self, depth: int) -> Any:
        """What stands from here on, as deep as its first line. Raises `_Unread`."""
        line = self._next()
        if line is None or depth > _DEPTH:
            raise _Unread
        indent = len(line) - len(line.lstrip(" "))
        found: Any = [] if _ITEM.fullmatch(line) else {}
        while (line := self._next()) is not None:
            deep = len(line) - len(line.lstrip(" "))
            item, field = _ITEM.fullmatch(line), _FIELD.fullmatch(line)
            if deep < indent or (deep == indent and isinstance(found, list) != (item is not None)):
                break  # a list may be as deep as the field that it is the value of
            if deep > indent or (field if isinstance(found, dict) else item) is None:
                if self._cut and self._at == len(self._lines) - 1:
                    self._at += 1
                    break
                raise _Unread
            if isinstance(found, list) and item is not None:
                if field is not None:  # its fields stand one below the other
                    self._lines[self._at] = f"{' ' * (deep + 2)}{line[deep + 2 :]}"
                    found.append(self.block(depth + 1))
                else:
                    found.append(self._value(item["value"], indent, depth))
            elif field is not None:
                found[field["key"].strip("'\"")] = self._value(field["value"], indent, depth)
        if depth == 0 and self._next() is not None:
            raise _Unread
        return found

    def _next(self) -> str | None:
        """The next line that is not empty, which stays the next one."""
        while self._at < len(self._lines) and not self._lines[self._at].strip():
            self._at += 1
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _value(self, text: str | None, indent: int, depth: int) -> Any:
        """The value of a field or an item that is indented so far, and begins with a text on its line."""
        self._at += 1
        if not text:
            line = self._next()
            deep = len(line) - len(line.lstrip(" ")) if line is not None else -1
            inside = line is not None and (deep > indent or (deep == indent and _ITEM.fullmatch(line) is not None))
            return self.block(depth + 1) if inside else None
        if literal := _LITERAL.fullmatch(text):
            return self._literal(indent, int(literal["indent"] or 0))
        if text[0] in _ENDS:
            return self._quoted(text, indent)
        plain = _folded("\n".join([text, *self._deeper(indent)])).strip()
        return int(plain) if plain.isdecimal() and plain.isascii() and len(plain) < 20 else plain

    def _deeper(self, indent: int) -> list[str]:
        """The lines that are indented further, or empty and before such."""
        start = end = self._at
        for index in range(start, len(self._lines)):
            line = self._lines[index]
            if line.strip() and not line.startswith(" " * (indent + 1)):
                break
            end = index + 1 if line.strip() else end
        self._at = end
        return self._lines[start:end]

    def _literal(self, indent: int, more: int) -> str:
        lines = self._deeper(indent)
        first = next((line for line in lines if line.strip()), "")
        width = indent + more if more else len(first) - len(first.lstrip(" "))
        return "\n".join(line[width:] for line in lines)

    def _quoted(self, text: str, indent: int) -> str:
        quote, whole = text[0], "\n".join([text, *self._deeper(indent)])
        end = _ENDS[quote].match(whole, 1)
        if (end is None or whole[end.end() :].strip()) and not (end is None and self._cut and self._next() is None):
            raise _Unread
        inside = whole[1 : end.end() - 1] if end is not None else whole[1:]
        if quote == "'":
            return _folded(inside).replace("''", "'")
        return _ESCAPE.sub(_unescaped, _folded(_JOINED.sub(r"\1", inside)))


def _folded(text: str) -> str:
    """A text of several lines: one break is a space, of more the first is left out."""
    first, *lines = text.split("\n")
    if not lines:
        return text
    *lines, last = lines
    pieces, breaks = [first.rstrip(" \t")], 0
    for line in [*(line.strip(" \t") for line in lines), None]:
        if line == "":
            breaks += 1
            continue
        pieces += ["\n" * breaks or " ", last.lstrip(" \t") if line is None else line]
        breaks = 0
    return "".join(pieces)


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code is None:
        return _ESCAPED.get(escape[4], escape[4])
    return chr(int(code, 16)) if int(code, 16) < 0x110000 else "\ufffd"
