"""`lifecycle audit`: what happened to every request of a set of logs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode
from sglang_lifecycle.cli.inputs import quoted, request, status
from sglang_lifecycle.cli.options import Color, DisplayZone, Paths, SGLangVersion, Since, Until, Zone
from sglang_lifecycle.cli.output import show, write


class Format(StrEnum):
    """What an audit is printed as."""

    TABLE = "table"
    JSON = "json"


def command(
    paths: Paths,
    format: Annotated[Format, typer.Option("--format", help="A table for people, or JSON.")] = Format.TABLE,
    everything: Annotated[bool, typer.Option("--all", help="List every interrupted request in the table.")] = False,
    since: Since = None,
    until: Until = None,
    tz: Zone = None,
    display_tz: DisplayZone = None,
    sglang_version: SGLangVersion = None,
    color: Color = None,
) -> ExitCode:
    """List every interrupted request with its cause, and what happened to the server."""
    question = request(paths, since, until, tz, display_tz, sglang_version)

    from sglang_lifecycle.analyzers.audit import audit
    from sglang_lifecycle.analyzers.incident import Incident

    evidence = question.read()
    window = question.window(evidence)
    result = audit(Incident(evidence, question.version), window.since, window.until)
    if format is Format.JSON:
        for event in result.server_events:
            quoted(event.evidence)
        write(result.model_dump_json(by_alias=True))
    else:
        from sglang_lifecycle.cli.table import LIMIT, table

        show(lambda width: table(result, question.clock, width, None if everything else LIMIT), color)
    return status(evidence)
