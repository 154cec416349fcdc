"""The list of requests: filtered, sorted, grouped, and filling as they are judged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input

from sglang_lifecycle.cli.browser.base import WIDE, Page
from sglang_lifecycle.cli.browser.export import ExportDialog, requests_table
from sglang_lifecycle.cli.browser.facets import NAMES, Facets
from sglang_lifecycle.cli.browser.grid import Grid
from sglang_lifecycle.cli.browser.listing import SORTABLE, Listing
from sglang_lifecycle.cli.browser.query import HELP, Query, parse
from sglang_lifecycle.cli.browser.rows import Rows
from sglang_lifecycle.cli.browser.view import Group, Order, View
from sglang_lifecycle.cli.errors import UsageError
from sglang_lifecycle.cli.text import size
from sglang_lifecycle.cli.times import Clock


class RequestsPage(Page):
    """The list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", show=True),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter by words, cause, stage, session, time…"),
        Binding("x", "clear", "Clear filters", show=False),
        Binding("c", "facets", "Causes", tooltip="Counts of causes, stages… that filter"),
        Binding("b", "group", "By cause", tooltip="Group by cause, or no longer"),
        Binding("o", "order(1)", "Sort", tooltip="Sort by the next column"),
        Binding("O", "reverse", "Sort the other way round", show=False),
        Binding("a", "everything", "All", tooltip="All requests, or only the interrupted ones"),
        Binding("t", "time", "Time", tooltip="The incident over time"),
        Binding("s", "sessions", "Sessions", tooltip="Sessions and their trees"),
        Binding("y", "copy", "Copy the rid", show=False),
        Binding("e", "export", "Export as JSON, CSV or Markdown", show=False),
        Binding("q", "app.quit", "Quit", show=False),
        Binding("escape", "list", "Back to the list", show=False),
    ]
    DEFAULT_CSS = """
    RequestsPage {
        #filter { height: 1; border: none; padding: 0 1; background: $background; display: none; }
        &.-filtered #filter, #filter:focus { display: block; }
        #filter.-wrong { color: $text-error; }
        Facets { display: none; }
        &.-wide Facets, &.-facets Facets { display: block; }
        &.-wide.-facets Facets { display: none; }
    }
    """

    def __init__(self, rows: Rows, clock: Clock) -> None:
        super().__init__()
        self.rows, self.clock = rows, clock
        self.asked, self.order = Query(), Order()
        self.folded: frozenset[str] = frozenset()
        self.view = View(rows.frame, self.asked, self.order)
        self._stale = self.busy = False
        """Whether the view is behind what was asked for, and whether a new one is being made."""

    def content(self) -> Iterable[Widget]:
        """The line of the filter, the counts, the list."""
        yield Input(placeholder=HELP, id="filter", compact=True, select_on_focus=False)
        with Horizontal():
            yield Facets(id="facets")
            yield Grid(Listing(self.view, self.order, self.clock), id="requests")

    def on_mount(self) -> None:
        """Show what is there."""
        self.grid.focus()
        self.update()

    @property
    def grid(self) -> Grid:
        """The list itself."""
        return self.query_one("#requests", Grid)

    @property
    def rid(self) -> str | None:
        """The request under the cursor."""
        if self.grid.cursor >= len(self.view):
            return None
        line = self.view.line(self.grid.cursor)
        return str(self.view.row(line)["rid"]) if isinstance(line, int) else None

    def ask(self, query: Query) -> None:
        """Ask for something else, and say so in the line of the filter."""
        line = self.query_one("#filter", Input)
        with line.prevent(Input.Changed):
            line.value = query.text(self.clock)
        self._ask(query)

    def _ask(self, query: Query) -> None:
        self.asked = query
        self.set_class(query.filters, "-filtered")
        self.update()

    def update(self) -> None:
        """Bring the view up to date with rows, query and order, without holding up the keyboard."""
        self._stale = True
        if not self.busy:
            self.busy = True
            self.run_worker(self._update(), exit_on_error=True)

    def grown(self) -> None:
        """Show the rows that were added."""
        self.update()

    async def _update(self) -> None:
        while self._stale:
            self._stale = False
            view, listing, counts = await asyncio.to_thread(self._look)
            rid, first = self.rid, self.grid.cursor == 0
            self.view = view
            line = None if first else view.find(rid)
            self.grid.nothing = self._nothing()
            self.grid.show(listing, line)
            self.query_one(Facets).show(counts, self.asked)
            self.headline()
        self.busy = False

    def _nothing(self) -> str:
        if self.asked.filters:
            return "No request is like that; x clears the filters."
        if self.browser.doing:
            return ""
        if self.rows.frame.height:
            return "No request was interrupted; a shows all."
        bounded = self.browser.question.bounds != (None, None)
        return f"No request is in these logs{' between --since and --until' if bounded else ''}."

    def _look(self) -> tuple[View, Listing, dict[str, list[tuple[str, int]]]]:
        view = View(self.rows.frame, self.asked, self.order, self.folded)
        listing = Listing(view, self.order, self.clock)
        listing.columns  # noqa: B018 - their widths take a look at every row, which must not happen while drawing
        return view, listing, {facet: view.counts(facet) for facet in NAMES}

    def headline(self) -> None:
        """How many are shown of how many, and how far the work is."""
        text = Text(f"{self.view.requests:,}", style="bold")
        text.append(f" {self._of}", style="not bold")
        if self.asked.filters:
            text.append(", filtered", style="not bold italic")
        by = "descending" if self.order.descending else "ascending"
        names = {column.key: column.head for column in self.grid.model.columns}
        text.append(f"  ·  by {names[self.order.column]}, {by}", style="not bold dim")
        self.say(text)

    @property
    def _of(self) -> str:
        """Of what they are so many."""
        if self.browser.incident is None:
            return "interrupted so far"
        total = len(self.rows)
        if self.asked.everything:
            return f"of {total:,} requests"
        return f"of {total - int(self.rows.frame['synthetic'].sum()):,} requests interrupted"

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        try:
            query = parse(event.value, self.asked, self.clock.zone, self._last)
        except UsageError as problem:
            event.input.set_class(True, "-wrong")
            event.input.tooltip = problem.message
        else:
            event.input.set_class(False, "-wrong")
            self._ask(query)

    @property
    def _last(self) -> float | None:
        last = self.rows.frame["at"].max()
        return last if isinstance(last, float) else None

    def on_input_submitted(self) -> None:
        """Back to the list."""
        self.grid.focus()

    def on_facets_toggled(self, event: Facets.Toggled) -> None:
        """Filter by a value, or no longer."""
        self.ask(self.asked.toggled(event.facet, event.value))

    def on_grid_chosen(self, event: Grid.Chosen) -> None:
        """Open a request, or fold a group."""
        line = self.view.line(event.line)
        if isinstance(line, Group):
            self.folded ^= {line.cause}
            self.update()
        else:
            self.browser.open_request(self.view.row(line)["rid"])

    def on_grid_head_pressed(self, event: Grid.HeadPressed) -> None:
        """Sort by a column; once more turns the order round."""
        again = event.key == self.order.column
        self._sort(replace(self.order, column=event.key, descending=again and not self.order.descending))

    def _sort(self, order: Order) -> None:
        self.order = order
        self.update()

    def neighbour(self, step: int) -> str | None:
        """Go to the next request, and say which it is."""
        line = self.grid.cursor + step
        while 0 <= line < len(self.view):
            found = self.view.line(line)
            if isinstance(found, int):
                self.grid.cursor = line
                return str(self.view.row(found)["rid"])
            line += step
        return None

    def action_open(self) -> None:
        """Open what the cursor is on."""
        self.grid.action_choose()

    def action_list(self) -> None:
        """From the filter or the counts back to the list; from there, let go of the filters."""
        if self.grid.has_focus:
            self.action_clear()
        self.grid.focus()

    def action_filter(self) -> None:
        """Write a filter."""
        self.query_one("#filter", Input).focus()

    def action_clear(self) -> None:
        """Show all again."""
        self.ask(self.asked.cleared())

    def action_facets(self) -> None:
        """Go to the counts; where there is little room, show or hide them."""
        facets = self.query_one(Facets)
        if self.app.size.width >= WIDE and not self.has_class("-facets"):
            self.grid.focus() if facets.has_focus else facets.focus()
            return
        self.toggle_class("-facets")
        facets.focus() if facets.display else self.grid.focus()

    def action_group(self) -> None:
        """Group by cause, or no longer."""
        self._sort(replace(self.order, grouped=not self.order.grouped))

    def action_order(self, step: int) -> None:
        """Sort by the next column."""
        place = (SORTABLE.index(self.order.column) + step) % len(SORTABLE)
        self._sort(replace(self.order, column=SORTABLE[place]))

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._sort(replace(self.order, descending=not self.order.descending))

    def action_everything(self) -> None:
        """Show the requests that were not interrupted too, or no longer."""
        self.ask(replace(self.asked, everything=not self.asked.everything))

    def action_time(self) -> None:
        """Show the incident over time."""
        self.browser.open_time()

    def action_sessions(self) -> None:
        """Show the sessions."""
        self.browser.open_sessions()

    def action_copy(self) -> None:
        """Copy the rid under the cursor."""
        if self.rid is not None:
            self.browser.copy(self.rid)

    def action_export(self) -> None:
        """Write what is shown to a file."""
        self.app.push_screen(ExportDialog("requests", requests_table(self.view)))


def progress(doing: str, done: int, total: int) -> str:
    """How far something is, in words that don't jump about."""
    if not total:
        return f"{doing}…"
    share = f"{done / total:4.0%}"
    return f"{doing} {size(total)} {share}" if doing == "reading" else f"{doing} {done:,} of {total:,} {share}"
