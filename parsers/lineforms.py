"""The forms of the messages that fill a log besides the request log: answers and batches.

A message is told by its first bytes; what it is then has to be all of it, and nothing that another pattern could be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from sglang_lifecycle.parsers import facts
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.forms import KEY, Columns, Form, Row
from sglang_lifecycle.parsers.patterns import Pattern, table
from sglang_lifecycle.parsers.prefix import LEVEL

_IDS = {
    b"INFO:   ": "http.access",
    b"Prefill ": "batch.prefill",
    b"Decode b": "batch.decode",
    b"Received": "tokenizer.output_after_delete",
}
"""Patterns whose groups say one thing each, by how most of their messages begin."""

_PROBES = ("/health", "/metrics", "/ping", "/get_", "/v1/models", "/model_info", "/server_info")
"""How the paths begin that clients ask for again and again."""


class LineForm(Form):
    """The form of a pattern's messages, with uvicorn's level before them; a peer is an address there."""

    def __init__(self, pattern: Pattern) -> None:
        self.event, self._pattern = pattern.event, pattern
        start = rf"{LEVEL}(?=\d)" if pattern.event is Event.HTTP_ACCESS else ""  # no other message begins with a digit
        self._match = re.compile(start + pattern.regex, re.DOTALL).fullmatch
        self._within = pattern.within.encode()
        self._takes = facts.takes(pattern)
        self._path = pattern.compiled.groupindex.get("path")

    def find(self, body: bytes, start: int) -> Sequence[Any] | None:
        """What the groups of the message hold that begins at `start` of a line; None where it may be another."""
        if not body.isascii() or b"\x1b" in body or self._within not in body:
            return None
        found = self._match(body.decode(), start)
        return found.groups() if found is not None else None

    def every(self, bodies: Sequence[bytes], starts: Sequence[int]) -> tuple[list[int], list[list[Any]]]:
        """The same for many messages: the places of those of the form, and what the groups hold, side by side."""
        messages = [body[start:] for body, start in zip(bodies, starts, strict=True)]
        joined = b"\n".join(messages)
        told: list[Sequence[Any] | None]
        if joined.isascii() and b"\x1b" not in joined and all(self._within in message for message in messages):
            found = map(self._match, joined.decode().split("\n"))
            told = [each.groups() if each is not None else None for each in found]
        else:
            told = list(map(self.find, bodies, starts))
        places = [place for place, groups in enumerate(told) if groups is not None]
        return places, list(map(list, zip(*(told[place] or () for place in places), strict=True)))

    def plain(self, texts: Sequence[Any]) -> bool:
        """Whether a message can be told together with others: all can."""
        return True

    def path(self, texts: Sequence[Any]) -> Any:
        """The path that a message names, if any."""
        return texts[self._path - 1] if self._path is not None else None

    def often(self, texts: Sequence[Sequence[Any]]) -> Sequence[bool]:
        """Which of some messages a server may say often, word for word."""
        paths = texts[self._path - 1] if self._path is not None and texts else [None] * len(texts[0])
        may = {path for path in set(paths) if repeats(self.event, path)}
        return [path in may for path in paths] if may else ()

    def fact(self, source: str, row: Row) -> Fact:
        """The fact of a message."""
        fact = Fact(self.event, source, row.line, row.offset, row.length, source, *row.stamp)
        return facts.from_pattern(self._pattern, (None, *row.texts), fact)

    def columns(self, texts: Sequence[Sequence[Any]]) -> Columns:
        """What messages say, whose groups are side by side."""
        columns = Columns(self.event, {"pattern": self._pattern.id}, dict(self._pattern.detail))
        for group, name, of in self._takes:
            said = {text: of(text) for text in set(texts[group - 1]) if text is not None}
            values = list(map(said.get, texts[group - 1]))
            told = columns.columns if name in facts.SLOTS else columns.details
            if name in told:  # the later one counts, where it says something
                values = [old if new is None else new for old, new in zip(told[name], values, strict=True)]
            told[name] = values
        return columns


def repeats(event: Event, path: object) -> bool:
    """Whether lines of a kind, answers on a path, may be said often, word for word, by a server under pressure."""
    return event is Event.OUTPUT_UNDELIVERABLE or (event is Event.HTTP_ACCESS and str(path).startswith(_PROBES))


def form(body: bytes, start: int) -> LineForm | None:
    """The form that a message may have, by its first bytes."""
    return known(body[start : start + KEY])


def known(key: bytes) -> LineForm | None:
    """The form of messages whose first bytes are these."""
    return _forms().get(key)


@cache
def _forms() -> dict[bytes, LineForm]:
    patterns = {pattern.id: pattern for pattern in table().lines}
    return {key: LineForm(patterns[name]) for key, name in _IDS.items()}
