"""The plot of an incident: interruptions by cause, and the load of the servers under them."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import polars as pl
from plotly import graph_objects
from plotly.subplots import make_subplots

from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import Audit
from sglang_lifecycle.cli.browser.bins import LANES, Bins, bins
from sglang_lifecycle.cli.browser.loading import load
from sglang_lifecycle.cli.interrupted import groups, moment
from sglang_lifecycle.cli.text import seconds
from sglang_lifecycle.cli.times import Clock

BARS = 160
"""So many bars stand beside each other, at most."""

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d", "#ff9da6", "#8c8c8c")
PATTERNS = ("", "/", ".", "x", "-", "\\", "|", "+")
"""Causes differ in both, so that colours never carry meaning alone."""


def figure(incident: Incident, audit: Audit, clock: Clock) -> str | None:
    """The plot as Plotly's JSON; nothing where no interrupted request has a time."""
    found = groups(audit.requests, clock)
    rows = [(clock.epoch(moment(row)), cause) for cause, group in found.items() for row in group]
    frame = pl.DataFrame(rows, schema={"at": pl.Float64, "cause": pl.String}, orient="row").drop_nulls()
    cut = bins(frame, load(incident.evidence), BARS, None)
    return _drawn(cut, clock).to_json() if cut is not None else None


def _drawn(cut: Bins, clock: Clock) -> Any:
    lanes = list(cut.load)
    heights = [0.55, *([0.45 / len(lanes)] * len(lanes))] if lanes else [1.0]
    plot = make_subplots(rows=1 + len(lanes), shared_xaxes=True, vertical_spacing=0.04, row_heights=heights)
    times = [_local(cut.at(place) + cut.step / 2, clock) for place in range(cut.number)]
    for number, (cause, values) in enumerate(cut.causes.items()):
        marker = {
            "color": COLOURS[number % len(COLOURS)],
            "pattern": {"shape": PATTERNS[number % len(PATTERNS)], "fgcolor": "#fff", "solidity": 0.25},
        }
        plot.add_trace(graph_objects.Bar(name=cause, x=times, y=values, marker=marker), row=1, col=1)
    for number, lane in enumerate(lanes, 2):
        peaks = [None if value is None or math.isnan(value) else value for value in cut.load[lane]]
        line = {"color": "#5b7fa6", "shape": "hvh"}
        trace = graph_objects.Scatter(name=LANES[lane], x=times, y=peaks, line=line, mode="lines", showlegend=False)
        plot.add_trace(trace, row=number, col=1)
        plot.update_yaxes(title_text=LANES[lane], rangemode="tozero", row=number, col=1)
        if lane == "usage":
            plot.update_yaxes(tickformat=".0%", range=[0, 1.02], row=number, col=1)
    plot.update_yaxes(title_text=f"interrupted per {seconds(cut.step)}", row=1, col=1)
    plot.update_xaxes(title_text=f"time, {clock.name(cut.start)}", row=1 + len(lanes), col=1)
    plot.update_layout(
        barmode="stack",
        showlegend=True,
        bargap=0.08,
        height=320 + 110 * len(lanes),
        hovermode="x",
        legend={"orientation": "v", "itemsizing": "constant"},
        margin={"l": 70, "r": 10, "t": 10, "b": 50},
        template="plotly_white",
    )
    return plot


def _local(at: float, clock: Clock) -> str:
    """The time of day in the clock's zone; Plotly knows no zones."""
    return datetime.fromtimestamp(at, clock.zone).replace(tzinfo=None).isoformat(timespec="milliseconds")
