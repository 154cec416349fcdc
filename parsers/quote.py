"""The relevant piece of a record, for people: structure kept, payload cut."""

from __future__ import annotations

import re

from sglang_lifecycle.parsers import literals, requestlog, views
from sglang_lifecycle.parsers.prefix import Prefix

_OBJ = ("rid", "stream", "session_params", "session", "priority", "bootstrap_room")
_META = ("finish_reason", "prompt_tokens", "completion_tokens", "num_retractions", "total_retractions", "e2e_latency")
_LONGEST = 1 << 20  # bytes of a record that are read to quote it


def quote(source: str, offset: int, length: int, event: str, width: int = 400) -> str:
    """The piece of a record that carries its meaning, at most `width` characters; empty where the input is gone."""
    try:
        text = views.text(source, offset, min(length, _LONGEST))
    except OSError:
        return ""
    if event.startswith("request.") and (piece := _request(text)) is not None:
        text = piece
    return shorten(text.replace("\r\n", "\n"), width)


def shorten(text: str, width: int) -> str:
    """Cut the middle out of a long text: its beginning and its end say what it is."""
    if len(text) <= width:
        return text
    tail = width // 3
    return f"{text[: width - tail - 1]}…{text[-tail:]}" if width > 8 else text[:width]


def _request(text: str) -> str | None:
    head = Prefix().split(text)
    if head is None or not head.message.startswith(requestlog.REQUEST_HEADS):
        return None
    stamp = text[: len(text) - len(head.message)]
    if head.message.startswith(requestlog.JSON_HEAD):
        return stamp + _json(head.message)
    return stamp + _repr(head.message)


def _repr(message: str) -> str:
    start = message.index("=") + 1
    bracket = re.compile(r"\w*[({]").match(message, start)
    if bracket is None:
        return message
    try:
        spans, position = literals.split(message, bracket.end() - 1)
    except literals.Unbalanced as cut:
        spans, position = cut.spans, len(message)
    items = literals.call_fields if message[bracket.end() - 1] == "(" else literals.dict_items
    kept = [
        f"{name}={message[a:b].strip()}"
        for name, a, b in items(message, spans)
        if name in _OBJ and message[a:b].strip() not in ("None", "False")
    ]
    piece = f"{message[: bracket.end()]}{', '.join([*kept, '…'])}{')' if message[bracket.end() - 1] == '(' else '}'}"
    out = message.find("'meta_info': {", position)
    if out < 0:
        return piece
    try:
        spans, _ = literals.split(message, message.index("{", out))
    except literals.Unbalanced:
        return piece
    meta = [f"'{name}': {message[a:b].strip()}" for name, a, b in literals.dict_items(message, spans) if name in _META]
    return f"{piece}, out={{… {', '.join(meta)} …}}"


def _json(message: str) -> str:
    record = requestlog.read(message)
    if record is None:
        return message
    kept = {k: record.obj[k] for k in _OBJ if record.obj.get(k) not in (None, False)}
    meta = {k: record.meta[k] for k in _META if k in record.meta} if record.meta else {}
    return f'{{"event": "{record.event}", rid={record.rid!r}, {kept} … {meta or ""}}}'
