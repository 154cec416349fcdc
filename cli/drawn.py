"""A section of a document on a screen."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from sglang_lifecycle.cli.document import Block, Code, Grid, Items, Section
from sglang_lifecycle.cli.layout import FAINT, GAP, INDENT, LABEL, bullets, numbered, plain, title


def drawn(section: Section) -> RenderableType:
    """The section with its title, an empty line before it."""
    return Group("", title(section.title), *(Padding(_block(each), (0, 0, 0, INDENT)) for each in _spaced(section)))


def _spaced(section: Section) -> Iterator[Block]:
    """The blocks, with an empty line between tables."""
    for before, block in zip([None, *section.body], section.body, strict=False):
        if isinstance(before, Grid):
            yield ""
        yield block


def _block(block: Block) -> RenderableType:
    match block:
        case Items():
            return numbered(block.texts) if block.numbered else bullets(block.texts)
        case Grid():
            return _grid(block)
        case _:
            return plain(block)


def _grid(block: Grid) -> Table:
    table = Table.grid(padding=(0, GAP, 0, 0))
    for name in block.head:
        table.add_column(justify="right" if name in block.numbers else "left", overflow="fold")
    table.add_row(*(plain(name, FAINT) for name in block.head))
    for row in block.rows:
        table.add_row(*(plain(cell, LABEL if isinstance(cell, Code) else "") for cell in row))
    return table
