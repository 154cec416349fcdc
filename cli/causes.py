"""`lifecycle causes`: the catalogue of what can end a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, UsageError
from sglang_lifecycle.cli.options import Color, Json
from sglang_lifecycle.cli.output import show, write

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from sglang_lifecycle.analyzers.catalogue import Cause

GROUPS = {
    "not-interrupted": "Not interrupted",
    "client": "Client and operator",
    "refused": "Refused before the scheduler",
    "session": "Session: how the request was built",
    "scheduler": "Scheduler",
    "disaggregation": "Disaggregation",
    "server": "Server",
    "finding": "Findings that end no request by themselves",
}


def command(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One cause in full.", show_default=False)] = None,
    json: Json = False,
    color: Color = None,
) -> ExitCode:
    """List the causes that are told apart, or tell all about one."""
    from sglang_lifecycle.analyzers.catalogue import UnknownCause, cause, load

    try:
        shown = list(load().values()) if id is None else [cause(id)]
    except UnknownCause as problem:
        raise UsageError(f"{problem}; lifecycle causes lists them all") from None
    if json:
        import orjson

        write(orjson.dumps(shown if id is None else shown[0]).decode())
    else:
        show(lambda width: _list(shown) if id is None else _full(shown[0]), color)
    return ExitCode.OK


def _list(causes: list[Cause]) -> RenderableType:
    from rich.console import Group

    from sglang_lifecycle.cli.layout import FAINT, LABEL, grid, plain, section

    ids = max(len(each.id) for each in causes)
    actors = max(len(each.actor) for each in causes)
    groups: dict[str, list[Cause]] = {}
    for each in causes:
        groups.setdefault(each.group, []).append(each)
    sections = [
        section(
            GROUPS.get(group, group),
            grid(
                (
                    plain(each.id.ljust(ids), LABEL),
                    plain(each.actor.ljust(actors), FAINT),
                    plain(each.title),
                )
                for each in members
            ),
        )
        for group, members in groups.items()
    ]
    return Group(
        plain("What can become of a request, and who does it. The last column goes on: the request …"), *sections
    )


def _full(cause: Cause) -> RenderableType:
    from rich.console import Group

    from sglang_lifecycle.analyzers import faults
    from sglang_lifecycle.cli.layout import FAINT, LABEL, bullets, grid, numbered, plain, section, title
    from sglang_lifecycle.cli.words import fault_text

    def facts() -> Iterator[tuple[Text, Text]]:
        for label, text in (
            ("group", GROUPS.get(cause.group, cause.group)),
            ("actor", cause.actor),
            ("layer", cause.layer),
            ("stages", ", ".join(cause.stages)),
            ("effects", ", ".join(cause.effects)),
            ("versions", cause.versions),
            ("client sees", cause.client_sees),
        ):
            if text:
                yield plain(label, LABEL), plain(text)

    parts: list[RenderableType] = [
        title(cause.id, f"… {cause.title}"),
        "",
        plain(cause.meaning),
        section("Facts", grid(facts())),
    ]
    if cause.evidence:
        parts.append(section("Evidence", bullets(cause.evidence)))
    if cause.confused_with:
        parts.append(
            section(
                "Easily confused with",
                grid((plain(other.id, LABEL), plain(other.how)) for other in cause.confused_with),
            )
        )
    if behind := [fault for fault in faults.load().values() if cause.id in fault.causes]:
        told = (f"{fault_text(fault)}. {fault.shows} {fault.consequence}" for fault in behind)
        parts.append(section("Known faults of SGLang that may stand behind it", bullets(told)))
    if cause.advice:
        parts.append(section("What to do", numbered(cause.advice)))
    parts.append(plain(""))
    parts.append(plain("lifecycle causes lists the others", FAINT))
    return Group(*parts)
