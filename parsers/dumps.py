"""Request and crash dumps: which requests an API server had finished and which were open when it wrote them.

`--crash-dump-folder` (0.4.9 to 0.5.23) writes one when a child process has failed: the requests that finished in the
five minutes before, then the unfinished ones. `dump_requests_folder` of `/configure_logging` (0.4.2 to 0.5.23) writes
the finished ones. Both hold tuples `(request, output, created, finished or dumped)`, times in UTC epoch seconds.
Requests that ended by an abort's echo (out of the waiting queue, before the scheduler) are in neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import Any

from sglang_lifecycle.parsers import facts, pickles, requestfacts
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.exhibits import Row, Unreadable
from sglang_lifecycle.parsers.pickles import Numbers, Object
from sglang_lifecycle.parsers.requestlog import META_FIELDS, OBJ_FIELDS, OPENING, SAMPLING_FIELDS, RequestRecord, Size

_CLASS = re.compile(r"sglang\.srt\.managers\.io_struct\.\w+ReqInput")
_EARLIEST, _LATEST = 1e9, 1e10  # what a time in UTC epoch seconds lies between
_ERROR = 0.001  # seconds that a stamp may be off
_BREADTH = 64  # items of a list or a dict that are looked at; their values are shared at a hostile pickle's will
_PLACE = frozenset({"source", "line", "offset", "length", "process"})

Entry = tuple[Object, dict[str, Any], float, float]


def rows(path: Path) -> Iterator[Row]:
    """The facts of a dump: one about the dump itself, then one a request. Raises `Unreadable`, OSError."""
    try:
        pickle = pickles.load(path)
    except pickles.PickleError as problem:
        raise Unreadable(f"refused: {problem}") from None
    entries = list(_entries(pickle.values))
    root = pickle.values[0] if pickle.values and isinstance(pickle.values[0], dict) else {}
    if not entries and "requests" not in root:
        raise Unreadable("a pickle, but no dump of SGLang's requests")
    if pickle.damage is not None:
        yield {"warning": f"a damaged dump, what follows is missing: {pickle.damage}"}
    written = max((entry[3] for entry in entries), default=None)
    yield _dump(root, entries, pickle.damage is None)
    seen: set[tuple[str, ...]] = set()
    for entry in entries:
        for row in _request(entry, written):
            fields = row["detail"]["fields"]
            if fields in seen:
                del row["detail"]["fields"]
            seen.add(fields)
            yield row


def _entries(values: list[Any]) -> Iterator[Entry]:
    """The requests among a pickle's values: in `requests`, in a bare list (to 0.4.8), or loose where it is cut."""
    root = values[0] if values else None
    found = root.get("requests") if isinstance(root, dict) and len(values) == 1 else None
    seen: set[int] = set()
    for value in [found] if found is not None else values:
        for item in value if isinstance(value, Numbers) else (value,):
            if isinstance(item, tuple) and len(item) == 4 and id(item) not in seen and _fits(item):
                seen.add(id(item))
                yield item


def _fits(item: tuple[Any, ...]) -> bool:
    request, output, *times = item
    if not isinstance(request, Object) or not isinstance(output, dict) or not _CLASS.fullmatch(request.name):
        return False
    return all(isinstance(t, float) and _EARLIEST < t < _LATEST for t in times)


def _finished(entry: Entry) -> bool:
    meta = entry[1].get("meta_info")
    return isinstance(meta, dict) and isinstance(meta.get("finish_reason"), dict)


def _dump(root: dict[str, Any], entries: list[Entry], whole: bool) -> Row:
    """The dump itself. Only one that was written before a crash can count who was unfinished, if it is whole."""
    finished = sum(map(_finished, entries))
    args = _args(root)
    detail: dict[str, Any] = {
        "count": finished,
        "args": {name: _plain(args[name]) for name in facts.ARGS & args.keys()},
        "fields": [f"args.{name}" for name in args],
    }
    unfinished = len(entries) - finished
    crash = bool(unfinished) or "launch_command" in root  # the latter from 0.5.9 on
    if crash and whole:
        detail["unfinished"] = unfinished
    row = {"event": Event.SERVER_DUMPED, "pattern": "dump.crash" if crash else "dump", "detail": detail}
    return _dated(row, max((entry[3] for entry in entries), default=None))


def _args(root: dict[str, Any]) -> dict[str, Any]:
    """The server's arguments: an object's fields, a dict (late releases), or a dict that an object is made of."""
    found = root.get("server_args")
    candidates = (found.fields, *found.args) if isinstance(found, Object) else (found,)
    return next((each for each in candidates if isinstance(each, dict) and each), {})


def _dated(row: Row, at: float | None) -> Row:
    return row | ({"at": at, "at_error": _ERROR, "at_from": "meta"} if at is not None else {})


def _request(entry: Entry, written: float | None) -> Iterator[Row]:
    request, output, created, ended = entry
    record = RequestRecord(Event.REQUEST_DUMPED, None, _fields(request.fields))
    record.rid = record.obj.pop("rid", None)
    meta = output.get("meta_info")
    names = list(request.fields)
    if isinstance(meta, dict):
        record.meta = {name: _plain(meta[name]) for name in META_FIELDS & meta.keys()}
        names += [f"meta.{name}" for name in meta]
    tokens = output.get("output_ids")
    record.has_output = isinstance(tokens, Numbers) and tokens.size > 0
    record.fields = tuple(names)
    blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
    for fact in requestfacts.from_request(record, blank, UTC):
        fact.pattern = "dump"
        if fact.completion_tokens is None and isinstance(tokens, Numbers):
            fact.completion_tokens = tokens.size
        fact.detail |= {"finished": _finished(entry), "created": created, "written": written}
        row = {name: getattr(fact, name) for name in Fact.__slots__ if name not in _PLACE}
        yield _dated({name: value for name, value in row.items() if value is not None}, ended)


def _fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request that say something of its life, in the shape of the request log's."""
    kept = {name: _plain(fields[name]) for name in OBJ_FIELDS & fields.keys()}
    if isinstance(kept.get("text"), str):
        kept["text"] = kept["text"][:OPENING]
    ids = fields.get("input_ids")
    if isinstance(ids, Numbers):
        flat = not any(isinstance(each, Numbers) for each in ids)
        kept["input_ids"] = [0] if list(ids) == [0] else Size(ids.size) if flat else None
    sampling = kept.get("sampling_params")
    if isinstance(sampling, dict):
        kept["sampling_params"] = {
            name: value if isinstance(value := sampling[name], int) else True
            for name in SAMPLING_FIELDS & sampling.keys()
            if sampling[name] is not None
        }
    return kept


def _plain(value: Any, depth: int = 2) -> Any:
    """A value as the request log would have it: an enumeration's member is its value, other objects are nothing."""
    if isinstance(value, Object):
        number = value.args[0] if len(value.args) == 1 else None
        return number if value.name == "http.HTTPStatus" and isinstance(number, int) else None
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth and isinstance(value, dict):
        return {name: _plain(each, depth - 1) for name, each in islice(value.items(), _BREADTH)}
    if depth and isinstance(value, Numbers | tuple):
        return [_plain(each, depth - 1) for each in value[:_BREADTH]]
    return None
