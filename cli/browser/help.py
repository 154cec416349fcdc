"""The keys of the view that is open."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Static

from sglang_lifecycle.cli.browser.base import Dialog
from sglang_lifecycle.cli.layout import LABEL, grid

_PACKAGE = __name__.rpartition(".")[0]


def bindings(screen: Screen[object]) -> Iterator[tuple[list[str], Binding]]:
    """What can be pressed in a view, once for each thing that it does, with all its keys."""
    found: dict[str, tuple[list[str], Binding]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.description and binding.action in _own(active.node):
            found.setdefault(binding.description, ([], binding))[0].append(screen.app.get_key_display(binding))
    yield from found.values()


def _own(node: DOMNode) -> set[str]:
    """What can be done with something here, without what Textual adds of its own."""
    ours = [kind for kind in type(node).__mro__ if kind.__module__.startswith(_PACKAGE)]
    return {binding.action for kind in ours for binding in vars(kind).get("BINDINGS", ())}


class Help(Dialog):
    """Lists the keys."""

    def __init__(self, keys: list[tuple[list[str], Binding]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One line for each."""
        with VerticalScroll(id="box") as box:
            box.border_title = "Keys"
            rows = [
                (Text(" ".join(dict.fromkeys(keys)), style=LABEL), Text(binding.tooltip or binding.description))
                for keys, binding in self._keys
            ]
            yield Static(grid(rows))
