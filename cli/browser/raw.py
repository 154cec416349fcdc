"""The raw lines around a piece of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from sglang_lifecycle.analyzers.verdict import EvidenceLine
from sglang_lifecycle.cli.browser.around import RawLine, around
from sglang_lifecycle.cli.browser.base import Page
from sglang_lifecycle.cli.browser.reading import Scroll
from sglang_lifecycle.cli.layout import FAINT, GAP
from sglang_lifecycle.cli.text import clean, fold, shorten


class RawPage(Page):
    """The lines, with the evidence in the middle of the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "payload", "Payload", tooltip="Fold prompts and outputs, or show them")
    ]
    DEFAULT_CSS = "RawPage Static#lines { padding: 0 1; height: auto; }"

    def __init__(self, line: EvidenceLine) -> None:
        super().__init__()
        self._line = line
        self._folded = True
        self._lines: list[RawLine] = []

    def content(self) -> Iterable[Widget]:
        """The lines."""
        with Scroll():
            yield Static(id="lines", markup=False)

    def on_mount(self) -> None:
        """Read the lines."""
        self._read()
        self.query_one(Scroll).focus()

    def on_resize(self) -> None:
        """Lay the lines out for another width."""
        self._draw()

    def _read(self) -> None:
        where = "the payload is folded" if self._folded else "with the payload"
        title = Text(shorten(clean(self._line.source), max(self.app.size.width - 40, 20)), style="bold")
        self.say(title.append(f":{self._line.line}").append(f"  {where}", style="not bold dim"))
        try:
            self._lines = around(self._line, self._folded)
        except OSError as problem:
            text = Text(f"\n  The input can't be read any more: {problem.strerror or problem}.")
            self.query_one("#lines", Static).update(text)
        else:
            self._draw()

    def _draw(self) -> None:
        width = self.app.size.width - 3  # the padding and the scrollbar
        if not self._lines:
            return
        rows = list(_rows(self._lines, width))
        self.query_one("#lines", Static).update(Text("\n").join(text for _, text in rows))
        marked = [number for number, (line, _) in enumerate(rows) if line.evidence]
        if marked:
            scroll = self.query_one(Scroll)
            room = max(self.app.size.height - 2, 1)
            above = max((room - len(marked)) // 2, 0)
            self.call_after_refresh(scroll.scroll_to, y=max(marked[0] - above, 0), animate=False)

    def action_payload(self) -> None:
        """Fold or unfold prompts and outputs."""
        self._folded = not self._folded
        self._read()


def _rows(lines: Sequence[RawLine], width: int) -> Iterator[tuple[RawLine, Text]]:
    """The lines, folded into rows; the evidence has a mark at its left."""
    digits = max(len(f"{line.number}") for line in lines)
    for line in lines:
        for index, piece in enumerate(fold(line.text, max(width - digits - 2 - GAP, 20))):
            number = "" if index else f"{line.number}"
            text = Text(f"{'▌' if line.evidence else ' '} {number:>{digits}}{' ' * GAP}", style=FAINT, no_wrap=True)
            yield line, text.append(piece, style="default bold" if line.evidence else "default")
