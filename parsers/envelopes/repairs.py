"""Lines as terminals, editors and copies leave them: coloured, escaped, indented, without their first bracket."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import unescape

import orjson

from sglang_lifecycle.parsers.lines import Line
from sglang_lifecycle.parsers.requestlog import REQUEST_HEADS

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_CUT_HEAD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{3})?(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP|CP)-?\d+)*\] ")
_BARE_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')
_ESCAPED_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*\\"')


class Colour:
    """Escape sequences of terminals, where lines begin with them."""

    name = "colour"
    certain = True
    by_line = False

    def share(self, sample: Sequence[str]) -> float:
        """All, if some lines begin with an escape sequence: whatever else wraps them can't be seen before."""
        coloured = sum(text.startswith("\x1b") for text in sample)
        return 1.0 if coloured * 20 >= len(sample) else 0.0

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without them."""
        for line in lines:
            if "\x1b" in line.text:
                line = line.inner(_ESCAPES.sub("", line.text))
            yield line


class Remains:
    """What is left of a terminal's colours where a page or a pager has spoilt the escape characters."""

    name = "remains of colour"
    certain = True
    by_line = False

    def share(self, sample: Sequence[str]) -> float:
        """All, if some lines begin so."""
        return 1.0 if sum(_REMAINS.match(text) is not None for text in sample) * 20 >= len(sample) else 0.0

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without those before a message, and those of uvicorn without all: elsewhere they may be a rid's."""
        for line in lines:
            yield line.inner(_unstyled(line.text)) if "m" in line.text else line


_REMAINS = re.compile(r"(?:\^\[|\u241b|\ufffd|\\x1b|\\u001b|\\033|\\e)?\[\d{1,3}(?:;\d{1,3})*m")
_STAMPED = r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] )?"
_STYLED = re.compile(rf"(?:{_STAMPED}{_REMAINS.pattern}(?:\([^()'\"\[\]]*\)|[A-Z]+|[ :])*)+")
_UVICORN = re.compile(
    rf"{_STAMPED}INFO:\s+(?:[\w.:\[\]]+ - \"|(?:Uvicorn|Started|Finished|Application|Waiting|Shutting) )"
)


def _unstyled(text: str) -> str:
    if (styled := _STYLED.match(text)) is not None:
        text = _REMAINS.sub("", styled[0]) + text[styled.end() :]
    return _REMAINS.sub("", text) if _UVICORN.match(text) else text


class Blanks:
    """The blanks that chats and word processors put in the place of spaces, or where there are none."""

    name = "blanks"
    certain = True
    by_line = False

    def share(self, sample: Sequence[str]) -> float:
        """All, if records come to light without them, and none stands there as it is."""
        if any(_RECORD.match(text) for text in sample):
            return 0.0
        return float(any(_RECORD.match(text.translate(_BLANKS).lstrip()) for text in sample if not text.isascii()))

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines with spaces."""
        for line in lines:
            yield line if line.text.isascii() else line.inner(line.text.translate(_BLANKS))


_BLANKS = {0xA0: " ", 0x202F: " ", 0x2007: " ", 0x200B: None, 0x200E: None, 0x2060: None, 0xFEFF: None}


class Quotes:
    """The quotes that word processors and chats put in the place of those that records are written with.

    They can't be told from a stranger's, who may break out of a text so: a record that has a field twice is doubtful.
    """

    name = "quotes"
    certain = True
    by_line = False

    def share(self, sample: Sequence[str]) -> float:
        """All, if records quote by them and nothing by an apostrophe."""
        return float(any(map(_TYPESET.search, sample)) and not any("'" in text for text in sample))

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines with plain quotes."""
        for line in lines:
            yield line if line.text.isascii() else line.inner(line.text.translate(_PLAIN))


_PLAIN = {ord(sign): "'" for sign in "\u2018\u2019\u201a\u201b"} | {ord(sign): '"' for sign in "\u201c\u201d\u201e"}
_PLAIN[0x2026] = "..."
_TYPESET = re.compile(
    r"^(?:\[[^\]]*\] )?(?:(?:Receive|Finish): obj=\w+\((?:\w+=\w+, )*\w+=|.{0,200}\brid=|\{)[\u2018-\u201e]"
)


class Filled:
    """Blanks at the end of lines, with which screens and tables fill them."""

    name = "filled"
    certain = True
    by_line = False

    def share(self, sample: Sequence[str]) -> float:
        """All, if half of the lines have them."""
        return float(sum(text[-1] in " \t" for text in sample) * 2 >= len(sample))

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without them."""
        for line in lines:
            yield line.inner(line.text.rstrip(" \t"))


class Brackets:
    """SGLang's prefix without its opening bracket, as a selection with the mouse leaves it."""

    name = "lost bracket"
    certain = True
    by_line = True

    def share(self, sample: Sequence[str]) -> float:
        """The part of the lines that lost it; one is enough."""
        return sum(_CUT_HEAD.match(text) is not None for text in sample) / len(sample)

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines with it."""
        for line in lines:
            yield line.inner("[" + line.text) if _CUT_HEAD.match(line.text) else line


class Indent:
    """Records that are indented, as Markdown's code and YAML's texts are; tracebacks keep what they have beyond."""

    name = "indent"
    certain = True
    by_line = True

    def share(self, sample: Sequence[str]) -> float:
        """The part of the lines that are indented; 0 where no record is, or any is not."""
        if any(_RECORD.match(text) for text in sample) or not any(map(_INDENTED.match, sample)):
            return 0.0
        return sum(text[0] in " \t" for text in sample) / len(sample)

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without what the first record is indented by; who is indented deeper is quoted by a record."""
        indent: str | None = ""
        for line in lines:
            text = line.text
            if _RECORD.match(text):
                indent = None
            elif indent == "" and (found := _INDENTED.match(text)):
                indent = found[1]
            yield line.inner(text.removeprefix(indent)) if indent and text.startswith(indent) else line


_RECORD = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] |" + "|".join(map(re.escape, REQUEST_HEADS)))
_INDENTED = re.compile(rf"([ \t]+)(?:{_RECORD.pattern})")


class Escaped:
    r"""Text copied out of a JSON document: `\"` for quotes, `\n` for newlines, perhaps in quotes as a whole."""

    name = "escaped"
    certain = True
    by_line = False

    def share(self, sample: Sequence[str]) -> float:
        r"""All, if every quote is an escaped one.

        SGLang writes text by `repr` or as JSON: neither leaves `\"` without a bare quote nearby.
        """
        inside = [_unquoted(text) for text in sample]
        if any(_BARE_QUOTE.search(text) for text in inside):
            return 0.0
        quoted = sum(a != b for a, b in zip(sample, inside, strict=True))
        return 1.0 if quoted * 2 > len(sample) or any(_ESCAPED_QUOTE.search(text) for text in inside) else 0.0

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines, unescaped; a string in quotes may hold several."""
        for line in lines:
            inside = _unquoted(line.text)
            try:
                text = orjson.loads(f'"{inside}"').removesuffix("\n")
            except orjson.JSONDecodeError:
                yield line
                continue
            if inside is line.text:
                yield line.inner(text)
            else:
                yield from line.split(text)


class Html:
    """Text copied out of the source of a page: `&#x27;` for quotes."""

    name = "HTML"
    certain = True
    by_line = False

    def share(self, sample: Sequence[str]) -> float:
        """All, if records quote by entities and nothing quotes by anything else: an entity may be a stranger's."""
        texts = [_TAG.sub("", text) for text in sample]
        return float(any(map(_QUOTED.search, texts)) and not any("'" in text or '"' in text for text in texts))

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without tags, with the characters that entities stand for."""
        for line in lines:
            yield line.inner(unescape(_TAG.sub("", line.text))) if "&" in line.text or "<" in line.text else line


_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")  # the page's own: of the text's all brackets are entities
_QUOTED = re.compile(r"(?:(?:Receive|Finish): obj=\w+\(.*=|\brid=|KeyError: |\{)&(?:#x27|#39|#34|quot|apos);")


def plain(text: str) -> str:
    """A text without all that may be taken off it here: two that are alike then may be one, differently spoilt."""
    return _REMAINS.sub("", _ESCAPES.sub("", text)).translate(_BLANKS).strip()


def _unquoted(text: str) -> str:
    whole = text.strip().removesuffix(",")
    return whole[1:-1] if len(whole) > 1 and whole[0] == whole[-1] == '"' and whole[-2] != "\\" else text


ENVELOPES = (Colour(), Remains(), Blanks(), Quotes(), Filled(), Escaped(), Html(), Brackets(), Indent())
