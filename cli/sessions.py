"""`lifecycle sessions`: the sessions of a set of logs, and the tree of one."""

from __future__ import annotations

from functools import partial
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
    SGLangVersion,
    Since,
    Until,
    WaitingTimeout,
    Zone,
)
from sglang_lifecycle.cli.output import show, write
from sglang_lifecycle.cli.text import count, listed
from sglang_lifecycle.cli.typos import decoded, near, only

if TYPE_CHECKING:
    from sglang_lifecycle.analyzers.listing import SessionTree


def command(
    paths: Paths,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Show one session in full: its id, or a beginning of it."),
    ] = None,
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
    """List the sessions, or draw the life of one with the tree of its requests."""
    if session == "":
        raise UsageError("the session id is empty; give at least its beginning")
    question = request(paths, since, until, tz, display_tz, sglang_version)

    from sglang_lifecycle.analyzers.session_trees import matches, sessions, trees

    evidence = question.read()
    window = question.window(evidence)
    incident = question.incident(evidence)
    if session is None:
        found = sessions(incident, window.since, window.until)
        if json:
            write(dumped(found))
        else:
            from sglang_lifecycle.cli.session_screen import table

            show(partial(table, found, question.clock), color)
        return status(evidence)

    wanted = decoded(session)
    match = only(matches(incident, wanted), wanted, "session")
    if match is None:
        lines = sum(source.lines for source in evidence.sources)
        read = f"{count(len(evidence.sources), 'input')}, {count(lines, 'line')}"
        meant = [repr(each) for each in near(session, (f.session_id for f in evidence.facts if f.session_id))]
        hint = f"did you mean {listed(meant, 'or')}?" if meant else "lifecycle sessions without --session lists them"
        error(f"no session {session!r} in the inputs ({read}); {hint}")
        if json:
            from sglang_lifecycle.analyzers.listing import Sessions

            write(dumped(Sessions()))
        return ExitCode.NOT_FOUND
    for index, tree in enumerate(trees(incident, match)):
        if json:
            _quote(tree)
            write(dumped(tree))
        else:
            from sglang_lifecycle.cli.session_screen import screen

            write("") if index else None
            show(partial(screen, tree, question.clock), color)
    return status(evidence)


def _quote(tree: SessionTree) -> None:
    for event in tree.events:
        quoted(event.evidence)
    for turn in tree.turns:
        quoted(turn.evidence)
        for finding in turn.findings:
            quoted(finding.evidence)
