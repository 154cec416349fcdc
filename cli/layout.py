"""The few shapes that the screens are made of. Every text that comes from logs goes through `plain`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sglang_lifecycle.analyzers.verdict import EvidenceLine
from sglang_lifecycle.cli.text import clean, width

INDENT = 2
"""What stands under a title is indented by so many columns."""

GAP = 2
"""Columns between columns."""

LEAST = 18
"""A sentence in fewer columns than these is no longer read, but spelt."""

TITLE = "bold"
LABEL = "cyan"
FAINT = "bright_black"
TONES = {"proven": "green", "likely": "yellow", "not-established": "magenta"}
"""Colours underline what the words say; they never say it alone."""


def plain(text: str, style: str = "") -> Text:
    """Text from anywhere, safe to show."""
    return Text(clean(text), style=style)


def title(text: str, remark: str = "") -> Text:
    """The line above a section."""
    line = Text(text, style=TITLE)
    if remark:
        line.append(f"  {clean(remark)}", style=f"not bold {FAINT}")
    return line


def section(name: str, body: RenderableType, remark: str = "") -> Group:
    """An empty line, a title and what belongs to it."""
    return Group("", title(name, remark), Padding(body, (0, 0, 0, INDENT)))


def grid(rows: Iterable[Sequence[RenderableType]], first: int = 0) -> RenderableType:
    """Aligned columns. The last one takes the rest of the line and wraps; `first` is the least width of the first."""
    return _Grid(list(map(tuple, rows)), first)


class _Grid:
    """Where too little of the line is left for the last column, what has no room stands below the rest of its row."""

    def __init__(self, rows: Sequence[Sequence[RenderableType]], first: int) -> None:
        self._rows = rows
        self._first = first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [max(map(_columns, column)) for column in zip(*self._rows, strict=True)]
        offsets = [sum(columns[:index]) + GAP * index for index in range(len(columns))]
        if not columns or options.max_width - offsets[-1] >= min(LEAST, columns[-1]):
            yield self._table(self._rows)
            return
        ends = [offset + width for offset, width in zip(offsets[:-1], columns, strict=False)]
        beside = max(1, sum(end <= options.max_width for end in ends))
        below = max(offset for offset in offsets[:beside] if not offset or options.max_width - offset >= 2 * LEAST)
        for row in self._rows:
            yield self._table([row[:beside]], columns)
            if any(map(_columns, row[beside:])):
                yield Padding(Group(*row[beside:]), (0, 0, 0, below + INDENT))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._table(self._rows))

    def _table(self, rows: Sequence[Sequence[RenderableType]], widths: Sequence[int] = ()) -> Table:
        table = Table.grid(padding=(0, GAP, 0, 0))
        last = max(map(len, rows), default=1) - 1
        for index in range(last + 1):
            least = widths[index] if index < last and widths else self._first if index == 0 else None
            table.add_column(no_wrap=index < last, overflow="fold", min_width=least)
        for row in rows:
            table.add_row(*row)
        return table


def _columns(cell: RenderableType) -> int:
    """How many columns a cell would like; what isn't text takes what there is."""
    return max(map(width, cell.plain.split("\n"))) if isinstance(cell, Text) else LEAST


def bullets(texts: Iterable[str], mark: str = "•") -> RenderableType:
    """A list of sentences."""
    return grid((Text(mark, style=FAINT), plain(text)) for text in texts)


def numbered(texts: Iterable[str]) -> RenderableType:
    """A list of sentences, in order."""
    return grid((Text(str(number), style=FAINT), plain(text)) for number, text in enumerate(texts, 1))


def with_references(text: Text, evidence: Sequence[int]) -> Text:
    """The text followed by the numbers of the evidence lines it rests on."""
    if evidence:
        text.append(f" [{','.join(str(index + 1) for index in evidence)}]", style=FAINT)
    return text


def places(lines: Sequence[EvidenceLine], room: int) -> tuple[str, list[str]]:
    """Where each line stands; where that takes more columns than there are, the folder they share and the rest."""
    where = [f"{'stdin' if line.source == '-' else line.source}:{line.line}" for line in lines]
    if any(width(clean(place)) > room for place in where):
        with suppress(ValueError):  # some paths are absolute and others aren't
            folder = os.path.join(os.path.commonpath([os.path.dirname(line.source) for line in lines]), "")
            if all(place.startswith(folder) for place in where):
                return folder, [clean(place.removeprefix(folder)) for place in where]
    return "", list(map(clean, where))
