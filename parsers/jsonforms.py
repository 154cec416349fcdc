"""The forms of request-log records in JSON: those with the same fields are told together.

Each is read as JSON, whole. What few records have, a session, an abort, a grammar, texts with line ends, is left to who
reads them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from datetime import tzinfo
from functools import lru_cache
from typing import Any

import orjson

from sglang_lifecycle.parsers import requestlog
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.forms import Columns, Form, Row, Stamp, alone
from sglang_lifecycle.parsers.gateway import outer_ids
from sglang_lifecycle.parsers.recordcolumns import FILLS
from sglang_lifecycle.parsers.requestfacts import MICROSECOND, finish_reason, moment, sampling_params
from sglang_lifecycle.parsers.requestlog import JSON_HEAD, OPENING, STRANGERS
from sglang_lifecycle.parsers.strangers import LONG

_HEAD = JSON_HEAD.encode()
_TOGETHER = frozenset({"session", "session_rid", "headers", "meta.total_retractions"})
"""Fields that say something together with others."""
_UNSAID = ("session_params", "external_trace_header")
"""Fields that a record has to leave empty."""


class JsonForm(Form):
    """The form of records that have the same fields; `outcome`: they tell how a request ended."""

    def __init__(self, event: str, fields: tuple[str, ...], outcome: bool) -> None:
        self.event, self.fields, self._outcome = Event(event), fields, outcome
        self._told = [name for name in fields if name in FILLS]
        self._unsaid = [name for name in fields if name in _UNSAID]
        self._strange = [name for name in fields if name in STRANGERS and name not in _UNSAID]
        self._prompts = [name for name in fields if name in requestlog.PAYLOADS]

    def values(self, records: Sequence[dict[str, Any]], zone: tzinfo) -> tuple[list[int], list[list[Any]]]:
        """The places of those records that can be told together, and their values side by side.

        These are rids, times, whether there is an output, the ids that a client gave in headers, and what fields hold.
        """
        objs = [record["obj"] for record in records]
        outs = [record["out"] for record in records] if self._outcome else []
        metas = [out["meta_info"] for out in outs]
        held = {name: [obj[name] for obj in objs] for name in self.fields if name in _OF_OBJ}
        held |= {name: [meta[name[5:]] for meta in metas] for name in self._told if name.startswith("meta.")}
        values: list[list[Any]] = [
            [record.get("rid", obj.get("rid")) for record, obj in zip(records, objs, strict=True)],
            [_moment(record.get("timestamp"), zone) for record in records],
            [bool(out.get("text") or out.get("output_ids")) for out in outs] or [None] * len(records),
            [_outer(record.get("headers")) for record in records],
            *(list(map(_READ[name], held[name])) if name in _READ else held[name] for name in self._told),
        ]
        others = {place for place, rid in enumerate(values[0]) if not rid or not _short(rid)}
        for each in values[1], *(each for name, each in zip(self._told, values[4:], strict=True) if name in _MUST):
            others.update(place for place, value in enumerate(each) if value is None)
        for name in self._unsaid:
            others.update(place for place, value in enumerate(held[name]) if value is not None)
        for name in self._strange:
            others.update(place for place, value in enumerate(held[name]) if not _short(value))
        if len(self._prompts) > 1:
            prompts = zip(*(held[name] for name in self._prompts), strict=True)
            others.update(place for place, both in enumerate(prompts) if None not in both)
        if not others:
            return list(range(len(records))), values
        places = [place for place in range(len(records)) if place not in others]
        return places, [[each[place] for place in places] for each in values]

    def rids(self, texts: Sequence[Sequence[Any]]) -> list[str]:
        """Those of some records, whose values are side by side."""
        return list(texts[0])

    def stamps(self, texts: Sequence[Sequence[Any]], heads: list[Stamp]) -> list[Stamp]:
        """The times that records name; the rank is the prefix's."""
        return [(head[0], at, MICROSECOND, "own") for head, at in zip(heads, texts[1], strict=True)]

    def plain(self, texts: Sequence[Any]) -> bool:
        """Whether a record can be told together with others: all can."""
        return True

    def fact(self, source: str, row: Row) -> Fact:
        """The fact of a record."""
        return alone(self.columns([[value] for value in row.texts]), row, source)

    def columns(self, texts: Sequence[Sequence[Any]]) -> Columns:
        """What records say, whose values are side by side."""
        rids, _, outputs, headers, *values = texts
        columns = Columns(self.event, {"pattern": "reqlog.json"}, columns={"rid": list(rids)})
        if self._outcome:
            columns.details["has_output"] = list(outputs)
        for name, each in zip(self._told, values, strict=True):
            FILLS[name](columns, each)
        if any(headers):
            columns.told.append(list(headers))
        return columns


def _short(value: Any) -> bool:
    """Whether a value holds nothing that strangers could hide a line in."""
    return value is None or (isinstance(value, str) and len(value) <= LONG and "\n" not in value)


def _moment(timestamp: Any, zone: tzinfo) -> float | None:
    return moment(timestamp, zone) if isinstance(timestamp, str) else None


def _outer(headers: Any) -> dict[str, Any]:
    return outer_ids(headers, None) if isinstance(headers, dict) else {}


def _opening(text: Any) -> str | None:
    return text[:OPENING] if isinstance(text, str) else None


def _ids(ids: Any) -> Any:
    return (ids if ids == [0] else requestlog.size(ids)) if isinstance(ids, list) else None


def _media(value: Any) -> bool:
    return value is not None and requestlog.holds(str(value))


def _remembered(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, found out once for objects that are alike."""

    @lru_cache(maxsize=4096)
    def known(items: tuple[tuple[str, Any], ...], _: tuple[type, ...]) -> Any:
        return of(dict(items))

    def find(value: Any) -> Any:
        if isinstance(value, dict):
            try:
                return known(tuple(value.items()), tuple(map(type, value.values())))  # 1 is True, and 1.0
            except TypeError:  # there are lists in it
                pass
        return of(value)

    return find


@_remembered
def _sampling(params: Any) -> dict[str, Any] | None:
    """What sampling parameters tell about a request; None where there are grammars in them."""
    found, schemas = requestlog.read_sampling(params)
    blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
    sampling_params(blank, found)
    return None if schemas else blank.detail


@_remembered
def _reason(reason: Any) -> tuple[str | None, str | None] | None:
    """The type of a finish reason and its shape; None where it says more."""
    blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
    finish_reason(blank, reason)
    more = blank.finish_type == "abort" or blank.finish_message is not None or bool(blank.detail)
    texts = reason.values() if isinstance(reason, dict) else ()
    strange = any(isinstance(text, (dict, list)) or (isinstance(text, str) and not _short(text)) for text in texts)
    return None if more or strange else (blank.finish_type, blank.finish_shape)


_OF_OBJ = frozenset(name for name in (*FILLS, *STRANGERS, *_UNSAID) if not name.startswith("meta."))
_READ: dict[str, Callable[[Any], Any]] = {
    "text": _opening,
    "input_ids": _ids,
    **dict.fromkeys(requestlog.MEDIA, _media),
    "sampling_params": _sampling,
    "meta.finish_reason": _reason,
}
"""What is made of a value; others are taken as they are."""
_MUST = frozenset({"sampling_params", "meta.finish_reason"})
"""Fields of which something is made, or the record is not told together with others."""


def every(
    lines: Sequence[bytes], starts: Sequence[int], key: bytes, known: Set[tuple[str, ...]], zone: tzinfo
) -> Iterator[tuple[JsonForm, list[int], list[list[Any]]]]:
    """The forms of records whose names of fields are known: the places of those of each, and their values.

    All lines begin with the same eight bytes, `key`.
    """
    if key != _HEAD[: len(key)]:
        return
    groups: dict[JsonForm, tuple[list[int], list[dict[str, Any]]]] = {}
    for place, (line, start) in enumerate(zip(lines, starts, strict=True)):
        if line.startswith(_HEAD, start):
            try:
                data = orjson.loads(memoryview(line)[start:])
            except orjson.JSONDecodeError:  # cut, or not UTF-8
                continue
            form = _form_of(data)
            if form is not None and form.fields in known:
                places, records = groups.setdefault(form, ([], []))
                places.append(place)
                records.append(data)
    for form, (places, records) in groups.items():
        fits, values = form.values(records, zone)
        if fits:
            yield form, [places[index] for index in fits], values


def _form_of(data: dict[str, Any]) -> JsonForm | None:
    event, obj, out = data.get("event"), data.get("obj"), data.get("out")
    meta = out.get("meta_info") if isinstance(out, dict) else {}
    if not isinstance(event, str) or event not in requestlog.EVENTS:
        return None
    if not isinstance(obj, dict) or not isinstance(meta, dict):
        return None
    if requestlog.anothers(data.get("rid"), meta.get("id")):
        return None
    return _form(event, requestlog.names(tuple(obj), tuple(meta)), isinstance(out, dict))


@lru_cache(maxsize=256)
def _form(event: str, fields: tuple[str, ...], outcome: bool) -> JsonForm | None:
    return JsonForm(event, fields, outcome) if _TOGETHER.isdisjoint(fields) else None
