"""A document as Markdown (GitHub's kind), safe to paste: text from logs can't become markup, a link or a mention."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sglang_lifecycle.cli.document import Block, Code, Document, Grid, Items
from sglang_lifecycle.cli.text import clean

_MARKUP = re.compile(r"[\\`*_\[\]|~]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "#": "&#35;"}
_LINK = re.compile(r":(?=//)|(?<=www)\.|(?<=mailto):|(?<=xmpp):", re.IGNORECASE)
_LEADING = re.compile(r"^(\s*)([-+=]|\d+(?=[.)](?:\s|$)))")  # what would begin a list or underline a title


def markdown(document: Document) -> str:
    """The document, ending in a line break."""
    parts = [f"# {inline(document.title)}", *(_block(each) for each in document.lead)]
    for section in document.shown:
        parts += [f"## {inline(section.title)}", *(_block(each) for each in section.body)]
    return "\n\n".join(parts) + "\n"


def inline(text: str, cell: bool = False) -> str:
    """A text on one line; `cell` says that it stands in a table."""
    shown = clean(text)
    if isinstance(text, Code):
        return _code(shown, cell)
    shown = re.sub("[&<>@#]", lambda match: _ENTITIES[match[0]], shown)
    shown = _LINK.sub(lambda match: f"&#{ord(match[0])};", shown)
    shown = _MARKUP.sub(r"\\\g<0>", shown)
    return shown if cell else _LEADING.sub(lambda match: f"{match[1]}&#{ord(match[2][0])};{match[2][1:]}", shown)


def _code(text: str, cell: bool) -> str:
    if not text:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    shown = f"{fence}{pad}{text}{pad}{fence}"
    return shown.replace("|", "\\|") if cell else shown


def _block(block: Block) -> str:
    match block:
        case Items():
            marks = (f"{n}." if block.numbered else "-" for n in range(1, len(block.texts) + 1))
            return "\n".join(f"{mark} {inline(text)}" for mark, text in zip(marks, block.texts, strict=True))
        case Grid():
            return table(block)
        case _:
            return inline(block)


def table(grid: Grid) -> str:
    """A table, without a line break at its end."""
    return "\n".join(_rows(grid))


def _rows(grid: Grid) -> Iterator[str]:
    yield _row([inline(name, cell=True) for name in grid.head])
    yield _row(["---:" if name in grid.numbers else "---" for name in grid.head])
    for row in grid.rows:
        yield _row([inline(cell, cell=True) for cell in row])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
