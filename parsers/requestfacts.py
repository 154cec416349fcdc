"""From a record of the request log, or other JSON of SGLang, to rows of the evidence table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any

from sglang_lifecycle.parsers import gateway, requestlog
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.facts import note_message
from sglang_lifecycle.parsers.requestlog import NAN, OPENING, RequestRecord, Size

_SHAPES = {
    ("type", "message", "status_code", "err_type"): "scheduler",
    ("type", "status_code", "message"): "echo-with-reason",
    ("type", "message"): "echo-plain",
}
"""Where a request was ended, by the keys of its `finish_reason` in their order."""

_KINDS = {str(event): event for event in Event}
Note = Callable[[Fact, Any], None]


def _detail(*types: type) -> Callable[[str], Note]:
    """Notes of values of some types under the names that they have."""

    def named(name: str) -> Note:
        def note(fact: Fact, value: Any) -> None:
            if isinstance(value, types):
                fact.detail[name] = value

        return note

    return named


def sampling_params(fact: Fact, value: Any) -> None:
    """What the sampling parameters tell about a request, of the first of a batch."""
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


def prompt(fact: Fact, value: Any) -> None:
    """What the opening of a prompt tells."""
    if isinstance(value, str):
        fact.detail["opening"] = value
        most = most_tokens(value)
        if most is not None:
            fact.detail.setdefault("prompt_ids", most)


def most_tokens(opening: Any) -> int | None:
    """How many tokens a prompt has at most; None where the opening that is kept is not all of it."""
    if isinstance(opening, str) and len(opening) < OPENING - 1:
        return len(opening.encode()) + 1  # no token is shorter than a byte; one may begin the text
    return None


def prompt_ids(fact: Fact, value: Any) -> None:
    """What the ids of a prompt tell."""
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


def media(fact: Fact, value: Any) -> None:
    """Whether it comes with pictures, films or sounds."""
    if value:
        fact.detail["media"] = True


def adapter(fact: Fact, value: Any) -> None:
    """The adapter that it asks for."""
    if isinstance(value, str):
        fact.detail["lora"] = value


def _headers(fact: Fact, value: Any) -> None:
    fact.detail.update(gateway.outer_ids(value, None))


def _trace_header(fact: Fact, value: Any) -> None:
    for name, text in gateway.outer_ids(None, value).items():
        fact.detail.setdefault(name, text)  # the headers count, where both are there


KEPT = ("stream", "priority", "background")
"""Fields of a request whose words and numbers are kept as they are."""

_kept = _detail(bool, int)
OBJ: dict[str, Note] = {
    **{name: _kept(name) for name in KEPT},
    "sampling_params": sampling_params,
    "text": prompt,
    "input_ids": prompt_ids,
    "bootstrap_room": _room,
    "http_worker_ipc": _worker,
    **dict.fromkeys(requestlog.MEDIA, media),
    "lora_path": adapter,
    "headers": _headers,
    "external_trace_header": _trace_header,
}
"""What the fields of a request tell about it."""


_TYPES = ("stop", "length", "abort")
"""What a finish reason's `to_json` writes as its type (`managers/schedule_batch.py`, 0.3.6 to 0.5.23)."""


def finish_reason(fact: Fact, reason: Any) -> None:
    """What a finish reason tells. One of another type is as good as cut: a byte of it may be lost."""
    if not isinstance(reason, dict):
        return
    kind = reason.get("type")
    if kind not in _TYPES:
        fact.detail["cut"] = True
        return
    fact.finish_type = kind
    fact.finish_shape = _SHAPES.get(tuple(reason))
    if fact.finish_type == "abort":
        note_message(fact, _text(reason.get("message")) or "")
        status = reason.get("status_code")
        fact.status_code = status if isinstance(status, int) else None
        fact.err_type = _text(reason.get("err_type"))
    elif reason.get("matched") == NAN:
        fact.finish_message = fact.message_id = "nan"


def _whole(column: str) -> Note:
    def note(fact: Fact, value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            setattr(fact, column, value)

    return note


def total_retractions(fact: Fact, value: Any) -> None:
    """How often a request was retracted, under its older name."""
    if fact.retractions is None:  # `num_retractions` counts, where both are there
        _whole("retractions")(fact, value)


def _seconds(column: str) -> Note:
    def note(fact: Fact, value: Any) -> None:
        if isinstance(value, (int, float)):
            setattr(fact, column, float(value))

    return note


_number = _detail(int, float)
COUNTS = {
    **{name: name for name in ("prompt_tokens", "completion_tokens", "cached_tokens")},
    "num_retractions": "retractions",
}
SECONDS = {"e2e_latency": "e2e_s", "queue_time": "queue_s"}
STAMPS = ("response_sent_to_client_ts", "request_received_ts", "forward_entry_time", "dp_rank")
META: dict[str, Note] = {
    "finish_reason": finish_reason,
    **{name: _whole(column) for name, column in COUNTS.items()},
    "total_retractions": total_retractions,
    **{name: _seconds(column) for name, column in SECONDS.items()},
    **{name: _number(name) for name in STAMPS},
}
"""What the fields of `meta_info` tell about a request."""


def from_request(record: RequestRecord, fact: Fact, zone: tzinfo) -> list[Fact]:
    """The facts of a request-log record: one, or one for each rid of a batch."""
    begin(record, fact)
    if record.timestamp:
        _own_time(record.timestamp, fact, zone)
    if record.cut:
        fact.detail["cut"] = True
    return _per_rid(record, fact)


def begin(record: RequestRecord, fact: Fact) -> None:
    """What a record says but for its rid and its session."""
    fact.event = _KINDS[record.event]
    fact.pattern = "reqlog.json" if record.timestamp else "reqlog.text"
    fact.tainted = fact.tainted or record.trailing
    for name, value in record.obj.items():
        if value is not None and (note := OBJ.get(name)) is not None:
            note(fact, value)
    fact.detail["fields"] = record.fields
    if record.meta is not None:
        _outcome(record.meta, fact)
        fact.detail["has_output"] = record.has_output


def _outcome(meta: Mapping[str, Any], fact: Fact) -> None:
    for name, value in meta.items():
        if (note := META.get(name)) is not None:
            note(fact, value)


def _own_time(timestamp: str, fact: Fact, zone: tzinfo) -> None:
    at = moment(timestamp, zone)
    if at is not None:
        fact.at, fact.at_error, fact.at_from = at, MICROSECOND, "own"


MICROSECOND = 0.000001
"""The width of a time in a JSON record, in seconds."""


def moment(timestamp: str, zone: tzinfo) -> float | None:
    """The time that a JSON record names, UTC epoch seconds; None where it is none."""
    micros = timestamp[20:]
    plain = len(micros) == 6 and timestamp[10:20:9] == "T." and micros.isdigit() and micros.isascii()
    second = _second(timestamp[:19], zone) if plain else None
    if second is not None:
        return (second * 1_000_000 + int(micros)) / 1_000_000  # as `timestamp` reckons
    try:
        return datetime.fromisoformat(timestamp).replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError):
        return None


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
        one = fact if len(rids) == 1 else fact.copy()
        one.rid = _text(rid)
        _session(params[index] if isinstance(params, list) and index < len(params) else params, record, one)
        if len(rids) > 1:
            one.detail["batch"] = [r for r in rids if isinstance(r, str)]
        facts.append(one)
    return facts


def _session(params: Any, record: RequestRecord, fact: Fact) -> None:
    """`session_params` (0.4.2 on), `session=(id, rid)` (0.4.0, 0.4.1), `session_id`/`session_rid` (0.3.6)."""
    if isinstance(params, dict):
        session_params(fact, params)
    elif isinstance(record.obj.get("session"), list) and len(record.obj["session"]) == 2:
        fact.session_id, fact.parent_rid = (_text(part) for part in record.obj["session"])
        fact.detail["session"] = True
    elif "session_rid" in record.obj and record.obj.get("session_id"):
        fact.session_id = _text(record.obj["session_id"])
        fact.parent_rid = _text(record.obj["session_rid"])
        fact.detail["session"] = True


def session_params(fact: Fact, params: Any) -> None:
    """What `session_params` tell (0.4.2 on)."""
    if not isinstance(params, dict):
        return
    fact.session_id = _text(params.get("id"))
    fact.parent_rid = _text(params.get("rid"))
    fact.detail["session"] = True
    for name in ("replace", "offset", "drop_previous_output"):
        if isinstance(params.get(name), (bool, int)):
            fact.detail[name] = params[name]


def from_json(data: dict[str, Any], fact: Fact, zone: tzinfo) -> Fact | None:
    """Facts that SGLang writes as JSON apart from the request log: status snapshots and the metrics export."""
    if data.get("event") == "scheduler.status":
        fact.event, fact.pattern = Event.SCHEDULER_STATUS, "scheduler.status"
        _own_time(str(data.get("timestamp")), fact, zone)
        if isinstance(data.get("rank"), int):
            fact.detail["scheduler_rank"] = data["rank"]
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
