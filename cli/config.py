"""`lifecycle config`: the settings that hold here, and where each comes from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sglang_lifecycle.cli import settings
from sglang_lifecycle.cli.errors import ExitCode, UsageError
from sglang_lifecycle.cli.formats import json_of
from sglang_lifecycle.cli.inputs import request
from sglang_lifecycle.cli.options import (
    Color,
    Config,
    DisplayZone,
    FailOn,
    Json,
    RunningTimeout,
    SGLangVersion,
    WaitingTimeout,
    Zone,
)
from sglang_lifecycle.cli.output import show, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType


def command(
    json: Json = False,
    tz: Zone = None,
    display_tz: DisplayZone = None,
    sglang_version: SGLangVersion = None,
    waiting_timeout: WaitingTimeout = None,
    running_timeout: RunningTimeout = None,
    fail_on: FailOn = None,
    config: Config = None,
    color: Color = None,
) -> ExitCode:
    """Show every setting's value and whether it comes from a flag, the environment, lifecycle.toml or nowhere."""
    values = settings.effective(
        {"tz": tz, "display_tz": display_tz, "sglang_version": sglang_version, "fail_on": fail_on}
    )
    request([], None, None, tz, display_tz, sglang_version)  # says what is wrong with a zone or a version
    check_thresholds(values["fail_on"])
    if json:
        shown = {name: {"value": each.value, "from": each.origin} for name, each in values.items()}
        write(json_of(shown))
    else:
        show(lambda width: _screen(values), color)
    return ExitCode.OK


def check_thresholds(value: settings.Value) -> None:
    """Raises `UsageError` where an expression is malformed, and names where it was set."""
    from sglang_lifecycle.analyzers.thresholds import MalformedThreshold, parse

    for text in value.value:
        try:
            parse(text)
        except MalformedThreshold as problem:
            raise UsageError(f"{value.origin}: {problem}") from None


def _screen(values: Mapping[str, settings.Value]) -> RenderableType:
    from rich.console import Group

    from sglang_lifecycle.cli.layout import FAINT, LABEL, grid, plain

    def shown(value: object) -> str:
        if isinstance(value, list):
            return ", ".join(each if isinstance(each, str) else each["name"] for each in value) or "none"
        if isinstance(value, dict):
            return ", ".join(f"{pattern} = {name}" for pattern, name in value.items()) or "none"
        return "not set" if value is None else f"{value:g} s" if isinstance(value, float) else str(value)

    rows = [
        (plain(name, LABEL), plain(os.path.basename(each.origin), FAINT), plain(shown(each.value)))
        for name, each in values.items()
    ]
    file = settings.path()
    return Group(plain(f"Settings of {file}" if file else f"No {settings.FILE} here or above"), "", grid(rows))
