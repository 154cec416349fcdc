"""What `doctor` shows to people: each life of a server, then the questions that stay open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from sglang_lifecycle.analyzers.coverage_models import (
    Coverage,
    Gap,
    LifeCoverage,
    Offset,
    OpenQuestion,
    RequestLog,
    Switch,
)
from sglang_lifecycle.cli.layout import FAINT, GAP, INDENT, LABEL, TITLE, grid, plain, section, title
from sglang_lifecycle.cli.text import clean, count, listed, seconds, shorten, size
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.cli.words import VERSION_SOURCES, servers
from sglang_lifecycle.parsers.versions import RELEASES

GAPS = 5
"""So many gaps of one life are named, the longest first."""

LABELS = 13
"""Columns for the names of rows, so that they align from life to life."""

SWITCHES = {"on": "on", "unseen": "on, but nothing of it is in these logs", "off": "off", "unknown": "not seen"}

HOWS = {"set": "", "unset": "without ", "call": "", "logs": "give ", "upgrade": ""}
"""What stands before that which is to be set or given."""

TIMES = {
    "own": "on the line itself",
    "meta": "inside the record",
    "neighbours": "bounded by the lines around",
    "wrapper": "by the log's collector",
    "none": "unknown",
}
"""Where times come from."""


def screen(found: Coverage, clock: Clock, width: int) -> RenderableType:
    """The whole screen."""
    clock = clock.spanning([at for life in found.lives for at in (life.start, life.end) if at])
    many = len(found.lives) > 1
    parts: list[RenderableType] = [_summary(found), *_inputs(found)]
    for number, life in enumerate(found.lives, 1):
        name = f"{number}. Life {life.life} of" if many else "Server"
        parts.append(
            section(name, grid(_rows(life, clock), LABELS), shorten(clean(life.server), width - len(name) - GAP))
        )
    if found.offsets:
        parts.append(section("Clocks", grid(_offset(offset, width) for offset in found.offsets)))
    if found.questions:
        parts += ["", title("Open questions", "and what would answer them the next time")]
        parts += [_question(question, many) for question in found.questions]
        if settings := _settings(found.questions):
            parts.append(section("All settings together", grid(settings, LABELS)))
    return Group(*parts)


def _summary(found: Coverage) -> Text:
    if not found.lives:
        return Text("No line of SGLang is in these logs: they answer nothing.", style=TITLE)
    requests = sum(life.requests for life in found.lives)
    lives = count(len(found.lives), "life", "lives")
    line = Text(f"{count(requests, 'request')} in {lives} of a server: ", style=TITLE)
    questions = (
        count(len(found.questions), "question stays", "questions stay") if found.questions else "no question stays"
    )
    return line.append(f"{questions} open.")


def _inputs(found: Coverage) -> Iterator[Text]:
    lines, unknown = sum(each.lines for each in found.inputs), sum(each.unknown for each in found.inputs)
    total = sum(each.bytes for each in found.inputs)
    share = f", {unknown / lines:.0%} of them unknown" if lines else ""
    yield plain(f"Read {count(len(found.inputs), 'input')}: {size(total)}, {count(lines, 'line')}{share}.", FAINT)


def _rows(life: LifeCoverage, clock: Clock) -> Iterator[tuple[Text, Text]]:
    version = life.sglang_version
    release = f"{version.value}, {VERSION_SOURCES[version.source]}" if version.value else "unknown: nothing narrows it"
    rows = {
        "SGLang": release,
        "covers": _covers(life, clock),
        "processes": _processes(life),
        "times": _times(life),
        "gaps": _gaps(life.gaps, clock),
        "request log": _request_log(life.request_log),
        "requests": _requests(life),
        "time stats": SWITCHES[life.time_stats],
        "access log": SWITCHES[life.access_log],
        "debug lines": SWITCHES[life.debug_lines],
        "session lines": SWITCHES[life.session_lines],
        "also": _also(life),
    }
    if life.tainted:
        rows["tainted"] = f"{count(life.tainted, 'fact')} that a stranger may have written"
    for label, text in rows.items():
        yield plain(label, LABEL), plain(text, FAINT if text in ("off", "not seen", "none") else "")


def _covers(life: LifeCoverage, clock: Clock) -> str:
    start, end = clock.epoch(life.start), clock.epoch(life.end)
    if start is None or end is None:
        return "no line has a time"
    ended = f", ended by {life.ended_by}" if life.ended_by else ", with no sign of its end"
    return f"{clock.full(life.start)} to {clock.short(life.end)}, {seconds(end - start)}{ended}"


def _processes(life: LifeCoverage) -> str:
    parts = [listed(life.processes) or "none that could be told"]
    if life.mode in ("prefill", "decode"):
        parts.append(f"the {life.mode} side")
    if life.ranks:
        parts.append(f"ranks {', '.join(life.ranks)}")
    sizes = [f"{name.removesuffix('_size').upper()} {number}" for name, number in life.sizes.items() if number > 1]
    if sizes:
        parts.append(f"of {', '.join(sizes)}")
    return "; ".join(parts)


def _times(life: LifeCoverage) -> str:
    parts = [f"{life.times[kind]:,} {text}" for kind, text in TIMES.items() if life.times.get(kind)]
    text = f"{', '.join(parts)}; {'milliseconds' if life.milliseconds else 'whole seconds'}"
    if life.zone_offset_s:
        ahead = "ahead of" if life.zone_offset_s > 0 else "behind"
        text += f"; {seconds(abs(life.zone_offset_s))} {ahead} the epoch stamps in the records: give --tz"
    return text


def _gaps(gaps: Sequence[Gap], clock: Clock) -> str:
    if not gaps:
        return "none"
    longest = sorted(gaps, key=lambda gap: -gap.seconds)[:GAPS]
    named = [
        f"{seconds(gap.seconds)} from {clock.short(gap.start, whole=True)} with {count(gap.open, 'request')} open"
        for gap in longest
    ]
    more = [f"{len(gaps) - len(longest):,} more"] if len(gaps) > len(longest) else []
    return "; ".join([*named, *more])


def _request_log(log: RequestLog) -> str:
    if log.switch != "on":
        return SWITCHES[log.switch]
    level = f"level {listed([str(level) for level in log.levels], 'or')}" if log.levels else "level unknown"
    parts = ["on", listed(list(log.formats)), level, f"{log.received:,} Receive, {log.finished:,} Finish"]
    if log.held_back:
        parts.append("Finish lines of fast requests held back")
    if log.changed:
        parts.append("changed while the server ran")
    return ", ".join(parts)


def _requests(life: LifeCoverage) -> str:
    rest = f", {life.unfinished:,} without a Finish" if life.unfinished else ""
    return f"{life.requests:,}{rest}"


def _also(life: LifeCoverage) -> str:
    others: list[tuple[str, Switch]] = [
        ("status snapshots", life.status_snapshots),
        ("a metrics export", life.metrics_export),
        ("a crash dump", life.crash_dump),
    ]
    parts = [name for name, switch in others if switch == "on"]
    parts += [f"{name} elsewhere" for name, switch in others if switch == "unseen"]
    if not life.arguments:
        parts.append("without the server's arguments")
    return listed(parts) or "none"


def _offset(offset: Offset, width: int) -> tuple[Text, Text]:
    room = width // 3
    short = servers((offset.first, offset.second))
    names = [shorten(short[name], room) for name in (offset.first, offset.second)]
    by = f"by {count(offset.requests, 'request')}"
    if not offset.seconds:
        return Text(" and ".join(names), style=LABEL), plain(f"agree, {by}")
    ahead = "ahead of" if offset.seconds > 0 else "behind"
    return Text(names[1], style=LABEL), plain(f"{seconds(abs(offset.seconds))} {ahead} {names[0]}, {by}")


def _question(question: OpenQuestion, many: bool) -> RenderableType:
    asks = plain(question.asks)
    if many:
        numbers = listed([str(life + 1) for life in question.lives])
        asks.append(f"  {'life' if len(question.lives) == 1 else 'lives'} {numbers}", style=FAINT)
    remedies: list[RenderableType] = [
        Padding(plain(f"{question.because[:1].upper()}{question.because[1:]}.", FAINT), (0, 0, 0, 2 * INDENT))
    ]
    for remedy in question.remedies:
        line = Text(HOWS[remedy.how], style="").append(clean(" ".join(remedy.what)), style=LABEL)
        line.append(f": {clean(remedy.brings)}").append(_range(remedy.since, remedy.until), style=FAINT)
        remedies.append(Padding(grid([(Text("→", style=FAINT), line)]), (0, 0, 0, 2 * INDENT)))
    if not question.remedies:
        remedies.append(Padding(plain("No setting of this release answers it.", FAINT), (0, 0, 0, 2 * INDENT)))
    return Group(Padding(asks, (0, 0, 0, INDENT)), *remedies)


def _settings(questions: Sequence[OpenQuestion]) -> list[tuple[Text, Text]]:
    """Everything that is to be set, each once."""
    remedies = [remedy for question in questions for remedy in question.remedies if remedy.how == "set"]
    settings = list(dict.fromkeys(setting for remedy in remedies for setting in remedy.what))
    flags = [setting for setting in settings if setting.startswith("-")]
    rows = {"environment": [s for s in settings if s not in flags], "flags": flags}
    return [(plain(label, LABEL), plain(" ".join(own))) for label, own in rows.items() if own]


def _range(since: str, until: str) -> str:
    """The releases that have something, where not all do."""
    if since == RELEASES[0]:
        return "" if until == RELEASES[-1] else f" (up to {until})"
    return f" ({since} on)" if until == RELEASES[-1] else f" ({since} to {until})"
