"""The form of a request-log record: the fact that all records of a template make, but for what varies in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import and_, attrgetter, itemgetter
from typing import Any

from sglang_lifecycle.parsers import requestlog
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.forms import Columns, Form, Row
from sglang_lifecycle.parsers.layouts import Template
from sglang_lifecycle.parsers.recordcolumns import FILLS
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
    prompt,
    prompt_ids,
    sampling_params,
    session_params,
    total_retractions,
)
from sglang_lifecycle.parsers.requestlog import OPENING
from sglang_lifecycle.parsers.strangers import LONG


class RecordForm(Form):
    """The form of a template's records."""

    def __init__(self, template: Template) -> None:
        blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
        begin(requestlog.settled(template), blank)
        del blank.detail["fields"]
        self.event, self._blank = blank.event, blank
        places = {name: place for place, name in enumerate(template.varies)}
        self._rid, self._named = places["rid"], places.get(requestlog.NAMED)
        self._session, self._reason = places.get("session_params"), places.get("meta.finish_reason")
        self._sampling = places.get("sampling_params")
        told = [name for name in places if name in _FILLS]
        told.sort(key=lambda name: name == "session_params")  # what it says goes before a finish reason
        self._fills = [(places[name], _FILLS[name]) for name in told]
        self._columns = [(places[name], _PARSED[name], FILLS[name]) for name in told if name in _PARSED]
        alone = set(told) - _PARSED.keys() - {"session_params"}  # they say what others may say as well
        prompts = _PROMPTS.intersection(told)
        self._columnar = not alone and len(prompts) < 2 and not (prompts and _prompted(blank))
        self._beside = [place for name, place in places.items() if name not in _UNESCAPED and name != "rid"]
        self._inner = itemgetter(*self._beside, self._rid, self._rid)  # two at least

    def takes(self, texts: Sequence[bytes]) -> bool:
        """Whether a record is told by these values; else only the record as a whole can tell."""
        rid = texts[self._rid]
        if rid[0] != _QUOTE or len(rid) < 3 or rid.find(b"'", 1) != len(rid) - 1:
            return False
        if self._named is not None and texts[self._named] != rid:
            return False
        inner = b"".join(self._inner(texts))
        if len(inner) > LONG or b"\\" in inner:
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
            and sum(max(map(len, values)) for values in (rids, *inner)) <= LONG
            and _RIDS.fullmatch(b"".join(rids)) is not None
            and (self._named is None or texts[self._named] == rids)
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

    def plain(self, texts: Sequence[bytes]) -> bool:
        """Whether records with such values can be told together with others."""
        return (
            self._columnar
            and (self._session is None or texts[self._session] == b"None")
            and (self._reason is None or _reason(texts[self._reason]) is not None)
        )

    def plains(self, texts: Sequence[Sequence[bytes]]) -> Sequence[bool]:
        """Which of some records, their values side by side, can be told together; nothing where all can."""
        if not self._columnar:
            return [False] * len(texts[self._rid])
        plain = [text == b"None" for text in texts[self._session]] if self._session is not None else []
        if self._reason is not None:
            whole = [_reason(text) is not None for text in texts[self._reason]]
            plain = list(map(and_, plain, whole)) if plain else whole
        return plain

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
        for place, parse, fill in self._columns:
            fill(columns, parse(texts[place]))
        return columns


_SHARED = Fact.__slots__[Fact.__slots__.index("pattern") : -1]
_rest = attrgetter(*Fact.__slots__[Fact.__slots__.index("rid") + 1 : -1])
_Fill = Callable[[Fact, bytes], Any]
_Parse = Callable[[Sequence[bytes]], list[Any]]
_QUOTE = ord("'")
_RIDS = re.compile(rb"(?:'[^'\\]++')++")


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


def _wholes(texts: Sequence[bytes]) -> list[Any]:
    joined = b",".join(texts)
    return list(map(int, joined.split(b","))) if _WHOLES.fullmatch(joined) else list(map(_literal, texts))


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


def _sampled(text: bytes) -> tuple[dict[str, Any], list[str]]:
    return _of_usual_sampling(text) if len(text) < LONG else _of_sampling(text)


def _of_sampling(text: bytes) -> tuple[dict[str, Any], list[str]]:
    """What sampling parameters tell about a request, and the grammars in them."""
    found, schemas = requestlog.sampling(text.decode("utf-8", "replace"))
    blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
    sampling_params(blank, found)
    return blank.detail, schemas


_of_usual_sampling = lru_cache(maxsize=4096)(_of_sampling)


def _fill_sampling(fact: Fact, text: bytes) -> None:
    fact.detail.update(_sampled(text)[0])


def _samplings(texts: Sequence[bytes]) -> list[Any]:
    return [_sampled(text)[0] for text in texts]


def _opening(text: bytes) -> Any:
    """The opening of a prompt, if it is known."""
    if text[0] == _QUOTE and b" ... " not in text:
        return text[1 : min(len(text) - 1, _BYTES)].decode("utf-8", "replace")[: OPENING - 1]
    return requestlog.payload("text", text.decode("utf-8", "replace"))


_BYTES = 4 * OPENING + 4  # that hold the opening of a prompt


def _fill_text(fact: Fact, text: bytes) -> None:
    prompt(fact, _opening(text))


def _openings(texts: Sequence[bytes]) -> list[Any]:
    joined = b"\n".join([text[1 : min(len(text) - 1, OPENING)] for text in texts])
    if not joined.isascii():
        joined = b"\n".join([text[1 : min(len(text) - 1, _BYTES)] for text in texts])
    openings: list[Any] = [text[: OPENING - 1] for text in joined.decode("utf-8", "replace").split("\n")]
    for place, text in enumerate(texts):
        if text[0] != _QUOTE or text.find(b"'", 1) != len(text) - 1:
            openings[place] = _opening(text)
    return openings


def _size(text: bytes) -> Any:
    return requestlog.payload("input_ids", text.decode("utf-8", "replace"))


def _fill_ids(fact: Fact, text: bytes) -> None:
    prompt_ids(fact, _size(text))


@lru_cache(maxsize=4096)
def _reason(text: bytes) -> tuple[str | None, str | None] | None:
    """The type of a finish reason and its shape; None where it says more."""
    blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
    finish_reason(blank, _value(text))
    more = blank.finish_type == "abort" or blank.finish_message is not None or bool(blank.detail)
    return None if more else (blank.finish_type, blank.finish_shape)


def _reasons(texts: Sequence[bytes]) -> list[Any]:
    return [_reason(text) or (None, None) for text in texts]


def _fill_output(fact: Fact, text: bytes) -> None:
    if text.strip() not in _EMPTY:
        fact.detail["has_output"] = True


def _filled(texts: Sequence[bytes]) -> list[Any]:
    return [text.strip() not in _EMPTY for text in texts]


def _fill_media(fact: Fact, text: bytes) -> None:
    media(fact, _holds(text))


def _holds(text: bytes) -> bool:
    return text not in _EMPTY and requestlog.holds(text.decode("utf-8", "replace"))


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


def _each(of: Callable[[bytes], Any]) -> _Parse:
    return lambda texts: list(map(of, texts))


_PARSED: dict[str, _Parse] = {
    **dict.fromkeys((*KEPT, "bootstrap_room", "lora_path", "http_worker_ipc"), _each(_literal)),
    "sampling_params": _samplings,
    "text": _openings,
    "input_ids": _each(_size),
    **dict.fromkeys(requestlog.MEDIA, _each(_holds)),
    "meta.finish_reason": _reasons,
    **dict.fromkeys((f"meta.{name}" for name in COUNTS), _wholes),
    **dict.fromkeys((f"meta.{name}" for name in (*SECONDS, *STAMPS)), _fractions),
    **dict.fromkeys(requestlog.OUTPUTS, _filled),
}
"""How the texts of many records become the values that `recordcolumns` takes."""
