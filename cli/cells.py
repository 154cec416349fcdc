"""Rows of aligned cells, laid out by hand since there may be very many. Ids stay whole: they are there to be copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from sglang_lifecycle.cli.layout import FAINT, GAP, INDENT
from sglang_lifecycle.cli.text import pad, shorten, width

IDS = ("rid", "session", "server")
"""The columns that strangers fill. Where a row is too wide for one line, they get the first one."""

NUMBERS = ("waited", "ran", "HTTP")
"""The columns that are aligned to the right."""

LONGEST = 400
"""Columns that an id may take; nobody copies a longer one."""

_WIDE = 48  # columns: an id that takes more runs over, rather than that it moves all others


class Cells:
    """Rows laid out for a width, by what they hold: texts by the names of their columns.

    A column that all rows leave empty is left out.
    """

    def __init__(self, rows: Sequence[Mapping[str, str]], columns: int, margin: int = 0) -> None:
        widths = {head: max((width(row[head]) for row in rows), default=0) for head in (rows[0] if rows else ())}
        fitted = {head: min(most, _WIDE) if head in IDS else most for head, most in widths.items() if most}
        self._widths = {head: max(most, len(head)) for head, most in fitted.items()}
        self._margin = margin
        self._lines = self._packed(columns - margin)

    def _packed(self, room: int) -> list[list[str]]:
        """The columns of each line of a row."""
        heads = list(self._widths)
        if self._total(heads) <= room:
            return [heads]
        lines: list[list[str]] = []
        for group in ([head for head in heads if head in IDS], [head for head in heads if head not in IDS]):
            line: list[str] = []
            for head in group:
                if line and self._total([*line, head]) > room - INDENT:
                    lines.append(line)
                    line = []
                line = [*line, head]
            lines.append(line)
        return [line for line in lines if line]

    def _total(self, heads: Sequence[str]) -> int:
        return sum(self._widths[head] for head in heads) + GAP * (len(heads) - 1)

    def head(self) -> Iterator[Text]:
        """The names of the columns."""
        return self._drawn({head: head for head in self._widths}, {}, FAINT)

    def row(self, cells: Mapping[str, str], tones: Mapping[str, str] | None = None) -> Iterator[Text]:
        """One row, in one line or several; `tones` are the styles of its cells."""
        return self._drawn(cells, tones or {}, "")

    def _drawn(self, cells: Mapping[str, str], tones: Mapping[str, str], style: str) -> Iterator[Text]:
        for number, heads in enumerate(self._lines):
            margin = " " * (self._margin + INDENT * bool(number))
            rest = {head: shorten(cells[head], LONGEST) for head in heads}
            for index, head in enumerate(heads):
                if width(rest[head]) > self._widths[head]:
                    own = margin + " " * (INDENT * bool(index))
                    yield Text(own + rest[head], style=style, no_wrap=True, overflow="ignore")
                    rest[head] = ""
            if number and not any(rest.values()):
                continue
            line = Text(margin, style=style, no_wrap=True, overflow="ignore")
            for index, head in enumerate(heads):
                columns = self._widths[head]
                text = rest[head].rjust(columns) if head in NUMBERS else pad(rest[head], columns)
                line.append(" " * GAP * bool(index) + text, style=tones.get(head))
            if line.plain.strip():
                yield line
