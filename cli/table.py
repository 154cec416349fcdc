"""What `audit` shows to people: the causes, the server's events, and the interrupted requests by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from sglang_lifecycle.analyzers.listing import Audit, RequestRow, ServerEvent
from sglang_lifecycle.analyzers.verdict import Confidence
from sglang_lifecycle.cli import gates
from sglang_lifecycle.cli.cells import Cells
from sglang_lifecycle.cli.drawn import drawn
from sglang_lifecycle.cli.interrupted import EVENTS, LIMIT, moment, perhaps_not, remark
from sglang_lifecycle.cli.interrupted import groups as grouped
from sglang_lifecycle.cli.interrupted import shares as shares_of
from sglang_lifecycle.cli.layout import FAINT, INDENT, LABEL, TITLE, TONES, grid, places, plain, section, title
from sglang_lifecycle.cli.text import clean, count, listed, seconds, size
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.cli.words import WORDS, cause_title, servers


def table(audit: Audit, clock: Clock, width: int, limit: int | None = LIMIT) -> RenderableType:
    """The whole audit; `limit` is how many interrupted requests are listed."""
    groups = grouped(audit.requests, clock)
    interrupted = [row for rows in groups.values() for row in rows]
    clock = clock.spanning(
        [*(moment(row) for row in interrupted), *(event.at for event in audit.server_events if event.at)]
    )
    parts: list[RenderableType] = [_summary(audit, groups), _read(audit)]
    if groups:
        parts.append(section("Causes", _causes(groups), "of the interrupted requests"))
    if audit.server_events:
        events = audit.server_events if limit is None else audit.server_events[:EVENTS]
        parts.append(_events(events, len(audit.server_events), clock, width))
    parts += [drawn(each) for each in gates.sections(audit)]
    if groups:
        shares = shares_of({cause: len(rows) for cause, rows in groups.items()}, limit)
        how_many = remark(sum(shares.values()), len(interrupted))
        zone = clock.name(next((at for row in interrupted if (at := moment(row))), None))
        parts += [
            "",
            title("Interrupted requests", f"{how_many}, times are {zone}"),
            *_requests(groups, shares, servers(row.server for row in audit.requests), clock, width),
        ]
    return Group(*parts)


def _summary(audit: Audit, groups: Mapping[str, Sequence[RequestRow]]) -> Text:
    totals = audit.totals
    confidence = Counter(row.confidence for rows in groups.values() for row in rows)
    line = Text(f"{count(totals.requests, 'request')}: {totals.interrupted:,} interrupted", style=TITLE)
    if confidence:
        words = [f"{confidence[key]:,} {word}" for key, word in WORDS.items() if confidence[key]]
        line.append(f" ({', '.join(words)})", style="not bold")
    rest = [f"{totals.finished:,} finished"] * bool(totals.finished)
    rest += [f"{totals.in_flight:,} in flight where the logs end"] * bool(totals.in_flight)
    line.append("".join(f", {part}" for part in rest) + ".", style="not bold")
    if totals.perhaps_not:
        line.append(f" {perhaps_not(totals.perhaps_not)}", style="not bold")
    if totals.synthetic:
        text = f" {count(totals.synthetic, 'request')} left out: of SGLang itself, or to be ignored."
        line.append(text, style=f"not bold {FAINT}")
    return line


def _read(audit: Audit) -> Text:
    lines, recognised = sum(each.lines for each in audit.inputs), sum(each.recognised for each in audit.inputs)
    total = sum(each.bytes for each in audit.inputs)
    return plain(
        f"Read {count(len(audit.inputs), 'input')}: {size(total)}, {count(lines, 'line')},"
        f" {recognised:,} of them recognised.",
        FAINT,
    )


def _causes(groups: Mapping[str, Sequence[RequestRow]]) -> RenderableType:
    total = sum(map(len, groups.values()))
    undecided = any(row.confidence == "not-established" for rows in groups.values() for row in rows)
    keys: list[Confidence] = ["proven", "likely"]
    if undecided:
        keys.append("not-established")
    lines = [["count", "share", *(WORDS[key] for key in keys)]]
    for rows in groups.values():
        confidence = Counter(row.confidence for row in rows)
        lines.append([f"{len(rows):,}", f"{len(rows) / total:.1%}", *(f"{confidence[key]:,}" for key in keys)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    names = [("", ""), *((cause, cause_title(cause)) for cause in groups)]
    return grid(
        (
            *(Text(cell.rjust(columns), FAINT if first else "") for cell, columns in zip(line, widths, strict=True)),
            plain(cause, LABEL),
            plain(says),
        )
        for first, line, (cause, says) in zip([True, *[False] * len(groups)], lines, names, strict=True)
    )


def _events(events: Sequence[ServerEvent], total: int, clock: Clock, width: int) -> RenderableType:
    proofs = [event.evidence[0] for event in events if event.evidence]
    folder, where = places(proofs, width // 4)
    place = iter(where)
    rows = [
        (
            plain(clock.short(event.at)),
            plain(event.cause, LABEL),
            plain(event.summary).append(f" ({next(place)})" if event.evidence else "", FAINT),
        )
        for event in events
    ]
    return section("Server events", grid(rows), remark(len(events), total) + (f", in {folder}" if folder else ""))


def _requests(
    groups: Mapping[str, Sequence[RequestRow]],
    shares: Mapping[str, int],
    names: Mapping[str | None, str],
    clock: Clock,
    width: int,
) -> Iterator[RenderableType]:
    """One row a request, aligned over all causes. Lines are laid out by hand: there may be very many."""
    cells = {cause: [_cells(row, clock, names) for row in rows[: shares[cause]]] for cause, rows in groups.items()}
    margin = 2 * INDENT
    laid = Cells([row for rows in cells.values() for row in rows], width, margin)
    yield from laid.head()
    for cause, rows in cells.items():
        total = len(groups[cause])
        number = f"{total:,}" if len(rows) == total else f"{len(rows):,} of {total:,}"
        yield Text(" " * INDENT + clean(cause), style=LABEL).append(f"  {number}", style=FAINT)
        for row, request in zip(rows, groups[cause], strict=False):  # not all are shown
            yield from laid.row(row, {"verdict": TONES[request.confidence]})
            if request.candidates:
                others = listed([clean(each.cause) for each in request.candidates], "or")
                lead = "perhaps" if request.confidence == "not-established" else "or else"
                yield Padding(Text(f"{lead} {others}", style=FAINT), (0, 0, 0, margin + INDENT))


def _cells(row: RequestRow, clock: Clock, names: Mapping[str | None, str]) -> dict[str, str]:
    return {
        "rid": clean(row.rid),
        "ended": clock.short(row.times.ended, whole=True, off=row.times.ended_error_s) if row.times.ended else "–",
        "stage": clean(row.stage),
        "actor": clean(row.actor),
        "verdict": WORDS[row.confidence],
        "waited": seconds(row.times.waited_s).replace(" ", ""),
        "ran": seconds(row.times.ran_s).replace(" ", ""),
        "session": clean(row.session_id or ""),
        "server": names.get(row.server, ""),
    }
