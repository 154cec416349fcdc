"""What `explain` shows to people: one verdict on one screen."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from sglang_lifecycle.analyzers.verdict import EvidenceLine, Link, Verdict
from sglang_lifecycle.cli.cells import LONGEST
from sglang_lifecycle.cli.layout import (
    FAINT,
    GAP,
    INDENT,
    LABEL,
    TONES,
    bullets,
    grid,
    numbered,
    places,
    plain,
    section,
    with_references,
)
from sglang_lifecycle.cli.text import clean, fold, pad, shorten
from sglang_lifecycle.cli.text import width as width_of
from sglang_lifecycle.cli.timeline import timeline
from sglang_lifecycle.cli.times import Clock, error
from sglang_lifecycle.cli.words import (
    CONFIDENCE,
    STEPS,
    VERSION_SOURCES,
    circumstances,
    client_text,
    fault_text,
    replay_text,
    servers,
)

LINES = 20
"""So many evidence lines are shown; the rest is only counted."""

ROWS = 3
"""Rows that an excerpt may take: a finish reason with its message is to be seen whole."""

MARGIN = 6
"""Columns to the left of an excerpt: the indent, the number of the line and gaps."""

NAMES = 14
"""Columns for the names of steps and findings, so that they align from section to section."""


def screen(verdict: Verdict, clock: Clock, width: int) -> RenderableType:
    """The whole screen."""
    times = verdict.times
    clock = clock.spanning([times.received, times.ended, *(line.at for line in verdict.evidence)])
    return Group(*_sections(verdict, clock, width))


def _sections(verdict: Verdict, clock: Clock, width: int) -> Iterator[RenderableType]:
    yield _headline(verdict, width)
    yield plain(circumstances(verdict, clock))
    if verdict.summary and verdict.summary != verdict.title:
        yield plain(verdict.summary)
    yield _ids(verdict, width)
    if verdict.candidates:
        yield section(
            "Candidates",
            grid((plain(each.cause, LABEL), plain(each.would_decide)) for each in verdict.candidates),
            "what would decide",
        )
    if verdict.steps:
        yield section("Debugging order", _steps(verdict))
    remark, rows = timeline(verdict, clock, width - INDENT)
    yield section("Timeline", Group(*rows), remark)
    if len(verdict.chain) > 1:
        yield section("Chain to the root", _chain(verdict.chain, verdict.rid))
    if verdict.evidence:
        yield _evidence(verdict.evidence, clock, width)
    if len(verdict.attempts) > 1:
        yield section("Attempts", _attempts(verdict, clock), "this rid lived more than once")
    yield section("Findings", grid(_findings(verdict), NAMES))
    if verdict.advice:
        yield section("What to do", numbered(verdict.advice))


def _headline(verdict: Verdict, width: int) -> RenderableType:
    rid, title = f"Request {clean(verdict.rid)}", clean(verdict.title).rstrip(".")
    fits = width_of(rid) <= width
    line = Text(f"{rid} {title}: " if fits else f"{title}: ", style="bold")
    line.append(CONFIDENCE[verdict.confidence], style=TONES[verdict.confidence]).append(".")
    # An id that is too long for a line runs over: it is to be copied.
    return line if fits else Group(Text(shorten(rid, LONGEST), style="bold", no_wrap=True, overflow="ignore"), line)


def _ids(verdict: Verdict, width: int) -> Text:
    """The ids that `--json` and the catalogue use, each in one piece."""
    parts = [
        f"cause {verdict.cause}",
        f"layer {verdict.layer}",
        f"stage {verdict.stage}",
        f"actor {verdict.actor}",
    ]
    if verdict.effects:
        parts.append(f"effects {', '.join(verdict.effects)}")
    if verdict.times.prompt_tokens is not None or verdict.times.completion_tokens is not None:
        prompt, completion = (
            "unknown" if number is None else f"{number:,}"
            for number in (verdict.times.prompt_tokens, verdict.times.completion_tokens)
        )
        parts.append(f"tokens {prompt} in, {completion} out")
    version = verdict.sglang_version
    if version.value:
        parts.append(f"SGLang {version.value}, {VERSION_SOURCES[version.source]}")
    if verdict.synthetic:
        parts.append("sent by SGLang itself")
    lines = [""]
    for part in map(clean, parts):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if width_of(longer) > width and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = longer
    return Text("\n".join(lines), style=FAINT)


def _steps(verdict: Verdict) -> RenderableType:
    return grid(
        (
            (
                plain(f"{number} {STEPS[step.step]}", LABEL),
                with_references(plain(step.finding), step.evidence),
            )
            for number, step in enumerate(verdict.steps, 1)
        ),
        NAMES,
    )


def _chain(chain: list[Link], rid: str) -> RenderableType:
    def summary(link: Link) -> str:
        named = not link.rid or link.rid == rid or link.rid in link.summary
        return link.summary if named else f"{link.rid}: {link.summary}"

    return grid(
        (
            plain(f"└ {link.cause}" if depth else link.cause, LABEL),
            with_references(plain(summary(link)), link.evidence),
        )
        for depth, link in enumerate(chain)
    )


def _evidence(lines: list[EvidenceLine], clock: Clock, width: int) -> RenderableType:
    """A section of two rows a line: where, when and what; below it the excerpt."""
    shown = lines[:LINES]
    width -= MARGIN
    moments = [f"{clock.short(line.at)} {error(line.at_error_s)}".rstrip() for line in shown]
    events = [clean(line.event) + (" (a stranger may have written this)" if line.tainted else "") for line in shown]
    moment_width, event_width = max(map(len, moments)), max(map(len, events))
    room = width - moment_width - event_width - 2 * GAP
    folder, where = places(shown, room)
    place_width = max(map(width_of, where))
    rows: list[tuple[Text, Text]] = []
    for number, (line, place, moment, event) in enumerate(zip(shown, where, moments, events, strict=True), 1):
        # A path that is still too long gets a row, or more, of its own rather than being cut: it is to be copied.
        head = pad(place, place_width) + " " * GAP if place_width <= room else f"{place}\n"
        text = Text(head + moment.ljust(moment_width) + " " * GAP)
        text.append(event, style=LABEL)
        if line.text:
            for part in fold(shorten(clean(line.text), ROWS * width), width):
                text.append(f"\n{part}", style=FAINT)
        rows.append((Text(f"{number:<2}", style=FAINT), text))
    if more := len(lines) - len(shown):
        rows.append((Text(), Text(f"and {more} more; --json lists them all", style=FAINT)))
    return section("Evidence", grid(rows), f"in {folder}" if folder else "")


def _attempts(verdict: Verdict, clock: Clock) -> RenderableType:
    clock = Clock(clock.zone, dated=True)
    names = servers(each.server for each in verdict.attempts)
    return grid(
        (
            Text(str(number), style=FAINT),
            plain(f"{clock.short(each.received)} → {clock.short(each.ended)}"),
            plain(f"life {each.life} of {names[each.server]}" if each.server in names else f"server life {each.life}"),
            plain(each.cause if each.cause == each.status else f"{each.status}: {each.cause}", LABEL).append(
                f", {CONFIDENCE[each.confidence]}", style="default"
            ),
        )
        for number, each in enumerate(verdict.attempts, 1)
    )


def _findings(verdict: Verdict) -> Iterator[tuple[Text, RenderableType]]:
    yield Text("client saw", style=LABEL), plain(client_text(verdict))
    if verdict.contradictions:
        yield Text("contradicts", style="bold red"), bullets(verdict.contradictions)
    if verdict.missing:
        yield Text("missing", style=LABEL), bullets(verdict.missing)
    if verdict.known_faults:
        yield Text("known fault", style=LABEL), bullets([fault_text(fault) for fault in verdict.known_faults])
    if verdict.ruled_out:
        excluded = Text()
        for index, each in enumerate(verdict.ruled_out):
            text = plain(f"{'; ' if index else ''}{each.cause} ({each.because})")
            excluded.append_text(with_references(text, each.evidence))
        yield Text("ruled out", style=LABEL), excluded
    if verdict.replay:
        yield Text("replay", style=LABEL), plain(replay_text(verdict.replay))
