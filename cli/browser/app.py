"""The browser: an incident, the thread that reads it, and the way between its views."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from multiprocessing import resource_tracker
from time import monotonic
from typing import ClassVar

import polars as pl
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import get_current_worker

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.cli.browser.base import Page
from sglang_lifecycle.cli.browser.help import Deed, Help, deeds
from sglang_lifecycle.cli.browser.loading import LOAD, Again, Answer, Loading, Progress, Ready, Step
from sglang_lifecycle.cli.browser.request import RequestPage
from sglang_lifecycle.cli.browser.requests import RequestsPage, progress
from sglang_lifecycle.cli.browser.rows import Rows
from sglang_lifecycle.cli.browser.sessions import SessionPage, SessionsPage
from sglang_lifecycle.cli.browser.theme import ANSI_DARK, ANSI_LIGHT, DARK, LIGHT, preferred
from sglang_lifecycle.cli.browser.time import TimePage
from sglang_lifecycle.cli.files import Files, added, files
from sglang_lifecycle.cli.inputs import Request
from sglang_lifecycle.cli.text import clean, shorten, sound

LOOK, IDLE = 1.0, 2.0
"""Seconds between two looks at whether the logs have grown, at least; and how many times as long as what came of it."""


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
        Binding("ctrl+c", "interrupt", "Quit", show=False, system=True),
    ]

    def __init__(self, question: Request, follow: bool = False) -> None:
        super().__init__()
        resource_tracker.ensure_running()  # large logs are read by processes, and Textual's stderr would stop them
        self.question, self.clock, self._follow = question, question.clock, follow
        self.rows = Rows()
        self.incident: Incident | None = None
        self.load = pl.DataFrame(schema=LOAD)
        self.doing = "reading…"
        self.problem: BaseException | None = None
        self._wish: tuple[str, bool] | None = None
        """The request that is to be opened once the thread has looked, and whether in place of the one that is open."""
        self._loading = Loading(question, self._take_from_thread, self._wanted, follow)
        self._files: Files = {}
        self._due = 0.0
        self.requests = RequestsPage(self.rows, self.clock)
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.ansi_theme_dark, self.ansi_theme_light = ANSI_DARK, ANSI_LIGHT
        self.theme = preferred()

    def action_interrupt(self) -> None:
        """End as every command does that is interrupted; where text is selected, the key copies it."""
        self.problem = KeyboardInterrupt()
        self.exit()

    def on_mount(self) -> None:
        """Open the list, and begin to read."""
        self.push_screen(self.requests)
        self._start(self._loading.read, rest=0.0)
        if self._follow:
            self.set_interval(LOOK, self._look)

    def _start(self, work: Callable[[], None], rest: float = IDLE) -> None:
        if self._follow:
            self._files = files(self.question.paths)
        self.run_worker(lambda: self._work(work, rest), thread=True, exit_on_error=False)

    def _work(self, work: Callable[[], None], rest: float) -> None:
        """What the thread does."""
        began = monotonic()
        try:
            work()
            self.call_from_thread(self._done, rest * (monotonic() - began))
        except _Stopped:
            pass
        except Exception as problem:
            if self.is_running:
                self.problem = problem
                self.call_from_thread(self.exit)

    def _take_from_thread(self, step: Step) -> None:
        if get_current_worker().is_cancelled or not self.is_running:
            raise _Stopped
        self.call_from_thread(self._take, step)

    def _take(self, step: Step) -> None:
        if isinstance(step, Progress):
            self.doing = progress(step.doing, step.done, step.total)
            self._tell()
        elif isinstance(step, Answer):
            self._answer(step)
        elif isinstance(step, Ready):
            self._all_read(step)
        elif isinstance(step, Again):
            self.incident = None
            self.rows.doubt()
            self._grown()
        else:
            self.rows.extend(step)
            self._grown()

    def _tell(self) -> None:
        """Say how far the work is, on all pages."""
        self.requests.headline()
        for page in self._pages():
            page.progress()

    def _grown(self) -> None:
        """Show what there is, on all pages."""
        for page in self._pages():
            page.grown()

    def _pages(self) -> list[Page]:
        return [screen for screen in self.screen_stack if isinstance(screen, Page) and screen.is_mounted]

    def _all_read(self, step: Ready) -> None:
        """The logs are read: what was said of them before is said anew."""
        self.incident, self.load = step.incident, step.load
        for text in step.incident.evidence.failed:
            self.notify(clean(text), severity="error", timeout=10, markup=False)
        for page in self._pages():
            if isinstance(page, RequestPage):
                page.show(*self._explained(step.incident, page.verdict.rid))
        if self._wish is not None:
            self.open_request(*self._wish)

    def _done(self, rest: float) -> None:
        self.doing = "following" if self._follow else ""
        self.rows.settle(replacing=self._follow)
        self._due = monotonic() + rest
        self._tell()
        self._grown()

    def _look(self) -> None:
        """Read what was added to the logs; what else is shown stays."""
        if self.doing == "following" and monotonic() >= self._due:
            found = files(self.question.paths)
            if found != self._files:
                grown = added(self._files, found)
                self._start(lambda: self._loading.more(grown))

    def _wanted(self) -> str | None:
        """As the thread asks."""
        return self._wish[0] if self._wish is not None else None

    def _answer(self, answer: Answer) -> None:
        if self._wish is not None and self._wish[0] == answer.verdict.rid:
            self._open(RequestPage(answer.verdict, answer.session_id, self.clock, provisional=True), self._wish[1])

    def _explained(self, incident: Incident, rid: str) -> tuple[Verdict, str | None]:
        verdict = explain(incident, rid)
        return verdict, next((a.session_id for _, a in incident.peers(rid) if a.session_id is not None), None)

    def open_page(self, page: Page) -> None:
        """Show a view in front of the others."""
        self.push_screen(page)

    def open_request(self, rid: str, instead: bool = False) -> None:
        """Show a request, or have it looked for while the logs are being read; `instead` of the one that is open."""
        if self.incident is None:
            self._wish = rid, instead
            return
        known = self.incident.by_rid
        verdict, session = self._explained(
            self.incident, rid if rid in known else next((r for r in known if sound(r) == rid), rid)
        )
        if verdict.status == "not-found":
            self._wish = None
            self.notify(f"no line of these logs names {shorten(clean(rid), 60)}", severity="warning", markup=False)
            return
        self._open(RequestPage(verdict, session, self.clock), instead)

    def _open(self, page: RequestPage, instead: bool) -> None:
        self._wish = None
        if instead and isinstance(self.screen, RequestPage):
            self.pop_screen()
        self.push_screen(page)

    def known(self) -> Incident | None:
        """The incident; says so where the logs are not read yet."""
        if self.incident is None:
            self.notify("known once the logs are read", markup=False)
        return self.incident

    def open_session(self, id: str) -> None:
        """Show the tree of a session."""
        if (incident := self.known()) is not None:
            self.push_screen(SessionPage(id, incident, self.clock))

    def open_sessions(self) -> None:
        """Show the sessions."""
        if (incident := self.known()) is not None:
            self.push_screen(SessionsPage(incident, self.clock))

    def open_time(self) -> None:
        """Show what the list shows over time."""
        self.push_screen(TimePage(self.clock))

    def over_time(self) -> pl.DataFrame:
        """The interrupted requests that the list shows, whatever range of time it is filtered to."""
        query = replace(self.requests.asked, everything=False, since=None, until=None)
        return self.rows.frame.filter(query.condition() & pl.col("at").is_not_null()).select("at", "cause")

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
