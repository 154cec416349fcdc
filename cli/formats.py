"""The forms that an audit and a verdict are printed in, each made of the same model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from sglang_lifecycle.cli.times import Clock

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sglang_lifecycle.analyzers.listing import Audit
    from sglang_lifecycle.analyzers.verdict import Verdict


class Format(StrEnum):
    """What an audit is printed as."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"
    MARKDOWN = "markdown"
    HTML = "html"
    JUNIT = "junit"
    OPENMETRICS = "openmetrics"


ENDINGS = {
    "json": Format.JSON,
    "ndjson": Format.NDJSON,
    "jsonl": Format.NDJSON,
    "csv": Format.CSV,
    "parquet": Format.PARQUET,
    "md": Format.MARKDOWN,
    "html": Format.HTML,
    "xml": Format.JUNIT,
    "prom": Format.OPENMETRICS,
}
"""What a file is written as if its name ends so and nothing else is asked for."""


class VerdictFormat(StrEnum):
    """What a verdict is printed as."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def encode(audit: Audit, format: Format, clock: Clock, limit: int | None) -> bytes:
    """The audit in any form but the table, in UTF-8.

    `clock` and `limit` (how many interrupted requests are listed) are for what people read; data is in UTC, and whole.
    """
    if format is Format.PARQUET:
        from sglang_lifecycle.cli.requests_table import parquet

        return parquet(audit)
    if format in PIECEWISE:
        return b"".join(pieces(audit, format, map(dumped, audit.requests)))
    # Lone surrogates, which JSON in a log can smuggle in, have no bytes of their own.
    return _ENCODERS[format](audit, clock, limit).encode("utf-8", "backslashreplace")


def verdict_markdown(verdict: Verdict, clock: Clock) -> str:
    """A verdict to paste."""
    from sglang_lifecycle.cli.markdown import markdown
    from sglang_lifecycle.cli.verdict_document import document

    return markdown(document(verdict, clock))


def dumped(model: BaseModel) -> str:
    """A model as JSON on one line, whatever text a stranger put into it."""
    try:
        return model.model_dump_json(by_alias=True)
    except ValueError:  # lone surrogates
        return _escaped(model.model_dump(by_alias=True))


def json_of(data: Mapping[str, object]) -> str:
    """What JSON can hold as JSON on one line, like `dumped`."""
    import orjson

    try:
        return orjson.dumps(data).decode()
    except TypeError:  # lone surrogates
        return _escaped(data)


def _escaped(data: Mapping[str, object]) -> str:
    """As JSON in ASCII, which has an escape for what has no bytes in UTF-8: a path may be no text."""
    import json

    return json.dumps(data, separators=(",", ":"))


def pieces(audit: Audit, format: Format, requests: Iterable[str]) -> Iterator[bytes]:
    """The audit in one of the `PIECEWISE` forms, a piece at a time; its requests are given, each as `dumped`."""
    piece, size = [], 0
    for text in PIECEWISE[format](audit, requests):
        piece.append(text)
        size += len(text)
        if size >= _PIECE:
            yield "".join(piece).encode("utf-8", "backslashreplace")
            piece, size = [], 0
    yield "".join(piece).encode("utf-8", "backslashreplace")


_PIECE = 1 << 20  # characters


def _json(audit: Audit, requests: Iterable[str]) -> Iterator[str]:
    before, requests_, after = dumped(audit.model_copy(update={"requests": []})).partition('"requests":[')
    yield f"{before}{requests_}"
    for index, request in enumerate(requests):
        yield f",{request}" if index else request
    yield f"{after}\n"


def _ndjson(audit: Audit, requests: Iterable[str]) -> Iterator[str]:
    import json

    from sglang_lifecycle.analyzers import listing as models

    kinds: list[tuple[type[BaseModel], Iterable[str]]] = [
        (models.InputRecord, map(dumped, audit.inputs)),
        (models.ServerEventRecord, map(dumped, audit.server_events)),
        (models.RequestRecord, requests),
        (models.ThresholdRecord, map(dumped, audit.thresholds)),
        (models.ComparisonRecord, map(dumped, [audit.comparison] if audit.comparison else [])),
        (models.TotalsRecord, [dumped(audit.totals)]),
    ]
    for kind, items in kinds:
        own = {name: told.default for name, told in kind.model_fields.items() if name in kind.__annotations__}
        end = json.dumps(own, separators=(",", ":"))[1:]
        for item in items:
            yield f"{item[:-1]},{end}\n"


PIECEWISE: dict[Format, Callable[[Audit, Iterable[str]], Iterator[str]]] = {Format.JSON: _json, Format.NDJSON: _ndjson}
"""The forms that list every request, however many there are, and need not be held as a whole."""


def _csv(audit: Audit, clock: Clock, limit: int | None) -> str:
    from sglang_lifecycle.cli.requests_table import comma_separated

    return comma_separated(audit)


def _markdown(audit: Audit, clock: Clock, limit: int | None) -> str:
    from sglang_lifecycle.cli.audit_document import document
    from sglang_lifecycle.cli.markdown import markdown

    return markdown(document(audit, clock, limit))


def _html(audit: Audit, clock: Clock, limit: int | None) -> str:
    from sglang_lifecycle.cli.audit_document import document
    from sglang_lifecycle.cli.page import page

    return page(document(audit, clock, limit))


def _junit(audit: Audit, clock: Clock, limit: int | None) -> str:
    from sglang_lifecycle.cli.junit import junit

    return junit(audit)


def _openmetrics(audit: Audit, clock: Clock, limit: int | None) -> str:
    from sglang_lifecycle.cli.openmetrics import openmetrics

    return openmetrics(audit)


_ENCODERS: dict[Format, Callable[[Audit, Clock, int | None], str]] = {
    Format.CSV: _csv,
    Format.MARKDOWN: _markdown,
    Format.HTML: _html,
    Format.JUNIT: _junit,
    Format.OPENMETRICS: _openmetrics,
}
