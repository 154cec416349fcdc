"""From a record of the request log, or other JSON of SGLang, to rows of the evidence table.

Most records are like others but for a few values. A `Form` is the fact that all records of a template make, ready to be
filled in with what varies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import lru_cache
from operator import attrgetter
from typing import Any

from sglang_lifecycle.parsers import gateway, requestlog
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.facts import note_message
from sglang_lifecycle.parsers.layouts import Template
from sglang_lifecycle.parsers.requestlog import NAN, OPENING, RequestRecord, Size

_SHAPES = {
    ("type", "message", "status_code", "err_type"): "scheduler",
    ("type", "status_code", "message"): "echo-with-reason",
    ("type", "message"): "echo-plain",
}
"""Where a request was ended, by the keys of its `finish_reason` in their order."""

_KINDS = {str(event): event for event in Event}
_Note = Callable[[Fact, Any], None]


def _detail(*types: type) -> Callable[[str], _Note]:
    """Notes of values of some types under the names that they have."""

    def named(name: str) -> _Note:
        def note(fact: Fact, value: Any) -> None:
            if isinstance(value, types):
                fact.detail[name] = value

        return note

    return named


def _sampling_params(fact: Fact, value: Any) -> None:
    sampling = value[0] if isinstance(value, list) and value else value
    if isinstance(sampling, dict):
        detail = fact.detail
        for name in ("n", "max_new_tokens"):
            if isinstance(sampling.get(name), int):
                detail[name] = sampling[name]
        if "stop" in sampling:
            detail["stop_nan"] = sampling["stop"]
        detail["grammar"] = not _GRAMMARS.isdisjoint(sampling)


_GRAMMARS = frozenset(requestlog.GRAMMARS)


def _prompt(fact: Fact, value: Any) -> None:
    if isinstance(value, str):
        fact.detail["opening"] = value
        if len(value) < OPENING - 1:  # no token is shorter than a byte; one may begin the text
            fact.detail.setdefault("prompt_ids", len(value.encode()) + 1)


def _prompt_ids(fact: Fact, value: Any) -> None:
    if isinstance(value, Size):
        fact.detail["prompt_ids"] = int(value)
    elif value == [0]:
        fact.detail.setdefault("opening", "[0]")


def _room(fact: Fact, value: Any) -> None:
    if isinstance(value, int):
        fact.room = value


def _worker(fact: Fact, value: Any) -> None:
    if isinstance(value, str):
        fact.detail["worker"] = True


def _headers(fact: Fact, value: Any) -> None:
    fact.detail.update(gateway.outer_ids(value, None))


def _trace_header(fact: Fact, value: Any) -> None:
    for name, text in gateway.outer_ids(None, value).items():
        fact.detail.setdefault(name, text)  # the headers count, where both are there


_kept = _detail(bool, int)
_OBJ: dict[str, _Note] = {
    **{name: _kept(name) for name in ("stream", "priority", "background")},
    "sampling_params": _sampling_params,
    "text": _prompt,
    "input_ids": _prompt_ids,
    "bootstrap_room": _room,
    "http_worker_ipc": _worker,
    "headers": _headers,
    "external_trace_header": _trace_header,
}
"""What the fields of a request tell about it."""


def _finish_reason(fact: Fact, reason: Any) -> None:
    if not isinstance(reason, dict):
        return
    fact.finish_type = _text(reason.get("type"))
    fact.finish_shape = _SHAPES.get(tuple(reason))
    if fact.finish_type == "abort":
        note_message(fact, _text(reason.get("message")) or "")
        status = reason.get("status_code")
        fact.status_code = status if isinstance(status, int) else None
        fact.err_type = _text(reason.get("err_type"))
    elif reason.get("matched") == NAN:
        fact.finish_message = fact.message_id = "nan"


def _whole(column: str) -> _Note:
    def note(fact: Fact, value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            setattr(fact, column, value)

    return note


def _total_retractions(fact: Fact, value: Any) -> None:
    if fact.retractions is None:  # `num_retractions` counts, where both are there
        _whole("retractions")(fact, value)


def _seconds(column: str) -> _Note:
    def note(fact: Fact, value: Any) -> None:
        if isinstance(value, (int, float)):
            setattr(fact, column, float(value))

    return note


_number = _detail(int, float)
_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_STAMPS = ("response_sent_to_client_ts", "request_received_ts", "forward_entry_time", "dp_rank")
_META: dict[str, _Note] = {
    "finish_reason": _finish_reason,
    **{name: _whole(name) for name in _TOKENS},
    "total_retractions": _total_retractions,
    "num_retractions": _whole("retractions"),
    "e2e_latency": _seconds("e2e_s"),
    "queue_time": _seconds("queue_s"),
    **{name: _number(name) for name in _STAMPS},
}
"""What the fields of `meta_info` tell about a request."""


def from_request(record: RequestRecord, fact: Fact, zone: tzinfo) -> list[Fact]:
    """The facts of a request-log record: one, or one for each rid of a batch."""
    _begin(record, fact)
    if record.timestamp:
        _own_time(record.timestamp, fact, zone)
    if record.cut:
        fact.detail["cut"] = True
    return _per_rid(record, fact)


def _begin(record: RequestRecord, fact: Fact) -> None:
    """What a record says but for its rid and its session."""
    fact.event = _KINDS[record.event]
    fact.pattern = "reqlog.json" if record.timestamp else "reqlog.text"
    fact.tainted = fact.tainted or record.trailing
    for name, value in record.obj.items():
        if value is not None and (note := _OBJ.get(name)) is not None:
            note(fact, value)
    fact.detail["fields"] = record.fields
    if record.meta is not None:
        _outcome(record.meta, fact)
        fact.detail["has_output"] = record.has_output


def _outcome(meta: Mapping[str, Any], fact: Fact) -> None:
    for name, value in meta.items():
        if (note := _META.get(name)) is not None:
            note(fact, value)


def _own_time(timestamp: str, fact: Fact, zone: tzinfo) -> None:
    micros = timestamp[20:]
    plain = len(micros) == 6 and timestamp[10:20:9] == "T." and micros.isdigit() and micros.isascii()
    second = _second(timestamp[:19], zone) if plain else None
    if second is not None:
        fact.at = (second * 1_000_000 + int(micros)) / 1_000_000  # as `timestamp` reckons
    else:
        try:
            fact.at = datetime.fromisoformat(timestamp).replace(tzinfo=zone).timestamp()
        except (ValueError, OverflowError):
            return
    fact.at_error, fact.at_from = 0.000001, "own"


@lru_cache(maxsize=256)
def _second(timestamp: str, zone: tzinfo) -> int | None:
    """UTC epoch seconds of a time of whole seconds, which many records share; None for an impossible one."""
    try:
        return int(datetime.fromisoformat(timestamp).replace(tzinfo=zone).timestamp())
    except (ValueError, OverflowError):
        return None


def _per_rid(record: RequestRecord, fact: Fact) -> list[Fact]:
    rids = record.rid if isinstance(record.rid, list) else [record.rid]
    params = record.obj.get("session_params")
    facts = []
    for index, rid in enumerate(rids):
        one = fact if len(rids) == 1 else _copy(fact)
        one.rid = _text(rid)
        _session(params[index] if isinstance(params, list) and index < len(params) else params, record, one)
        if len(rids) > 1:
            one.detail["batch"] = [r for r in rids if isinstance(r, str)]
        facts.append(one)
    return facts


def _copy(fact: Fact) -> Fact:
    values = {name: getattr(fact, name) for name in Fact.__slots__}
    return Fact(**{**values, "detail": dict(fact.detail)})


def _session(params: Any, record: RequestRecord, fact: Fact) -> None:
    """`session_params` (0.4.2 on), `session=(id, rid)` (0.4.0, 0.4.1), `session_id`/`session_rid` (0.3.6)."""
    if isinstance(params, dict):
        _session_params(fact, params)
    elif isinstance(record.obj.get("session"), list) and len(record.obj["session"]) == 2:
        fact.session_id, fact.parent_rid = (_text(part) for part in record.obj["session"])
        fact.detail["session"] = True
    elif "session_rid" in record.obj and record.obj.get("session_id"):
        fact.session_id = _text(record.obj["session_id"])
        fact.parent_rid = _text(record.obj["session_rid"])
        fact.detail["session"] = True


def _session_params(fact: Fact, params: Any) -> None:
    if not isinstance(params, dict):
        return
    fact.session_id = _text(params.get("id"))
    fact.parent_rid = _text(params.get("rid"))
    fact.detail["session"] = True
    for name in ("replace", "offset", "drop_previous_output"):
        if isinstance(params.get(name), (bool, int)):
            fact.detail[name] = params[name]


class Form:
    """The fact that all records of a template make, but for its place, its time and what varies."""

    def __init__(self, template: Template) -> None:
        blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
        _begin(requestlog.settled(template), blank)
        del blank.detail["fields"]
        self.event, self._pattern = blank.event, blank.pattern
        self._rest, self._detail = _rest(blank), blank.detail
        self._rid = template.varies.index("rid")
        places = {name: i for i, name in enumerate(template.varies) if name in _FILLS}
        ordered = sorted(places, key=lambda name: name == "session_params")  # what it says goes before a finish reason
        self._fills = [(places[name], _FILLS[name]) for name in ordered]

    def fill(self, texts: Sequence[bytes], place: tuple[str, int, int, int], stamp: Stamp) -> Fact | None:
        """The fact of a record in which the template has found these values; None where only the record can tell.

        `place` is the fact's `source`, `line`, `offset` and `length`; `stamp` its `rank`, `at`, `at_error`, `at_from`.
        """
        rid = texts[self._rid]
        if not 2 < len(rid) < _LONG or rid[0] != _QUOTE or rid.find(b"'", 1) != len(rid) - 1 or b"\\" in rid:
            return None
        name, detail = rid[1:-1].decode("utf-8", "replace"), self._detail.copy()
        rest = *stamp, False, self._pattern, name, *self._rest, detail
        fact = Fact(self.event, *place, place[0], *rest)
        for index, fill in self._fills:
            if fill(fact, texts[index]):
                return None
        return fact


Stamp = tuple[str | None, float | None, float | None, str | None]
_rest = attrgetter(*Fact.__slots__[Fact.__slots__.index("rid") + 1 : -1])
_Fill = Callable[[Fact, bytes], Any]
_QUOTE = ord("'")
_LONG = 1000
"""Characters from which on, as in one with an escape, a text may be of those that strangers hide lines in."""


@lru_cache(maxsize=256)
def form(template: Template) -> Form | None:
    """The form of a template; None where its records say something that depends on more than one value."""
    together = _TOGETHER.intersection(template.names)
    settled = template.settled.get("session_params", "None")
    return Form(template) if "rid" in template.varies and not together and settled == "None" else None


_TOGETHER = frozenset({"session", "session_rid"})


def _of_value(note: _Note) -> _Fill:
    """Fills in what a note takes from a value."""

    def fill(fact: Fact, text: bytes) -> bool:
        value = _remembered(text) if len(text) < _SHORT else _value(text)
        if value is _INVOLVED:
            return True
        note(fact, value)
        return False

    return fill


def _value(text: bytes) -> Any:
    return _INVOLVED if len(text) > _LONG or b"\\" in text else requestlog.literal(text.decode("utf-8", "replace"))


_INVOLVED = object()
_SHORT = 200
_remembered = lru_cache(maxsize=4096)(_value)


def _number_into(column: str, note: _Note) -> _Fill:
    """Fills in what a note takes from a value that mostly is a whole number."""
    other = _of_value(note)

    def fill(fact: Fact, text: bytes) -> Any:
        if text.isdigit() and len(text) < 19:
            setattr(fact, column, int(text))
            return False
        return other(fact, text)

    return fill


def _of_fraction(note: _Note) -> _Fill:
    """Fills in what a note takes from a value that mostly is a number with a point."""

    def fill(fact: Fact, text: bytes) -> None:
        whole, point, part = text.partition(b".")
        plain = point and whole.isdigit() and part.isdigit() and len(text) < _SHORT
        note(fact, float(text) if plain else requestlog.literal(text.decode("utf-8", "replace")))

    return fill


def _fill_sampling(fact: Fact, text: bytes) -> Any:
    told, schemas = _sampling(text) if len(text) < _SHORT else _told(text)
    fact.detail.update(told)
    return schemas


def _told(text: bytes) -> tuple[dict[str, Any], list[str]]:
    """What sampling parameters tell about a request, and the grammars in them."""
    found, schemas = requestlog.sampling(text.decode("utf-8", "replace"))
    blank = Fact(Event.UNKNOWN, "", 0, 0, 0)
    _sampling_params(blank, found)
    return blank.detail, schemas


_sampling = lru_cache(maxsize=4096)(_told)


def _fill_text(fact: Fact, text: bytes) -> None:
    if text[0] == _QUOTE and b" ... " not in text:
        if len(text) > _OPENING:
            fact.detail["opening"] = text[1:_OPENING].decode("utf-8", "replace")[: OPENING - 1]
        else:
            _prompt(fact, text[1:-1].decode("utf-8", "replace")[: OPENING - 1])
    else:
        _prompt(fact, requestlog.payload("text", text.decode("utf-8", "replace")))


_OPENING = 4 * OPENING + 4  # bytes that hold the opening of a prompt


def _fill_ids(fact: Fact, text: bytes) -> None:
    _prompt_ids(fact, requestlog.payload("input_ids", text.decode("utf-8", "replace")))


def _fill_session(fact: Fact, text: bytes) -> Any:
    if text.startswith(b"["):
        return True
    return _of_session(fact, text)


_of_session = _of_value(_session_params)


def _fill_output(fact: Fact, text: bytes) -> None:
    if text.strip() not in _EMPTY:
        fact.detail["has_output"] = True


_EMPTY = frozenset(text.encode() for text in requestlog.EMPTY)
_COUNTS = {**{name: name for name in _TOKENS}, "num_retractions": "retractions"}
_FRACTIONS = ("e2e_latency", "queue_time", *_STAMPS)
_FILLS: dict[str, _Fill] = {
    **dict.fromkeys(requestlog.STRANGERS, _of_value(lambda _fact, _value: None)),
    **{name: _of_value(note) for name, note in _OBJ.items()},
    "meta.finish_reason": _of_value(_finish_reason),
    "meta.total_retractions": _of_value(_total_retractions),
    **{f"meta.{name}": _number_into(column, _META[name]) for name, column in _COUNTS.items()},
    **{f"meta.{name}": _of_fraction(_META[name]) for name in _FRACTIONS},
    "sampling_params": _fill_sampling,
    "session_params": _fill_session,
    "text": _fill_text,
    "input_ids": _fill_ids,
    **dict.fromkeys(requestlog.OUTPUTS, _fill_output),
}
"""How a value that varies is filled in, from its text; what comes back tells whether it takes the whole record."""


def from_json(data: dict[str, Any], fact: Fact, zone: tzinfo) -> Fact | None:
    """Facts that SGLang writes as JSON apart from the request log: status snapshots and the metrics export."""
    if data.get("event") == "scheduler.status":
        fact.event, fact.pattern = Event.SCHEDULER_STATUS, "scheduler.status"
        _own_time(str(data.get("timestamp")), fact, zone)
        for name in ("running_rids", "queued_rids"):
            if isinstance(data.get(name), list):
                fact.detail[name] = [r for r in data[name] if isinstance(r, str)]
        return fact
    if "request_parameters" in data and isinstance(data.get("id"), str):
        fact.event, fact.pattern, fact.rid = Event.METRICS_EXPORTED, "metrics.exported", data["id"]
        _outcome(data, fact)
        fact.detail["has_output"] = False
        fact.queue_s = None  # 0.0, or a monotonic clock's raw value, in the releases recorded
        return fact
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None if value is None else str(value)
