"""An audit as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import compress

from sglang_lifecycle.analyzers.listing import Audit, RequestRow, ServerEvent
from sglang_lifecycle.cli.document import Block, Code, Document, Grid, Section
from sglang_lifecycle.cli.gates import sections as gates
from sglang_lifecycle.cli.interrupted import EVENTS, LIMIT, groups, perhaps_not, remark, shares
from sglang_lifecycle.cli.text import count, seconds, size
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.cli.words import WORDS, cause_title, servers


def document(audit: Audit, clock: Clock, limit: int | None = LIMIT) -> Document:
    """The whole audit; `limit` is how many interrupted requests are listed."""
    found = groups(audit.requests, clock)
    listed = shares({cause: len(rows) for cause, rows in found.items()}, limit)
    rows = [row for cause, rows in found.items() for row in rows[: listed[cause]]]
    total = sum(map(len, found.values()))
    events = audit.server_events if limit is None else audit.server_events[:EVENTS]
    return Document(
        f"Audit: {audit.totals.interrupted:,} of {count(audit.totals.requests, 'request')} interrupted",
        list(_lead(audit)),
        [
            *gates(audit),
            Section("Causes", [_causes(found)] if found else []),
            Section(
                f"Server events ({remark(len(events), len(audit.server_events))})",
                [_events(events, clock)] if events else [],
            ),
            Section(
                f"Interrupted requests ({remark(len(rows), total)})",
                [_requests(rows, servers(row.server for row in audit.requests), clock)] if rows else [],
            ),
            Section("Inputs", [_inputs(audit)] if audit.inputs else []),
        ],
    )


def _lead(audit: Audit) -> Iterator[Block]:
    totals = audit.totals
    text = f"{totals.finished:,} finished, {totals.in_flight:,} were in flight where the logs end."
    if totals.perhaps_not:
        text += f" {perhaps_not(totals.perhaps_not)}"
    if totals.synthetic:
        text += f" {count(totals.synthetic, 'request')} left out: of SGLang itself, or to be ignored."
    yield text


def _causes(found: dict[str, list[RequestRow]]) -> Grid:
    total = sum(map(len, found.values()))
    rows = []
    for cause, requests in found.items():
        confidence: Counter[str] = Counter(row.confidence for row in requests)
        rows.append(
            (
                Code(cause),
                f"{len(requests):,}",
                f"{len(requests) / total:.1%}",
                *(f"{confidence[key]:,}" for key in WORDS),
                cause_title(cause),
            )
        )
    numbers = ("count", "share", *WORDS.values())
    return Grid(("cause", *numbers, "the request …"), rows, frozenset(numbers))


def _events(events: list[ServerEvent], clock: Clock) -> Grid:
    rows = [
        (
            clock.full(event.at),
            Code(event.cause),
            event.summary,
            Code(f"{event.evidence[0].source}:{event.evidence[0].line}" if event.evidence else ""),
        )
        for event in events
    ]
    return Grid(("at", "event", "summary", "line"), rows)


def _requests(rows: list[RequestRow], names: Mapping[str | None, str], clock: Clock) -> Grid:
    cells = [
        (
            Code(row.rid),
            Code(row.cause),
            WORDS[row.confidence],
            clock.full(row.times.ended, row.times.ended_error_s) if row.times.ended else "–",
            row.stage,
            row.actor,
            seconds(row.times.waited_s),
            seconds(row.times.ran_s),
            Code(row.session_id or ""),
            Code(", ".join(each.cause for each in row.candidates)),
            *([Code(names.get(row.server, ""))] if names else []),
        )
        for row in rows
    ]
    head = (
        "rid",
        "cause",
        "verdict",
        "ended",
        "stage",
        "actor",
        "waited",
        "ran",
        "session",
        "or else",
        *(["server"] if names else []),
    )
    filled = [any(row[index] for row in cells) for index in range(len(head))]
    return Grid(
        tuple(compress(head, filled)),
        [tuple(compress(row, filled)) for row in cells],
        frozenset({"waited", "ran"}),
    )


def _inputs(audit: Audit) -> Grid:
    rows = [
        (Code(each.path), size(each.bytes), f"{each.lines:,}", f"{each.recognised:,}", "; ".join(each.warnings))
        for each in audit.inputs
    ]
    return Grid(("input", "size", "lines", "recognised", "warnings"), rows, frozenset({"size", "lines", "recognised"}))
