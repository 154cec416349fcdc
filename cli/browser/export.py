"""Writing what a view shows to a file: JSON, CSV or Markdown, by the file's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import ClassVar

import orjson
import polars as pl
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from sglang_lifecycle.analyzers.explain import timestamp
from sglang_lifecycle.analyzers.listing import SessionRow
from sglang_lifecycle.cli.browser.base import Dialog
from sglang_lifecycle.cli.browser.view import View
from sglang_lifecycle.cli.document import Code, Document, Grid
from sglang_lifecycle.cli.errors import LifecycleError
from sglang_lifecycle.cli.markdown import markdown
from sglang_lifecycle.cli.output import save
from sglang_lifecycle.cli.text import clean, sound

Writers = Mapping[str, Callable[[], bytes]]
"""What can be written, by the ending of the file's name."""


def table(name: str, frame: Callable[[], pl.DataFrame]) -> Writers:
    """A table in each of the formats."""
    return {
        ".json": lambda: orjson.dumps(frame().to_dicts(), option=orjson.OPT_INDENT_2) + b"\n",
        ".csv": lambda: frame().write_csv().encode(),
        ".md": lambda: _markdown(name, frame()).encode(),
    }


def requests_table(view: View) -> Writers:
    """The requests that a view shows, in its order."""

    def frame() -> pl.DataFrame:
        moment = pl.col("at").map_elements(timestamp, return_dtype=pl.String)
        return view.frame[view.indices].drop("text").with_columns(moment).cast({pl.Categorical: pl.String})

    return table("Requests", frame)


def sessions_table(sessions: Sequence[SessionRow]) -> Writers:
    """Sessions in their order."""

    def frame() -> pl.DataFrame:
        rows = [session.model_dump(exclude={"replaced"}) for session in sessions]
        held = [{k: sound(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows]
        return pl.DataFrame(held, infer_schema_length=None)

    return table("Sessions", frame)


def _markdown(name: str, frame: pl.DataFrame) -> str:
    rows = [tuple(Code("" if cell is None else cell) for cell in row) for row in frame.iter_rows()]
    numbers = frozenset(column for column, kind in frame.schema.items() if kind.is_numeric())
    return markdown(Document(name, [Grid(frame.columns, rows, numbers)]))


class ExportDialog(Dialog):
    """Asks for the file's name, and writes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Close")]
    DEFAULT_CSS = """
    ExportDialog { & Input { border: none; height: 1; background: $panel; padding: 0 1; margin: 1 0; } }
    """

    def __init__(self, name: str, writers: Writers) -> None:
        super().__init__()
        self._name, self._writers = name, writers

    def compose(self) -> ComposeResult:
        """The name, and what went wrong with it."""
        endings = ", ".join(self._writers)
        with Vertical(id="box") as box:
            box.border_title = "Export"
            yield Static(f"Name of the file; its ending says the format: {endings}", markup=False)
            yield Input(f"{self._name}{next(iter(self._writers))}", compact=True)
            yield Static("enter writes it, escape doesn't", id="remark", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write it."""
        writer = self._writers.get(PurePath(event.value).suffix.lower())
        if writer is None:
            self._complain(f"the name must end with one of {', '.join(self._writers)}")
            return
        try:
            save(event.value, [writer()])
        except LifecycleError as problem:
            self._complain(problem.message)
            return
        self.app.pop_screen()
        self.app.notify(f"written: {clean(event.value)}", markup=False)

    def _complain(self, text: str) -> None:
        self.query_one("#remark", Static).update(Text(clean(text), style="bold"))
