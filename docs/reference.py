"""The parts of the documentation that are made from the code: commands, causes, evidence, tables, settings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from typer.main import get_command

from sglang_lifecycle.analyzers import faults
from sglang_lifecycle.analyzers.catalogue import load
from sglang_lifecycle.cli import columns, settings
from sglang_lifecycle.cli.app import application
from sglang_lifecycle.cli.causes import GROUPS
from sglang_lifecycle.cli.document import Code, Grid
from sglang_lifecycle.cli.errors import ExitCode
from sglang_lifecycle.cli.formats import Format
from sglang_lifecycle.cli.markdown import inline, table
from sglang_lifecycle.cli.requests_table import COLUMNS
from sglang_lifecycle.cli.words import fault_text
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.patterns import table as patterns
from sglang_lifecycle.parsers.table import DETAIL

FORMATS = {
    Format.TABLE: "for people, in a terminal",
    Format.JSON: "the whole audit as one object; `lifecycle schema audit`",
    Format.NDJSON: "one object a line, whose `record` says what it is, the totals last; `lifecycle schema ndjson`",
    Format.CSV: "the request table; a cell that a spreadsheet would take for a formula begins with `'`",
    Format.PARQUET: "the request table, typed; `lifecycle schema requests`",
    Format.MARKDOWN: "to paste into an incident channel or a pull request",
    Format.HTML: "one page that loads nothing",
    Format.JUNIT: "a test case for each threshold",
    Format.OPENMETRICS: "gauges for a textfile collector",
}

CODES = {
    ExitCode.OK: "an answer was given, also `finished` and `not-established`",
    ExitCode.INTERNAL: "an internal error, or an answer that could not be written to standard output",
    ExitCode.USAGE: "wrong usage: an unknown option, an ambiguous beginning of a rid, a malformed threshold or setting",
    ExitCode.NOT_FOUND: "none of the rids asked for is in the logs",
    ExitCode.UNREADABLE: "a path is missing, unreadable or can't be written; what could be read is still answered",
    ExitCode.THRESHOLD: "a threshold of an audit was crossed; this goes before 4",
    ExitCode.INTERRUPTED: "interrupted",
}


def write(folder: Path) -> None:
    """Write every part, leaving alone what has not changed."""
    folder.mkdir(exist_ok=True)
    parts: dict[str, Callable[[], Iterable[str]]] = {
        "commands": _commands,
        "causes": _causes,
        "events": _events,
        "evidence": _evidence,
        "requests": _requests,
        "settings": _settings,
        "formats": lambda: [_rows(("format", "what it is"), [(f"`{k}`", v) for k, v in FORMATS.items()])],
        "codes": lambda: [_rows(("code", "meaning"), [(f"{code:d}", CODES[code]) for code in ExitCode])],
    }
    for name, part in parts.items():
        file, text = folder / f"{name}.md", "\n\n".join(part()) + "\n"
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _commands() -> Iterator[str]:
    root = get_command(application())
    yield _help()
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        yield f"## lifecycle {name}\n\n{_help(name)}"
        for inner in getattr(command, "commands", {}):
            yield f"### lifecycle {name} {inner}\n\n{_help(name, inner)}"


def _help(*names: str) -> str:
    command = [sys.executable, "-m", "sglang_lifecycle", *names, "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return f"```text\n{shown.strip()}\n```"


def _causes() -> Iterator[str]:
    group = None
    for cause in load().values():
        if cause.group != group:
            group = cause.group
            yield f"## {GROUPS[group]}"
        yield f"(cause-{cause.id})=\n\n### {cause.id}"
        yield inline(f"… {cause.title}. {cause.meaning}")
        facts = {
            "ended by": cause.actor,
            "layer": cause.layer,
            "stages": ", ".join(cause.stages),
            "effects": ", ".join(cause.effects),
            "versions": cause.versions,
            "client sees": cause.client_sees,
        }
        yield "\n".join(f"- {name}: {inline(text)}" for name, text in facts.items() if text)
        if cause.evidence:
            yield "Evidence:\n\n" + "\n".join(f"- {inline(each)}" for each in cause.evidence)
        if cause.confused_with:
            told = (f"- [{other.id}](#cause-{other.id}): {inline(other.how)}" for other in cause.confused_with)
            yield "Easily confused with:\n\n" + "\n".join(told)
        if cause.advice:
            yield "What to do:\n\n" + "\n".join(f"1. {inline(each)}" for each in cause.advice)
    yield "## Known faults of SGLang"
    for fault in faults.load().values():
        yield f"(fault-{fault.id})=\n\n### {fault.id}"
        yield inline(f"{fault_text(fault)}. {fault.shows} {fault.consequence}")
        behind = ", ".join(f"[{id}](#cause-{id})" for id in fault.causes)
        yield f"It may stand behind {behind}." if behind else "It falsifies what the logs say about any request."


def _events() -> Iterator[str]:
    """Every kind of fact with the messages that tell it."""
    means: dict[str, list[tuple[str, str, str]]] = {}
    for pattern in patterns().lines:
        means.setdefault(str(pattern.event), []).append(
            (pattern.id, f"{pattern.since} to {pattern.until}", pattern.means)
        )
    for event in Event:
        yield f"### {event}"
        if messages := means.get(str(event)):
            rows = [(Code(id), versions, text) for id, versions, text in messages]
            yield table(Grid(("message", "in SGLang", "what it says"), rows))
        else:
            yield "Read from the structure of a record, not from a message."


def _evidence() -> Iterator[str]:
    properties = columns.evidence()["properties"]
    kinds = {name: "text" if "enum" in rules else rules["type"][0] for name, rules in properties.items()}
    rows = [(Code(name), kinds[name], rules["description"]) for name, rules in properties.items()]
    yield table(Grid(("column", "type", "meaning"), rows))
    yield "Keys of `detail`: " + ", ".join(f"`{key}`" for key in sorted(DETAIL)) + "."


def _requests() -> Iterator[str]:
    yield table(Grid(("column", "type", "meaning"), [(Code(name), *told) for name, told in COLUMNS.items()]))


def _settings() -> Iterator[str]:
    rows = [
        (
            Code(s.name),
            Code("" if s.kind in settings.TABLES else s.variable),
            Code(s.option or ""),
            s.kind,
            Code(str(s.default or "")),
            s.help,
        )
        for s in settings.SETTINGS
    ]
    yield table(Grid(("in lifecycle.toml", "variable", "option", "type", "default", "meaning"), rows))
