"""SGLang's request log: `Receive:`, `Receive OpenAI:` and `Finish:` in text, `request.*` in JSON, and `in=…, out=…`.

Observed in `managers/tokenizer_manager.py` (0.3.6 to 0.5.6), `utils/request_logger.py` (0.5.7 on) and
`utils/common.py:dataclass_to_string_truncated`. Only the fields that say something about a request's life are read;
prompts and outputs are stepped over, quote-aware.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from sglang_lifecycle.parsers import literals
from sglang_lifecycle.parsers.forms import KEY
from sglang_lifecycle.parsers.layouts import Template, Templates, encodable

TEXT_HEADS = {
    "Receive: obj=": "request.received",
    "Finish: obj=": "request.finished",
    "Receive OpenAI: obj=": "request.received.openai",
    "in=GenerateReqInput(": "request.finished",
    "in=EmbeddingReqInput(": "request.finished",
}
JSON_HEAD = '{"timestamp": "'
REQUEST_HEADS = (*TEXT_HEADS, JSON_HEAD)
EVENTS = frozenset({"request.received", "request.finished", "request.received.openai"})
"""The events that records in JSON name."""
_CUT_JSON = re.compile(
    r'\{"timestamp": "(?P<timestamp>[^"]+)", "event": "(?P<event>request\.[a-z.]+)"'
    r'(?:, "rid": (?P<rid>"(?:[^"\\]|\\.)*"))?'
)

OBJ_FIELDS = frozenset(
    "rid stream session_params session_id session session_rid sampling_params priority bootstrap_room background "
    "text input_ids lora_path http_worker_ipc routed_dp_rank data_parallel_rank n user model "
    "external_trace_header headers image_data video_data audio_data".split()
)
STRANGERS = ("session_params", "session", "session_id", "session_rid", "model", "user", "lora_path", "schemas")
"""Fields whose texts SGLang prints unescaped in some other line."""
_STRANGE = frozenset(STRANGERS)
META_FIELDS = frozenset(
    "finish_reason prompt_tokens completion_tokens cached_tokens e2e_latency queue_time num_retractions "
    "total_retractions dp_rank response_sent_to_client_ts request_received_ts forward_entry_time".split()
)
META_NAMES = frozenset(f"meta.{name}" for name in META_FIELDS)
OUTPUTS = frozenset({"out.text", "out.output_ids"})
PAYLOADS = frozenset({"text", "input_ids"})
MEDIA = ("image_data", "video_data", "audio_data")
"""Fields of which only is kept whether there is something in them."""
EMPTY = frozenset({"''", '""', "[]", "None"})
"""What an output is that has nothing in it."""
NAMED = "meta.id"
"""The rid that an outcome names."""
_templates = Templates(OBJ_FIELDS | META_NAMES | OUTPUTS | {NAMED})
_NOTHING = re.compile(r"(?:None|\"\"|''|[\[\](){},\s])*+")


def holds(media: str) -> bool:
    """Whether there is something in a field of media, as it is printed: a batch without any has `[None, None]`."""
    return _NOTHING.fullmatch(media) is None


NAN = "NaN happened"
"""What `matched` says when the model produced NaN (0.4.10 on), unless a client chose it for a stop string."""
GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
SAMPLING_FIELDS = frozenset(("n", "max_new_tokens", *GRAMMARS))
OPENING = 80  # characters of a prompt that are kept in memory, to tell warm-up and health checks


_HOST = re.compile(r"(?:.*/)?([^/]+)_\d+\.log(?:\..*)?", re.DOTALL)


def host(log: str) -> str | None:
    """The host that a request log is named after: `{hostname}_{rank}.log` (`--log-requests-target`, 0.5.8 on)."""
    named = _HOST.fullmatch(log)
    return named[1] if named is not None else None


@dataclass(slots=True)
class RequestRecord:
    """One record of the request log, payload left out."""

    event: str
    rid: str | list[str] | None
    obj: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] | None = None
    timestamp: str | None = None
    fields: tuple[str, ...] = ()
    """Names of all fields of `obj`, then of `meta_info` as `meta.<name>`: they tell the release."""
    has_output: bool = False
    cut: bool = False
    trailing: bool = False
    """Text follows the record's balanced end: it is the tail of something else, and the record an imitation.

    Or a field stands twice in it: a text broke out of its quotes.
    """

    def strangers(self) -> list[str]:
        """The texts in it that a client chose and that SGLang may print elsewhere as they are."""
        texts = [rid for rid in self.rid if rid] if isinstance(self.rid, list) else [self.rid] if self.rid else []
        pending = [value for name in _STRANGE & self.obj.keys() if (value := self.obj[name])]
        if self.meta is not None:
            pending.append(self.meta.get("finish_reason"))
        while pending:
            value = pending.pop()
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, dict):
                pending.extend(value.values())
            elif isinstance(value, list):
                pending.extend(value)
        return texts


Known = tuple[Template, list[bytes]]
"""A template that fits a record, and the texts of the values that it `varies`."""


def find(line: bytes, start: int) -> Known | None:
    """The template of a text record that begins at `start`, where earlier ones left it behind, and what it finds."""
    head = _BY_KEY.get(line[start : start + KEY])
    if head is None or not line.startswith(head[0], start):
        return None
    return _templates.find(line, start, head[1])


def every(
    lines: Sequence[bytes], starts: Sequence[int], key: bytes
) -> Iterator[tuple[Template, list[int], list[list[bytes]]]]:
    """The same for many records that begin with the same eight bytes: templates, the places of those, and the values.

    Values are side by side, as `Template.every` gives them.
    """
    begins, head = _BY_KEY.get(key, (b"", ""))
    if begins and all(line.startswith(begins, start) for line, start in zip(lines, starts, strict=True)):
        yield from _templates.every(lines, starts, head)


_BY_KEY = {head[:KEY].encode(): (head.encode(), head) for head in TEXT_HEADS}


def read(message: str) -> RequestRecord | None:
    """Read a record from its message (what follows the prefix), or None where it is no request-log record."""
    if message.startswith(JSON_HEAD):
        return _read_json(message)
    head = next((head for head in TEXT_HEADS if message.startswith(head)), None)
    if head is None:
        return None
    known = _templates.find(message.encode("utf-8", "replace"), 0, head)
    if known is not None and encodable(message):
        template, texts = known
        return _of_values(template, zip(template.varies, (text.decode() for text in texts), strict=True))
    layout = _templates.scan(message, head, message.index("=") + 1)
    record = RequestRecord(TEXT_HEADS[head], None, fields=layout.names, cut=layout.cut)
    record.trailing = not layout.cut and layout.end < len(message) and record.event != "request.received.openai"
    record.trailing = record.trailing or len({value.name for value in layout.values}) < len(layout.values)
    return _filled(record, ((name, message[start:end]) for name, start, end in layout.values))


def _torn(record: RequestRecord, named: Any) -> RequestRecord:
    """A record without its outcome where that names another rid: a hole in a file joins what stood around it."""
    if anothers(record.rid, named):
        record.meta, record.cut = {}, True
    return record


def anothers(rid: Any, named: Any) -> bool:
    """Whether the rid that an outcome names is not its request's, as it is in all recorded releases."""
    return isinstance(rid, str) and isinstance(named, str) and named != rid


def settled(template: Template) -> RequestRecord:
    """What all records of a template say."""
    return _of_values(template, ())


def _of_values(template: Template, values: Iterable[tuple[str, str]]) -> RequestRecord:
    """The record of a template that has some more values, by their names."""
    record = RequestRecord(TEXT_HEADS[template.head], None, fields=template.names)
    if not OUTPUTS.isdisjoint(template.varies):
        record.meta = {}
    return _filled(record, (*template.settled.items(), *values))


def _filled(record: RequestRecord, values: Iterable[tuple[str, str]]) -> RequestRecord:
    """A record with what its values say, by their names."""
    named = None
    for name, text in values:
        if name == NAMED:
            named = literal(text)
        else:
            _take(record, name, text)
    if record.meta is None and any(name.startswith("meta.") for name in record.fields):
        record.meta = {}  # nothing wanted in it
    record.rid = _rid(record.obj.pop("rid", None))
    return _torn(record, named)


def _take(record: RequestRecord, name: str, text: str) -> None:
    if name in OUTPUTS:
        record.meta = record.meta if record.meta is not None else {}
        record.has_output = record.has_output or text.strip() not in EMPTY
    elif name in META_NAMES:
        record.meta = record.meta if record.meta is not None else {}
        record.meta[name[5:]] = literal(text)
    elif name in PAYLOADS:
        record.obj[name] = payload(name, text)
    elif name in MEDIA:
        record.obj[name] = holds(text)
    elif name == "sampling_params":
        _note_sampling(record, sampling(text))
    elif name in OBJ_FIELDS:
        record.obj[name] = literal(text)


def _rid(value: Any) -> str | list[str] | None:
    """A rid, or those of a batch; SGLang takes nothing else for one."""
    if isinstance(value, list):
        return value if value and all(isinstance(rid, str) for rid in value) else None
    return value if isinstance(value, str) else None


@lru_cache(maxsize=4096)
def _remembered(text: str) -> Any:
    return literals.value(text)


def literal(text: str) -> Any:
    """The value of a literal; short ones repeat, and nobody changes what comes back."""
    if text.startswith("'") and text.find("'", 1) == len(text) - 1 > 0 and "\\" not in text:
        return text[1:-1]
    return _remembered(text) if len(text) <= _SHORT and not text[:1].isdigit() else literals.value(text)


_SHORT = 200


def payload(name: str, text: str) -> Any:
    """The opening of a prompt, or `Size` of one; of a prompt that the level cut short neither is known."""
    if text.startswith("None"):
        return None
    if " ... " in text and _CUT_VALUE.search(text):
        return None
    if text[:1] == "[" and (name == "text" or text.startswith("[[")):
        return None  # a batch: the prompts of several
    if name == "input_ids":
        return [0] if text == "[0]" else Size(text.count(",") + 1)
    return text[1 : min(len(text) - 1, OPENING)] if len(text) > 1 else ""


_CUT_VALUE = re.compile(r"""['"\]] \.\.\. ['"\[]""")


class Size(int):
    """How many tokens a prompt has, where the prompt itself is not kept."""


def size(ids: list[Any]) -> Size | None:
    """How many tokens a prompt has; None where these are no ids."""
    return Size(len(ids)) if _WHOLE.issuperset(map(type, ids)) else None


_WHOLE = frozenset({int, bool})


def _note_sampling(record: RequestRecord, found: tuple[Any, list[str]]) -> None:
    """Take in what sampling parameters say."""
    record.obj["sampling_params"], schemas = found
    if schemas:
        record.obj["schemas"] = schemas


def read_sampling(params: Any) -> tuple[Any, list[str]]:
    """Of sampling parameters what decides about a life, and the grammars, whose texts errors print."""
    every = params if isinstance(params, list) else [params]
    schemas = [p[n] for p in every if isinstance(p, dict) for n in GRAMMARS if n in p and isinstance(p[n], str)]
    return _sampling(params), schemas


def sampling(text: str) -> tuple[Any, list[str]]:
    """The same of parameters as they are printed; those of most requests are alike."""
    return _remembered_sampling(text) if len(text) <= _SHORT else read_sampling(literals.value(text))


@lru_cache(maxsize=4096)
def _remembered_sampling(text: str) -> tuple[Any, list[str]]:
    return read_sampling(literals.value(text))


def _sampling(params: Any) -> Any:
    """Of the sampling parameters only what decides about a life; a grammar is reduced to its presence."""
    if isinstance(params, list):
        return [_sampling(p) for p in params[:1]]
    if not isinstance(params, dict):
        return None
    kept = {name: params[name] for name in SAMPLING_FIELDS & params.keys() if params[name] is not None}
    kept = {k: v if isinstance(v, int) else True for k, v in kept.items()}
    stop = params.get("stop")
    return {**kept, "stop": stop is not None and NAN in str(stop)}


def _read_json(message: str) -> RequestRecord | None:
    try:
        data = orjson.loads(message)
    except orjson.JSONDecodeError:
        return _read_cut_json(message)
    return of_json(data) if isinstance(data, dict) else None


def of_json(data: dict[str, Any]) -> RequestRecord | None:
    """The record that a JSON object is, or None where it is another."""
    if data.get("event") not in EVENTS:
        return None
    obj = data.get("obj")
    obj = obj if isinstance(obj, dict) else {}
    out = data.get("out")
    stamp = data.get("timestamp")
    record = RequestRecord(data["event"], _rid(data.get("rid", obj.get("rid"))))
    record.timestamp = stamp if isinstance(stamp, str) else None
    record.obj = {name: obj[name] for name in _OWN & obj.keys()}
    if isinstance(record.obj.get("text"), str):
        record.obj["text"] = record.obj["text"][:OPENING]
    if isinstance(ids := record.obj.get("input_ids"), list) and ids != [0]:
        record.obj["input_ids"] = size(ids)
    for name in MEDIA:
        if name in record.obj:
            record.obj[name] = holds(str(record.obj[name]))
    if "sampling_params" in record.obj:
        _note_sampling(record, read_sampling(record.obj["sampling_params"]))
    if isinstance(data.get("headers"), dict):
        record.obj["headers"] = data["headers"]
    meta: Any = None
    if isinstance(out, dict):
        meta = out.get("meta_info")
        meta = meta if isinstance(meta, dict) else {}
        record.meta = {name: meta[name] for name in META_FIELDS & meta.keys()}
        record.has_output = bool(out.get("text") or out.get("output_ids"))
    record.fields = names(tuple(obj), tuple(meta or ()))
    return _torn(record, meta.get("id") if meta else None)


_OWN = OBJ_FIELDS - {"rid"}


@lru_cache(maxsize=256)
def names(obj: tuple[str, ...], meta: tuple[str, ...]) -> tuple[str, ...]:
    """The names of all fields; those of most records are the same, which is then found out at once."""
    return (*obj, *(f"meta.{name}" for name in meta))


def _read_cut_json(message: str) -> RequestRecord | None:
    head = _CUT_JSON.match(message)
    if head is None or head["event"] not in EVENTS:
        return None
    rid = _json_string(head["rid"]) if head["rid"] else None
    return RequestRecord(head["event"], rid, timestamp=head["timestamp"], cut=True)


def _json_string(text: str) -> str | None:
    """A JSON string; one that Python wrote may hold half of a surrogate pair, which is no character."""
    try:
        return str(json.loads(text, strict=False)).encode("utf-8", "replace").decode("utf-8")
    except ValueError:
        return None
