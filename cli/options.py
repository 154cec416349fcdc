"""The options that commands share, declared once so that they read the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from sglang_lifecycle.cli.errors import silence

Paths = Annotated[list[str], typer.Argument(metavar="PATH…", help="Log files or folders of them; - is stdin.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Ask only about what lived after: 2026-08-02T12:00, 12:00 or -15m."),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Ask only about what lived before.")]
Zone = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="Zone of the logs: Europe/Berlin or +02:00.  [default: UTC]")
]
DisplayZone = Annotated[
    str | None,
    typer.Option("--display-tz", metavar="ZONE", help="Zone to show times in and to read TIME in.  [default: UTC]"),
]
SGLangVersion = Annotated[
    str | None,
    typer.Option("--sglang-version", metavar="V", help="SGLang's version, where the logs leave it open: 0.5.10."),
]
Color = Annotated[
    bool | None,
    typer.Option("--color/--no-color", help="Whatever NO_COLOR and the terminal say.", show_default=False),
]


def _remember(context: typer.Context, value: str | None) -> str | None:
    if value is not None:
        context.find_root().obj = value  # where `settings.path` looks
    return value


Config = Annotated[
    str | None,
    typer.Option(metavar="FILE", callback=_remember, help="Settings, instead of the nearest lifecycle.toml upward."),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        metavar="THRESHOLD", help="Exit with 5 if it holds: 'waiting-timeout > 1%', 'proven session-* > 5'. Repeatable."
    ),
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write there, whole or not at all, instead of to stdout."),
]


def _hush(quiet: bool) -> bool:
    if quiet:
        silence(True)
    return quiet


Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_hush, help="No warnings and no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
