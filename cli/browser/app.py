"""The browser: an incident, the thread that reads it, and the way between its views."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import ClassVar

import polars as pl
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import get_current_worker

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.session_trees import trees
from sglang_lifecycle.cli.browser.base import Page
from sglang_lifecycle.cli.browser.help import Deed, Help, deeds
from sglang_lifecycle.cli.browser.loading import LOAD, Progress, Ready, Step, steps
from sglang_lifecycle.cli.browser.request import RequestPage
from sglang_lifecycle.cli.browser.requests import RequestsPage, progress
from sglang_lifecycle.cli.browser.rows import Rows, sound
from sglang_lifecycle.cli.browser.sessions import SessionPage, SessionsPage
from sglang_lifecycle.cli.browser.theme import ANSI_DARK, ANSI_LIGHT, DARK, LIGHT, preferred
from sglang_lifecycle.cli.browser.time import TimePage
from sglang_lifecycle.cli.inputs import Request
from sglang_lifecycle.cli.text import clean, shorten

LOOK = 2.0
"""Seconds between two looks at whether the logs have grown."""


class _Stopped(Exception):
    """The browser was closed while the logs were read."""


class Browser(App[None]):
    """The app. `problem` is what ended it, where it didn't end by itself."""

    TITLE = "lifecycle"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("D", "toggle_theme", "Dark or light", show=False),
        Binding("ctrl+q", "quit", "Quit", show=False, system=True),
    ]

    def __init__(self, question: Request, follow: bool = False) -> None:
        super().__init__()
        self.question, self.clock, self._follow = question, question.clock, follow
        self.rows = Rows()
        self.incident: Incident | None = None
        self.load = pl.DataFrame(schema=LOAD)
        self.doing = "reading…"
        self.problem: BaseException | None = None
        self._seen: object = None
        self.requests = RequestsPage(self.rows, self.clock)
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.ansi_theme_dark, self.ansi_theme_light = ANSI_DARK, ANSI_LIGHT
        self.theme = preferred()

    def on_mount(self) -> None:
        """Open the list, and begin to read."""
        self.push_screen(self.requests)
        self._start(self.rows)
        if self._follow:
            self.set_interval(LOOK, self._look)

    def _start(self, rows: Rows) -> None:
        self._seen = self._state()
        self.run_worker(lambda: self._work(rows), thread=True, exit_on_error=False)

    def _work(self, rows: Rows) -> None:
        """What the thread does."""
        worker = get_current_worker()

        def take(step: Step) -> None:
            if worker.is_cancelled or not self.is_running:
                raise _Stopped
            self.call_from_thread(self._take, step, rows)

        try:
            for step in steps(self.question, take):
                take(step)
            self.call_from_thread(self._done, rows)
        except _Stopped:
            pass
        except Exception as problem:
            if self.is_running:
                self.problem = problem
                self.call_from_thread(self.exit)

    def _take(self, step: Step, rows: Rows) -> None:
        if isinstance(step, Progress):
            self.doing = progress(step.doing, step.done, step.total)
            self.requests.headline()
        elif isinstance(step, Ready):
            self.incident, self.load = step.incident, step.load
            for text in step.incident.evidence.failed:
                self.notify(clean(text), severity="error", timeout=10, markup=False)
        else:
            rows.extend(step)
            if rows is self.rows:
                self.requests.update()

    def _done(self, rows: Rows) -> None:
        self.doing = "following" if self._follow else ""
        self.rows = self.requests.rows = rows
        self.requests.update()

    def _look(self) -> None:
        """Read again what has grown; what is shown stays until the new verdicts are complete."""
        if self.doing == "following" and self._state() != self._seen:
            self._start(Rows())

    def _state(self) -> object:
        found = []
        for path in self.question.paths:
            files = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names] or [path]
            found += [(file, os.stat(file).st_size) for file in files if os.path.exists(file)]
        return found

    def open_page(self, page: Page) -> None:
        """Show a view in front of the others."""
        self.push_screen(page)

    def open_request(self, rid: str) -> None:
        """Show a request."""
        if self.incident is None:
            return
        known = self.incident.by_rid
        verdict = explain(self.incident, rid if rid in known else next((r for r in known if sound(r) == rid), rid))
        if verdict.status == "not-found":
            self.notify(f"no line of these logs names {shorten(clean(rid), 60)}", severity="warning", markup=False)
            return
        session = next((a.session_id for _, a in self.incident.peers(verdict.rid) if a.session_id is not None), None)
        self.push_screen(RequestPage(verdict, session, self.clock))

    def open_session(self, id: str) -> None:
        """Show the tree of a session."""
        if self.incident is not None:
            self.push_screen(SessionPage(id, trees(self.incident, id), self.clock))

    def open_sessions(self) -> None:
        """Show the sessions."""
        if self.incident is not None:
            self.push_screen(SessionsPage(self.incident, self.clock))

    def open_time(self) -> None:
        """Show what the list shows over time, whatever range of time it is filtered to."""
        query = replace(self.requests.asked, everything=False, since=None, until=None)
        rows = self.rows.frame.filter(query.condition() & pl.col("at").is_not_null()).select("at", "cause")
        self.push_screen(TimePage(rows, self.load, self.clock))

    def show_session(self, id: str) -> None:
        """Back to the list, with the requests of a session."""
        while self.screen is not self.requests:
            self.pop_screen()
        self.requests.ask(replace(self.requests.asked.cleared(), session=sound(id), everything=True))

    def copy(self, text: str) -> None:
        """Copy something to the clipboard of the terminal, also through ssh."""
        self.copy_to_clipboard(text)
        self.notify(f"copied: {shorten(clean(text), 60)}", markup=False)

    def action_keys(self) -> None:
        """Show the keys of the view."""
        self.push_screen(Help(deeds(self.screen)))

    def action_toggle_theme(self) -> None:
        """From dark to light, or back."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: all that the view's keys do."""
        for deed in deeds(screen):
            yield SystemCommand(deed.description, f"Key: {' '.join(deed.keys)}", self._doing(deed))
        yield SystemCommand("Quit", "Leave the browser", self.action_quit)

    def _doing(self, deed: Deed) -> Callable[[], Awaitable[bool]]:
        return lambda: self.run_action(deed.action, deed.node)
