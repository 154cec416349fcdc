"""`lifecycle doctor`: what a set of logs can and cannot answer."""

from __future__ import annotations

from functools import partial

from sglang_lifecycle.cli.errors import ExitCode
from sglang_lifecycle.cli.formats import dumped
from sglang_lifecycle.cli.inputs import request, status
from sglang_lifecycle.cli.options import Color, Config, DisplayZone, Json, Paths, Quiet, SGLangVersion, Zone
from sglang_lifecycle.cli.output import show, write


def command(
    paths: Paths,
    json: Json = False,
    tz: Zone = None,
    display_tz: DisplayZone = None,
    sglang_version: SGLangVersion = None,
    config: Config = None,
    quiet: Quiet = False,
    color: Color = None,
) -> ExitCode:
    """Say what these logs can and cannot answer, and which flags would answer the rest the next time."""
    question = request(paths, None, None, tz, display_tz, sglang_version)

    from sglang_lifecycle.analyzers.coverage import coverage

    evidence = question.read(named=True)
    found = coverage(question.incident(evidence))
    if json:
        write(dumped(found))
    else:
        from sglang_lifecycle.cli.doctor_screen import screen

        show(partial(screen, found, question.clock), color)
    return status(evidence)
