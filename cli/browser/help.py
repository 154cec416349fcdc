"""The keys of the view that is open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Static

from sglang_lifecycle.cli.browser.base import Dialog
from sglang_lifecycle.cli.layout import LABEL, grid

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(slots=True)
class Deed:
    """Something that can be done in a view: what it is, its keys, and whose it is."""

    description: str
    action: str
    node: DOMNode
    keys: list[str]


def deeds(screen: Screen[Any]) -> list[Deed]:
    """What can be done in a view, each thing once, with all its keys."""
    found: dict[str, Deed] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        description = binding.tooltip or binding.description  # the footer has room for a word
        if description and binding.action in _own(active.node):
            deed = Deed(description, binding.action, active.node, [])
            key = screen.app.get_key_display(binding)
            found.setdefault(description, deed).keys.append(key)
    return list(found.values())


def _own(node: DOMNode) -> set[str]:
    """What can be done with something here, without what Textual adds of its own."""
    ours = [kind for kind in type(node).__mro__ if kind.__module__.startswith(_PACKAGE)]
    return {binding.action for kind in ours for binding in vars(kind).get("BINDINGS", ())}


class Help(Dialog):
    """Lists the keys."""

    def __init__(self, known: list[Deed]) -> None:
        super().__init__()
        self._known = known

    def compose(self) -> ComposeResult:
        """One line for each."""
        with VerticalScroll(id="box") as box:
            box.border_title = "Keys"
            rows = [
                (Text(" ".join(dict.fromkeys(deed.keys)), style=LABEL), Text(deed.description)) for deed in self._known
            ]
            yield Static(grid(rows))
