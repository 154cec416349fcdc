"""A page to read, with the places that it leads to beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from sglang_lifecycle.cli.browser.base import Page
from sglang_lifecycle.cli.text import clean, pad, shorten
from sglang_lifecycle.cli.text import width as width_of

BESIDE = 44
"""Columns of the places, where they stand beside the page."""

LEAST = 14
"""Columns that the name of a place keeps beside its remark."""


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere to go to: what it is, a word on it, and how to get there."""

    mark: str
    name: str
    remark: str
    go: Callable[[], None]


class Document(Static):
    """What is read, laid out for the width there is."""

    DEFAULT_CSS = "Document { width: 100%; height: auto; padding: 1 1 1 2; }"

    def __init__(self, layout: Callable[[int], RenderableType]) -> None:
        super().__init__(markup=False)
        self._layout_for, self._width = layout, 0

    def on_resize(self, event: Resize) -> None:
        """Lay it out anew where the width has changed."""
        width = self.content_size.width
        if width != self._width and width > 0:
            self._width = width
            self.renew()

    def renew(self) -> None:
        """Lay it out anew."""
        if self._width:
            self.update(self._layout_for(self._width))


class Scroll(VerticalScroll):
    """Holds a document."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False),
        Binding("down,j", "scroll_down", "Down", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown,space", "page_down", "Page down", show=False),
        Binding("home,g", "scroll_home", "Top", show=False),
        Binding("end,G", "scroll_end", "End", show=False),
    ]
    DEFAULT_CSS = "Scroll { scrollbar-size-vertical: 1; width: 1fr; height: 1fr; }"


class Places(OptionList):
    """The places."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
    ]
    DEFAULT_CSS = """
    Places { width: 100%; height: auto; max-height: 8; border: none; border-top: solid $panel; padding: 0 1;
        background: $background; border-title-color: $text-muted; scrollbar-size-vertical: 1;
        &:focus { border: none; border-top: solid $primary; background-tint: 0%; } }
    """


class ReadingPage(Page):
    """The page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "switch", "Places", tooltip="Its lines and requests, or back to the text"),
    ]
    DEFAULT_CSS = f"""
    ReadingPage {{
        #body {{ layout: vertical; height: 1fr; }}
        &.-wide #body {{ layout: horizontal; }}
        &.-wide Places {{ width: {BESIDE}; height: 100%; max-height: 100%; border-top: none; border-left: solid $panel;
            padding: 1;
            &:focus {{ border-top: none; border-left: solid $primary; }} }}
    }}
    """

    def content(self) -> Iterable[Widget]:
        """What is read, and the places."""
        with Container(id="body"):
            with Scroll():
                yield Document(self.layout_for)
            yield Places(markup=False)

    def layout_for(self, width: int) -> RenderableType:
        """What is read."""
        raise NotImplementedError

    def places(self) -> list[Place]:
        """Where it leads to."""
        return []

    def on_mount(self) -> None:
        """Show the places."""
        self._list()
        self.query_one(Scroll).focus()

    def renew(self) -> None:
        """Show what has changed, where the reader is."""
        self.query_one(Document).renew()
        self._list()

    def _list(self) -> None:
        self._places = self.places()
        options = self.query_one(Places)
        here = options.highlighted
        options.clear_options()
        marks = max((len(place.mark) for place in self._places), default=0)
        options.add_options(Option(_line(place, marks)) for place in self._places)
        if here is not None and self._places:
            options.highlighted = min(here, len(self._places) - 1)
        options.border_title = "lines and requests: tab, enter"
        options.display = bool(self._places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go there."""
        event.stop()
        self._places[event.option_index].go()

    def action_switch(self) -> None:
        """From the page to the places, or back."""
        places = self.query_one(Places)
        if places.has_focus or not self._places:
            self.query_one(Scroll).focus()
        else:
            places.highlighted = places.highlighted or 0
            places.focus()

    def action_go(self, number: int) -> None:
        """Go to the place with this number."""
        for place in self._places:
            if place.mark == str(number):
                place.go()


def _line(place: Place, marks: int) -> Text:
    name, remark = clean(place.name), clean(place.remark)
    room = BESIDE - 5 - marks - 1
    text = Text(pad(place.mark, marks) + " ", style="bold", no_wrap=True)
    remark = shorten(remark, room - min(width_of(name), LEAST) - 2)
    text.append(shorten(name, room - width_of(remark) - 2), style="not bold")
    return text.append("  " + remark, style="not bold dim")
