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

from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.engine import Engine, Outcome
from sglang_lifecycle.replay.profiles import Profile, profile_for
from sglang_lifecycle.replay.requests import Arrival, SessionParams

Operation = Mapping[str, Any]

Types = tuple[type, ...]
"""JSON types that a value may have. A boolean does not pass for a number."""

TEXT: Types = (str,)
TEXT_OR_NONE: Types = (str, type(None))
NUMBER: Types = (int, float)
NUMBER_OR_NONE: Types = (int, float, type(None))
COUNT: Types = (int,)
COUNT_OR_NONE: Types = (int, type(None))
FLAG: Types = (bool, type(None))
OBJECT: Types = (dict,)
OBJECT_OR_NONE: Types = (dict, type(None))


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
    """Yield the sequences of a `.json` or `.jsonl` file, compressed (`.gz`) or not.

    Raises ValueError, in one line and with the place, where the content is not a transcript; OSError where the file
    cannot be read.
    """
    packed = path.suffix == ".gz"
    whole = path.name.removesuffix(".gz").endswith(".json")
    found = False
    try:
        with gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8") as lines:
            if whole:
                found = True
                yield parse_transcript(lines.read(), str(path))
            else:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        found = True
                        yield parse_transcript(line, f"{path}:{number}")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not readable ({error}); give .json, .jsonl or .jsonl.gz") from error
    if not found:
        raise ValueError(f"{path}: empty; a transcript is one JSON object per line or file")


def parse_transcript(text: str, source: str) -> Transcript:
    """Return the sequence that a JSON text holds.

    Raises ValueError with `source`, what is wrong and what is wanted.
    """
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{source}: not JSON ({error}); a transcript is one JSON object per line or file") from error
    if not isinstance(data, dict):
        raise ValueError(f"{source}: not a JSON object; a transcript has the keys version, config and ops")
    _require(data, {"version": TEXT, "config": OBJECT, "ops": (list,)}, source)
    try:
        profile = profile_for(data["version"])
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    _allow(data["config"], _CONFIG, f"{source}: config")
    for index, operation in enumerate(data["ops"]):
        _check_operation(operation, f"{source}: operation {index}")
    name = data.get("name")
    return Transcript(
        source,
        str(name if name is not None else data.get("seed")),
        data["version"],
        profile,
        # An absent flag and a null one are both off.
        Config(**{key: data["config"][key] for key in _CONFIG if data["config"].get(key) is not None}),
        tuple(data["ops"]),
    )


def apply(engine: Engine, operation: Operation) -> Outcome:
    """Carry out one operation of a transcript."""
    return _OPERATIONS[operation["op"]].carry_out(engine, operation["now"], operation)


def _require(data: Mapping[str, Any], types: Mapping[str, Types], place: str) -> None:
    """Raise ValueError where a key is missing or its value has another type."""
    missing = [key for key in types if key not in data]
    if missing:
        raise ValueError(f"{place}: no {', '.join(missing)}; there must be {', '.join(types)}")
    _allow(data, types, place)


def _allow(data: Mapping[str, Any], types: Mapping[str, Types], place: str) -> None:
    """Raise ValueError where a value that is there has another type."""
    for key, allowed in types.items():
        value = data.get(key)
        is_number_by_accident = isinstance(value, bool) and bool not in allowed
        if key in data and (is_number_by_accident or not isinstance(value, allowed)):
            wanted = " or ".join(_JSON_NAMES[kind] for kind in allowed)
            raise ValueError(f"{place}: {key} is {json.dumps(value)[:40]}, it must be {wanted}")


def _check_operation(operation: object, place: str) -> None:
    if not isinstance(operation, dict):
        raise ValueError(f"{place}: not a JSON object; it must have op, now and outcome")
    _require(operation, {"op": TEXT, "now": NUMBER, "outcome": OBJECT}, place)
    name = operation["op"]
    if name not in _OPERATIONS:
        raise ValueError(f"{place}: unknown op {name!r}; there are {', '.join(_OPERATIONS)}")
    kind = _OPERATIONS[name]
    _require(operation, kind.needs, f"{place} ({name})")
    _allow(operation, kind.takes, f"{place} ({name})")
    _allow(operation["outcome"], _OUTCOME, f"{place} ({name}) outcome")
    if name == "arrive" and operation.get("session") is not None:
        _require(operation["session"], {"id": TEXT}, f"{place} ({name}) session")
        _allow(operation["session"], _SESSION_PARAMS, f"{place} ({name}) session")


def _arrival(operation: Operation) -> Arrival:
    params = operation.get("session")
    return Arrival(
        rid=operation["rid"],
        length=operation["len"],
        max_new_tokens=operation["max_new_tokens"],
        bos=bool(operation.get("bos")),
        priority=operation.get("priority"),
        session=None if params is None else _session_params(params),
    )


def _session_params(params: Mapping[str, Any]) -> SessionParams:
    return SessionParams(
        id=params["id"],
        rid=params.get("rid"),
        replace=bool(params.get("replace")),
        offset=params.get("offset"),
        drop_previous_output=bool(params.get("drop_previous_output")),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """How an operation is carried out, the arguments it needs and those it may have."""

    carry_out: Callable[[Engine, float, Operation], Outcome]
    needs: Mapping[str, Types]
    takes: Mapping[str, Types]


def _kind(
    carry_out: Callable[[Engine, float, Operation], Outcome],
    needs: Mapping[str, Types] | None = None,
    takes: Mapping[str, Types] | None = None,
) -> _Kind:
    return _Kind(carry_out, needs or {}, takes or {})


_JSON_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    type(None): "null",
}

_FIELD_TYPES: dict[str, Types] = {
    "float | None": NUMBER_OR_NONE,
    "int | None": COUNT_OR_NONE,
    "bool": FLAG,
}
_CONFIG: dict[str, Types] = {field.name: _FIELD_TYPES[str(field.type)] for field in fields(Config)}

_SESSION_PARAMS: dict[str, Types] = {
    "rid": TEXT_OR_NONE,
    "replace": FLAG,
    "offset": COUNT_OR_NONE,
    "drop_previous_output": FLAG,
}
_OUTCOME: dict[str, Types] = {"crash": OBJECT, "state": OBJECT}

_OPERATIONS: dict[str, _Kind] = {
    "open": _kind(
        lambda engine, now, op: engine.open(now, op["session"], bool(op.get("streaming")), op.get("timeout")),
        {"session": TEXT},
        {"streaming": FLAG, "timeout": NUMBER_OR_NONE},
    ),
    "close": _kind(lambda engine, now, op: engine.close(now, op["session"]), {"session": TEXT}),
    "reap": _kind(lambda engine, now, _: engine.reap(now)),
    "arrive": _kind(
        lambda engine, now, op: engine.arrive(now, _arrival(op)),
        {"rid": TEXT, "len": COUNT, "max_new_tokens": COUNT},
        {"bos": FLAG, "priority": COUNT_OR_NONE, "session": OBJECT_OR_NONE},
    ),
    "abort": _kind(lambda engine, now, op: engine.abort(now, op["rid"]), {"rid": TEXT}),
    "abort_all": _kind(lambda engine, now, _: engine.abort_all(now)),
    "tick": _kind(lambda engine, now, _: engine.tick(now)),
    "poll": _kind(lambda engine, now, _: engine.poll(now)),
    "admit": _kind(lambda engine, now, op: engine.admit(now, op["rid"]), {"rid": TEXT}),
    "step": _kind(
        lambda engine, now, op: engine.step(now, op["n"], map(str, op.get("eos") or ())),
        {"n": COUNT},
        {"eos": (list, type(None))},
    ),
    "settle": _kind(lambda engine, now, _: engine.step(now)),
    "finish": _kind(lambda engine, now, op: engine.step(now, eos=(op["rid"],)), {"rid": TEXT}),
    "retract": _kind(lambda engine, now, _: engine.retract(now)),
    "oom": _kind(lambda engine, now, _: engine.oom(now)),
    "iterate": _kind(lambda engine, now, _: engine.iterate(now)),
}
