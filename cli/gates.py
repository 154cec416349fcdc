"""What an audit was held against, as sections of a document: thresholds and an earlier audit."""

from __future__ import annotations

from sglang_lifecycle.analyzers.listing import Audit, Comparison, ThresholdResult
from sglang_lifecycle.cli.document import Code, Grid, Section
from sglang_lifecycle.cli.text import count

RIDS = 20
"""So many requests are named where a person reads of a threshold."""


def sections(audit: Audit) -> list[Section]:
    """The sections; empty where nothing was asked."""
    found = []
    if audit.thresholds:
        rows = [
            (Code(each.expression), "crossed" if each.crossed else "kept", says(each), Code(named(each)))
            for each in audit.thresholds
        ]
        found.append(Section("Thresholds", [Grid(("threshold", "outcome", "found", "by"), rows)]))
    if audit.comparison is not None:
        found.append(_comparison(audit.comparison))
    return found


def says(result: ThresholdResult) -> str:
    """What was found, as a sentence's part."""
    text = f"{result.requests:,} of {count(result.of, 'request')}"
    if result.share is not None:
        text += f" ({100 * result.share:.3g}%)"
    if result.server_events:
        text += f", {count(result.server_events, 'event')} of the server"
    return text


def named(result: ThresholdResult) -> str:
    """The requests that crossed it, the first few by name."""
    more = len(result.rids) - RIDS
    return ", ".join(result.rids[:RIDS]) + (f" and {more:,} more" if more > 0 else "")


def _comparison(comparison: Comparison) -> Section:
    causes = [
        (
            Code(each.cause),
            f"{each.before:,}",
            f"{each.now:,}",
            _rate(each.rate_before),
            _rate(each.rate_now),
            each.change,
            "–" if each.p is None else f"{each.p:.3g}",
            "more than chance" if each.significant else "may be chance" if each.change != "same" else "",
        )
        for each in comparison.causes
    ]
    head = ("cause", "before", "now", "‰ before", "‰ now", "change", "p", "verdict")
    body: list[str | Grid] = [
        f"{count(comparison.requests_before, 'request')} before, {comparison.requests_now:,} now."
        f" Rates are per thousand requests. {comparison.test}.",
        Grid(head, causes, frozenset({"before", "now", "‰ before", "‰ now", "p"})),
    ]
    if comparison.server_events:
        rows = [(Code(e.cause), f"{e.before:,}", f"{e.now:,}", e.change) for e in comparison.server_events]
        body.append(Grid(("server event", "before", "now", "change"), rows, frozenset({"before", "now"})))
    return Section("Against the baseline", body)


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.3g}"
