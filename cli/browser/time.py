"""The incident over time: one lane for each cause, the load of the servers under them, and a cursor through all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import ClassVar

import polars as pl
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import MouseDown, MouseEvent, MouseMove, MouseUp, Resize
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from sglang_lifecycle.analyzers.explain import timestamp
from sglang_lifecycle.cli.browser.base import Page
from sglang_lifecycle.cli.browser.bins import LANES, Bins, bars, bins, ticks
from sglang_lifecycle.cli.browser.export import ExportDialog, table
from sglang_lifecycle.cli.text import clean, count, listed, pad, seconds, shorten
from sglang_lifecycle.cli.times import Clock

NAMES = 28
"""Columns for the names of the lanes."""

PEAKS = 7
"""Columns for the greatest value of a lane."""

TALLEST = 5
"""Rows that a lane takes at most."""


class Lanes(Widget, can_focus=True):
    """The drawing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", "Earlier", show=False),
        Binding("right,l", "move(1)", "Later", show=False),
        Binding("shift+left,H", "move(-10)", "Much earlier", show=False),
        Binding("shift+right,L", "move(10)", "Much later", show=False),
        Binding("home,g", "move(-1000)", "The beginning", show=False),
        Binding("end,G", "move(1000)", "The end", show=False),
        Binding("space", "mark", "Range", tooltip="Begin a range here, or let go of it"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lanes--{name}" for name in ("cause", "load", "faint", "cursor")}
    DEFAULT_CSS = """
    Lanes { height: 1fr; padding: 1 1 0 2;
        & > .lanes--cause { color: $warning; }
        & > .lanes--load { color: $primary; }
        & > .lanes--faint { color: $secondary; }
        & > .lanes--cursor { background: $block-cursor-background; }
    }
    """

    class Moved(Message):
        """The cursor is somewhere else."""

    def __init__(self, cut: Callable[[int], Bins | None], clock: Clock) -> None:
        super().__init__()
        self._cut, self.clock = cut, clock
        self.bins: Bins | None = None
        self.wide = 1
        """Columns of a piece: where few would do, they fill the room."""
        self.cursor = 0
        self.marked: int | None = None

    def draw(self) -> None:
        """Cut the time into as many pieces as there is room for."""
        columns = self.content_size.width - NAMES - PEAKS
        if columns <= 0:
            return
        before, self.bins = self.bins, self._cut(columns)
        if self.bins is not None:
            self.wide = max(columns // self.bins.number, 1)
            self.cursor = self.bins.busiest if before is None else self.bins.place(before.at(self.cursor))
            if before is not None and self.marked is not None:
                self.marked = self.bins.place(before.at(self.marked))
        self.post_message(self.Moved())
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        """There is another amount of room."""
        self.draw()

    @property
    def chosen(self) -> range:
        """The pieces from the mark to the cursor, or the cursor's alone."""
        anchor = self.cursor if self.marked is None else self.marked
        return range(min(anchor, self.cursor), max(anchor, self.cursor) + 1)

    def render(self) -> Text:
        """All lanes and the axis."""
        if self.bins is None:
            return Text("No interrupted request has a time here.")
        text = Text(no_wrap=True)
        for line in [*self._lanes(self.bins), *self._axis(self.bins)]:
            text.append_text(line).append("\n")
        return text

    def _lanes(self, found: Bins) -> Iterator[Text]:
        room = self.content_size.height - 2
        causes = _merged(found, max(room - len(found.load) - bool(found.load), 1))
        lanes = len(causes) + len(found.load)
        rows = max(1, min(TALLEST, (room - bool(found.load)) // max(lanes, 1)))
        top = max((max(values) for values in causes.values()), default=0)
        for cause, values in causes.items():
            yield from self._lane(clean(cause), f"{sum(values):,}", values, top, rows, "cause")
        if found.load:
            yield Text()
        for lane, peaks in found.load.items():
            most = max(value for value in peaks if value is not None)
            peak = f"{most:.0%}" if lane == "usage" else f"{most:,.0f}"
            yield from self._lane(LANES[lane], peak, peaks, 1 if lane == "usage" else most, rows, "load")

    def _lane(
        self, name: str, peak: str, values: Iterable[float | None], top: float, rows: int, kind: str
    ) -> Iterator[Text]:
        style = self.get_component_rich_style(f"lanes--{kind}", partial=True)
        faint = self.get_component_rich_style("lanes--faint", partial=True)
        headroom = 1.15 if rows > 1 else 1.0  # no bar reaches the lane above
        for index, drawn in enumerate(bars(list(values), top * headroom, rows)):
            last = index == rows - 1  # the name stands at the foot of its bars
            line = Text(pad(shorten(name, NAMES - 2), NAMES) if last else " " * NAMES, no_wrap=True)
            for empty, run in groupby(drawn, key=lambda block: block == " "):
                piece = "".join(block * self.wide for block in run)
                line.append(piece.replace(" ", "·") if last else piece, faint if empty else style)
            self._shade(line)
            yield line.append(peak.rjust(PEAKS) if last else "", faint)

    def _columns(self, places: range) -> tuple[int, int]:
        """From which column to which some pieces reach."""
        return NAMES + places.start * self.wide, NAMES + places.stop * self.wide

    def _shade(self, line: Text) -> None:
        line.stylize(self._cursor_style, *self._columns(self.chosen))

    @property
    def _cursor_style(self) -> Style:
        return self.get_component_rich_style("lanes--cursor", partial=True)

    def _axis(self, found: Bins) -> Iterator[Text]:
        start, stop = self._columns(self.chosen)
        mark = "▲" if len(self.chosen) == 1 else f"├{'─' * (stop - start - 2)}┤"
        yield Text(" " * start + mark.center(stop - start))
        labels = [" "] * (found.number * self.wide + PEAKS)
        whole = found.step >= 1
        free = 0
        for place in ticks(found, math.ceil((2 + len(self.clock.short(found.start, whole))) / self.wide)):
            label = "╵" + self.clock.short(found.at(place), whole)
            column = place * self.wide
            if column >= free and column + len(label) <= len(labels):
                labels[column : column + len(label)] = label
                free = column + len(label) + 1
        yield Text(" " * NAMES + "".join(labels), self.get_component_rich_style("lanes--faint", partial=True))

    def _go(self, place: int) -> None:
        if self.bins is not None:
            self.cursor = max(0, min(place, self.bins.number - 1))
            self.post_message(self.Moved())
            self.refresh()

    def action_move(self, pieces: int) -> None:
        """Move the cursor."""
        self._go(self.cursor + pieces)

    def action_mark(self) -> None:
        """Begin a range at the cursor, or let go of it."""
        self.marked = self.cursor if self.marked is None else None
        self._go(self.cursor)

    def on_mouse_down(self, event: MouseDown) -> None:
        """Put the cursor there; a range begins if the mouse is drawn along."""
        self.capture_mouse()
        self.marked = None
        self._go(self._place(event))

    def on_mouse_move(self, event: MouseMove) -> None:
        """Draw a range along."""
        if self.app.mouse_captured is self:
            self.marked = self.cursor if self.marked is None else self.marked
            self._go(self._place(event))

    def _place(self, event: MouseEvent) -> int:
        """The piece that the mouse is on."""
        return int(event.x - self.gutter.left - NAMES) // self.wide

    def on_mouse_up(self, event: MouseUp) -> None:
        """The range is drawn."""
        self.release_mouse()


def _merged(found: Bins, room: int) -> dict[str, list[int]]:
    """The causes in so many lanes; the rarest share one."""
    if len(found.causes) <= room:
        return found.causes
    kept = dict(list(found.causes.items())[: room - 1])
    rest = [values for cause, values in found.causes.items() if cause not in kept]
    return kept | {f"{len(rest)} rarer causes": [sum(each) for each in zip(*rest, strict=True)]}


class TimePage(Page):
    """The incident over time, of what the list is filtered to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "filter", "List these", tooltip="List the requests of this time"),
        Binding("z", "zoom", "Zoom in"),
        Binding("Z", "whole", "Zoom out"),
        Binding("e", "export", "Export", tooltip="Export as JSON, CSV or Markdown"),
    ]
    DEFAULT_CSS = "TimePage #readout { height: 2; padding: 0 1 0 2; }"

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._rows = pl.DataFrame()
        self._window: tuple[float, float] | None = None

    def content(self) -> Iterable[Widget]:
        """The drawing, and what the cursor is on."""
        self._look()
        yield Lanes(self._cut, self._clock)
        yield Static(id="readout", markup=False)

    def on_mount(self) -> None:
        """The keys are for the drawing."""
        self.query_one(Lanes).focus()

    def _look(self) -> None:
        self._rows = self.browser.over_time()
        times = [at for at in (self._rows["at"].min(), self._rows["at"].max()) if isinstance(at, float)]
        self._clock = self._clock.spanning(times)

    def grown(self) -> None:
        """Draw what was added, with cursor and range where they were."""
        self._look()
        lanes = self.query_one(Lanes)
        lanes.clock = self._clock
        lanes.draw()

    def _cut(self, columns: int) -> Bins | None:
        return bins(self._rows, self.browser.load, columns, self._window)

    def on_lanes_moved(self) -> None:
        """Say what the cursor is on."""
        lanes = self.query_one(Lanes)
        found, chosen = lanes.bins, lanes.chosen
        title = Text("Over time", style="bold")
        if found is None:
            self.say(title)
            return
        drawn, whole = sum(map(sum, found.causes.values())), f"{self._rows.height:,} interrupted"
        title.append(f"  {whole if drawn == self._rows.height else f'{drawn:,} of {whole}'}", style="not bold")
        zone = self._clock.name(found.start)
        self.say(title.append(f"  ·  {zone}, a bar is {seconds(found.step)}", style="not bold dim"))
        counts = found.total(chosen)
        start, end = (self._clock.short(found.at(place), found.step >= 1) for place in (chosen.start, chosen.stop))
        text = Text(f"{start} to {end}", style="bold")
        text.append(f"  {sum(counts.values()):,} interrupted", style="not bold")
        room = self.size.width - 5 - text.cell_len
        text.append(f": {_fitting(counts, room)}" if counts else "", style="not bold")
        loads = [_peak(lane, [values[place] for place in chosen]) for lane, values in found.load.items()]
        text.append("\n" + "  ".join(filter(None, loads)), style="not bold dim")
        self.query_one("#readout", Static).update(text)

    def _span(self) -> tuple[float, float] | None:
        lanes = self.query_one(Lanes)
        if lanes.bins is None:
            return None
        return lanes.bins.at(lanes.chosen.start), lanes.bins.at(lanes.chosen.stop)

    def action_filter(self) -> None:
        """Show the requests of the range in the list."""
        if (span := self._span()) is not None:
            listing = self.browser.requests
            self.app.pop_screen()
            listing.ask(replace(listing.asked, since=span[0], until=span[1]))

    def action_export(self) -> None:
        """Write what is drawn to a file, a row for each bar."""
        found = self.query_one(Lanes).bins
        if found is not None:
            self.app.push_screen(ExportDialog("time", table("Over time", lambda: _table(found))))

    def action_zoom(self) -> None:
        """Draw the range alone; a single piece with what is around it."""
        lanes = self.query_one(Lanes)
        if (span := self._span()) is not None:
            margin = 5 * (span[1] - span[0]) if len(lanes.chosen) == 1 else 0.0
            self._window = span[0] - margin, span[1] + margin
            lanes.marked = None
            lanes.draw()

    def action_whole(self) -> None:
        """Draw all of it again."""
        self._window = None
        self.query_one(Lanes).draw()


def _table(found: Bins) -> pl.DataFrame:
    moments = [timestamp(found.at(place)) for place in range(found.number)]
    return pl.DataFrame({"from": moments, **found.causes, **found.load})


def _fitting(counts: Mapping[str, int], room: int) -> str:
    """As many of the counts as there is room for, and how many more there are."""
    parts = [f"{clean(cause)} {number:,}" for cause, number in counts.items()]
    for left in range(len(parts)):
        said = listed([*parts[: len(parts) - left], *([count(left, "other cause")] if left else [])])
        if len(said) <= room:
            return said
    return count(len(parts), "cause")


def _peak(lane: str, values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{LANES[lane]} {max(known):.0%}" if lane == "usage" else f"{LANES[lane]} {max(known):,.0f}"
