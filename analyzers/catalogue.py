"""The catalogue of causes: what each one means, how it is told apart, what to do about it.

The texts are data in `causes.toml`; this module reads them and refuses a catalogue that contradicts itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from sglang_lifecycle.parsers.versions import RELEASES

GROUPS = ("not-interrupted", "client", "refused", "session", "scheduler", "disaggregation", "server", "finding")
"""What a cause belongs to. A `finding` ends no request by itself."""

ACTORS = (
    "client",
    "operator",
    "api-server",
    "scheduler",
    "session",
    "peer-request",
    "peer-server",
    "host",
    "unknown",
)
"""Who ended the request."""

LAYERS = (
    "client",
    "api-server",
    "tokenizer",
    "scheduler",
    "session",
    "grammar",
    "memory",
    "disaggregation",
    "process",
    "unknown",
)
"""Where the decision fell."""

STAGES = (
    "before-scheduler",
    "grammar-queue",
    "waiting",
    "running",
    "bootstrap",
    "transfer",
    "finished",
    "never-received",
    "unknown",
)
"""Where the request stood."""

EFFECTS = ("zombie", "retracted", "reply-lost", "session-stuck", "context-lost")
"""What else may have followed."""


class UnknownCause(ValueError):
    """No cause has this id. The message is one line and names the nearest ids."""

    def __init__(self, id: str, known: Iterable[str]) -> None:
        near = get_close_matches(id, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"unknown cause {id!r}{hint}")
        self.id = id
        self.suggestions = tuple(near)


@dataclass(frozen=True, slots=True)
class Confusion:
    """Another cause that looks the same, and how to tell the two apart."""

    id: str
    how: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One true cause of an end, or one event or finding that a verdict may name.

    `title` completes "the request …" (for events of a server, "the server …"). `actor`, `layer` and the first of
    `stages` are what holds unless the evidence of a request says otherwise.
    """

    id: str
    group: str
    title: str
    meaning: str
    actor: str
    layer: str
    stages: tuple[str, ...]
    effects: tuple[str, ...]
    evidence: tuple[str, ...]
    confused_with: tuple[Confusion, ...]
    advice: tuple[str, ...]
    versions: str
    client_sees: str


_KEYS = frozenset(field.name for field in fields(Cause)) - {"id", "versions"} | {"since", "until"}
_OPTIONAL = frozenset({"effects", "confused_with", "advice", "until"})


@cache
def load() -> Mapping[str, Cause]:
    """Every cause by its id, in the order in which they are to be read."""
    text = (files(__package__) / "causes.toml").read_text("utf-8")
    return MappingProxyType(read(tomllib.loads(text)))


def cause(id: str) -> Cause:
    """The cause with this id; raises `UnknownCause` if there is none."""
    try:
        return load()[id]
    except KeyError:
        raise UnknownCause(id, load()) from None


def read(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Cause]:
    """Turn tables, one per id, into causes; raises `ValueError` at the first one that is malformed."""
    causes = {id: _cause(id, table) for id, table in tables.items()}
    for item in causes.values():
        for other in item.confused_with:
            _require(item.id, "confused_with", (other.id,), causes.keys() - {item.id})
    return causes


def require_keys(what: str, table: Mapping[str, Any], known: Set[str], optional: Set[str]) -> None:
    """Raise `ValueError` where a table, which is `what`, lacks a key that it must have, or has an unknown one."""
    if missing := sorted(known - optional - table.keys()):
        raise ValueError(f"{what} lacks {', '.join(missing)}")
    if extra := sorted(table.keys() - known):
        raise ValueError(f"{what} has unknown keys: {', '.join(extra)}")


def _cause(id: str, table: Mapping[str, Any]) -> Cause:
    require_keys(f"cause {id!r}", table, _KEYS, _OPTIONAL)
    _require(id, "group", (table["group"],), GROUPS)
    _require(id, "actor", (table["actor"],), ACTORS)
    _require(id, "layer", (table["layer"],), LAYERS)
    _require(id, "stages", table["stages"], STAGES)
    _require(id, "effects", table.get("effects", ()), EFFECTS)
    return Cause(
        id=id,
        group=table["group"],
        title=table["title"],
        meaning=" ".join(table["meaning"].split()),
        actor=table["actor"],
        layer=table["layer"],
        stages=tuple(table["stages"]),
        effects=tuple(table.get("effects", ())),
        evidence=tuple(table["evidence"]),
        confused_with=tuple(Confusion(**other) for other in table.get("confused_with", ())),
        advice=tuple(table.get("advice", ())),
        versions=f"{table['since']} to {table.get('until', RELEASES[-1])}",
        client_sees=" ".join(table["client_sees"].split()),
    )


def _require(id: str, key: str, values: Iterable[str], allowed: Iterable[str]) -> None:
    if wrong := sorted(set(values) - set(allowed)):
        raise ValueError(f"cause {id!r}: {key} holds {', '.join(wrong)}, which is not allowed there")
