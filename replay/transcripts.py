"""Recorded sequences: reading them, checking their shape, and applying their operations to an engine.

A transcript is one JSON object with `version`, `config` and `ops`; every operation carries the `outcome` that SGLang's
own scheduler showed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sglang_lifecycle.replay.engine import Engine, Outcome
from sglang_lifecycle.replay.profiles import Profile, profile_for
from sglang_lifecycle.replay.queue import Config
from sglang_lifecycle.replay.requests import Arrival, SessionParams

Operation = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Transcript:
    """One recorded sequence. `source` names it for people: the file and, where there are several, the line."""

    source: str
    name: str
    version: str
    profile: Profile
    config: Config
    operations: tuple[Operation, ...]

    def engine(self) -> Engine:
        """Return a fresh engine for this sequence."""
        return Engine(self.profile, self.config)


def read_transcripts(path: Path) -> Iterator[Transcript]:
    """Yield the sequences of a `.json`, `.jsonl` or `.jsonl.gz` file.

    Raises ValueError, in one line and with the place, where the content is not a transcript; OSError where the file
    cannot be read.
    """
    try:
        if path.suffix == ".json":
            yield parse_transcript(path.read_text(encoding="utf-8"), str(path))
            return
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield parse_transcript(line, f"{path}:{number}")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not readable as a transcript ({error}): give .json, .jsonl or .jsonl.gz") from error


def parse_transcript(text: str, source: str) -> Transcript:
    """Return the sequence that a JSON text holds.

    Raises ValueError with `source` and what is wrong.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{source}: not JSON ({error}); a transcript is one JSON object per line or file") from error
    if not isinstance(data, dict):
        raise ValueError(f"{source}: not a JSON object; a transcript has the keys version, config and ops")
    missing = [key for key in ("version", "config", "ops") if key not in data]
    if missing:
        raise ValueError(f"{source}: no {', '.join(missing)}; a transcript has the keys version, config and ops")
    if not isinstance(data["config"], dict) or not isinstance(data["ops"], list):
        raise ValueError(f"{source}: config must be an object and ops a list")
    try:
        profile = profile_for(str(data["version"]))
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    for index, operation in enumerate(data["ops"]):
        _check_operation(operation, f"{source}: operation {index}")
    known = {field.name for field in fields(Config)}
    name = data.get("name")
    return Transcript(
        source,
        str(name if name is not None else data.get("seed", "")),
        str(data["version"]),
        profile,
        Config(**{key: value for key, value in data["config"].items() if key in known}),
        tuple(data["ops"]),
    )


def _check_operation(operation: object, place: str) -> None:
    if not isinstance(operation, dict):
        raise ValueError(f"{place}: not a JSON object")
    kind = operation.get("op")
    if not isinstance(kind, str) or kind not in _OPERATIONS:
        raise ValueError(f"{place}: unknown op {kind!r}; known are {', '.join(_OPERATIONS)}")
    missing = [key for key in ("now", *_OPERATIONS[kind].needs, "outcome") if key not in operation]
    if missing:
        raise ValueError(f"{place}: {kind} has no {', '.join(missing)}; it may come from another recorder")
    if not isinstance(operation["outcome"], dict):
        raise ValueError(f"{place}: the outcome of {kind} is not a JSON object")


def apply(engine: Engine, operation: Operation) -> Outcome:
    """Carry out one operation of a transcript."""
    return _OPERATIONS[operation["op"]].carry_out(engine, operation["now"], operation)


def _arrival(operation: Operation) -> Arrival:
    params = operation.get("session")
    return Arrival(
        rid=operation["rid"],
        length=operation["len"],
        max_new_tokens=operation["max_new_tokens"],
        bos=bool(operation.get("bos")),
        priority=operation.get("priority"),
        session=None
        if params is None
        else SessionParams(
            params["id"],
            params.get("rid"),
            bool(params.get("replace")),
            params.get("offset"),
            bool(params.get("drop_previous_output")),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """How an operation is carried out, and the arguments that it cannot do without."""

    carry_out: Callable[[Engine, float, Operation], Outcome]
    needs: tuple[str, ...] = ()


_OPERATIONS: dict[str, _Kind] = {
    "open": _Kind(
        lambda engine, now, op: engine.open(now, op["session"], bool(op.get("streaming")), op.get("timeout")),
        ("session",),
    ),
    "close": _Kind(lambda engine, now, op: engine.close(now, op["session"]), ("session",)),
    "reap": _Kind(lambda engine, now, _: engine.reap(now)),
    "arrive": _Kind(lambda engine, now, op: engine.arrive(now, _arrival(op)), ("rid", "len", "max_new_tokens")),
    "abort": _Kind(lambda engine, now, op: engine.abort(now, op["rid"]), ("rid",)),
    "abort_all": _Kind(lambda engine, now, _: engine.abort_all(now)),
    "tick": _Kind(lambda engine, now, _: engine.tick(now)),
    "poll": _Kind(lambda engine, now, _: engine.poll(now)),
    "admit": _Kind(lambda engine, now, op: engine.admit(now, op["rid"]), ("rid",)),
    "step": _Kind(lambda engine, now, op: engine.step(now, op["n"], op.get("eos") or ()), ("n",)),
    "settle": _Kind(lambda engine, now, _: engine.step(now)),
    "finish": _Kind(lambda engine, now, op: engine.step(now, eos=(op["rid"],)), ("rid",)),
    "retract": _Kind(lambda engine, now, _: engine.retract(now)),
    "oom": _Kind(lambda engine, now, _: engine.oom(now)),
    "iterate": _Kind(lambda engine, now, _: engine.iterate(now)),
}
