"""What many records of the request log say, side by side: from the values of one field to columns of facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sglang_lifecycle.parsers import requestlog
from sglang_lifecycle.parsers.forms import Columns
from sglang_lifecycle.parsers.requestfacts import COUNTS, KEPT, SECONDS, STAMPS, most_tokens
from sglang_lifecycle.parsers.requestlog import OPENING

Fill = Callable[[Columns, Sequence[Any]], None]
"""Fills in what a field tells, from its values in all of the records."""


def _details(name: str, *types: type) -> Fill:
    """Fills in the values of a key of the detail, those that are of some types."""

    def fill(columns: Columns, values: Sequence[Any]) -> None:
        columns.details[name] = [value if isinstance(value, types) else None for value in values]

    return fill


def _either(name: str) -> Fill:
    """Notes where one of several fields, of which this is one, has something in it."""

    def fill(columns: Columns, values: Sequence[Any]) -> None:
        before = columns.details.get(name, [None] * len(values))
        columns.details[name] = [one or (True if value else None) for one, value in zip(before, values, strict=True)]

    return fill


def _wholes(column: str) -> Fill:
    def fill(columns: Columns, values: Sequence[Any]) -> None:
        columns.columns[column] = [value if type(value) is int else None for value in values]

    return fill


def _seconds(column: str) -> Fill:
    def fill(columns: Columns, values: Sequence[Any]) -> None:
        columns.columns[column] = [float(value) if isinstance(value, (int, float)) else None for value in values]

    return fill


def _rooms(columns: Columns, values: Sequence[Any]) -> None:
    columns.columns["room"] = [value if isinstance(value, int) else None for value in values]


def _workers(columns: Columns, values: Sequence[Any]) -> None:
    columns.details["worker"] = [True if isinstance(value, str) else None for value in values]


def _samplings(columns: Columns, values: Sequence[dict[str, Any]]) -> None:
    columns.told.append(list(values))


def _note(columns: Columns, name: str, values: list[Any]) -> None:
    """Note values of a key of the detail beside those that are there."""
    before = columns.details.get(name)
    if before is not None:
        values = [one if one is not None else other for one, other in zip(values, before, strict=True)]
    columns.details[name] = values


def _texts(columns: Columns, values: Sequence[Any]) -> None:
    """Openings of prompts, and of short ones how many tokens they have at most."""
    openings = [value if isinstance(value, str) else None for value in values]
    _note(columns, "opening", openings)
    if "".join(filter(None, openings)).isascii():
        most = [None if each is None or len(each) >= OPENING - 1 else len(each) + 1 for each in openings]
    else:
        most = list(map(most_tokens, openings))
    _note(columns, "prompt_ids", most)


def _sizes(columns: Columns, values: Sequence[Any]) -> None:
    _note(columns, "prompt_ids", [int(value) if isinstance(value, requestlog.Size) else None for value in values])
    _note(columns, "opening", ["[0]" if value == [0] else None for value in values])


def _reasons(columns: Columns, values: Sequence[tuple[str | None, str | None]]) -> None:
    columns.columns["finish_type"] = [value[0] for value in values]
    columns.columns["finish_shape"] = [value[1] for value in values]


FILLS: dict[str, Fill] = {
    **{name: _details(name, bool, int) for name in KEPT},
    "bootstrap_room": _rooms,
    "lora_path": _details("lora", str),
    "http_worker_ipc": _workers,
    "sampling_params": _samplings,
    "text": _texts,
    "input_ids": _sizes,
    **dict.fromkeys(requestlog.MEDIA, _either("media")),
    "meta.finish_reason": _reasons,
    **{f"meta.{name}": _wholes(column) for name, column in COUNTS.items()},
    **{f"meta.{name}": _seconds(column) for name, column in SECONDS.items()},
    **{f"meta.{name}": _details(name, int, float) for name in STAMPS},
    **dict.fromkeys(requestlog.OUTPUTS, _either("has_output")),
}
"""By the names of fields.

Of sampling parameters the values are what they tell, of a finish reason its type and its shape, of a prompt its opening
or its `Size`, of media and outputs whether there is something in them.
"""
