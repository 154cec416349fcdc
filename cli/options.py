"""The options that commands share, declared once so that they read the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from sglang_lifecycle.cli import settings
from sglang_lifecycle.cli.errors import silence

Paths = Annotated[list[str], typer.Argument(metavar="PATH…", help="Log files, folders of them or URLs; - is stdin.")]
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


def _limit(name: str) -> Callable[[typer.Context, float | None], float | None]:
    def keep(context: typer.Context, value: float | None) -> float | None:
        settings.tell(context, name, value)
        return value

    return keep


WaitingTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        callback=_limit("waiting_timeout"),
        help="The servers' SGLANG_REQ_WAITING_TIMEOUT, which no log prints; -1 (no limit) tells nothing.",
    ),
]
RunningTimeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", callback=_limit("running_timeout"), help="The same of SGLANG_REQ_RUNNING_TIMEOUT."),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        metavar="THRESHOLD", help="Exit with 5 if it holds: 'waiting-timeout > 1%', 'proven session-* > 5'. Repeatable."
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Read large logs on a Dask cluster that sees them: tcp://host:8786."),
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
