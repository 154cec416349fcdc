"""One request: the verdict as `explain` shows it, and the ways to its lines, its session and the requests behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual.binding import Binding, BindingType

from sglang_lifecycle.analyzers.verdict import EvidenceLine, Verdict
from sglang_lifecycle.cli.browser.export import ExportDialog, Writers
from sglang_lifecycle.cli.browser.raw import RawPage
from sglang_lifecycle.cli.browser.reading import Place, ReadingPage
from sglang_lifecycle.cli.browser.rows import PROVISIONAL, SURE
from sglang_lifecycle.cli.formats import dumped, verdict_markdown
from sglang_lifecycle.cli.inputs import quoted
from sglang_lifecycle.cli.screen import MARGIN, ROWS, screen
from sglang_lifecycle.cli.text import clean, shorten
from sglang_lifecycle.cli.times import Clock

_REMARK = "So far: the logs are still being read, and this may change."
_RAW = "Raw lines around a piece of evidence"


class RequestPage(ReadingPage):
    """The request."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next(1)", "Next", tooltip="Next request of the list"),
        Binding("p", "next(-1)", "Previous", tooltip="Previous request of the list"),
        Binding("y", "copy", "Copy rid"),
        Binding("e", "export", "Export", tooltip="Export as JSON or Markdown"),
        *[Binding(str(number), f"go({number})", _RAW, show=False) for number in range(1, 10)],
    ]

    def __init__(self, verdict: Verdict, session_id: str | None, clock: Clock, provisional: bool = False) -> None:
        super().__init__()
        self.verdict, self.session_id, self.clock, self._provisional = verdict, session_id, clock, provisional

    def on_mount(self) -> None:
        """Say which it is."""
        self._head()

    def _head(self) -> None:
        title = Text("Request ").append(shorten(clean(self.verdict.rid), 40), style="bold")
        title.append(f"  {clean(self.verdict.cause)}")
        self.say(title.append(f", {SURE[PROVISIONAL]}", style="italic") if self._provisional else title)

    def show(self, verdict: Verdict, session_id: str | None) -> None:
        """Show what is said of it now that more is known."""
        same = verdict == self.verdict.model_copy(update={"evidence": verdict.evidence}) and not self._provisional
        self.verdict, self.session_id, self._provisional = verdict, session_id, False
        self._head()
        if not same:
            self.renew()

    def layout_for(self, width: int) -> RenderableType:
        """As `explain` lays it out; above it a word where it is provisional."""
        quoted(self.verdict.evidence, ROWS * (width - MARGIN))
        found = screen(self.verdict, self.clock, width)
        return Group(Text(_REMARK, style="italic"), "", found) if self._provisional else found

    def places(self) -> list[Place]:
        """Its lines by their numbers, then its session, then the other requests of its chain."""
        found = [
            Place(str(number), f"{line.source.rpartition('/')[2]}:{line.line}", line.event, self._opens(line))
            for number, line in enumerate(self.verdict.evidence, 1)
        ]
        if self.session_id is not None:
            session = self.session_id
            found.append(Place("→", session, "its session", lambda: self.browser.open_session(session)))
        others = {link.rid: link.cause for link in self.verdict.chain if link.rid not in (None, self.verdict.rid)}
        found += [Place("→", rid, cause, self._leads(rid)) for rid, cause in others.items() if rid is not None]
        return found

    def _opens(self, line: EvidenceLine) -> Callable[[], None]:
        return lambda: self.browser.open_page(RawPage(line))

    def _leads(self, rid: str) -> Callable[[], None]:
        return lambda: self.browser.open_request(rid)

    def action_next(self, step: int) -> None:
        """The next request of the list, in place of this one."""
        rid = self.browser.requests.neighbour(step)
        if rid is None:
            self.app.bell()
        else:
            self.browser.open_request(rid, instead=True)

    def action_copy(self) -> None:
        """Copy its rid."""
        self.browser.copy(self.verdict.rid)

    def action_export(self) -> None:
        """Write the verdict to a file, once it is one."""
        if self._provisional and self.browser.known() is None:
            return
        self.app.push_screen(ExportDialog("request", self._writers()))

    def _writers(self) -> Writers:
        return {
            ".json": lambda: dumped(self.verdict).encode() + b"\n",
            ".md": lambda: verdict_markdown(self.verdict, self.clock).encode("utf-8", "backslashreplace"),
        }
