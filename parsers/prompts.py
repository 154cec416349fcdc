"""The prompt of a request, read again from its line: the evidence keeps none of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from sglang_lifecycle.parsers import layouts, literals, requestlog, views
from sglang_lifecycle.parsers.evidence import Fact
from sglang_lifecycle.parsers.prefix import Prefix

LONGEST = 16 << 20
"""Bytes of a record that are read."""

_NAMES = frozenset({"text", "prompt", "messages", "input", "instructions"})
_DEPTH = 6


def prompts(fact: Fact) -> Iterator[str]:
    """The texts of the prompt in a request-log record; none where the input is gone or its level leaves them out.

    A text that the level cut short comes as it is written, with its quotes.
    """
    try:
        record = views.text(fact.source, fact.offset, min(fact.length, LONGEST))
    except (OSError, ValueError):
        return
    head = Prefix().split(record)
    if head is None:
        return
    if head.message.startswith(requestlog.JSON_HEAD):
        yield from _json(head.message)
        return
    start = next((len(each) for each in requestlog.TEXT_HEADS if head.message.startswith(each)), None)
    if start is None:
        return
    for name, begin, end in layouts.scan(head.message, start).values:
        if name in _NAMES:
            raw = head.message[begin:end]
            value = literals.value(raw)
            yield from _texts(value, _DEPTH) if isinstance(value, str | list | dict) else iter((raw,))


def _json(message: str) -> Iterator[str]:
    try:
        data = orjson.loads(message)
    except orjson.JSONDecodeError:
        return
    body = data.get("obj") if isinstance(data, dict) else None
    if isinstance(body, dict):
        for name in sorted(_NAMES & body.keys()):
            yield from _texts(body[name], _DEPTH)


def _texts(value: Any, depth: int) -> Iterator[str]:
    """The texts in a prompt: itself, those of a batch, the contents of a conversation."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, list):
        for each in value:
            yield from _texts(each, depth - 1)
    elif depth and isinstance(value, dict):
        for name in ("content", "text"):
            yield from _texts(value.get(name), depth - 1)
