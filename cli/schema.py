"""`lifecycle schema`: the JSON Schema of what `--json` prints."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sglang_lifecycle.cli.errors import ExitCode
from sglang_lifecycle.cli.output import write

if TYPE_CHECKING:
    from pydantic import BaseModel


class Name(StrEnum):
    """What a schema describes."""

    EXPLAIN = "explain"
    AUDIT = "audit"
    SESSIONS = "sessions"
    SESSION = "session"
    DOCTOR = "doctor"


def command(
    name: Annotated[Name | None, typer.Argument(help="Of one command; else of all.", show_default=False)] = None,
) -> ExitCode:
    """Print the JSON Schema of a command's JSON."""
    import orjson

    schemas = {each.value: _schema(each) for each in ([name] if name else Name)}
    write(orjson.dumps(schemas[name] if name else schemas, option=orjson.OPT_INDENT_2).decode())
    return ExitCode.OK


def _schema(name: Name) -> dict[str, Any]:
    from sglang_lifecycle.analyzers.verdict import Audit, Coverage, Sessions, SessionTree, Verdict

    models: dict[Name, type[BaseModel]] = {
        Name.EXPLAIN: Verdict,
        Name.AUDIT: Audit,
        Name.SESSIONS: Sessions,
        Name.SESSION: SessionTree,
        Name.DOCTOR: Coverage,
    }
    schema = models[name].model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
