"""The raw lines around a piece of evidence, from the file it stands in; however large that is, little of it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sglang_lifecycle.analyzers.verdict import EvidenceLine
from sglang_lifecycle.cli.text import clean
from sglang_lifecycle.parsers.inputs import read_span
from sglang_lifecycle.parsers.quote import quote, shorten

REACH = 128 << 10
"""Bytes that are read before and after the record."""

RECORD = 256 << 10
"""Bytes of the record itself that are looked at."""

LINES = 60
"""Lines that are shown before and after it, at most."""

LONGEST = 4000
"""Characters of a line that are shown; the middle of a longer one is left out."""

FOLDED = 400
"""Characters of a line whose payload is folded."""


@dataclass(frozen=True, slots=True)
class RawLine:
    """A physical line, safe to show; `evidence` says that it belongs to the record that was asked for."""

    number: int
    text: str
    evidence: bool


def around(line: EvidenceLine, folded: bool = True) -> list[RawLine]:
    """The lines, oldest place first. Raises OSError where the input is gone."""
    start = max(0, line.offset - REACH)
    raw = read_span(line.source, start, line.offset - start + min(line.length, RECORD) + REACH)
    spans = list(_spans(raw, start))
    first = next((index for index, (offset, _) in enumerate(spans) if offset >= line.offset), 0)
    if first and spans[first][0] > line.offset:  # the record begins within a line, as a collector's object holds it
        first -= 1
    last = max((index for index, (offset, _) in enumerate(spans) if offset < line.offset + line.length), default=first)
    found = []
    for index in range(max(0, first - LINES), min(len(spans), last + 1 + LINES)):
        offset, piece = spans[index]
        text = piece.decode("utf-8", "replace")
        if folded:
            text = quote(line.source, offset, len(piece), "request.", FOLDED) or shorten(text, FOLDED)
        found.append(RawLine(line.line + index - first, clean(shorten(text, LONGEST)), first <= index <= last))
    return found


def _spans(raw: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """The lines with their offsets; a line that begins before what was read is left out."""
    position = raw.find(b"\n") + 1 if start else 0
    while position < len(raw):
        end = raw.find(b"\n", position)
        piece = raw[position : end if end >= 0 else len(raw)]
        yield start + position, piece.rstrip(b"\r")
        position += len(piece) + 1
