"""The keys of the view that is open."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from sglang_lifecycle.cli.browser.base import Dialog
from sglang_lifecycle.cli.layout import LABEL, grid


def bindings(screen: Screen[object]) -> Iterator[tuple[list[str], Binding]]:
    """What can be pressed in a view, once for each thing that it does, with all its keys."""
    found: dict[str, tuple[list[str], Binding]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.description and not binding.system:
            found.setdefault(binding.description, ([], binding))[0].append(screen.app.get_key_display(binding))
    yield from found.values()


class Help(Dialog):
    """Lists the keys."""

    def __init__(self, keys: list[tuple[list[str], Binding]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One line for each."""
        with VerticalScroll() as box:
            box.border_title = "Keys"
            rows = [
                (Text(" ".join(dict.fromkeys(keys)), style=LABEL), Text(binding.tooltip or binding.description))
                for keys, binding in self._keys
            ]
            yield Static(grid(rows))
