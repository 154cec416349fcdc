"""What is routine among facts: about one request, or about a server's load at a time."""

from __future__ import annotations

from sglang_lifecycle.analyzers.incident import CALLS
from sglang_lifecycle.parsers.evidence import Event, Fact

_KINDS = frozenset({
    Event.REQUEST_RECEIVED, Event.REQUEST_RECEIVED_OPENAI, Event.REQUEST_FINISHED, Event.REQUEST_STATS,
    Event.REQUEST_ERROR, Event.REQUEST_REJECTED, Event.REQUEST_BACKLOG, Event.CLIENT_DISCONNECTED,
    Event.OUTPUT_UNDELIVERABLE, Event.ABORT_UNKNOWN_RID, Event.ABORT_EXECUTED, Event.METRICS_EXPORTED,
    Event.HTTP_ACCESS, Event.BATCH_PREFILL, Event.BATCH_DECODE,
})  # fmt: skip


def routine(fact: Fact) -> bool:
    """Whether a fact is; those of any other kind, and calls, concern a server, a session or many requests."""
    if fact.event not in _KINDS:
        return False
    return fact.event is not Event.HTTP_ACCESS or not str(fact.detail.get("path", "")).startswith(tuple(CALLS))


def witness(fact: Fact) -> Fact | None:
    """What is left of a fact that is not needed any more: the names of its fields tell the release."""
    if "fields" not in fact.detail:
        return None
    left = fact.copy()
    left.event, left.rid = Event.UNKNOWN, None
    return left
