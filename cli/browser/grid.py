"""A table that draws only the lines on screen: what it shows may have millions of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sglang_lifecycle.cli.layout import GAP
from sglang_lifecycle.cli.text import pad, shorten
from sglang_lifecycle.cli.text import width as width_of

MARGIN = 2
"""Columns to the left, for the cursor's mark."""

LEAST = 8
"""Columns in which the first column that moves is shown rather than left out."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: how wide it would like to be, and how narrow it may become before it is left out."""

    key: str
    head: str
    width: int
    least: int = 0
    right: bool = False

    @property
    def narrowest(self) -> int:
        """The width below which it is left out."""
        return max(min(self.least or self.width, self.width), len(self.head))


@dataclass(frozen=True, slots=True)
class Cells:
    """One line: a text for each column, and a tone for those whose word has one."""

    texts: Mapping[str, str]
    tones: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that goes across the columns."""

    text: str
    remark: str


class Model(Protocol):
    """What a grid shows. Its texts must be safe to show."""

    @property
    def columns(self) -> Sequence[Column]:
        """The columns, the most important first."""

    @property
    def sorted_by(self) -> tuple[str, bool]:
        """The column that lines are sorted by, and whether the greatest comes first."""

    def __len__(self) -> int:
        """How many lines there are."""

    def line(self, number: int) -> Cells | Heading:
        """What stands on a line."""


class Grid(ScrollView, can_focus=True):
    """The table. The first `frozen` columns stay; the others can be moved through from the left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(False)", "First line", show=False),
        Binding("end,G", "edge(True)", "Last line", show=False),
        Binding("left,h", "shift(-1)", "Columns to the left", show=False),
        Binding("right,l", "shift(1)", "Columns to the right", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"grid--{name}"
        for name in ("head", "cursor", "heading", "faint", "proven", "likely", "not-established", "provisional")
    }
    DEFAULT_CSS = """
    Grid { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; background: $background;
        & > .grid--head { color: $secondary; text-style: bold; }
        & > .grid--cursor { background: $surface; }
        &:focus > .grid--cursor { background: $block-cursor-background; color: $block-cursor-foreground; }
        & > .grid--heading { color: $accent; text-style: bold; }
        & > .grid--faint { color: $secondary; }
        & > .grid--proven { color: $success; }
        & > .grid--likely { color: $warning; }
        & > .grid--not-established { color: $error; }
        & > .grid--provisional { color: $secondary; text-style: italic; }
    }
    """

    cursor: reactive[int] = reactive(0)

    class Chosen(Message):
        """A line was opened."""

        def __init__(self, grid: Grid, line: int) -> None:
            super().__init__()
            self.grid, self.line = grid, line

    class Moved(Message):
        """The cursor went to another line."""

    class HeadPressed(Message):
        """The head of a column was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, model: Model, frozen: int = 2, id: str | None = None) -> None:
        super().__init__(id=id)
        self.model = model
        self._frozen, self._shift = frozen, 0
        self._fitted: list[tuple[Column, int]] = []
        self._more = False
        self.nothing = ""
        """What it says where there is no line."""

    def show(self, model: Model, cursor: int | None = None) -> None:
        """Show something else, with the cursor on a line; without one it stays where it is."""
        self.model = model
        self._fit()
        line = self.cursor if cursor is None else cursor
        self.set_reactive(Grid.cursor, max(0, min(line, len(model) - 1)))
        self._reveal()
        self.refresh()

    def _fit(self) -> None:
        """Choose the columns that fit whole, then give what is left to those that would like more.

        The first one behind the frozen ones is cut rather than left out.
        """
        self.virtual_size = Size(self.size.width, len(self.model) + 1)
        columns = [column for column in self.model.columns if column.width]
        self._shift = max(0, min(self._shift, len(columns) - self._frozen - 1))
        shown = [*columns[: self._frozen], *columns[self._frozen + self._shift :]]
        room = self.scrollable_content_region.width - MARGIN - 2
        taken = 0
        widths: list[int] = []
        for column in shown:
            gap = GAP * bool(widths)
            width = column.narrowest
            if len(widths) == self._frozen and taken + gap + LEAST <= room:
                width = min(width, room - taken - gap)
            if taken + gap + width > room and widths:
                break
            taken += gap + width
            widths.append(width)
        self._more = len(widths) < len(shown)
        for index, column in enumerate(shown[: len(widths)]):
            more = min(max(column.width, len(column.head)) - widths[index], room - taken)
            widths[index] += max(more, 0)
            taken += max(more, 0)
        self._fitted = list(zip(shown, widths, strict=False))

    def on_resize(self, event: Resize) -> None:
        """Lay the columns out anew."""
        self._fit()
        self._reveal()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        if not len(self.model):
            said = " " * MARGIN + self.nothing * (y == 1)
            return Strip([Segment(said, self.rich_style)]).adjust_cell_length(self.size.width, self.rich_style)
        if y == 0:
            return self._head()
        number = self.scroll_offset.y + y - 1
        if number >= len(self.model):
            return Strip.blank(self.size.width, self.rich_style)
        line = self.model.line(number)
        cursor = number == self.cursor
        base = self.rich_style
        if cursor:
            base += self.get_component_rich_style("grid--cursor", partial=True)
        segments = [Segment("▌ " if cursor else " " * MARGIN, base)]
        if isinstance(line, Heading):
            style = base if cursor else base + self.get_component_rich_style("grid--heading", partial=True)
            segments += [Segment(line.text, style), Segment(f"  {line.remark}", base)]
        else:
            segments += self._cells(line, base, cursor)
        width = self.size.width
        return Strip(segments).adjust_cell_length(width, base)

    def _cells(self, line: Cells, base: Style, cursor: bool) -> list[Segment]:
        segments: list[Segment] = []
        for column, width in self._fitted:
            text = shorten(line.texts[column.key], width)
            text = " " * (width - width_of(text)) + text if column.right else pad(text, width)
            tone = None if cursor else line.tones.get(column.key)
            style = base + self.get_component_rich_style(f"grid--{tone}", partial=True) if tone else base
            segments.append(Segment(text + " " * GAP, style))
        return segments

    def _head(self) -> Strip:
        style = self.rich_style + self.get_component_rich_style("grid--head", partial=True)
        by, descending = self.model.sorted_by
        text = "‹ " if self._shift else " " * MARGIN
        for column, width in self._fitted:
            mark = ("▼" if descending else "▲") if column.key == by else ""
            head = column.head + mark
            over = max(len(head) - width, 0)  # the mark may stand in a gap
            if column.right:
                text = text[: len(text) - over] + head.rjust(width) + " " * GAP
            else:
                text += head.ljust(width) + " " * (GAP - over)
        width = self.size.width
        text = text.ljust(width)[: width - 2] + ("› " if self._more else "  ")
        return Strip([Segment(text, style)])

    def watch_cursor(self) -> None:
        """Keep it on the screen."""
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def _reveal(self) -> None:
        height = self.size.height - 1
        if height <= 0:
            return
        top = self.scroll_offset.y
        if self.cursor < top or self.cursor >= top + height:
            target = self.cursor if self.cursor < top else self.cursor - height + 1
            self.scroll_to(y=target, animate=False, immediate=True)

    def validate_cursor(self, line: int) -> int:
        """A line that is there."""
        return max(0, min(line, len(self.model) - 1))

    def action_move(self, lines: int) -> None:
        """Go up or down."""
        self.cursor += lines

    def action_page(self, pages: int) -> None:
        """Go up or down by a screen."""
        self.cursor += pages * max(1, self.size.height - 2)

    def action_edge(self, last: bool) -> None:
        """Go to the first or the last line."""
        self.cursor = len(self.model) - 1 if last else 0

    def action_shift(self, columns: int) -> None:
        """Move through the columns."""
        if columns < 0 or self._more:
            self._shift += columns
            self._fit()
            self.refresh()

    def action_choose(self) -> None:
        """Open the line."""
        if len(self.model):
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: Click) -> None:
        """A head sorts, a line is chosen, and a second click opens it."""
        if event.y:
            number = self.scroll_offset.y + event.y - 1
            if number < len(self.model):
                self.cursor = number
                if event.chain == 2:
                    self.action_choose()
            return
        place = event.x - MARGIN
        for column, width in self._fitted:
            if 0 <= place < width + GAP:
                self.post_message(self.HeadPressed(column.key))
                return
            place -= width + GAP
