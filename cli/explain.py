"""`lifecycle explain`: what truly ended one request."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_lifecycle.cli import completion
from sglang_lifecycle.cli.errors import ExitCode, UsageError, error, warning
from sglang_lifecycle.cli.formats import VerdictFormat, dumped, verdict_markdown
from sglang_lifecycle.cli.inputs import Request, Window, quoted, request, status
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
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.cli.typos import bare, decoded, near, only

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sglang_lifecycle.analyzers.incident import Incident
    from sglang_lifecycle.analyzers.verdict import Verdict
    from sglang_lifecycle.parsers.evidence import Evidence


def command(
    rid: Annotated[
        str,
        typer.Argument(
            metavar="RID",
            help="The request id, its beginning, or an outer id: a gateway's, x-request-id, trace or bootstrap room.",
            autocompletion=completion.rids,
        ),
    ],
    paths: Paths,
    rids: Annotated[
        list[str] | None,
        typer.Option("--rid", metavar="RID", help="One more request id.", autocompletion=completion.rids),
    ] = None,
    json: Json = False,
    format: Annotated[
        VerdictFormat, typer.Option("--format", help="What to print; markdown is for pasting.")
    ] = VerdictFormat.TEXT,
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
    """Say what truly ended a request, and show the lines that prove it."""
    asked = [_text(each) for each in dict.fromkeys([rid, *(rids or [])])]
    question = request(paths, since, until, tz, display_tz, sglang_version)
    printed = VerdictFormat.JSON if json else format
    wanted = list(dict.fromkeys(form for text in asked for form in _forms(text)))
    evidence, incident = question.about(wanted, _import_screen if printed is VerdictFormat.TEXT else None)
    window = question.window(evidence)
    verdicts = [verdict for text in asked for verdict in _judged(question, evidence, incident, window, text)]
    found = [verdict for verdict in verdicts if verdict.status != "not-found"]
    for verdict in verdicts:
        if verdict.status == "not-found":
            say = warning if found else error
            say(_not_found(verdict.rid, evidence, question.clock))
    if printed is VerdictFormat.JSON:
        for verdict in verdicts:
            quoted(verdict.evidence)
            write(dumped(verdict))
    elif printed is VerdictFormat.MARKDOWN:
        for verdict in found:
            quoted(verdict.evidence)
            write(verdict_markdown(verdict, question.clock))
    else:
        _show(found, question.clock, color)
    return status(evidence) if found else ExitCode.NOT_FOUND


def _forms(text: str) -> Iterable[str]:
    """An id as it was given, then without what it may have been pasted with: it may itself look as if it were."""
    return dict.fromkeys([text, bare(text)])


def _judged(question: Request, evidence: Evidence, incident: Incident, window: Window, asked: str) -> Iterator[Verdict]:
    """The verdicts on what an id stands for: one request, or those that have it for an outer id."""
    from sglang_lifecycle.analyzers import partial
    from sglang_lifecycle.analyzers.explain import explain
    from sglang_lifecycle.analyzers.identities import at_gateway, identify

    text = next((form for form in _forms(asked) if incident.matches(form)), bare(asked))
    matched = identify(incident, text)
    for match in matched.rids if matched is not None else [_match(incident, evidence, text, window)]:
        verdict = explain(incident, match, window.since, window.until)
        if verdict.status != "not-found":
            by = matched.by if matched is not None else "rid" if match == text else "prefix"
            verdict = verdict.model_copy(update={"matched_by": by})
            if evidence.partial and not partial.enough(incident, [match]):
                verdict = partial.cautious(verdict)
            _warn_outside(verdict, window, question.clock)
        yield at_gateway(incident, verdict)


def _import_screen() -> None:
    """Import what shows a verdict."""
    import rich.console  # noqa: F401

    import sglang_lifecycle.cli.screen
    import sglang_lifecycle.parsers.quote  # noqa: F401


def _text(rid: str) -> str:
    """An id of the command line as text. Raises `UsageError` where it is empty."""
    if not rid:
        raise UsageError("the request id is empty; give at least its beginning")
    return decoded(rid)


def _match(incident: Incident, evidence: Evidence, text: str, window: Window) -> str:
    """The one request that an id or its beginning stands for; the text itself where there is none."""
    matches = incident.matches(text)
    if len(matches) > 1 and window != Window():
        matches = _alive(evidence, matches, window) or matches
    return only(sorted(matches), text, "request") or text


def _alive(evidence: Evidence, rids: Sequence[str], window: Window) -> list[str]:
    """Those of the requests that lived in the window."""
    spans: dict[str, tuple[float, float]] = {}
    wanted = set(rids)
    for fact in evidence.facts:
        if fact.rid in wanted and fact.rid is not None and fact.at is not None:
            margin = fact.at_error or 0
            start, end = spans.get(fact.rid, (fact.at, fact.at))
            spans[fact.rid] = min(start, fact.at - margin), max(end, fact.at + margin)
    return [rid for rid in rids if rid not in spans or window.meets(*spans[rid])]


def _warn_outside(verdict: Verdict, window: Window, clock: Clock) -> None:
    if not window.meets(clock.epoch(verdict.times.received), clock.epoch(verdict.times.ended)):
        warning(
            f"{verdict.rid} lived outside --since/--until:"
            f" from {clock.full(verdict.times.received)} to {clock.full(verdict.times.ended)}"
        )


def _not_found(rid: str, evidence: Evidence, clock: Clock) -> str:
    read = f"{count(len(evidence.sources), 'input')}, {count(sum(source.lines for source in evidence.sources), 'line')}"
    times = [fact.at for fact in evidence.facts if fact.at is not None]
    if times:
        read += f", from {clock.full(min(times))} to {clock.full(max(times))}"
    return f"no request {rid!r} in the inputs ({read}); {_hint(rid, evidence)}"


def _hint(rid: str, evidence: Evidence) -> str:
    if os.path.exists(rid):
        return "it is a path: the request id comes before the paths"
    longer = (fact.rid for fact in evidence.facts if fact.rid and rid in fact.rid)
    if whole := next((each for each in longer if len(rid) < len(each) < 2 * len(rid) + 20), None):
        return f"did you mean {whole!r}?"
    if meant := near(rid, (fact.rid for fact in evidence.facts if fact.rid)):
        return f"did you mean {listed([repr(each) for each in meant], 'or')}?"
    if any(fact.rid == rid for fact in evidence.facts):
        return "it is only named where a client may have written it: within the text of a request"
    return "check the id, and whether these logs cover its time and all processes"


def _show(verdicts: Sequence[Verdict], clock: Clock, color: bool | None) -> None:
    for index, verdict in enumerate(verdicts):
        if index:
            write("")
        show(partial(_screen, verdict, clock), color)


def _screen(verdict: Verdict, clock: Clock, width: int) -> RenderableType:
    from sglang_lifecycle.cli.screen import MARGIN, ROWS, screen

    quoted(verdict.evidence, ROWS * (width - MARGIN))
    return screen(verdict, clock, width)
