"""`lifecycle replay`: the reference scheduler, held against SGLang's transcripts and against logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, error
from sglang_lifecycle.cli.options import Color
from sglang_lifecycle.cli.output import write
from sglang_lifecycle.cli.text import clean

if TYPE_CHECKING:
    from sglang_lifecycle.replay.transcripts import Transcript

app = typer.Typer(
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Replay SGLang's scheduler: against recorded transcripts, or against the logs of an incident.",
)


@app.callback()
def _root(context: typer.Context, color: Color = None) -> None:
    if color is not None:
        # What is said before the sub-command becomes the default of what is said after it.
        context.default_map = {"run": {"color": color}}


@app.command("check")
def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Transcripts: .jsonl, .jsonl.gz, or one object in a .json.")
    ],
) -> ExitCode:
    """Replay transcripts of SGLang's own scheduler and compare every outcome.

    Exit codes: 0 all operations agree, 1 some differ, 4 a file can't be read or is no transcript.
    """
    from sglang_lifecycle.replay.conformance import check_transcripts

    failed: list[str] = []
    report = check_transcripts(_transcripts(files, failed))
    for problem in failed:
        error(problem)
    if report.sequences or not failed:
        write("\n".join(map(clean, report.lines())))
    if failed:
        return ExitCode.UNREADABLE
    return ExitCode.OK if report.agrees else ExitCode.INTERNAL


def _transcripts(files: list[str], failed: list[str]) -> Iterator[Transcript]:
    """The sequences of all files that can be read; of the others, what is wrong goes to `failed`."""
    from pathlib import Path

    from sglang_lifecycle.replay.transcripts import read_transcripts

    for file in files:
        try:
            yield from read_transcripts(Path(file))
        except OSError as problem:
            failed.append(f"{file}: {problem.strerror or problem}")
        except ValueError as problem:
            failed.append(str(problem))
