"""The known faults of SGLang itself, by the versions that have them. The texts are data in `faults.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from sglang_lifecycle.analyzers import catalogue
from sglang_lifecycle.parsers.versions import RELEASES, in_range


@dataclass(frozen=True, slots=True)
class Signature:
    """How a verdict shows a fault. Everything that is given must hold; `chain` wants one of its causes in the chain."""

    cause: str = ""
    effect: str = ""
    chain: tuple[str, ...] = ()
    exception: str = ""
    frame: str = ""

    def fits(
        self, cause: str, effects: Collection[str], chain: Collection[str], exception: str, frames: Collection[str]
    ) -> bool:
        """Whether a verdict of this cause, with these effects, this chain and this traceback shows it."""
        return (
            (not self.cause or self.cause == cause)
            and (not self.effect or self.effect in effects)
            and (not self.chain or any(link in self.chain for link in chain))
            and (not self.exception or re.search(self.exception, exception) is not None)
            and (not self.frame or self.frame in frames)
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of SGLang, present from release `first` to release `last`.

    `last` is the newest release where the fault is still there; `fixed_in` is empty where no known release has a fix.
    `causes` are the causes whose verdicts the fault may explain; with none, it falsifies what the logs say about any
    request.
    """

    id: str
    title: str
    first: str
    last: str
    fixed_in: str
    shows: str
    consequence: str
    causes: tuple[str, ...]
    url: str
    match: Signature | None = None
    """None where no single verdict shows it."""


_KEYS = frozenset(field.name for field in fields(Fault)) - {"id"}
_OPTIONAL = frozenset({"last", "fixed_in", "url", "match"})


@cache
def load() -> Mapping[str, Fault]:
    """Every known fault by its id."""
    text = (files(__package__) / "faults.toml").read_text("utf-8")
    return MappingProxyType(read(tomllib.loads(text)))


def read(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Fault]:
    """Turn tables, one per id, into faults; raises `ValueError` at the first one that is malformed."""
    return {id: _fault(id, table) for id, table in tables.items()}


def _signature(id: str, table: Mapping[str, Any]) -> Signature:
    try:
        signature = Signature(**{**table, "chain": tuple(table.get("chain", ()))})
        re.compile(signature.exception)
    except (TypeError, re.error) as error:
        raise ValueError(f"fault {id!r}: its match is malformed: {error}") from error
    for name in (signature.cause, *signature.chain):
        if name:
            catalogue.cause(name)
    return signature


def _fault(id: str, table: Mapping[str, Any]) -> Fault:
    catalogue.require_keys(f"fault {id!r}", table, _KEYS, _OPTIONAL)
    fault = Fault(
        id=id,
        title=table["title"],
        first=table["first"],
        last=table.get("last", RELEASES[-1]),
        fixed_in=table.get("fixed_in", ""),
        shows=" ".join(table["shows"].split()),
        consequence=" ".join(table["consequence"].split()),
        causes=tuple(table["causes"]),
        url=table.get("url", ""),
        match=_signature(id, table["match"]) if "match" in table else None,
    )
    for name in fault.causes:
        catalogue.cause(name)
    for release in filter(None, (fault.first, fault.last, fault.fixed_in)):
        if release not in RELEASES:
            raise ValueError(f"fault {id!r}: {release!r} is not a known release")
    if not in_range(fault.last, fault.first, fault.fixed_in or fault.last) or fault.last == fault.fixed_in:
        raise ValueError(f"fault {id!r}: its releases are out of order")
    return fault
