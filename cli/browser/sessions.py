"""The sessions, and the tree of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import SessionRow
from sglang_lifecycle.analyzers.session_trees import sessions, trees
from sglang_lifecycle.cli.browser.base import Page
from sglang_lifecycle.cli.browser.export import ExportDialog, sessions_table
from sglang_lifecycle.cli.browser.grid import Cells, Column, Grid, Heading
from sglang_lifecycle.cli.browser.reading import Place, ReadingPage
from sglang_lifecycle.cli.formats import dumped
from sglang_lifecycle.cli.session_screen import KINDS, screen
from sglang_lifecycle.cli.text import clean, count, shorten
from sglang_lifecycle.cli.times import Clock


class SessionList:
    """The sessions as the lines of a grid."""

    sorted_by = ("opened", False)

    def __init__(self, rows: Sequence[SessionRow], clock: Clock) -> None:
        self.rows = rows
        self.clock = clock.spanning(at for row in rows for at in (row.opened, row.first_turn, row.last_turn) if at)

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self.rows)

    @cached_property
    def columns(self) -> Sequence[Column]:
        """As wide as what they hold."""
        time = 14 if self.clock.dated else 8
        return (
            Column("id", "session", max((len(clean(row.id)) for row in self.rows), default=0), least=16),
            Column("state", "state", max((len(row.state) for row in self.rows), default=0)),
            Column("turns", "turns", 7, right=True),
            Column("cut", "cut", 7, right=True),
            Column("flying", "in flight", 9, right=True),
            Column("opened", "first", time),
            Column("ended", "last", time),
            Column("lost", "no history", 10, right=True),
            Column("kind", "kind", max(map(len, KINDS.values()))),
            Column("life", "life", 4, right=True),
        )

    def line(self, number: int) -> Cells | Heading:
        """As the grid wants to know."""
        row = self.rows[number]
        first, last = row.opened or row.first_turn, row.closed or row.reaped or row.last_turn
        texts = {
            "id": clean(row.id),
            "state": row.state.replace("-", " "),
            "turns": f"{row.turns:,}",
            "cut": f"{row.interrupted:,}",
            "flying": f"{row.in_flight:,}",
            "opened": self.clock.short(first, whole=True) if first else "–",
            "ended": self.clock.short(last, whole=True) if last else "–",
            "lost": f"{row.context_lost:,}",
            "kind": KINDS[row.streaming],
            "life": str(row.life),
        }
        empty = {key: "faint" for key, text in texts.items() if text in ("0", "–")}
        return Cells(texts, empty)


class SessionsPage(Page):
    """The list of sessions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Tree", tooltip="The tree of a session"),
        Binding("f", "filter", "Show its requests"),
        Binding("y", "copy", "Copy the id"),
        Binding("e", "export", "Export", tooltip="Export as JSON, CSV or Markdown"),
    ]

    def __init__(self, incident: Incident, clock: Clock) -> None:
        super().__init__()
        self._incident, self._clock = incident, clock
        self._list = SessionList((), clock)
        self._seen: Incident | None = None
        """The incident that is being judged, or was."""
        self.busy = False

    def content(self) -> Iterable[Widget]:
        """The list."""
        yield Grid(self._list, frozen=1, id="sessions")

    def on_mount(self) -> None:
        """Judge the turns of all sessions without holding up the keyboard."""
        self.query_one(Grid).focus()
        self.say(Text("Sessions  judging…"))
        self._judge()

    def _judge(self) -> None:
        if not self.busy and self._seen is not self._incident:
            self.busy = True
            self.run_worker(self._look())

    def grown(self) -> None:
        """Judge them anew where the logs have grown."""
        self._incident = self.browser.incident or self._incident
        self._judge()

    async def _look(self) -> None:
        self._seen = self._incident
        found = (await asyncio.to_thread(sessions, self._incident)).sessions
        here = self._row
        self._list = SessionList(found, self._clock)
        self.query_one(Grid).nothing = "No session in these logs."
        lives = {(row.id, row.life): line for line, row in enumerate(found)}
        self.query_one(Grid).show(self._list, lives.get((here.id, here.life), 0) if here is not None else 0)
        cut = sum(row.interrupted for row in found)
        turns = count(sum(row.turns for row in found), "turn")
        title = Text(count(len(found), "session"), style="bold")
        self.say(title.append(f", {turns}, {cut:,} of them interrupted", style="not bold"))
        self.busy = False
        self._judge()

    @property
    def _row(self) -> SessionRow | None:
        cursor = self.query_one(Grid).cursor
        return self._list.rows[cursor] if cursor < len(self._list) else None

    def on_grid_chosen(self, event: Grid.Chosen) -> None:
        """Open its tree."""
        self.browser.open_session(self._list.rows[event.line].id)

    def action_open(self) -> None:
        """Open its tree."""
        self.query_one(Grid).action_choose()

    def action_filter(self) -> None:
        """Show its requests in the list."""
        if self._row is not None:
            self.browser.show_session(self._row.id)

    def action_copy(self) -> None:
        """Copy its id."""
        if self._row is not None:
            self.browser.copy(self._row.id)

    def action_export(self) -> None:
        """Write the list to a file."""
        self.app.push_screen(ExportDialog("sessions", sessions_table(self._list.rows)))


class SessionPage(ReadingPage):
    """The tree of a session, once for each life of a server that knew it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "filter", "Show its requests"),
        Binding("y", "copy", "Copy the id"),
        Binding("e", "export", "Export", tooltip="Export as JSON"),
    ]

    def __init__(self, id: str, incident: Incident, clock: Clock) -> None:
        super().__init__()
        self.session, self._incident, self._clock = id, incident, clock
        self._trees = trees(incident, id)

    def on_mount(self) -> None:
        """Say which it is."""
        self.say(Text("Session ").append(shorten(clean(self.session), 60), style="bold"))

    def grown(self) -> None:
        """Show the tree anew where it has grown."""
        if (incident := self.browser.incident) is None or incident is self._incident:
            return
        self._incident, found = incident, trees(incident, self.session)
        if found != self._trees:
            self._trees = found
            self.renew()

    def layout_for(self, width: int) -> RenderableType:
        """As `sessions` lays it out."""
        return Group(*(Group(screen(tree, self._clock, width), "") for tree in self._trees))

    def places(self) -> list[Place]:
        """Its turns."""
        return [Place("→", turn.rid, turn.cause, self._leads(turn.rid)) for tree in self._trees for turn in tree.turns]

    def _leads(self, rid: str) -> Callable[[], None]:
        return lambda: self.browser.open_request(rid)

    def action_filter(self) -> None:
        """Show its requests in the list."""
        self.browser.show_session(self.session)

    def action_copy(self) -> None:
        """Copy its id."""
        self.browser.copy(self.session)

    def action_export(self) -> None:
        """Write the trees to a file."""
        text = f"[{','.join(map(dumped, self._trees))}]\n"
        self.app.push_screen(ExportDialog("session", {".json": text.encode}))
