"""How the ids of a verdict read in a sentence. An id that is not here is shown as it is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from sglang_lifecycle.cli.text import clean, listed

if TYPE_CHECKING:
    from sglang_lifecycle.analyzers.faults import Fault
    from sglang_lifecycle.analyzers.verdict import Confidence, KnownFault, Replay, Verdict
    from sglang_lifecycle.cli.times import Clock

ACTORS = {
    "client": "its client",
    "operator": "an operator",
    "api-server": "the API server",
    "scheduler": "the scheduler",
    "session": "another request of its session",
    "peer-request": "another request",
    "peer-server": "another server",
    "host": "the host",
    "unknown": "somebody the logs don't name",
}
"""Who ended it: "ended by …"."""

STAGES = {
    "before-scheduler": "before it was queued",
    "grammar-queue": "while its grammar was being compiled",
    "waiting": "while it waited in the queue",
    "running": "while it ran in the batch",
    "bootstrap": "while prefill and decode were meeting",
    "transfer": "while its KV was being transferred",
    "finished": "after it had finished",
    "never-received": "without having been received",
    "unknown": "at a stage the logs don't show",
}
"""Where it stood."""

CONFIDENCE: dict[Confidence, str] = {
    "proven": "proven",
    "likely": "likely, not proven",
    "not-established": "not established",
}
"""How sure the verdict is."""

WORDS: dict[Confidence, str] = {"proven": "proven", "likely": "likely", "not-established": "undecided"}
"""How sure the verdict is, short enough for a column."""

STEPS = {
    "session_params": "session params",
    "abort_origin": "abort origin",
    "timeout": "timeout",
    "rid_validity": "rid validity",
    "time_stats": "time stats",
}
"""The steps of the debugging order."""

VERSION_SOURCES = {"fingerprint": "by what the logs show", "told": "as told", "unknown": "version unknown"}
"""Where the SGLang version is known from."""


def circumstances(verdict: Verdict, clock: Clock) -> str:
    """Who ended it, where and when, in a sentence."""
    times = verdict.times
    stage = STAGES.get(verdict.stage, f"at stage {verdict.stage}")
    if verdict.status == "finished":
        return f"Ended at {clock.full(times.ended, times.ended_error_s)}."
    if verdict.status == "in-flight":
        end = "the logs end" + (f" {stage}" if verdict.stage != "unknown" else "")
        return f"Received at {clock.full(times.received, times.received_error_s)}; {end}."
    if verdict.status == "not-found":
        return "No process of these logs ever saw it."
    at = clock.full(times.ended, times.ended_error_s)
    return f"Ended by {ACTORS.get(verdict.actor, verdict.actor)}, {stage}, at {at}."


def servers(names: Iterable[str | None]) -> dict[str | None, str]:
    """What to call each of several servers: its log without the folders that all share. Nothing where there is one."""
    found = {name for name in names if name is not None}
    if len(found) < 2:
        return {}
    folder = ""
    with suppress(ValueError):  # some paths are absolute and others aren't
        folder = os.path.join(os.path.commonpath(list(map(os.path.dirname, found))), "")
    return {name: clean(name.removeprefix(folder)) for name in found}


def cause_title(cause: str) -> str:
    """What completes "the request …"; nothing where the cause is unknown."""
    from sglang_lifecycle.analyzers.catalogue import UnknownCause
    from sglang_lifecycle.analyzers.catalogue import cause as known

    try:
        return known(cause).title
    except UnknownCause:
        return ""


def fault_text(fault: KnownFault | Fault) -> str:
    """A fault of SGLang, with the releases that have it."""
    from sglang_lifecycle.parsers.versions import RELEASES

    there = f"in {fault.last} still there" if fault.last == RELEASES[-1] else f"gone after {fault.last}"
    until = f"fixed in {fault.fixed_in}" if fault.fixed_in else there
    where = f", {fault.url}" if fault.url else ""
    return f"{fault.title}, since {fault.first}, {until} ({fault.id}{where})"


def replay_text(replay: Replay) -> str:
    """What the reference scheduler says."""
    others = [cause for cause in replay.possible if cause != replay.predicted]
    predicted = f"predicts {replay.predicted}" if replay.predicted else "has no say"
    if others:
        predicted = f"{predicted} and allows {listed(others, 'or')}" if replay.predicted else f"allows {listed(others)}"
    agrees = {True: ": it agrees", False: ": it does not agree", None: ""}[replay.agrees]
    return f"the reference scheduler ({replay.era}) {predicted}{agrees}"


def client_text(verdict: Verdict) -> str:
    """What the client saw."""
    client = verdict.client
    answer = f"HTTP {client.http_status}" if client.http_status is not None else ""
    peer = f"at {client.peer}" if client.peer else ""
    head = ", ".join(part for part in (answer, peer) if part)
    return ": ".join(part for part in (head, client.saw) if part) or "the logs don't tell"
