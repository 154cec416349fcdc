"""`lifecycle browse`: an incident in the terminal, to stay in for an hour."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, UsageError
from sglang_lifecycle.cli.inputs import request, status
from sglang_lifecycle.cli.options import (
    Color,
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


def command(
    paths: Paths,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on reading as the logs grow.")] = False,
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
    """Browse every request in the terminal: list, verdicts, raw lines, time, sessions. ? shows the keys."""
    question = request(paths, since, until, tz, display_tz, sglang_version)
    if "-" in paths:
        _take_keyboard()
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        raise UsageError("browse needs a terminal; lifecycle audit prints the same list")
    if color is False:
        os.environ["NO_COLOR"] = "1"  # how Textual is told

    from sglang_lifecycle.cli.browser.app import Browser

    browser = Browser(question, follow)
    browser.run()
    if browser.problem is not None:
        raise browser.problem
    if browser.incident is None:
        return ExitCode.OK  # left before the logs were read
    question.complain(browser.incident.evidence)
    question.warn_outside(browser.incident.evidence)
    return status(browser.incident.evidence)


def _take_keyboard() -> None:
    """Read the logs that come by standard input, and put the terminal in its place, for the keys."""
    from sglang_lifecycle.parsers.inputs import standard_input

    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("browse - reads logs from a pipe, and there is none")
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        raise UsageError("browse needs a terminal for its keys; lifecycle audit prints the same list") from None
    standard_input()
    os.dup2(terminal, sys.stdin.fileno())
    os.close(terminal)
