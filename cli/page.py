"""A document as HTML: one page that needs nothing else, or the part that a notebook shows."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sglang_lifecycle.cli.document import Block, Code, Document, Grid, Items
from sglang_lifecycle.cli.text import clean

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } .wide { overflow-x: auto; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #8885; text-align: left; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
td code { display: inline-block; width: max-content; max-width: 24rem; }
"""


def page(document: Document) -> str:
    """A whole page, ending in a line break. It runs no script and loads nothing."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(clean(document.title))}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            fragment(document),
            "</body>",
            "</html>",
            "",
        ]
    )


def fragment(document: Document, level: int = 1) -> str:
    """What stands in a page's body, or in a part of it, its title at a level."""
    return "\n".join(_parts(document, level))


def _parts(document: Document, level: int) -> Iterator[str]:
    yield f"<h{level}>{_inline(document.title)}</h{level}>"
    yield from map(_block, document.lead)
    for section in document.shown:
        yield f"<h{level + 1}>{_inline(section.title)}</h{level + 1}>"
        yield from map(_block, section.body)


def _inline(text: str) -> str:
    shown = escape(clean(text))
    return f"<code>{shown}</code>" if isinstance(text, Code) and shown else shown


def _block(block: Block) -> str:
    match block:
        case Items():
            tag = "ol" if block.numbered else "ul"
            return f"<{tag}>{''.join(f'<li>{_inline(text)}</li>' for text in block.texts)}</{tag}>"
        case Grid():
            return f'<div class="wide"><table>\n{chr(10).join(_rows(block))}\n</table></div>'
        case _:
            return f"<p>{_inline(block)}</p>"


def _rows(grid: Grid) -> Iterator[str]:
    classes = [' class="number"' if name in grid.numbers else "" for name in grid.head]
    for tag, rows in (("th", [grid.head]), ("td", grid.rows)):
        for row in rows:
            cells = (f"<{tag}{kind}>{_inline(cell)}</{tag}>" for kind, cell in zip(classes, row, strict=True))
            yield f"<tr>{''.join(cells)}</tr>"
