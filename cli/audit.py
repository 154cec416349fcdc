"""`lifecycle audit`: what happened to every request of a set of logs."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_lifecycle.cli import settings
from sglang_lifecycle.cli.config import check_thresholds
from sglang_lifecycle.cli.errors import ClosedPipe, ExitCode, LifecycleError, UsageError, warning
from sglang_lifecycle.cli.formats import ENDINGS, PIECEWISE, Format, dumped, encode, pieces
from sglang_lifecycle.cli.inputs import Request, Window, quoted, request, status
from sglang_lifecycle.cli.interrupted import LIMIT
from sglang_lifecycle.cli.options import (
    Cluster,
    Color,
    Config,
    DisplayZone,
    FailOn,
    Json,
    Output,
    Paths,
    Quiet,
    RunningTimeout,
    SGLangVersion,
    Since,
    Until,
    WaitingTimeout,
    Zone,
)
from sglang_lifecycle.cli.output import PLAIN_WIDTH, discard_stdout, render, save, show, write_bytes
from sglang_lifecycle.cli.text import count
from sglang_lifecycle.cli.times import Clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_lifecycle.analyzers.listing import Audit
    from sglang_lifecycle.analyzers.shelf import Shelf
    from sglang_lifecycle.parsers.evidence import Evidence


def command(
    paths: Paths,
    json: Json = False,
    told: Annotated[
        Format | None,
        typer.Option("--format", help="What to print.  [default: what FILE's ending says, else table]"),
    ] = None,
    output: Output = None,
    everything: Annotated[bool, typer.Option("--all", help="List every interrupted request to people.")] = False,
    fail_on: FailOn = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="FILE", help="The JSON of an earlier audit, to compare with.")
    ] = None,
    since: Since = None,
    until: Until = None,
    tz: Zone = None,
    display_tz: DisplayZone = None,
    sglang_version: SGLangVersion = None,
    waiting_timeout: WaitingTimeout = None,
    running_timeout: RunningTimeout = None,
    cluster: Cluster = None,
    config: Config = None,
    quiet: Quiet = False,
    color: Color = None,
) -> ExitCode:
    """List every interrupted request with its cause, and what happened to the server."""
    format = Format.JSON if json else told or ENDINGS.get((output or "").rpartition(".")[2].lower(), Format.TABLE)
    # The order of the paths on the command line must not decide anything.
    question = request(sorted(paths), since, until, tz, display_tz, sglang_version)
    values = settings.effective({"fail_on": fail_on})
    check_thresholds(values["fail_on"])
    if format is Format.PARQUET and output is None and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("--format parquet is not for a terminal; give -o FILE")
    earlier = _earlier(baseline) if baseline is not None else None

    counted = _speak_of_finished(values["fail_on"].value)
    shelf = _shelf() if format in PIECEWISE and question.very_large and not counted else None
    swept = _swept(question, cluster, counted or format not in _INTERRUPTED_ONLY, shelf)
    result, evidence = swept or _whole(question, cluster)
    _judge(result, values["fail_on"].value)
    if earlier is not None and baseline is not None:
        from sglang_lifecycle.analyzers.baseline import compare

        result.comparison = compare(result, earlier, baseline)
    for event in result.server_events:
        quoted(event.evidence)
    try:
        if swept and shelf is not None:
            _put(pieces(result, format, shelf.texts(result.requests)), output)
        else:
            _print(result, format, output, question.clock, None if everything else LIMIT, color)
    except ClosedPipe:
        if not any(each.crossed for each in result.thresholds):
            raise
        discard_stdout()  # that nobody reads on must not hide that a threshold was crossed
    _fail(result)
    return status(evidence)


_INTERRUPTED_ONLY = (Format.TABLE, Format.MARKDOWN, Format.HTML, Format.OPENMETRICS, Format.JUNIT)


def _speak_of_finished(expressions: Sequence[str]) -> bool:
    """Whether a threshold has to know each request that finished."""
    if not expressions:
        return False
    from sglang_lifecycle.analyzers.thresholds import parse

    return any(parse(each).of_finished for each in expressions)


def _whole(question: Request, cluster: str | None) -> tuple[Audit, Evidence]:
    """The audit of evidence that is held as a whole."""
    from sglang_lifecycle.analyzers.audit import audit

    evidence = question.read(cluster)
    window = question.window(evidence)
    result = audit(question.incident(evidence), window.since, window.until)
    question.leave_out(result)
    return result, evidence


def _shelf() -> Shelf:
    from sglang_lifecycle.analyzers.shelf import Shelf

    return Shelf(dumped)


def _swept(
    question: Request, cluster: str | None, everything: bool, shelf: Shelf | None
) -> tuple[Audit, Evidence] | None:
    """The audit of very large logs, in bounded memory; None where there are none, or they have to be held.

    Requests that simply finished are on the `shelf`, where there is one.
    """
    if not question.very_large or not question.absolute:
        return None
    from sglang_lifecycle.analyzers import sweep

    window = question.window()
    found = sweep.audit(
        partial(question.stream, cluster=cluster),
        question.incident,
        since=window.since,
        until=window.until,
        ignores=question.ignores,
        everything=everything,
        shelf=shelf,
    )
    if found is not None and window != Window() and not found[0].totals.requests:
        warning("no request of these logs lived within --since/--until")
    return found


def _earlier(path: str) -> Audit:
    """The audit of a file. Raises `LifecycleError` where it is none."""
    from pydantic import ValidationError

    from sglang_lifecycle.analyzers.listing import Audit

    try:
        with open(path, "rb") as stream:
            return Audit.model_validate_json(stream.read())
    except OSError as problem:
        text = f"{path}: the baseline cannot be read: {problem.strerror}"
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = f"{path}: not the JSON of an audit: {place + ': ' if place else ''}{first['msg']}"
    raise LifecycleError(ExitCode.UNREADABLE, text)


def _judge(audit: Audit, expressions: Sequence[str]) -> None:
    if expressions:
        from sglang_lifecycle.analyzers.thresholds import parse, results

        audit.thresholds = results([parse(each) for each in expressions], audit)


def _print(
    audit: Audit, format: Format, output: str | None, clock: Clock, limit: int | None, color: bool | None
) -> None:
    if format is not Format.TABLE:
        _put([encode(audit, format, clock, limit)], output)
        return
    from sglang_lifecycle.cli.table import table

    screen = partial(table, audit, clock, limit=limit)
    if output is None:
        show(screen, color)
    else:
        save(output, [f"{render(screen(PLAIN_WIDTH), PLAIN_WIDTH, bool(color))}\n".encode()])


def _put(data: Iterable[bytes], output: str | None) -> None:
    if output is not None:
        save(output, data)
        return
    try:
        for piece in data:
            write_bytes(piece)
    except OSError as problem:
        raise LifecycleError(ExitCode.UNREADABLE, str(problem)) from problem


def _fail(audit: Audit) -> None:
    """Raises `LifecycleError` where thresholds were crossed, and says which and by whom."""
    from sglang_lifecycle.cli.gates import named, says

    crossed = [each for each in audit.thresholds if each.crossed]
    if crossed:
        details = [f"{each.expression}: {says(each)}{': ' if each.rids else ''}{named(each)}" for each in crossed]
        raise LifecycleError(ExitCode.THRESHOLD, f"{count(len(crossed), 'threshold')} crossed", details)
