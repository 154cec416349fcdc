"""`lifecycle schema`: the JSON Schema of what `--json` prints, and of the rows of tables."""

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
    NDJSON = "ndjson"
    REQUESTS = "requests"
    EVIDENCE = "evidence"
    SESSIONS = "sessions"
    SESSION = "session"
    DOCTOR = "doctor"
    REPLAY = "replay"


_DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def command(
    name: Annotated[
        Name | None,
        typer.Argument(metavar="[NAME]", help=f"One of {', '.join(Name)}; else all of them.", show_default=False),
    ] = None,
) -> ExitCode:
    """Print the JSON Schema of a command's JSON, of a line of an audit's NDJSON, or of a row of a table."""
    import orjson

    schemas = {each.value: _schema(each) for each in ([name] if name else Name)}
    write(orjson.dumps(schemas[name] if name else schemas, option=orjson.OPT_INDENT_2).decode())
    return ExitCode.OK


def _schema(name: Name) -> dict[str, Any]:
    if name in (Name.REQUESTS, Name.EVIDENCE):
        from sglang_lifecycle.cli.columns import evidence, requests

        return _DRAFT | (requests() if name is Name.REQUESTS else evidence())
    from sglang_lifecycle.analyzers.coverage_models import Coverage
    from sglang_lifecycle.analyzers.listing import Audit, AuditRecord, Sessions, SessionTree
    from sglang_lifecycle.analyzers.replay_models import ReplayRun
    from sglang_lifecycle.analyzers.verdict import Verdict

    models: dict[Name, type[BaseModel]] = {
        Name.EXPLAIN: Verdict,
        Name.AUDIT: Audit,
        Name.NDJSON: AuditRecord,
        Name.SESSIONS: Sessions,
        Name.SESSION: SessionTree,
        Name.DOCTOR: Coverage,
        Name.REPLAY: ReplayRun,
    }
    schema = models[name].model_json_schema(by_alias=True, mode="serialization")
    return _DRAFT | schema
