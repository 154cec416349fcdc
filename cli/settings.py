"""Settings: what `lifecycle.toml`, the environment and the command line say, in this order, the last one winning.

`lifecycle.toml` is looked for in the working folder and those above it; the nearest one counts, alone. Values are
checked for their type here, for their sense where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal

import typer
from typer._click.globals import get_current_context

from sglang_lifecycle.cli.errors import ExitCode, LifecycleError, UsageError

FILE = "lifecycle.toml"
DEFAULT = "default"
_TOLD = "lifecycle."  # before the names of settings in the context of a command line

OFF = -1
"""What SGLang calls a limit that is off. It tells nothing about logs: these may be of servers that had one."""

Kind = Literal["text", "seconds", "texts", "names", "envelopes"]
_WANTED = {
    "text": "a text",
    "seconds": "a number of seconds, or -1 where there is no limit",
    "texts": "a list of texts",
    "names": "a table of texts",
    "envelopes": "a list of tables with the texts name and regex",
}
TABLES = frozenset({"names", "envelopes"})
"""Kinds that only a file can hold."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set. `option` is the flag of the same meaning, where commands have one."""

    name: str
    kind: Kind
    help: str
    default: Any = None
    option: str | None = None

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"LIFECYCLE_{self.name.upper()}"


SETTINGS = (
    Setting("tz", "text", "Zone of the logs' times, where they name none; UTC unless set.", None, "--tz"),
    Setting("display_tz", "text", "Zone to show times in; UTC unless set.", None, "--display-tz"),
    Setting("sglang_version", "text", "SGLang's version, where the logs leave it open.", None, "--sglang-version"),
    Setting(
        "waiting_timeout",
        "seconds",
        "SGLANG_REQ_WAITING_TIMEOUT of the servers, which no log prints: tells an own timeout from another rid's."
        " -1, SGLang's word for no limit, tells nothing.",
        None,
        "--waiting-timeout",
    ),
    Setting("running_timeout", "seconds", "The same of SGLANG_REQ_RUNNING_TIMEOUT.", None, "--running-timeout"),
    Setting(
        "ignore",
        "texts",
        "Patterns of request ids (*, ? and [0-9]) that audit, browse and report leave out of what they count."
        " SGLang's own warm-ups and health checks are always left out.",
        ["HEALTH_CHECK_[0-9]*"],  # clients choose ids: a wider pattern would let them hide
    ),
    Setting(
        "processes",
        "names",
        "Names of servers, by patterns of their logs' paths and streams. Logs of one name are one server's.",
        {},
    ),
    Setting(
        "envelopes",
        "envelopes",
        "What a collector writes around lines: `name`, and a `regex` that matches from a line's beginning, with a group"
        " `message`; groups `time` and `stream` if it tells them.",
        [],
    ),
    Setting("fail_on", "texts", "Thresholds of an audit.", [], "--fail-on"),
)
"""All settings, in the order in which they are shown."""

_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's effective value: text, seconds, a list of texts, or None. `origin` says where it was set."""

    value: Any
    origin: str

    @property
    def text(self) -> str | None:
        """The value of a setting that is text."""
        return None if self.value is None else str(self.value)


def effective(flags: Mapping[str, Any] | None = None) -> dict[str, Value]:
    """Every setting's value. `flags` are those of the command line by the setting's name, None where not given.

    Raises `UsageError` for a value of the wrong type or an unknown key, `LifecycleError` for an unreadable file.
    """
    values = {setting.name: Value(setting.default, DEFAULT) for setting in SETTINGS}
    values |= _from_file() | _from_environment()
    for name, value in (*_told().items(), *(flags or {}).items()):
        if value is not None:
            origin = _BY_NAME[name].option or name
            values[name] = Value(_checked(_BY_NAME[name], value, origin), origin)
    return values


def tell(context: typer.Context, name: str, value: Any) -> None:
    """Keep the value of an option that commands need not hand on: it reaches them as a setting."""
    if value is not None:
        context.meta[f"{_TOLD}{name}"] = value


def _told() -> dict[str, Any]:
    context = get_current_context(silent=True)
    meta = context.meta if context else {}
    return {name.removeprefix(_TOLD): value for name, value in meta.items() if name.startswith(_TOLD)}


def path() -> Path | None:
    """The settings file: that of `--config` or LIFECYCLE_CONFIG, else the nearest one upward."""
    context = get_current_context(silent=True)
    named = (context.find_root().obj if context else None) or os.environ.get("LIFECYCLE_CONFIG")
    if named:
        return Path(named)
    try:
        here = Path.cwd()
    except OSError:  # the working folder has been deleted
        return None
    return next((file for folder in (here, *here.parents) if (file := folder / FILE).is_file()), None)


def _from_file() -> dict[str, Value]:
    file = path()
    if file is None:
        return {}
    import tomllib

    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except OSError as problem:
        raise LifecycleError(ExitCode.UNREADABLE, f"{file}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:  # not TOML, or not UTF-8
        raise UsageError(f"{file}: {problem}") from None
    for name in table:
        if name not in _BY_NAME:
            from difflib import get_close_matches

            near = get_close_matches(name, _BY_NAME, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_BY_NAME)}"
            raise UsageError(f"{file}: there is no setting {name!r}; {hint}")
    return {name: Value(_checked(_BY_NAME[name], value, str(file)), str(file)) for name, value in table.items()}


def _from_environment() -> dict[str, Value]:
    found = {}
    for setting in SETTINGS:
        text = os.environ.get(setting.variable)
        if text and setting.kind not in TABLES:
            value: Any = text
            if setting.kind == "seconds":
                value = _number(text)
            elif setting.kind == "texts":
                value = [part.strip() for part in text.split(",") if part.strip()]
            found[setting.name] = Value(_checked(setting, value, setting.variable), setting.variable)
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _checked(setting: Setting, value: Any, origin: str) -> Any:
    if setting.kind == "text" and isinstance(value, str):
        return value
    if setting.kind == "seconds" and _is_limit(value):
        return float(value)
    if setting.kind == "texts" and isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return [value] if isinstance(value, str) else list(value)
    if setting.kind == "names" and isinstance(value, dict) and all(isinstance(e, str) and e for e in value.values()):
        return value
    if setting.kind == "envelopes" and isinstance(value, list) and all(map(_is_envelope, value)):
        return value
    name = "" if origin in (setting.variable, setting.option) else f"{setting.name} "
    raise UsageError(f"{origin}: {name}{value!r} is not {_WANTED[setting.kind]}")


def _is_limit(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and (0 < value < inf or value == OFF)


def _is_envelope(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"name", "regex"}
        and all(isinstance(each, str) and each for each in value.values())
    )
