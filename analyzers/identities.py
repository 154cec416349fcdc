"""The ids of one request: the server's rid, and those under which others know it.

A gateway's id, an x-request-id, a trace and a bootstrap room lead to rids where a line says both. One such id may
have several rids: a gateway that tries again sends the request anew, and prefill and decode each have their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sglang_lifecycle.analyzers.behaviours import PID_BEFORE_RID
from sglang_lifecycle.analyzers.catalogue import cause as catalogue_entry
from sglang_lifecycle.analyzers.explain import evidence_line, timestamp
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Candidate, Client, Link, Times, Verdict
from sglang_lifecycle.parsers.evidence import Event, Fact

By = Literal["rid", "request-id", "trace", "room"]
_GATEWAY = (Event.GATEWAY_RECEIVED, Event.GATEWAY_ANSWERED, Event.GATEWAY_REFUSED, Event.GATEWAY_FAILED)


@dataclass(frozen=True, slots=True)
class Identity:
    """The rids that an outer id stands for, in the order of their first lines, and which kind of id it is."""

    rids: tuple[str, ...]
    by: By


def identify(incident: Incident, text: str) -> Identity | None:
    """What an id stands for that is no rid; None where no line ties it to one."""
    if text in incident.by_rid:
        return None
    rewritten = _of_workers(incident, text)
    if rewritten:
        return Identity(tuple(rewritten), "rid")
    kinds: tuple[tuple[By, Iterable[Fact]], ...] = (
        ("request-id", (f for f in incident.evidence.facts if f.detail.get("request_id") == text)),
        ("trace", (f for f in incident.evidence.facts if f.detail.get("trace_id") == _trace(text))),
        ("room", (f for f in incident.evidence.facts if f.room is not None and str(f.room) == text)),
    )
    for by, facts in kinds:
        rids = dict.fromkeys(f.rid for f in facts if f.rid in incident.by_rid and not f.tainted)
        if rids:
            return Identity(tuple(rid for rid in rids if rid is not None), by)
    return None


def _of_workers(incident: Incident, text: str) -> list[str]:
    """The rids that several tokenizer workers made of one: they write their pid before it (0.5.2 to 0.5.3.post3).

    `managers/multi_tokenizer_mixin.py`.
    """
    return [
        rid
        for rid, peers in incident.by_rid.items()
        if rid.endswith(f"_{text}")
        and rid[: -len(text) - 1].isdigit()
        and any(scene.release.may_have(PID_BEFORE_RID) for scene, _ in peers)
    ]


def _trace(text: str) -> str:
    """A trace id as it is kept: lower case, and taken out of a whole `traceparent`."""
    parts = text.lower().split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else text.lower()


def at_gateway(incident: Incident, verdict: Verdict) -> Verdict:
    """What a gateway's lines say of an id that no server's do; the verdict as it is where they say nothing."""
    if verdict.status != "not-found":
        return verdict
    lines = [f for f in incident.evidence.facts if f.event in _GATEWAY and f.detail["request_id"] == verdict.rid]
    if not lines:
        return verdict
    refused = [f for f in lines if f.event is Event.GATEWAY_REFUSED]
    failed = [f for f in lines if f.event is Event.GATEWAY_FAILED]
    answer = next((f for f in reversed(lines) if f.event is Event.GATEWAY_ANSWERED), None)
    status = answer.detail.get("http_status") if answer is not None else None
    if refused and not failed and (status is None or status >= 400):
        text = f"Refused at the gateway, before any server was asked: {refused[-1].detail['error'][:160]}"
        return _verdict(verdict, "never-received", "never-received", text, lines, status)
    said = (failed or lines)[-1].detail.get("error", "")
    text = f"The gateway had it ({said[:120]}); no line says which rid a server gave it."
    return _verdict(verdict, "not-established", "unknown", text, lines, status).model_copy(
        update={"candidates": [Candidate(cause=c, would_decide=w) for c, w in _WOULD_DECIDE]}
    )


_WOULD_DECIDE = (
    ("never-received", "the log of the server that the gateway chose, at that time"),
    ("client-disconnect", "the client's log"),
)


def _verdict(found: Verdict, cause: str, stage: str, text: str, lines: list[Fact], status: int | None) -> Verdict:
    """A verdict that only a gateway's lines carry; never proven, for not every try of a gateway is logged."""
    entry = catalogue_entry(cause)
    times = [f.at for f in lines if f.at is not None]
    return Verdict(
        rid=found.rid,
        matched_by="gateway",
        status="interrupted",
        cause=cause,
        title=entry.title,
        summary=text,
        layer=entry.layer,
        stage=stage,
        actor=entry.actor,
        confidence="not-established" if cause == "not-established" else "likely",
        chain=[Link(cause=cause, rid=found.rid, summary=text, evidence=list(range(len(lines))))],
        advice=list(entry.advice),
        missing=["a server's line that names this id: SGLANG_LOG_REQUEST_HEADERS=x-request-id (0.5.9 on) writes it"],
        client=Client(http_status=status),
        times=Times(received=timestamp(min(times, default=None)), ended=timestamp(max(times, default=None))),
        evidence=[evidence_line(f) for f in lines],
    )
