"""What the measurements say: tables for people, a document for programs, and a plot of growth."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from measure import Measurement
from peers import PEERS
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Goal:
    """Something that must hold: a value, and the most that it may be."""

    name: str
    value: float
    limit: float
    unit: str


class Figures:
    """The measurements by name; what was not measured, or is wrong, is not a number."""

    def __init__(self, found: dict[str, Measurement]) -> None:
        self.found = {name: each for name, each in found.items() if each.answer in ("", "right")}

    def seconds(self, name: str) -> float:
        """Median time."""
        return self.found[name].seconds if name in self.found else math.nan

    def speed(self, name: str) -> float:
        """Megabytes a second."""
        return self.found[name].speed if name in self.found else math.nan

    def largest(self, name: str) -> float:
        """Peak megabytes of the largest process."""
        return self.found[name].largest if name in self.found else math.nan

    def fastest_peer(self, format: str) -> float:
        """Megabytes a second of the fastest peer that is right."""
        speeds = [self.speed(f"{format} {name}") for name, peer in PEERS.items() if peer.format == format]
        return max((speed for speed in speeds if not math.isnan(speed)), default=math.nan)


def goals(found: dict[str, Measurement]) -> list[Goal]:
    """Return what must hold of what was measured."""
    of = Figures(found)
    all_goals = []
    for format, speed in (("text", 450.0), ("json", 500.0)):
        audit = of.speed(f"{format} audit")
        limit = 4 * of.seconds(f"{format} rg") + 0.5
        all_goals += [
            Goal(f"{format}: explain, cold: 4 × rg + 0.5 s", of.seconds(f"{format} explain"), limit, "s"),
            Goal(f"{format}: explain, from the store", of.seconds(f"{format} explain store"), 0.5, "s"),
            Goal(f"{format}: {speed:.0f} MB/s : audit", speed / audit, 1.0, "×"),
            Goal(f"{format}: audit's largest process", of.largest(f"{format} audit"), 600.0, "MB"),
        ]
    three_times = 3 * of.fastest_peer("text") / of.speed("text audit")
    all_goals.append(Goal("text: 3 × the fastest right peer : audit", three_times, 1.0, "×"))
    eighth, whole = "growth 1/8", "growth 1/1"
    all_goals += [
        Goal("growth: time for a byte, whole : eighth", of.speed(eighth) / of.speed(whole), 1.2, "×"),
        Goal("growth: memory, whole : eighth", of.largest(whole) / of.largest(eighth), 1.2, "×"),
    ]
    for name in ("flood undelivered", "flood probe"):
        all_goals.append(Goal(f"{name}: time for a byte : without", of.speed("growth 1/4") / of.speed(name), 1.1, "×"))
    for option in ("--version", "--help"):
        all_goals.append(
            Goal(f"start: {option} : import typer", of.seconds(f"start {option}") / of.seconds("start typer"), 1.5, "×")
        )
    return [goal for goal in all_goals if not math.isnan(goal.value) and not math.isnan(goal.limit)]


def document(found: dict[str, Measurement], settings: dict[str, Any]) -> dict[str, Any]:
    """Return all of it, for programs."""
    floor = {name.split()[0]: each.seconds for name, each in found.items() if name.endswith(" cat")}
    measurements = [
        asdict(each)
        | {
            "mb_per_second": each.speed,
            "times_cat": each.seconds / floor[group] if (group := each.name.split()[0]) in floor else None,
        }
        for each in found.values()
    ]
    return {
        "settings": settings,
        "measurements": measurements,
        "goals": [asdict(goal) | {"holds": goal.value <= goal.limit} for goal in goals(found)],
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print it for people."""
    settings = ", ".join(f"{key} {value}" for key, value in result["settings"].items())
    table = Table("measured", "what", title=settings, title_justify="left")
    for column in ("s", "MB/s", "× cat", "CPU s", "largest MB", "together MB"):
        table.add_column(column, justify="right")
    table.add_column("answer")
    group = ""
    for each in result["measurements"]:
        if group and each["name"].split()[0] != group:
            table.add_section()
        group = each["name"].split()[0]
        if each["answer"] == "missing":
            table.add_row(each["name"], each["what"], *[""] * 6, "missing")
            continue
        table.add_row(
            each["name"],
            each["what"],
            f"{each['seconds']:.3f}",
            f"{each['mb_per_second']:,.0f}" if each["bytes"] else "",
            f"{each['times_cat']:,.1f}" if each["times_cat"] else "",
            f"{each['cpu']:.2f}",
            *(f"{each[key]:,.0f}" if each[key] else "" for key in ("largest", "together")),
            each["answer"],
        )
    console.print(table)

    table = Table("what must hold", title_justify="left")
    for column in ("value", "limit", ""):
        table.add_column(column, justify="right")
    for goal in result["goals"]:
        values = (f"{goal[key]:,.2f} {goal['unit']}" for key in ("value", "limit"))
        table.add_row(
            goal["name"], *values, "holds" if goal["holds"] else f"{goal['value'] / goal['limit']:.1f} × over"
        )
    console.print(table)

    rows = growth(result)
    longest = max((seconds for _, seconds, _ in rows), default=0.0)
    for size, seconds, megabytes in rows:
        bar = "█" * max(1, round(50 * seconds / longest))
        console.print(f"{size:9,.0f} MB  {seconds:8.2f} s  {megabytes:6,.0f} MB held  {bar}", highlight=False)


def growth(result: dict[str, Any]) -> list[tuple[float, float, float]]:
    """Return megabytes of log, seconds of its audit, and megabytes held."""
    rows = [each for each in result["measurements"] if each["name"].startswith("growth ")]
    return [(each["bytes"] / 1e6, each["seconds"], each["largest"]) for each in rows]


def plot(result: dict[str, Any]) -> str:
    """Return the page that shows how time and memory grow with the log."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    sizes, seconds, held = zip(*growth(result), strict=True)
    figure = make_subplots(rows=1, cols=2, subplot_titles=("Time of an audit", "Memory of its largest process"))
    linear = [seconds[0] * size / sizes[0] for size in sizes]
    figure.add_trace(go.Scatter(x=sizes, y=linear, name="linear", line={"dash": "dot", "color": "grey"}), row=1, col=1)
    figure.add_trace(go.Scatter(x=sizes, y=seconds, name="seconds", mode="lines+markers"), row=1, col=1)
    figure.add_trace(go.Scatter(x=sizes, y=held, name="MB held", mode="lines+markers"), row=1, col=2)
    figure.update_xaxes(title="MB of log", rangemode="tozero")
    figure.update_yaxes(title="s", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="MB", rangemode="tozero", row=1, col=2)
    return str(figure.to_html(include_plotlyjs=True))
