"""`lifecycle report`: an incident as one page for the post-mortem."""

from __future__ import annotations

from typing import Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode
from sglang_lifecycle.cli.inputs import request, status
from sglang_lifecycle.cli.options import (
    Config,
    DisplayZone,
    Paths,
    Quiet,
    RunningTimeout,
    SGLangVersion,
    Since,
    Until,
    WaitingTimeout,
    Zone,
)
from sglang_lifecycle.cli.output import save, write
from sglang_lifecycle.cli.text import count, size


def command(
    paths: Paths,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The page to write (HTML).")],
    since: Since = None,
    until: Until = None,
    tz: Zone = None,
    display_tz: DisplayZone = None,
    sglang_version: SGLangVersion = None,
    waiting_timeout: WaitingTimeout = None,
    running_timeout: RunningTimeout = None,
    config: Config = None,
    quiet: Quiet = False,
) -> ExitCode:
    """Write one page that tells an incident: what happened, when, why, and what to change. It needs no network."""
    question = request(sorted(paths), since, until, tz, display_tz, sglang_version)

    from sglang_lifecycle.analyzers.audit import audit
    from sglang_lifecycle.cli.report_page import page

    evidence = question.read()
    window = question.window(evidence)
    incident = question.incident(evidence)
    result = audit(incident, window.since, window.until)
    question.leave_out(result)
    data = page(incident, result, question.clock).encode("utf-8", "backslashreplace")
    save(output, [data])
    write(f"{output}: {count(result.totals.interrupted, 'interrupted request')}, {size(len(data))}")
    return status(evidence)
