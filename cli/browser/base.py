"""What all screens of the browser share: room for a title, a footer, and a word where the terminal is too small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Footer, Static

if TYPE_CHECKING:
    from sglang_lifecycle.cli.browser.app import Browser

LEAST = (80, 24)
"""Columns and rows that the browser needs."""

WIDE = 120
"""Columns from which on there is room for something beside the main thing."""

BREAKPOINTS = [(0, "-narrow"), (LEAST[0], "-normal"), (WIDE, "-wide")]
HEIGHTS = [(0, "-short"), (LEAST[1], "-tall")]


class TooSmall(Static):
    """Covers everything where the terminal is too small."""

    DEFAULT_CSS = """
    TooSmall { display: none; layer: above; width: 100%; height: 100%; background: $background;
        content-align: center middle; }
    """

    def render(self) -> Text:
        """Says so."""
        columns, rows = self.app.size
        text = Text(f"The browser needs {LEAST[0]}×{LEAST[1]}.\n", style="bold", justify="center")
        return text.append(f"This terminal has {columns}×{rows}. Make it larger, or press q.", style="not bold")


class Page(Screen[None]):
    """One view of the incident."""

    HORIZONTAL_BREAKPOINTS = BREAKPOINTS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "back", "Back"),
    ]
    DEFAULT_CSS = """
    Page { layers: below above; background: $background; overflow: hidden;
        & > * { layer: below; }
        #title { height: 1; padding: 0 1 0 2; background: $panel; }
        Footer { background: $panel; }
        &.-narrow TooSmall, &.-short TooSmall { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._title = Text()

    @property
    def browser(self) -> Browser:
        """The app, as what it is."""
        from sglang_lifecycle.cli.browser.app import Browser

        assert isinstance(self.app, Browser)
        return self.app

    def compose(self) -> ComposeResult:
        """The title, what the view shows, the keys."""
        yield Static(id="title", markup=False)
        yield from self.content()
        yield Footer(show_command_palette=False)
        yield TooSmall()

    def content(self) -> Iterable[Widget]:
        """What the view shows."""
        return ()

    def say(self, text: Text) -> None:
        """Show a title, with the browser's progress at the right edge."""
        self._title = text
        self.progress()

    def progress(self) -> None:
        """Say anew how far the work is."""
        text, doing = self._title.copy(), self.browser.doing
        gap = self.app.size.width - 3 - text.cell_len - len(doing)
        if doing:
            text.truncate(max(self.app.size.width - 5 - len(doing), 0), overflow="ellipsis")
            text.append(" " * max(gap, 2) + doing, style="bold not dim")
        text.no_wrap, text.overflow = True, "ellipsis"
        self.query_one("#title", Static).update(text)

    def grown(self) -> None:
        """Show what is known now that there is more."""

    def action_back(self) -> None:
        """Leave the view."""
        self.app.pop_screen()


class Dialog(ModalScreen[None]):
    """Something in front of a view."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "app.pop_screen", "Close")]
    DEFAULT_CSS = """
    Dialog { align: center middle; background: $background 60%;
        #box { width: 72; max-width: 100%; height: auto; max-height: 90%; padding: 1 2; background: $surface;
            scrollbar-size-vertical: 1;
            border: round $primary; border-title-color: $text; }
    }
    """
