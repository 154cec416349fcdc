"""What `replay run` shows to people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from sglang_lifecycle.analyzers.replay_models import ForbiddenStep, ReplayRow, ReplayRun, WhatIf
from sglang_lifecycle.cli.cells import Cells
from sglang_lifecycle.cli.layout import FAINT, GAP, INDENT, LABEL, TITLE, bullets, grid, places, plain, section, title
from sglang_lifecycle.cli.text import clean, count, listed, shorten
from sglang_lifecycle.cli.times import Clock

LIMIT = 50
"""So many requests, and so many changes of each kind, are listed; --json lists them all."""

RID = 44
"""Columns for an id beside which other columns stand: room for a UUID and what SGLang writes before it."""

LEFT = 5
"""So many of the requests that a what-if says nothing of are named; --json names them all."""

BAR = 40
"""Columns of the longest bar, where there is room for it."""

NUMBER = 6
"""Columns of the number before a bar."""

TONES = {True: "green", False: "bold red", None: FAINT}
WORDS = {True: "agrees", False: "differs", None: "open"}


def report(run: ReplayRun, clock: Clock, width: int) -> RenderableType:
    """The whole report."""
    return Group(*_sections(run, clock, width))


def _sections(run: ReplayRun, clock: Clock, width: int) -> Iterator[RenderableType]:
    totals = run.totals
    line = Text(f"{count(totals.interrupted, 'interrupted request')}: ", style=TITLE)
    parts = [f"the reference scheduler covers {totals.covered:,}"]
    parts += [f"{totals.agree:,} agree", f"{totals.differ:,} differ"] if totals.covered else []
    parts += [f"{totals.open:,} open"] * bool(totals.open)
    yield line.append(", ".join(parts) + ".", style="not bold")
    yield section("Rules", grid(_lives(run)))
    if run.forbidden:
        yield section(
            "What the rules forbid",
            _forbidden(run.forbidden, clock, width),
            "a quirk of the version, lost lines or a bug",
        )
    covered = [row for row in run.requests if row.covered]
    if covered:
        covered.sort(key=lambda row: row.agrees is not False)
        yield Group("", title("Predicted against observed", _remark(len(covered))), *_rows(covered[:LIMIT], width))
    if len(covered) < len(run.requests):
        silent = Counter((row.observed, row.why) for row in run.requests if not row.covered)
        rows = ((Text(f"{number:,}"), plain(cause, LABEL), plain(why)) for (cause, why), number in silent.most_common())
        yield section("Not covered", grid(rows))
    if run.what_if:
        yield from _what_if(run.what_if, width)


def _lives(run: ReplayRun) -> Iterator[Sequence[RenderableType]]:
    for life in run.lives:
        limits = [
            f"a {kind} timeout of {seconds:.1f} s"
            for kind, seconds in (("waiting", life.waiting_limit_s), ("running", life.running_limit_s))
            if seconds is not None
        ]
        text = f"rules of {life.era}, release {life.release or 'unknown'}" if life.era else "release unknown"
        server = f" ({life.server})" if len(run.lives) > 1 else ""
        yield plain(f"life {life.life}"), plain("; ".join([text, *limits])).append(clean(server), FAINT)


def _remark(total: int) -> str:
    return f"{total:,}" if total <= LIMIT else f"{LIMIT} of {total:,}; --json lists them all"


def _rows(rows: Sequence[ReplayRow], width: int) -> Iterator[RenderableType]:
    cells = [
        {
            "rid": clean(row.rid),
            "observed": row.observed,
            "predicted": row.predicted or "–",
            "replay": WORDS[row.agrees],
        }
        for row in rows
    ]
    laid = Cells(cells, width, INDENT)
    yield from laid.head()
    for row, each in zip(rows, cells, strict=True):
        yield from laid.row(each, {"observed": LABEL, "predicted": LABEL, "replay": TONES[row.agrees]})
        if others := [clean(cause) for cause in row.possible if cause != row.predicted]:
            text = f"the rules allow also {listed(others, 'or')}{' (not every order was tried)' if row.bounded else ''}"
            yield Padding(Text(text, style=FAINT), (0, 0, 0, 2 * INDENT))


def _forbidden(steps: Sequence[ForbiddenStep], clock: Clock, width: int) -> RenderableType:
    lines = [line for step in steps[:LIMIT] for line in step.evidence]
    _, where = places(lines, width // 2)
    place = iter(where)
    rows = []
    for step in steps[:LIMIT]:
        proof = ", ".join(next(place) for _ in step.evidence)
        rows.append(
            (
                plain(clock.short(step.at) if step.at else "–"),
                Text(shorten(clean(step.rid or step.session_id or ""), RID), style=LABEL),
                plain(step.summary).append(f" ({proof})" if proof else "", FAINT),
            )
        )
    return grid(rows)


def _what_if(what: WhatIf, width: int) -> Iterator[RenderableType]:
    change = what.interrupted_after - what.interrupted_before
    line = f"{what.interrupted_before:,} interrupted before, {what.interrupted_after:,} after ({change:+,}):"
    line += f" {len(what.saved):,} would have lived, {len(what.lost):,} others would have died."
    if left := what.not_reproduced:
        named = listed([*left[:LEFT], *[f"{len(left) - LEFT:,} more"] * (len(left) > LEFT)])
        line += f" Of {len(left):,} of {what.replayed:,} it says nothing, and counts them as unchanged: {named}."
    yield section(f"What if {listed([clean(each) for each in what.changes])}", plain(line))
    causes = sorted(what.before.keys() | what.after.keys())
    most = max((*what.before.values(), *what.after.values()), default=1)
    longest = min(BAR, width - INDENT - max(map(len, causes), default=0) - len("before") - NUMBER - 3 * GAP)
    rows: list[Sequence[RenderableType]] = []
    for cause in causes:
        for name, numbers, style in (("before", what.before, FAINT), ("after", what.after, "")):
            number = numbers.get(cause, 0)
            label = plain(cause, LABEL) if name == "before" else Text()
            told = Text(f"{number:,}".rjust(NUMBER))
            rows.append((label, Text(name, style=style), told, Text(_bar(number, most, longest), style)))
    if rows:
        yield section("Ends by cause", grid(rows))
    for name, changed in (
        ("Would have lived", what.saved),
        ("Would have died", what.lost),
        ("Would have died otherwise", what.otherwise),
    ):
        if changed:
            yield section(
                name,
                grid(
                    (
                        Text(shorten(clean(each.rid), RID)),
                        plain(f"{each.before} → {each.after}", LABEL),
                        plain("its service time is an estimate" if each.estimated else "", FAINT),
                    )
                    for each in changed[:LIMIT]
                ),
                _remark(len(changed)),
            )
    yield section("Assumptions", bullets(what.assumptions))


def _bar(number: int, most: int, longest: int) -> str:
    return "█" * max(round(longest * number / most), int(number > 0)) if most else ""
