"""`lifecycle replay`: the reference scheduler, held against SGLang's transcripts and against logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, UsageError, error
from sglang_lifecycle.cli.formats import dumped
from sglang_lifecycle.cli.inputs import quoted, request, status
from sglang_lifecycle.cli.options import (
    Color,
    Config,
    DisplayZone,
    Json,
    Paths,
    Quiet,
    RunningTimeout,
    Since,
    Until,
    WaitingTimeout,
    Zone,
)
from sglang_lifecycle.cli.output import show, write
from sglang_lifecycle.cli.text import clean

if TYPE_CHECKING:
    from sglang_lifecycle.analyzers.incident import Incident
    from sglang_lifecycle.analyzers.what_if import Change
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


@app.command("run")
def run(
    paths: Paths,
    rids: Annotated[list[str] | None, typer.Option("--rid", metavar="RID", help="Report on this request only.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="CHANGE",
            help="Replay with a limit changed (waiting-timeout=60, running-timeout=off, max-running-requests=64,"
            " max-queued-requests=100) or with no-zombies; may be given several times.",
        ),
    ] = None,
    sglang_version: Annotated[
        str | None,
        typer.Option(metavar="V", help="Replay by the rules of another release: would it have helped?"),
    ] = None,
    waiting_timeout: WaitingTimeout = None,
    running_timeout: RunningTimeout = None,
    json: Json = False,
    since: Since = None,
    until: Until = None,
    tz: Zone = None,
    display_tz: DisplayZone = None,
    config: Config = None,
    quiet: Quiet = False,
    color: Color = None,
) -> ExitCode:
    """Hold what the logs show against SGLang's own rules: predicted against observed, and what the rules forbid."""
    question = request(paths, since, until, tz, display_tz, sglang_version)
    change = _change(changes or [], question.version) if changes or question.version else None

    from sglang_lifecycle.analyzers.replay_report import run as replayed

    evidence = question.read()
    incident = replace(question, version=None).incident(evidence)  # the version is a question here
    known, missing = _known(incident, rids)
    window = question.window(evidence)
    result = replayed(incident, known, window.since, window.until)
    if change is not None:
        from sglang_lifecycle.analyzers.what_if import what_if

        result.what_if = what_if(incident, change)
    if json:
        for step in result.forbidden:
            quoted(step.evidence)
        write(dumped(result))
    else:
        from sglang_lifecycle.cli.replay_table import report

        show(lambda width: report(result, question.clock, width), color)
    if missing and not known:
        return ExitCode.NOT_FOUND
    return status(evidence)


def _change(texts: list[str], version: str | None) -> Change:
    """What `--what-if` and `--sglang-version` ask for; raises `UsageError`."""
    from sglang_lifecycle.analyzers.what_if import LIMITS, Change
    from sglang_lifecycle.replay.profiles import profile_for

    limits: dict[str, float | None] = {}
    for text in texts:
        if text == "no-zombies":
            continue
        name, _, value = text.partition("=")
        try:
            limits[name] = _limit(value, 1.0 if name == "max-running-requests" else 0.0)
            known = name in LIMITS
        except ValueError:
            known = False
        if not known:
            names = ", ".join(f"{each}=NUMBER" for each in LIMITS)
            raise UsageError(f"--what-if {text!r} is not known; give {names} (or =off), or no-zombies")
    if version is not None:
        try:
            profile_for(version)
        except ValueError as problem:
            raise UsageError(f"--sglang-version: {problem}") from None
    return Change(limits, "no-zombies" in texts, version)


def _limit(text: str, least: float) -> float | None:
    """A limit, or None for `off`; raises ValueError where it is neither or too small."""
    if text == "off":
        return None
    value = float(text)
    if not least <= value < float("inf"):
        raise ValueError(text)
    return value


def _known(incident: Incident, rids: list[str] | None) -> tuple[set[str] | None, list[str]]:
    """The rids asked for that the logs name, and those that they don't."""
    if rids is None:
        return None, []
    missing = [rid for rid in rids if rid not in incident.by_rid]
    for rid in missing:
        error(f"no request {rid!r} in the inputs")
    return set(rids) - set(missing), missing


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
