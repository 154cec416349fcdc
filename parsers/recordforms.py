"""The form of a request-log record: the fact that all records of a template make, but for what varies in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from typing import Any

from sglang_lifecycle.parsers import requestlog
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.forms import Columns, Row
from sglang_lifecycle.parsers.layouts import Template
from sglang_lifecycle.parsers.requestfacts import (
    COUNTS,
    KEPT,
    META,
    OBJ,
    SECONDS,
    STAMPS,
    Note,
    begin,
    finish_reason,
    media,
    most_tokens,
    prompt,
    prompt_ids,
    sampling_params,
    session_params,
    total_retractions,
)
from sglang_lifecycle.parsers.requestlog import OPENING


class RecordForm:
    """The form of a template's records."""

    def __init__(self, template: Template) -> None:
        blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
        begin(requestlog.settled(template), blank)
        del blank.detail["fields"]
        self.event, self._blank = blank.event, blank
        places = {name: place for place, name in enumerate(template.varies)}
        self._rid = places["rid"]
        self._session, self._reason = places.get("session_params"), places.get("meta.finish_reason")
        self._sampling = places.get("sampling_params")
        told = [name for name in places if name in _FILLS]
        told.sort(key=lambda name: name == "session_params")  # what it says goes before a finish reason
        self._fills = [(places[name], _FILLS[name]) for name in told]
        self._columns = [(places[name], _COLUMNS[name]) for name in told if name in _COLUMNS]
        alone = set(told) - _COLUMNS.keys() - {"session_params"}  # they say what others may say as well
        prompts = _PROMPTS.intersection(told)
        self._columnar = not alone and len(prompts) < 2 and not (prompts and _prompted(blank))
        self._beside = [place for name, place in places.items() if name not in _UNESCAPED and name != "rid"]
        self._inner = itemgetter(*self._beside, self._rid, self._rid)  # two at least

    def takes(self, texts: Sequence[bytes]) -> bool:
        """Whether a record is told by these values; else only the record as a whole can tell."""
        rid = texts[self._rid]
        if rid[0] != _QUOTE or len(rid) < 3 or rid.find(b"'", 1) != len(rid) - 1:
            return False
        inner = b"".join(self._inner(texts))
        if len(inner) > _LONG or b"\\" in inner:
            return False
        if self._session is not None and texts[self._session][:1] == b"[":
            return False
        return self._sampling is None or not _sampled(texts[self._sampling])[1]

    def taken(self, texts: Sequence[Sequence[bytes]]) -> list[bool]:
        """Which of some records, their values side by side, are told by these."""
        rids, inner = texts[self._rid], [texts[place] for place in self._beside]
        joined = b"".join(map(b"".join, inner))
        simple = (
            b"\\" not in joined
            and sum(max(map(len, values)) for values in (rids, *inner)) <= _LONG
            and _RIDS.fullmatch(b"".join(rids)) is not None
            and (self._session is None or not any(value[:1] == b"[" for value in set(texts[self._session])))
            and (self._sampling is None or not any(_sampled(value)[1] for value in set(texts[self._sampling])))
        )
        return [True] * len(rids) if simple else [self.takes(each) for each in zip(*texts, strict=True)]

    def rid(self, texts: Sequence[bytes]) -> str:
        """The rid of a record whose values it takes."""
        return _name(texts[self._rid])

    def rids(self, texts: Sequence[Sequence[bytes]]) -> list[str]:
        """Those of several, whose values are side by side."""
        return _names(texts[self._rid])

    def often(self, texts: Sequence[Sequence[bytes]]) -> Sequence[bool]:
        """No record is said twice."""
        return ()

    def plain(self, texts: Sequence[bytes]) -> bool:
        """Whether records with such values can be told together with others."""
        return (
            self._columnar
            and (self._session is None or texts[self._session] == b"None")
            and (self._reason is None or _reason(texts[self._reason]) is not None)
        )

    def alike(self, texts: Sequence[Sequence[bytes]]) -> bool:
        """Whether all of some records, their values side by side, can be told together."""
        session, reason = self._session, self._reason
        return (
            self._columnar
            and (session is None or {b"None"}.issuperset(texts[session]))
            and (reason is None or None not in map(_reason, set(texts[reason])))
        )

    def fact(self, source: str, row: Row) -> Fact:
        """The fact of a record whose values it takes."""
        name, detail = self.rid(row.texts), self._blank.detail.copy()
        rest = *row.stamp, False, self._blank.pattern, name, *_rest(self._blank), detail
        fact = Fact(self.event, source, row.line, row.offset, row.length, source, *rest)
        for place, fill in self._fills:
            fill(fact, row.texts[place])
        return fact

    def columns(self, texts: Sequence[Sequence[bytes]]) -> Columns:
        """What records say whose values, side by side, are plain."""
        shared = {name: getattr(self._blank, name) for name in _SHARED}
        columns = Columns(self.event, shared, self._blank.detail, {"rid": self.rids(texts)})
        for place, fill in self._columns:
            fill(columns, texts[place])
        return columns


_SHARED = Fact.__slots__[Fact.__slots__.index("pattern") : -1]
_rest = attrgetter(*Fact.__slots__[Fact.__slots__.index("rid") + 1 : -1])
_Fill = Callable[[Fact, bytes], Any]
_Fills = Callable[[Columns, Sequence[bytes]], Any]
_QUOTE = ord("'")
_RIDS = re.compile(rb"(?:'[^'\\]++')++")
_LONG = 1000
"""Characters from which on, as in one with an escape, a text may be of those that strangers hide lines in."""


def _name(rid: bytes) -> str:
    return rid[1:-1].decode("utf-8", "replace")


def _names(rids: Sequence[bytes]) -> list[str]:
    joined = b"".join(rids)  # none has a quote inside
    return joined[1:-1].decode().split("''") if joined.isascii() else list(map(_name, rids))


def _prompted(blank: Fact) -> bool:
    return not blank.detail.keys().isdisjoint(("opening", "prompt_ids"))


@lru_cache(maxsize=256)
def form(template: Template) -> RecordForm | None:
    """The form of a template; None where its records say something that depends on more than one value."""
    together = _TOGETHER.intersection(template.names)
    settled = template.settled.get("session_params", "None")
    return RecordForm(template) if "rid" in template.varies and not together and settled == "None" else None


_TOGETHER = frozenset({"session", "session_rid"})
_PROMPTS = frozenset({"text", "input_ids"})
_UNESCAPED = frozenset({"text", "input_ids", "sampling_params", *requestlog.OUTPUTS, *requestlog.MEDIA})
"""Values that may hold escapes: what is taken of them goes into no other line."""


def _value(text: bytes) -> Any:
    return requestlog.literal(text.decode("utf-8", "replace"))


_SHORT = 200
_remembered = lru_cache(maxsize=4096)(_value)


def _literal(text: bytes) -> Any:
    return _remembered(text) if len(text) < _SHORT else _value(text)


def _of_value(note: Note) -> _Fill:
    """Fills in what a note takes from a value."""

    def fill(fact: Fact, text: bytes) -> None:
        note(fact, _literal(text))

    return fill


def _whole_into(column: str, note: Note) -> _Fill:
    """Fills in what a note takes from a value that mostly is a whole number."""
    other = _of_value(note)

    def fill(fact: Fact, text: bytes) -> None:
        if text.isdigit() and len(text) < 19:
            setattr(fact, column, int(text))
        else:
            other(fact, text)

    return fill


def _wholes_into(column: str) -> _Fills:
    def fill(columns: Columns, texts: Sequence[bytes]) -> None:
        joined = b",".join(texts)
        if _WHOLES.fullmatch(joined):
            columns.columns[column] = list(map(int, joined.split(b",")))
        else:
            columns.columns[column] = [v if type(v) is int else None for v in map(_literal, texts)]

    return fill


_WHOLES = re.compile(rb"[0-9]{1,18}(?:,[0-9]{1,18})*+")


def _of_fraction(note: Note) -> _Fill:
    """Fills in what a note takes from a value that mostly is a number with a point."""

    def fill(fact: Fact, text: bytes) -> None:
        note(fact, _fractions([text])[0])

    return fill


def _fractions(texts: Sequence[bytes]) -> list[Any]:
    joined = b",".join(texts)
    return list(map(float, joined.split(b","))) if _POINTS.fullmatch(joined) else list(map(_value, texts))


_POINTS = re.compile(rb"[0-9]{1,99}\.[0-9]{1,99}(?:,[0-9]{1,99}\.[0-9]{1,99})*+")


def _seconds_into(column: str) -> _Fills:
    def fill(columns: Columns, texts: Sequence[bytes]) -> None:
        values = _fractions(texts)
        columns.columns[column] = [float(v) if isinstance(v, (int, float)) else None for v in values]

    return fill


def _details(name: str, of: Callable[[Sequence[bytes]], Iterable[Any]], *types: type) -> _Fills:
    """Fills in the values of a key of the detail, those that are of some types."""

    def fill(columns: Columns, texts: Sequence[bytes]) -> None:
        columns.details[name] = [value if isinstance(value, types) else None for value in of(texts)]

    return fill


def _sampled(text: bytes) -> tuple[dict[str, Any], list[str]]:
    return _of_usual_sampling(text) if len(text) < _LONG else _of_sampling(text)


def _of_sampling(text: bytes) -> tuple[dict[str, Any], list[str]]:
    """What sampling parameters tell about a request, and the grammars in them."""
    found, schemas = requestlog.sampling(text.decode("utf-8", "replace"))
    blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
    sampling_params(blank, found)
    return blank.detail, schemas


_of_usual_sampling = lru_cache(maxsize=4096)(_of_sampling)


def _fill_sampling(fact: Fact, text: bytes) -> None:
    fact.detail.update(_sampled(text)[0])


def _fill_samplings(columns: Columns, texts: Sequence[bytes]) -> None:
    columns.told.append([_sampled(text)[0] for text in texts])


def _opening(text: bytes) -> Any:
    """The opening of a prompt, if it is known."""
    if text[0] == _QUOTE and b" ... " not in text:
        return text[1 : min(len(text) - 1, _BYTES)].decode("utf-8", "replace")[: OPENING - 1]
    return requestlog.payload("text", text.decode("utf-8", "replace"))


_BYTES = 4 * OPENING + 4  # that hold the opening of a prompt


def _fill_text(fact: Fact, text: bytes) -> None:
    prompt(fact, _opening(text))


def _fill_texts(columns: Columns, texts: Sequence[bytes]) -> None:
    """Fills in the openings of prompts, and of short ones how many tokens they have at most."""
    heads = [text[1 : min(len(text) - 1, OPENING)] for text in texts]
    joined = b"\n".join(heads)
    if joined.isascii() and all(text[0] == _QUOTE and text.find(b"'", 1) == len(text) - 1 for text in texts):
        values: list[Any] = joined.decode().split("\n")
        most = [len(value) + 1 if len(value) < OPENING - 1 else None for value in values]
    else:
        values = list(map(_opening, texts))
        most = list(map(most_tokens, values))
    columns.details["opening"] = [value if isinstance(value, str) else None for value in values]
    columns.details["prompt_ids"] = most


def _size(text: bytes) -> Any:
    return requestlog.payload("input_ids", text.decode("utf-8", "replace"))


def _fill_ids(fact: Fact, text: bytes) -> None:
    prompt_ids(fact, _size(text))


def _fill_sizes(columns: Columns, texts: Sequence[bytes]) -> None:
    values = list(map(_size, texts))
    columns.details["prompt_ids"] = [int(value) if isinstance(value, requestlog.Size) else None for value in values]
    columns.details["opening"] = ["[0]" if value == [0] else None for value in values]


@lru_cache(maxsize=4096)
def _reason(text: bytes) -> tuple[str | None, str | None] | None:
    """The type of a finish reason and its shape; None where it says more."""
    blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
    finish_reason(blank, _value(text))
    more = blank.finish_type == "abort" or blank.finish_message is not None
    return None if more else (blank.finish_type, blank.finish_shape)


def _fill_reasons(columns: Columns, texts: Sequence[bytes]) -> None:
    found = [_reason(text) or (None, None) for text in texts]
    columns.columns["finish_type"] = [each[0] for each in found]
    columns.columns["finish_shape"] = [each[1] for each in found]


def _fill_output(fact: Fact, text: bytes) -> None:
    if text.strip() not in _EMPTY:
        fact.detail["has_output"] = True


def _fill_outputs(columns: Columns, texts: Sequence[bytes]) -> None:
    before = columns.details.get("has_output", [None] * len(texts))
    columns.details["has_output"] = [
        one or (True if text.strip() not in _EMPTY else None) for one, text in zip(before, texts, strict=True)
    ]


def _fill_media(fact: Fact, text: bytes) -> None:
    media(fact, _holds(text))


def _fill_medias(columns: Columns, texts: Sequence[bytes]) -> None:
    before = columns.details.get("media", [None] * len(texts))
    columns.details["media"] = [
        one or (True if _holds(text) else None) for one, text in zip(before, texts, strict=True)
    ]


def _holds(text: bytes) -> bool:
    return text not in _EMPTY and requestlog.holds(text.decode("utf-8", "replace"))


def _fill_rooms(columns: Columns, texts: Sequence[bytes]) -> None:
    columns.columns["room"] = [value if isinstance(value, int) else None for value in map(_literal, texts)]


def _fill_workers(columns: Columns, texts: Sequence[bytes]) -> None:
    columns.details["worker"] = [True if isinstance(value, str) else None for value in map(_literal, texts)]


_EMPTY = frozenset(text.encode() for text in requestlog.EMPTY)
_FILLS: dict[str, _Fill] = {
    **{name: _of_value(note) for name, note in OBJ.items()},
    "meta.finish_reason": _of_value(finish_reason),
    "meta.total_retractions": _of_value(total_retractions),
    **{f"meta.{name}": _whole_into(column, META[name]) for name, column in COUNTS.items()},
    **{f"meta.{name}": _of_fraction(META[name]) for name in (*SECONDS, *STAMPS)},
    "sampling_params": _fill_sampling,
    "session_params": _of_value(session_params),
    "text": _fill_text,
    "input_ids": _fill_ids,
    **dict.fromkeys(requestlog.OUTPUTS, _fill_output),
    **dict.fromkeys(requestlog.MEDIA, _fill_media),
}
"""How a value that varies is filled in, from its text."""
_literals = partial(map, _literal)
_COLUMNS: dict[str, _Fills] = {
    **{name: _details(name, _literals, bool, int) for name in KEPT},
    "bootstrap_room": _fill_rooms,
    "lora_path": _details("lora", _literals, str),
    "http_worker_ipc": _fill_workers,
    "meta.finish_reason": _fill_reasons,
    **{f"meta.{name}": _wholes_into(column) for name, column in COUNTS.items()},
    **{f"meta.{name}": _seconds_into(column) for name, column in SECONDS.items()},
    **{f"meta.{name}": _details(name, _fractions, int, float) for name in STAMPS},
    "sampling_params": _fill_samplings,
    "text": _fill_texts,
    "input_ids": _fill_sizes,
    **dict.fromkeys(requestlog.OUTPUTS, _fill_outputs),
    **dict.fromkeys(requestlog.MEDIA, _fill_medias),
}
"""The same for many records, as columns; `session_params` are None where values are plain."""
