"""The raw lines around a piece of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from sglang_lifecycle.analyzers.verdict import EvidenceLine
from sglang_lifecycle.cli.browser.around import RawLine, around
from sglang_lifecycle.cli.browser.base import Page
from sglang_lifecycle.cli.browser.reading import Document, Scroll
from sglang_lifecycle.cli.layout import FAINT, GAP
from sglang_lifecycle.cli.text import clean, fold, shorten


class RawPage(Page):
    """The lines, the evidence in the middle."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("p", "payload", "Unfold payload")]

    def __init__(self, line: EvidenceLine) -> None:
        super().__init__()
        self._line = line
        self._folded = True

    def content(self) -> Iterable[Widget]:
        """What stands before it, it, and what follows."""
        yield Scroll()

    def on_mount(self) -> None:
        """Read the lines."""
        self._read()
        self.query_one(Scroll).focus()

    def _read(self) -> None:
        where = "the payload is folded" if self._folded else "with the payload"
        title = Text(shorten(clean(self._line.source), max(self.app.size.width - 40, 20)), style="bold")
        self.say(title.append(f":{self._line.line}").append(f"  {where}", style="not bold dim"))
        scroll = self.query_one(Scroll)
        scroll.remove_children()
        try:
            lines = around(self._line, self._folded)
        except OSError as problem:
            scroll.mount(Static(Text(f"\n  The input can't be read any more: {problem.strerror or problem}.")))
            return
        evidence = [line for line in lines if line.evidence]
        first = lines.index(evidence[0]) if evidence else 0
        parts = [lines[:first], evidence, lines[first + len(evidence) :]]
        digits = max((len(f"{line.number}") for line in lines), default=1)
        documents = [_Lines(part, digits) for part in parts if part]
        scroll.mount(*documents)
        middle = next((each for each in documents if each.evidence), None)
        if middle is not None:
            # Its place is known after the lines were laid out for their width, which is after the next refresh.
            self.call_after_refresh(
                self.call_after_refresh, scroll.scroll_to_widget, middle, animate=False, center=True
            )

    def action_payload(self) -> None:
        """Fold or unfold prompts and outputs."""
        self._folded = not self._folded
        self._read()


class _Lines(Document):
    DEFAULT_CSS = "_Lines { padding: 0 1 0 1; }"

    def __init__(self, lines: Sequence[RawLine], digits: int) -> None:
        super().__init__(self._drawn)
        self._lines, self._digits = lines, digits
        self.evidence = lines[0].evidence

    def _drawn(self, width: int) -> Text:
        text = Text(no_wrap=True)
        for number, line in enumerate(self._lines):
            mark = "▌" if line.evidence else " "
            for index, piece in enumerate(fold(line.text, max(width - self._digits - 2 - GAP, 20))):
                text.append("\n" if number or index else "")
                head = f"{line.number}" if not index else ""
                text.append(f"{mark} {head:>{self._digits}}{' ' * GAP}", style="" if line.evidence else FAINT)
                text.append(piece, style="bold" if line.evidence else "")
        return text
