"""`lifecycle find`: requests whose id nobody knows."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, UsageError, error
from sglang_lifecycle.cli.formats import json_of
from sglang_lifecycle.cli.inputs import request, status
from sglang_lifecycle.cli.options import (
    Color,
    Config,
    DisplayZone,
    Json,
    Paths,
    Quiet,
    RunningTimeout,
    SGLangVersion,
    Since,
    Until,
    WaitingTimeout,
    Zone,
)
from sglang_lifecycle.cli.output import show, write
from sglang_lifecycle.cli.text import clean, count, listed, seconds
from sglang_lifecycle.cli.times import bound
from sglang_lifecycle.cli.typos import near
from sglang_lifecycle.cli.words import WORDS, servers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from sglang_lifecycle.analyzers.finder import Candidate
    from sglang_lifecycle.cli.times import Clock

LIMIT = 50
"""So many candidates are shown."""


def command(
    paths: Paths,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Those in flight then come first: 2026-08-02T12:00:05 or 12:00:05."),
    ] = None,
    within: Annotated[
        float, typer.Option(metavar="SECONDS", help="So far from --at who follows may have lived.", min=0)
    ] = 5.0,
    peer: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of the client or its proxy.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Its session.")] = None,
    outcome: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="503, interrupted, finished, or a cause's id.")
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="A piece of its prompt.")] = None,
    hash: Annotated[
        str | None, typer.Option(metavar="HEX", help="Its prompt's SHA-256, SHA-1 or MD5, or its beginning.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Show so many at the most.", min=1)] = LIMIT,
    json: Json = False,
    since: Since = None,
    until: Until = None,
    tz: Zone = None,
    display_tz: DisplayZone = None,
    sglang_version: SGLangVersion = None,
    waiting_timeout: WaitingTimeout = None,
    running_timeout: RunningTimeout = None,
    config: Config = None,
    quiet: Quiet = False,
    color: Color = None,
) -> ExitCode:
    """Look for requests without an id: by time, peer, session, status or prompt."""
    question = request(paths, since, until, tz, display_tz, sglang_version)
    moment = bound("--at", at, question.clock.zone)
    _check(text, hash)
    _check_status(outcome)

    from sglang_lifecycle.analyzers.finder import Query, find
    from sglang_lifecycle.parsers.prompts import prompts

    evidence = question.read()
    window = question.window(evidence)
    last = max((fact.at for fact in evidence.facts if fact.at is not None), default=None)
    query = Query(
        at=moment.resolve(last) if moment is not None else None,
        within=within,
        since=window.since,
        until=window.until,
        peer=peer,
        session=session,
        status=outcome,
        text=text,
        hash=hash,
    )
    incident = question.incident(evidence)
    found = find(incident, query, prompts)
    if json:
        from dataclasses import asdict

        rows = [asdict(each) for each in found[:limit]]
        write(json_of({"schema_version": 1, "total": len(found), "candidates": rows}))
    if not found:
        error("no request fits" + ("" if text is None and hash is None else _HIDDEN))
        return ExitCode.NOT_FOUND
    if not json:
        names = servers(scene.life.server for scene in incident.scenes)
        show(partial(_table, found, names, question.clock, limit), color)
    return status(evidence)


_HIDDEN = "; prompts are in the log only from --log-requests-level 2 on, and in a store not at all"


def _check(text: str | None, hash: str | None) -> None:
    from sglang_lifecycle.analyzers.finder import SHORTEST_HASH

    if text == "":
        raise UsageError("--text is empty; give a piece of the prompt")
    if hash is not None and (len(hash) < SHORTEST_HASH or set(hash.lower()) - set("0123456789abcdef")):
        raise UsageError(f"--hash {hash!r} is no hash; give at least {SHORTEST_HASH} hexadecimal digits")


def _check_status(outcome: str | None) -> None:
    if outcome is None or re.fullmatch(r"[1-5]\d\d", outcome):
        return
    from typing import get_args

    from sglang_lifecycle.analyzers.catalogue import load
    from sglang_lifecycle.analyzers.verdict import Status

    known = [each for each in get_args(Status) if each != "not-found"]
    if outcome not in known and outcome not in load():
        meant = near(outcome, [*known, *load()])
        hint = f"did you mean {listed(meant, 'or')}?" if meant else "lifecycle causes lists the causes"
        names = ", ".join([*known, "an HTTP status", "a cause's id"])
        raise UsageError(f"--status {outcome!r} is none of {names}; {hint}")


def _then(distance: float | None) -> str:
    """What a request was at the time asked about; nothing where none was."""
    if distance is None:
        return ""
    if not distance:
        return "in flight"
    return f"{seconds(abs(distance)).replace(' ', '')} {'before' if distance < 0 else 'after'}"


def _table(
    found: Sequence[Candidate], names: Mapping[str | None, str], clock: Clock, limit: int, width: int
) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from sglang_lifecycle.cli.cells import Cells

    shown = found[:limit]
    clock = clock.spanning(each.received for each in shown)
    cells = [
        {
            "received": clock.short(each.received, whole=True, off=each.received_error_s) if each.received else "–",
            "ended": clock.short(each.ended, whole=True, off=each.ended_error_s) if each.ended else "–",
            "rid": clean(each.rid),
            "cause": each.cause,
            "verdict": WORDS[each.confidence],
            "HTTP": str(each.http_status or "–"),
            "peer": clean(each.peer or "–"),
            "session": clean(each.session_id or ""),
            "server": names.get(each.server, ""),
            "then": _then(each.distance),
        }
        for each in shown
    ]
    laid = Cells(cells, width)
    more = f", {len(found) - limit:,} more not shown" if len(found) > limit else ""
    head = f"{count(len(found), 'request')} found{more}; times are {clock.name(shown[0].received)}"
    return Group(Text(head), *laid.head(), *(line for each in cells for line in laid.row(each)))
