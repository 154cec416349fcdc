"""A prefix that no rule knows, learnt from the lines of a file: what stands before every record, in one shape.

Launchers, terminals and editors put names, ranks, clocks or numbers before lines, each in a way of its own. They have
in common that a record follows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from sglang_lifecycle.parsers.envelopes.prefixes import Prefix
from sglang_lifecycle.parsers.envelopes.stamps import EPOCH, ISO, KIBANA, SYSLOG
from sglang_lifecycle.parsers.requestlog import REQUEST_HEADS

_LONGEST = 160  # characters of a line in which its record begins
_RECORD = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{3})?(?: [^\]]*)?\]|\{\"|" + "|".join(map(re.escape, REQUEST_HEADS))
)
_QUOTES = frozenset("\"'`\\")  # within them a record is the text of a string, perhaps a stranger's
_STAMP = rf"(?:{ISO}|{KIBANA}|{SYSLOG}|\b{EPOCH}\b)"
_CLOCK = r"\d[\d:.,/-]*"  # a time of day, or a date: it tells no streams apart
_TOKEN = re.compile(
    rf"(?P<stamp>{_STAMP})|(?P<clock>\b(?:\d\d?:\d\d{_CLOCK[2:]}|\d+[/-]\d\d?(?:[/-]\d+)?)(?![\w.@/-]))"
    r"|(?P<word>[\w.@/-]+)|(?P<space>[ \t]+)|(?P<mark>.)"
)
_KINDS_OF_LINES = re.compile(
    r"TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL|stdout|stderr|out|err|\d*[OE]", re.IGNORECASE
)
_NAMES = ("pod", "host", "unit", "stream")  # the groups of a `Prefix` that tell streams apart
_OFTEN = 4  # lines that have the same name, on average; what differs more is a number of lines, or of none

_Tokens = tuple[tuple[str, str], ...]


def learn(sample: Sequence[str]) -> Prefix | None:
    """The prefix that the first lines of a file have before their records.

    None where any record stands bare: what is wrapped beside it may be the text of a stranger. None as well where
    neither half of the lines are records nor almost all of them have the prefix.
    """
    heads = [text[: match.start()] for text in sample if (match := _RECORD.search(text, 0, _LONGEST))]
    plain = [head for head in heads if _QUOTES.isdisjoint(head)]
    if not all(heads) or len(plain) * 10 < len(heads) * 9:
        return None
    read = list(map(_tokens, plain))
    shapes = Counter(map(_shape, read)).most_common(1)
    if not shapes or shapes[0][1] * 10 < len(heads) * 9:
        return None
    alike = [tokens for tokens in read if _shape(tokens) == shapes[0][0]]
    indent = "[ \t]*" if any(head[0] in " \t" for head in plain) else ""
    least = 0.5 if len(alike) * 2 >= len(sample) else 0.9
    prefix = Prefix("prefix", re.compile(indent + "".join(_pattern(alike))), certain=False, least=least)
    return prefix if prefix.share(sample) else None


def _tokens(head: str) -> _Tokens:
    return tuple((match.lastgroup or "", match[0]) for match in _TOKEN.finditer(head.lstrip()))


def _shape(tokens: _Tokens) -> _Tokens:
    """What prefixes have in common: the kinds of their tokens, and of what is no word and no time the text."""
    return tuple((kind, text if kind == "mark" else "") for kind, text in tokens)


def _pattern(alike: Sequence[_Tokens]) -> Iterator[str]:
    """An expression for each token of prefixes of one shape."""
    kinds = [kind for kind, _ in alike[0]]
    names = iter(_NAMES)
    for place, kind in enumerate(kinds):
        texts = {tokens[place][1] for tokens in alike}
        if kind == "word":
            yield _word(texts, len(alike), names)
        elif kind == "stamp":  # of several the last is the nearest to the process
            yield rf"(?P<stamp>{_STAMP})" if "stamp" not in kinds[place + 1 :] else _STAMP
        elif kind == "clock":
            yield _CLOCK
        else:
            text = re.escape(min(texts)) if len(texts) == 1 else "[ \t]+"
            yield rf"(?:{text}|$)" if kind == "space" and place == len(kinds) - 1 else text


def _word(texts: set[str], lines: int, names: Iterator[str]) -> str:
    """An expression for a word: what differs between some lines, or may do so farther on, names a stream."""
    if len(texts) == 1 and not any(map(str.isdigit, min(texts))):
        return re.escape(min(texts))
    regex = r"\d+" if all(map(str.isdigit, texts)) else r"[\w.@/-]+"
    if all(map(_KINDS_OF_LINES.fullmatch, texts)) or (len(texts) > 1 and len(texts) * _OFTEN > lines):
        return regex
    name = next(names, None)
    return rf"(?P<{name}>{regex})" if name else regex
