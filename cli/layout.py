"""The few shapes that the screens are made of. Every text that comes from logs goes through `plain`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sglang_lifecycle.analyzers.verdict import EvidenceLine
from sglang_lifecycle.cli.text import clean, width

INDENT = 2
"""What stands under a title is indented by so many columns."""

GAP = 2
"""Columns between columns."""

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


def grid(rows: Iterable[Sequence[RenderableType]], first: int = 0) -> Table:
    """Aligned columns. The last one takes the rest of the line and wraps; `first` is the least width of the first."""
    rows = list(rows)
    table = Table.grid(padding=(0, GAP, 0, 0))
    last = max(map(len, rows), default=1) - 1
    for index in range(last + 1):
        table.add_column(no_wrap=index < last, overflow="fold", min_width=first if index == 0 else None)
    for row in rows:
        table.add_row(*row)
    return table


def bullets(texts: Iterable[str], mark: str = "•") -> Table:
    """A list of sentences."""
    return grid((Text(mark, style=FAINT), plain(text)) for text in texts)


def numbered(texts: Iterable[str]) -> Table:
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
