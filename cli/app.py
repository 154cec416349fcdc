"""The `lifecycle` command: its sub-commands, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer._click.exceptions import ClickException

from sglang_lifecycle import __version__
from sglang_lifecycle.cli import (
    audit,
    browse,
    causes,
    config,
    doctor,
    explain,
    find,
    ingest,
    replay,
    report,
    schema,
    selftest,
    sessions,
    watch,
)
from sglang_lifecycle.cli.errors import ClosedPipe, ExitCode, LifecycleError, error, silence
from sglang_lifecycle.cli.options import Color, Config, Quiet
from sglang_lifecycle.cli.output import discard_stdout, write

app = typer.Typer(
    name="lifecycle",
    rich_markup_mode=None,  # help by Rich doubles the start-up time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# One module a command. They import at their top only what `--help` needs, the rest in their bodies.
app.command("explain")(explain.command)
app.command("audit")(audit.command)
app.command("find")(find.command)
app.command("browse")(browse.command)
app.command("sessions")(sessions.command)
app.command("doctor")(doctor.command)
app.command("watch")(watch.command)
app.command("ingest")(ingest.command)
app.command("report")(report.command)
app.command("causes")(causes.command)
app.command("schema")(schema.command)
app.command("config")(config.command)
app.command("selftest")(selftest.command)
app.add_typer(replay.app, name="replay")


def _version(asked: bool) -> None:
    if asked:
        from sglang_lifecycle.analyzers.versions import RELEASES

        write(f"lifecycle {__version__}, for SGLang up to {RELEASES[-1]}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    config: Config = None,
    quiet: Quiet = False,
    color: Color = None,
) -> None:
    """Say what truly ended an SGLang request: who did it, at which stage, and the log lines that prove it.

    Exit codes: 0 an answer was given, 1 internal error, 2 wrong usage, 3 request not in the inputs,
    4 a path is missing or unreadable, 5 a threshold of an audit was crossed, 130 interrupted.
    """
    if color is not None:
        # What is said before the sub-command becomes the default of what is said after it.
        context.default_map = {name: {"color": color} for name in typer.main.get_group(app).commands}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    silence(False)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")  # a terminal that can't show a character is no reason to fail
    try:
        code = _run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (ClosedPipe, BrokenPipeError):
        discard_stdout()
        code = ExitCode.OK
    except LifecycleError as problem:
        error(problem.message, problem.details)
        code = problem.code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as problem:
        if os.environ.get("LIFECYCLE_DEBUG") == "1":
            import traceback

            traceback.print_exc()
        error(f"internal error: {type(problem).__name__}: {problem} (LIFECYCLE_DEBUG=1 shows where)")
        code = ExitCode.INTERNAL
    if code == ExitCode.INTERRUPTED:
        error("interrupted")
    return int(code)


def _run(argv: Sequence[str] | None) -> ExitCode:
    try:
        code = app(args=argv, prog_name="lifecycle", standalone_mode=False)
    except ClickException as problem:
        message = " ".join(problem.format_message().split()).rstrip(".")
        context = getattr(problem, "ctx", None)
        help_ = f"{context.command_path if context else 'lifecycle'} --help"
        if not message:  # nothing was asked at all
            message = "no command given"
        raise LifecycleError(ExitCode.USAGE, f"{message}; see {help_}") from None
    except SystemExit as exit_:
        if isinstance(exit_.__context__, BrokenPipeError):  # Typer's own way of ending at a closed pipe
            raise ClosedPipe from None
        code = exit_.code
    return ExitCode(code or 0)
