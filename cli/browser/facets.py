"""The causes, stages and so on that requests have, with their counts; choosing one filters by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from sglang_lifecycle.cli.browser.query import Query
from sglang_lifecycle.cli.browser.rows import SURE
from sglang_lifecycle.cli.text import clean, pad, shorten

WIDTH = 34
"""Columns of the panel."""

NAMES = {"cause": "Causes", "confidence": "Verdicts", "stage": "Stages", "actor": "Ended by"}
"""What is counted, in the order in which it is shown."""


class Facets(OptionList):
    """The panel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("space", "select", "Choose", show=False),
    ]
    DEFAULT_CSS = f"""
    Facets {{ width: {WIDTH}; height: 1fr; border: none; padding: 0 1; background: $background;
        scrollbar-size-vertical: 1; border-right: solid $panel;
        &:focus {{ border: none; border-right: solid $primary; background-tint: 0%; }}
        & > .option-list--option {{ padding: 0; }}
        & > .option-list--option-disabled {{ color: $text-muted; text-style: bold; }}
    }}
    """

    class Toggled(Message):
        """A value was chosen, or no longer."""

        def __init__(self, facet: str, value: str) -> None:
            super().__init__()
            self.facet, self.value = facet, value

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._pairs: list[tuple[str, str] | None] = []

    def show(self, counts: Mapping[str, Sequence[tuple[str, int]]], query: Query) -> None:
        """Show the counts, with the cursor where it was; there is none while the keys are for something else."""
        here = self._pairs[self.highlighted] if self.highlighted is not None and self._pairs else None
        options: list[Option] = []
        self._pairs = []
        for facet, name in NAMES.items():
            values = counts.get(facet, ())
            if not values:
                continue
            if options:
                options.append(Option("", disabled=True))
                self._pairs.append(None)
            options.append(Option(name, disabled=True))
            self._pairs.append(None)
            chosen = query.values(facet)
            for value, number in values:
                options.append(Option(_line(facet, value, number, value in chosen)))
                self._pairs.append((facet, value))
        self.clear_options()
        self.add_options(options)
        if self.has_focus:
            self.highlighted = self._pairs.index(here) if here in self._pairs and here else self._first

    @property
    def _first(self) -> int | None:
        return next((index for index, pair in enumerate(self._pairs) if pair), None)

    def on_focus(self) -> None:
        """Begin at the top."""
        self.highlighted = self._first

    def on_blur(self) -> None:
        """Leave no cursor behind."""
        self.highlighted = None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Choose a value, or no longer."""
        event.stop()
        pair = self._pairs[event.option_index]
        if pair is not None:
            self.post_message(self.Toggled(*pair))


def _line(facet: str, value: str, number: int, chosen: bool) -> Text:
    name = SURE[value] if facet == "confidence" else clean(value)
    count = f"{number:,}"
    room = WIDTH - 5 - 2 - len(count) - 1
    text = Text("● " if chosen else "○ ", style="bold" if chosen else "")
    return text.append(pad(shorten(name, room), room) + " " + count)
