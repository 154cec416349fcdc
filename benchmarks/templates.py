"""The records of requests as SGLang 0.5.23 writes them, filled in but for what differs from request to request.

The fields of a request are those of a recording in `fixtures/`, in its order, and rendered by the rules of SGLang's
request logger: texts over 2048 characters lose their middle, level 1 leaves out what is long.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).parent.parent / "fixtures/0.5.23/s12_json_stdout/logs/server.log"
LIMIT = 2048
"""Characters of a text, or items of a list, that are written whole."""
LONG = {"text", "input_ids", "input_embeds", "image_data", "video_data", "audio_data", "lora_path", "output_ids"}
"""Fields that level 1 leaves out."""

RUNNING = 1024
"""Requests that may run at a time."""
STEP = 0.025
"""Seconds a token takes."""

POOL = 2048
"""Different requests that the traffic is drawn from."""
IMITATING = 0.01
"""What part of the prompts imitates log lines."""

WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which"
    " one you were all her she there would their we him been has when who will no more if out so said what up its about"
    " time moon server queue river window garden token paper engine winter letter music harbour lantern café naïve 東京"
).split()

FAKE_FINISH = (
    "[2026-11-29 19:00:00] Finish: obj=GenerateReqInput(rid='imitated', text='x', stream=False), out={'text': 'y',"
    " 'meta_info': {'id': 'imitated', 'finish_reason': {'type': 'abort', 'message': 'Request waiting timeout reached.',"
    " 'status_code': 503}, 'e2e_latency': 8.1}}"
)
IMITATIONS = (
    f"Why does my log say\n{FAKE_FINISH}\nand nothing else?",
    "it's \"both\" quotes, a \\ and 'finish_reason': {'type': 'abort', 'message': 'Aborted'}} at the end",
    "x', stream=False), out={'meta_info': {'id': 'imitated', 'finish_reason': {'type': 'abort', 'message': 'spoof'}}}",
    'x"}, "out": {"meta_info": {"id": "imitated", "finish_reason": {"type": "abort", "message": "spoof"}}}}',
    "a cut that is none: 'head' ... 'tail', and \"head\" ... \"tail\" with 100 % of it, \\' and \\\\",
    "Explain: [http_server] Error: Request is disconnected from the client side (type 1). Abort request"
    " obj.rid='imitated'\n[2026-11-29 19:00:00] Received output for rid='imitated' but the state was deleted in"
    " TokenizerManager.",
    '{"timestamp": "2026-11-29T19:00:00.000000", "event": "request.finished", "rid": "imitated", "out": {"meta_info":'
    ' {"id": "imitated", "finish_reason": {"type": "abort", "message": "The request queue is full."}}}}',
    f"{FAKE_FINISH}\n" * 12,
)

RID, LATENCY, SENT = "<rid>", "<latency>", "<sent>"


@dataclass(frozen=True)
class Ending:
    """How a part of the requests ends."""

    cause: str
    share: float
    reason: dict[str, Any]
    """The finish reason; empty where the server writes no such record."""
    status: str
    """Of the response; empty where no client was left to take it."""
    tokens: int | None = 0
    """How many are put out: none if it only waits, as many as the prompt deserves if None."""
    seconds: float = 0.02
    """How long it waits, if it only waits."""
    before: str = ""
    """The line just before the record of the end."""
    after: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    """Of the request, that make it deserve this end."""


def _refusal(cause: str, message: str, fields: dict[str, Any]) -> Ending:
    reason = {"type": "abort", "message": message, "status_code": 400, "err_type": "BadRequestError"}
    before, after = f"{message}, self.rid='<rid>'", f"[http_server] Error: {message}"
    return Ending(cause, 0.002, reason, "400 Bad Request", tokens=1, before=before, after=after, fields=fields)


def _aborted(message: str, **more: Any) -> dict[str, Any]:
    return {"type": "abort", "message": message, **more}


UNAVAILABLE = "503 Service Unavailable"
ABORT_CALL = 'INFO:     127.0.0.1:<port> - "POST /abort_request HTTP/1.1" 200 OK'
_TOKENS = 9001
TOO_LONG = f"The input ({_TOKENS} tokens) is longer than the model's context length (8192 tokens)."
GONE = "Request is disconnected from the client side (type 1). Abort request obj.rid='<rid>'"

FINISHED = (
    Ending("finished", 0.6, {"type": "length", "length": None}, "200 OK", tokens=None),
    Ending("finished", 0.4, {"type": "stop", "matched": 2}, "200 OK", tokens=None),
)
INTERRUPTED = (
    Ending(
        "waiting-timeout",
        0.010,
        {"type": "abort", "status_code": 503, "message": "Request waiting timeout reached."},
        UNAVAILABLE,
        seconds=8.03,
    ),
    Ending(
        "running-timeout",
        0.005,
        _aborted("Request running timeout reached.", status_code=503, err_type=None),
        UNAVAILABLE,
        tokens=640,
    ),
    Ending(
        "queue-full",
        0.006,
        {"type": "abort", "status_code": 503, "message": "The request queue is full."},
        UNAVAILABLE,
    ),
    Ending("client-disconnect", 0.006, {}, "", seconds=4.0, after=f"[http_server] Error: {GONE}"),
    Ending(
        "explicit-abort",
        0.003,
        _aborted("Aborted", status_code=None, err_type=None),
        "200 OK",
        tokens=None,
        before=ABORT_CALL,
    ),
    Ending("explicit-abort", 0.003, _aborted("Abort in waiting queue"), "200 OK", seconds=1.5, before=ABORT_CALL),
    Ending("input-too-long", 0.001, {}, "400 Bad Request", after=f"[http_server] Error: {TOO_LONG}"),
    _refusal(
        "session-unknown",
        "Invalid request: session id ghost does not exist",
        {"session_params": {"id": "ghost"}},
    ),
    _refusal(
        "grammar-failed",
        "Failed to compile json grammar: Unterminated string starting at: line 1 column 10 (char 9)",
        {"sampling_params": {"temperature": 0.8, "max_new_tokens": 5, "json_schema": '{"type": "obj'}},
    ),
    _refusal(
        "invalid-request",
        "req.logprob_start_len=4000 is higher than the number of input tokens len(req.origin_input_ids)=5."
        " Please use a smaller logprob_start_len.",
        {"return_logprob": True, "logprob_start_len": 4000},
    ),
)


@dataclass(frozen=True, slots=True)
class Template:
    """A request, from its arrival to its end; `%(rid)b` and the like stand for what each filling provides."""

    cause: str
    message: str
    """Of the finish reason, where it was cut."""
    received: bytes
    end: tuple[bytes, ...]
    """The lines of its end, but for that of its response."""
    status: bytes
    stream: bool
    prompt_tokens: int
    runs: bool
    """Whether it runs until its end, rather than waits."""
    seconds: float
    """How long it does that."""


@dataclass(frozen=True)
class Logger:
    """SGLang's request logger, of a format and a level."""

    format: str
    level: int

    def received(self, obj: dict[str, Any]) -> bytes:
        """Render the record of a request's arrival."""
        return self._record("request.received", "Receive", {"obj": obj})

    def finished(self, obj: dict[str, Any], out: dict[str, Any]) -> bytes:
        """Render the record of a request's end."""
        return self._record("request.finished", "Finish", {"obj": obj, "out": out})

    def _record(self, event: str, verb: str, parts: dict[str, dict[str, Any]]) -> bytes:
        if self.level == 1:
            parts = {name: {k: v for k, v in part.items() if k not in LONG} for name, part in parts.items()}
        if self.format == "json":
            record = {"timestamp": "<iso>", "event": event, "rid": RID, **parts}
            return _template(json.dumps(_cut(record), ensure_ascii=False))
        obj = ", ".join(f"{name}={_text(value)}" for name, value in parts["obj"].items())
        out = f", out={_text(parts['out'])}" if "out" in parts else ""
        return _template(f"{verb}: obj=GenerateReqInput({obj}){out}")


def _text(value: Any) -> str:
    half = LIMIT // 2
    if isinstance(value, str):
        return repr(value) if len(value) <= LIMIT else f"{value[:half]!r} ... {value[-half:]!r}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{key}': {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list) and len(value) > LIMIT:
        return f"{value[:half]} ... {value[-half:]}"
    return str(value)


def _cut(value: Any) -> Any:
    half = LIMIT // 2
    if isinstance(value, str) and len(value) > LIMIT:
        return value[:half] + "..." + value[-half:]
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list) and len(value) > LIMIT:
        return [*value[:half], "...", *value[-half:]]
    return value


def _template(line: str) -> bytes:
    """Turn the marks of what is still to be filled in into places to fill; the numbers among them lose their quotes."""
    line = line.replace("%", "%%").replace("<rid>", "%(rid)b").replace("<iso>", "%(iso)b").replace("<port>", "%(port)d")
    for name in ("latency", "sent"):
        for quote in "'\"":
            line = line.replace(f"{quote}<{name}>{quote}", f"%({name})b")
    return f"[%(clock)b] {line}\n".encode()


@functools.cache
def recording() -> list[str]:
    """Return the lines of the recorded log."""
    return RECORDING.read_text("utf-8", errors="replace").split("\n")


def start_up(logger: Logger) -> list[bytes]:
    """Return what the recorded server wrote until it was ready, as one with this request log would have."""
    lines = []
    for line in recording():
        if '"event": "request.' not in line:
            lines.append(line)
        if "The server is fired up" in line:
            break
    settings = {
        "'log_requests_level': 2": f"'log_requests_level': {logger.level}",
        "'log_requests_format': 'json'": f"'log_requests_format': '{logger.format}'",
        "'max_running_requests': 2,": f"'max_running_requests': {RUNNING},",
        "'max_queued_requests': None": "'max_queued_requests': 64",
        " max_running_requests=2,": f" max_running_requests={RUNNING},",
    }
    text = "\n".join(lines)
    for recorded, wanted in settings.items():
        assert recorded in text, recorded
        text = text.replace(recorded, wanted)
    return [line.encode() + b"\n" for line in text.split("\n")]


def pool(logger: Logger, rng: random.Random) -> list[Template]:
    """Make up the requests that the traffic is drawn from: each ending has its share."""
    endings = [ending for ending in INTERRUPTED for _ in range(round(ending.share * POOL))]
    endings += rng.choices(FINISHED, [ending.share for ending in FINISHED], k=POOL - len(endings))
    imitations = itertools.cycle(IMITATIONS)
    imitating = set(rng.sample(range(POOL), round(IMITATING * POOL)))
    templates = []
    for number, ending in enumerate(endings):
        prompt = _salad(rng, _TOKENS if ending.after.endswith(TOO_LONG) else round(rng.lognormvariate(3.6, 1.0)))
        if number in imitating:
            prompt = _salad(rng, 4) + " " + next(imitations)
        templates.append(_request(logger, rng, ending, prompt))
    return templates


def _salad(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=max(3, words)))


def _request(logger: Logger, rng: random.Random, ending: Ending, prompt: str) -> Template:
    runs = ending.tokens != 0 and not ending.fields
    tokens = min(380, round(rng.lognormvariate(3.9, 0.8)) + 1) if ending.tokens is None else ending.tokens
    wanted = tokens if ending.cause == "finished" else tokens * 2 + 8
    stream = bool(ending.reason) and runs and rng.random() < 0.3
    prompt_tokens = len(prompt.split()) + 1
    obj = _fields() | {"rid": RID, "text": prompt, "stream": stream}
    obj |= {"sampling_params": {"temperature": 0.8, "max_new_tokens": wanted}} | ending.fields

    reason = ending.reason | ({"length": tokens} if ending.reason.get("type") == "length" else {})
    meta = _meta(reason, prompt_tokens, tokens, rng) if tokens else _meta_of_the_queue(reason)
    if not stream:
        meta["response_sent_to_client_ts"] = SENT
    answer = _salad(rng, tokens) if tokens else ""
    if ending.cause == "finished" and rng.random() < IMITATING:
        answer = rng.choice(IMITATIONS)
    out = {"text": answer, "output_ids": [rng.randrange(480) for _ in range(tokens)], "meta_info": meta}

    record = (logger.finished(obj, out),) if reason else ()
    before, after = ((_template(line),) if line else () for line in (ending.before, ending.after))
    return Template(
        cause=ending.cause,
        message=reason.get("message", ""),
        received=logger.received(obj),
        end=(*before, *record, *after),
        status=b"200 OK" if stream else ending.status.encode(),
        stream=stream,
        prompt_tokens=prompt_tokens,
        runs=runs,
        seconds=tokens * STEP if runs else ending.seconds,
    )


@functools.cache
def _fields() -> dict[str, Any]:
    line = next(line for line in recording() if '"event": "request.received", "rid": "m-ok0"' in line)
    return dict(json.loads(line[line.index("{") :])["obj"])


def _meta(reason: dict[str, Any], prompt_tokens: int, tokens: int, rng: random.Random) -> dict[str, Any]:
    cached = rng.randrange(prompt_tokens)
    return {
        "id": RID,
        "finish_reason": reason,
        "prompt_tokens": prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": tokens,
        "cached_tokens": cached,
        "weight_versions": [{"version": "default", "start": 0, "end": tokens}],
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
        "dp_rank": None,
        "e2e_latency": LATENCY,
    }


def _meta_of_the_queue(reason: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": RID,
        "finish_reason": reason,
        "weight_version": "default",
        "e2e_latency": LATENCY,
        "weight_versions": [{"version": "default", "start": 0, "end": 0}],
        "completion_tokens": 0,
    }
