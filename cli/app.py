"""The `lifecycle` command: its sub-commands, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer._click.exceptions import ClickException

from sglang_lifecycle import __version__
from sglang_lifecycle.cli.errors import ClosedPipe, ExitCode, LifecycleError, error, silence
from sglang_lifecycle.cli.options import Color, Config, Quiet
from sglang_lifecycle.cli.output import discard_stdout, write

COMPLETING = "_LIFECYCLE_COMPLETE"
"""What a shell sets that asks for completions."""

COMMANDS = (
    "explain", "audit", "find", "browse", "sessions", "doctor", "watch", "ingest", "report", "causes", "schema",
    "config", "selftest", "replay",
)  # fmt: skip
"""One module a command, in the order of `--help`. They import at their top only what that needs, the rest later."""


def application(*names: str, described: bool = False) -> typer.Typer:
    """The command line with some commands, else with all; only `described` they have no options.

    Reading the signatures of all takes as long as everything else that happens before a command begins.
    """
    app = typer.Typer(
        name="lifecycle",
        rich_markup_mode=None,  # help by Rich doubles the start-up time
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in names or COMMANDS:
        module = import_module(f"sglang_lifecycle.cli.{name}")
        group = getattr(module, "app", None)
        if described:
            app.command(name, help=group.info.help if group else module.command.__doc__)(_nothing)
        elif group is not None:
            app.add_typer(group, name=name)
        else:
            app.command(name)(module.command)
    return app


def _nothing() -> None:
    """A command of which only the name is asked for."""


def _asked(argv: Sequence[str]) -> typer.Typer:
    """As much of the command line as some arguments need."""
    if argv and argv[0] in COMMANDS:
        return application(argv[0])
    if [*argv] in (["--help"], ["-h"], ["--version"]):
        return application(described=True) if argv[0] != "--version" else application(COMMANDS[0], described=True)
    return application()


def _version(asked: bool) -> None:
    if asked:
        from sglang_lifecycle.parsers.versions import RELEASES

        write(f"lifecycle {__version__}, for SGLang up to {RELEASES[-1]}")
        raise typer.Exit


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
        context.default_map = {name: {"color": color} for name in COMMANDS}


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
        app = application() if COMPLETING in os.environ else _asked(sys.argv[1:] if argv is None else argv)
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
