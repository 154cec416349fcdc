"""The renderer against recorded lines: what was recorded is read, rendered again, and must be the same text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import wordings
from renderer import Server
from wordings import FIELDS, RELEASES, START, between

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
RECORDED = sorted({path.parents[1].name for path in FIXTURES.rglob("truth.json")})
SENT = "response_sent_to_client_ts"
INJECTED = "s13b_"  # scenarios whose requests imitate log lines
PREFIX = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ")


@cache
def lines(release: str) -> list[str]:
    """Every line that a release was recorded with, prefix included."""
    files = sorted(p for p in (FIXTURES / release).glob("*/logs/**/*") if p.is_file() and INJECTED not in str(p))
    return [line for path in files for line in path.read_text("utf-8", "replace").split("\n")]


def messages(release: str) -> Iterator[str]:
    """The messages of the lines that have a prefix, without uvicorn's level."""
    for line in lines(release):
        if match := PREFIX.match(line):
            yield line[match.end() :]


def without_prefix(line: str) -> str:
    match = PREFIX.match(line)
    return line[match.end() :] if match else line


def python_value(node: ast.expr) -> Any:
    return ast.literal_eval(node)


def text_records(release: str) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any] | None]]:
    """The request-log records that are valid Python: `(line, event, object, out)`."""
    for line in lines(release):
        message = without_prefix(line)
        found = re.match(r"(Receive|Finish): obj=(GenerateReqInput\(.*)", message)
        if found is None:
            continue
        try:
            call = ast.parse(f"f(obj={found[2]})", mode="eval").body
            assert isinstance(call, ast.Call)
            parts = {word.arg: word.value for word in call.keywords}
            request = parts.pop("obj")
            assert isinstance(request, ast.Call)
            obj = {str(word.arg): python_value(word.value) for word in request.keywords}
            out = python_value(parts.pop("out")) if "out" in parts else None
        except (SyntaxError, ValueError):
            continue  # a value that was cut short, or an imitation that is not a record
        if not parts:
            yield line, found[1], obj, out


def json_records(release: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in lines(release):
        message = without_prefix(line)
        if message.startswith('{"timestamp": "') and '"event": "request.' in message[:80]:
            data = json.loads(message)
            if data["event"] != "request.received.openai":
                yield line, data


def level(obj: dict[str, Any]) -> int:
    if "text" in obj:
        return 3 if any(isinstance(item, (str, list)) and len(item) > 2048 for item in obj.values()) else 2
    return 1 if "sampling_params" in obj else 0


# --- the request log --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("release", [r for r in RECORDED if any(text_records(r))])
def test_text_records_are_rendered_as_they_were_recorded(release: str) -> None:
    count = 0
    for line, event, obj, out in text_records(release):
        server = Server(release, level=level(obj))
        assert server.record(event, obj, out) == without_prefix(line)
        assert (PREFIX.match(line) is None) == between(release, "0.5.8", "0.5.11")
        count += 1
    assert count >= 8


@pytest.mark.parametrize("release", [r for r in RECORDED if any(json_records(r))])
def test_json_records_are_rendered_as_they_were_recorded(release: str) -> None:
    count = 0
    for line, data in json_records(release):
        server = Server(release, level=level(data["obj"]), as_json=True)
        event = {"request.received": "Receive", "request.finished": "Finish"}[data["event"]]
        rendered = json.loads(server.record(event, data["obj"], data.get("out")))
        assert list(rendered) == list(data)
        assert rendered | {"timestamp": data["timestamp"]} == data
        assert (PREFIX.match(line) is None) == between(release, "0.5.7", "0.5.11")
        count += 1
    assert count >= 8


@pytest.mark.parametrize("release", RECORDED)
def test_a_request_has_the_fields_and_defaults_that_were_recorded(release: str) -> None:
    objects = [obj for _, _, obj, _ in text_records(release)] + [data["obj"] for _, data in json_records(release)]
    full = [obj for obj in objects if "text" in obj] or objects
    rendered = Server(release, level=2).fields("r")
    for obj in full:
        assert list(obj) == [name for name in rendered if name in obj]
    plain = [obj for obj in full if not obj["stream"] and obj.get("session_params") is None and obj.get("text")]
    typical = plain[-1] if plain else full[-1]
    given = {"rid", "text", "sampling_params", "priority", "lora_path", "input_ids", "stream", "http_worker_ipc"}
    differing = {name for name, item in typical.items() if item != rendered[name]} - given
    assert differing == set()


@pytest.mark.parametrize("release", RECORDED)
def test_outputs_have_the_shape_that_was_recorded(release: str) -> None:
    """For each form of a finish reason: the keys of `out` and `meta_info`, in their order."""
    finishes = [(obj, out) for _, event, obj, out in text_records(release) if event == "Finish" and out is not None]
    finishes += [(d["obj"], d["out"]) for _, d in json_records(release) if d["event"] == "request.finished"]
    shapes = set()
    for obj, out in finishes:
        meta = dict(out["meta_info"])
        reason = meta["finish_reason"]
        server = Server(release, level=2)
        server.objects["r"], server.received["r"] = obj, START
        tokens = meta.get("completion_tokens", 0)
        rendered = server.output("r", reason, tokens, 5, out.get("text", ""))
        shown = [key for key in rendered if key in out or level(obj) >= 2]
        assert list(out) == shown, reason
        keys = list(rendered["meta_info"])
        if obj["stream"] and SENT in (set(meta) ^ set(keys)):  # a stream has it where `Finish` is its first output
            keys = [*keys, SENT] if SENT in meta else keys[:-1]
        if obj.get("http_worker_ipc"):  # several HTTP workers leave this key out
            keys.remove("cached_tokens_details")
        assert [key for key in meta if "logprobs" not in key] == keys, reason
        shapes.add(tuple(reason))
    assert shapes


# --- other lines ------------------------------------------------------------------------------------------------------
Render = Callable[[str, dict[str, str]], str]
NUMBERS = {
    "prefill": (
        r"Prefill batch.*?#new-seq: (?P<new>\d+), #new-token: (?P<tokens>\d+), #cached-token: (?P<cached>\d+), "
        r"(?:#token: (?P<token>\d+), )?token usage: (?P<usage>[\d.]+), #running-req: (?P<running>\d+), "
        r"#queue-req: (?P<queued>\d+)(?:, #pending-token: (?P<pending>\d+))?"
        r"(?:.*input throughput \(token/s\): (?P<throughput>[\d.]+))?.*",
        wordings.prefill_batch,
    ),
    "decode": (
        r"Decode batch.*?#running-req: (?P<running>\d+), #token: (?P<token>\d+), token usage: (?P<usage>[\d.]+), "
        r"(?P<graph>c\w+ graph): False, gen throughput \(token/s\): (?P<throughput>[\d.]+), "
        r"#queue-req: (?P<queued>\d+).*",
        wordings.decode_batch,
    ),
    "stats": (
        r"Req ?Time ?Stats\(rid=(?P<rid>[^,]*), input[ _]len=(?P<prompt>\d+), (?:cached_input_len=(?P<cached>\d+), )?"
        r"output[ _]len=(?P<output>\d+), (?:attempts=(?P<attempts>\d+), )?type=(?P<kind>\w+)\): "
        r"(?:queue_duration=(?P<queue>-?[\d.]+)ms, forward_duration=(?P<forward>-?[\d.]+)ms, "
        r"\w+_time=(?P<entry>[\d.]+)|Unknown Time Stats)",
        wordings.time_stats,
    ),
    "access": (
        r'INFO:     (?P<peer>\S+) - "(?P<method>[A-Z]+) (?P<path>\S+) HTTP/1\.1" (?P<status>\d{3}) .*',
        wordings.access,
    ),
}  # fmt: skip
TEXTS = {"rid", "usage", "throughput", "kind", "queue", "forward", "entry", "graph", "peer", "method", "path"}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("release", RECORDED)
def test_lines_are_rendered_as_they_were_recorded(release: str, kind: str) -> None:
    pattern, render = NUMBERS[kind]
    count = 0
    for message in messages(release):
        match = re.fullmatch(pattern, message)
        if match is None:
            continue
        given: dict[str, Any] = {k: v if k in TEXTS else int(v) for k, v in match.groupdict().items() if v is not None}
        if kind == "stats":
            given = {"cached": 0, "queue": "", "forward": "", "entry": ""} | given
        if kind == "access":
            given["status"] = int(match["status"])
            assert render(**given) == message
        else:
            assert render(release, **given) == message
        count += 1
    assert count or kind == "stats"


def said_by(release: str, begins: str) -> set[str]:
    """The recorded messages that begin with a text, numbers and names made equal; session ids with spaces left out."""
    said = {message for message in messages(release) if message.startswith(begins)}
    return {equal(message) for message in said if not re.search(r"session id \S+ (?!does not exist)", message)}


def equal(message: str) -> str:
    return re.sub(r"\d+(?:\.\d+)?", "9", re.sub(r"(?<=')[^']*(?=')|(?<=session id )\S+|(?<=Session )\S+", "X", message))


def written(server: Server, begins: str) -> set[str]:
    return {equal(m[m.index("] ") + 2 :]) for m in server.lines if f"] {begins}" in m}


@pytest.mark.parametrize("release", RECORDED)
def test_other_lines_have_the_words_that_were_recorded(release: str) -> None:
    server = Server(release)
    server.boot()
    server.receive("r-1")
    server.refused("r-1", "Invalid request: session id ghost does not exist")
    server.receive("r-2")
    server.disconnected("r-2")
    server.receive("r-3")
    server.disconnected("r-3", kind=3)
    server.draining()
    server.draining("r-3")
    server.sigterm()
    server.sigquit()
    server.lines += [f"[x] {line}" for line in wordings.retraction(release).split("\n")]
    for begins in ("Invalid request: session id", "[http_server] Error: Invalid request: session id",
                   "[http_server] Error: Request is disconnected", "Gracefully exiting", "SIGTERM received",
                   "SIGQUIT received", "Received sigquit", "KV cache pool is full", "The server is fired"):  # fmt: skip
        recorded = said_by(release, begins)
        if begins == "Gracefully exiting":
            recorded = {message for message in recorded if message.count("X") <= 1}
        assert recorded <= written(server, begins), begins
    assert said_by(release, "SIGTERM received") | said_by(release, "SIGQUIT received")


# --- the renderer itself ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("0.3.6", "[2026-03-01 10:00:00 DP-1 TP0] x"),
        ("0.4.6", "[2026-03-01 10:00:00 TP0] x"),
        ("0.4.7", "[2026-03-01 10:00:00] x"),
    ],
)
def test_the_prefix_of_a_single_gpu(release: str, line: str) -> None:
    server = Server(release)
    server.scheduler("x")
    assert server.lines == [line]


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("0.4.9", "[2026-03-01 10:00:00 DP1 TP3 PP0] x"),
        ("0.5.5", "[2026-03-01 10:00:00 DP1 TP3 EP3 PP0] x"),
        ("0.5.6", "[2026-03-01 10:00:00.250 DP1 PP0 TP3 EP3] x"),
    ],
)
def test_the_prefix_of_many_ranks(release: str, line: str) -> None:
    server = Server(release, tp=4, dp=2, ep=4, pp=2, milliseconds="." in line, start=START + 0.25)
    server.every_rank("x", dp=1)
    assert server.lines[3] == line


def test_a_long_text_is_cut_in_the_middle_between_two_quoted_strings() -> None:
    assert wordings.value("a" * 6, "0.5.23", 4) == "'aa' ... 'aa'"
    assert wordings.value([1, 2, 3, 4, 5], "0.5.23", 4) == "[1, 2] ... [4, 5]"
    assert wordings.json_value("abcdef", 4) == "ab...ef"
    assert wordings.json_value([1, 2, 3, 4, 5], 4) == [1, 2, "...", 4, 5]


def test_the_oldest_request_log_neither_quotes_nor_escapes() -> None:
    assert wordings.value({"a": 'b"c\n'}, "0.4.1") == '{a: "b"c\n"}'


def test_every_release_has_its_fields() -> None:
    assert len(RELEASES) == 37
    assert all("rid" in names and "stream" in names for names in FIELDS.values())
