"""From a recognised message to a row of the evidence table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from sglang_lifecycle.parsers import literals
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.patterns import Pattern, table

SLOTS = frozenset(Fact.__slots__)
"""The columns of the evidence table."""

_INTEGERS = frozenset(
    "room prompt_tokens completion_tokens cached_tokens running queued count unfinished http_status pid exit_code "
    "new_seq new_token max_total_tokens max_running_requests context_len chunked_prefill_size peer_rank kind".split()
)
_DURATION = re.compile(r"\b(queue|forward)_duration=(-?\d+(?:\.\d+)?)ms")
_ENTRY = re.compile(r"\bentry_time=(\d{9,}\.\d+)")
ARGS = frozenset(
    "tp_size dp_size pp_size disaggregation_mode log_requests log_requests_level log_requests_format "
    "log_requests_target tokenizer_worker_num detokenizer_worker_num max_queued_requests max_running_requests "
    "enable_priority_scheduling watchdog_timeout enable_request_time_stats_logging crash_dump_folder "
    "export_metrics_to_file enable_streaming_session enable_session_radix_cache stream_interval decode_log_interval "
    "abort_on_priority_when_disabled chunked_prefill_size log_level log_level_http grammar_backend".split()
)
"""The server arguments that are kept."""

_FRAME = re.compile(r'^\s+File "[^"]*", line \d+, in (\S+)')
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$")
_NO_EXCEPTION = re.compile(r"(?:Traceback|Killed|Terminated|Aborted|Hangup)\b")  # what a shell says comes after them
_GROUP_ART = re.compile(r"^[ ]*[|+][-| +]*(?=\S)|^  [|] ")  # how Python draws exception groups
_MISSING_KEY = re.compile(r"KeyError: (.+)")
_HTTP_EXCEPTION = re.compile(r"[\w.]*HTTPException: (?:\d{3}: )?(.*)", re.DOTALL)
_REQ_IN_DUMP = re.compile(
    r"\bReq\(rid=([^\s,()]+(?=,)|[0-9a-f]{32}(?=\.\.|…))"
)  # else it may be the beginning of a rid


def from_pattern(pattern: Pattern, match: re.Match[str] | Sequence[str | None], fact: Fact) -> Fact:
    """Fill `fact` with what a pattern's groups say. Values of an unexpected form are left out."""
    fact.event = pattern.event
    fact.pattern = pattern.id
    if pattern.detail:
        fact.detail.update(pattern.detail)
    for group, name, of in takes(pattern):
        text = match[group]
        value = of(text) if text is not None else None
        if value is None:
            continue
        if name in SLOTS:
            setattr(fact, name, value)
        else:
            fact.detail[name] = value
    for group, fill in fills(pattern):
        text = match[group]
        if text is not None:
            fill(fact, text)
    error = fact.detail.get("error")
    if error and fact.event in (Event.REQUEST_REJECTED, Event.REQUEST_ERROR, Event.CLIENT_DISCONNECTED):
        note_message(fact, error)
    return fact


_Of = Callable[[str], Any]
_Fill = Callable[[Fact, str], None]


class Take(NamedTuple):
    """What a group of a pattern says: a value for a column, or for a key of the detail; None where it says nothing."""

    group: int
    name: str
    of: _Of


@cache
def takes(pattern: Pattern) -> tuple[Take, ...]:
    """The groups of a pattern that say one thing each."""
    groups = pattern.compiled.groupindex.items()
    return tuple(
        Take(group, target, of)
        for name, group in groups
        if name not in _GROUPS
        for target, of in (_SEVERAL.get(name) or {name: _value(name)}).items()
    )


@cache
def fills(pattern: Pattern) -> tuple[tuple[int, _Fill], ...]:
    """The groups of a pattern that say more."""
    return tuple((group, _GROUPS[name]) for name, group in pattern.compiled.groupindex.items() if name in _GROUPS)


def _value(name: str) -> _Of:
    return _whole if name in _INTEGERS else float if name == "seconds" else str


def _whole(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() and len(text) < 19 else None


def _number(regex: str, kind: type) -> _Of:
    search = re.compile(regex).search

    def of(text: str) -> Any:
        found = search(text)
        return kind(found[1]) if found is not None else None

    return of


def _elsewhere(text: str) -> int | None:
    """How many requests a batch line counts in the queues of a disaggregation and of an encoder; None where none."""
    if text.count("-req: ") == text.count("#running-req: ") + text.count("#queue-req: "):
        return None
    return sum(map(int, _OTHER_QUEUES(text))) or None


_OTHER_QUEUES = re.compile(r"(?:#(?!running|queue)[a-z-]+|\bwaiting-image)-req: (\d{1,9})").findall
_SEVERAL: dict[str, dict[str, _Of]] = {
    "numbers": {
        "running": _number(r"#running-req: (\d+)", int),
        "queued": _number(r"#queue-req: (\d+)", int),
        "token_usage": _number(r"token usage: (\d+(?:\.\d+)?)", float),
        "elsewhere": _elsewhere,
    },
    "rid_repr": {"rid": literals.string},
}
"""Groups that say several things, or one under another name."""


def _rids_repr(fact: Fact, text: str) -> None:
    rids = literals.value(text)
    if isinstance(rids, list):
        fact.detail["rids"] = [r for r in rids if isinstance(r, str)]


def _durations(fact: Fact, text: str) -> None:
    for name, milliseconds in _DURATION.findall(text):
        setattr(fact, f"{name}_s", float(milliseconds) / 1000)
    if entry := _ENTRY.search(text):
        fact.detail["entry_time"] = float(entry[1])


def _args(fact: Fact, text: str) -> None:
    bracket = text.find("(") if text.startswith("ServerArgs(") else 0
    items = literals.call_fields if bracket else literals.dict_items
    try:
        spans, _end = literals.split(text, bracket)
    except literals.Unbalanced as cut:
        spans = cut.spans
    found = list(items(text, spans))
    fact.detail["args"] = {name: literals.value(text[a:b]) for name, a, b in found if name in ARGS}
    fact.detail["fields"] = tuple(f"args.{name}" for name, _a, _b in found)


def _reason(fact: Fact, text: str) -> None:
    fact.detail["reason"] = re.sub(r"^KVTransferError\(bootstrap_room=\d+\): ", "", text)


def _room(fact: Fact, text: str) -> None:
    fact.room = int(text) if text.isdigit() else None


def _soft(fact: Fact, text: str) -> None:
    fact.detail["soft"] = text == "True"


_GROUPS: dict[str, _Fill] = {
    "rids_repr": _rids_repr,
    "durations": _durations,
    "args": _args,
    "reason": _reason,
    "room": _room,
    "soft": _soft,
}


def note_message(fact: Fact, text: str) -> None:
    """Recognise the text of a finish reason or an error, and what it names."""
    fact.finish_message = text
    known = table().message(text)
    if known is None:
        return
    message, match = known
    fact.message_id = message.id
    groups = match.groupdict()
    fact.session_id = fact.session_id or groups.get("session_id")
    fact.parent_rid = fact.parent_rid or groups.get("parent_rid")
    if message.id == "duplicate_rid" and groups.get("rids"):
        named = groups["rids"]
        rids = literals.value(named) if named.startswith("[") else [named]
        fact.detail["rids"] = [r for r in rids if isinstance(r, str)] if isinstance(rids, list) else [named]
    elif message.id == "disconnected":
        split = literals.trailing_string(text, "obj.rid=")
        fact.rid = split[1] if split else fact.rid


OUTERMOST = re.compile(r'\s+File "[^"]*", line \d+, in run_(scheduler|detokenizer)_process$')
"""The first call in the traceback of a process that failed, whose first line may have been lost (0.3.6 to 0.5.23)."""

FAILED = {"scheduler": "Scheduler", "detokenizer": "DetokenizerManager"}
"""How the first line of such a traceback names the process."""


def note_tail(fact: Fact, tail: list[str]) -> None:
    """What the lines after a record's first line add: the exception, the innermost calls, the requests in a dump.

    0.3.6 prints the traceback of a process that failed without saying so (`managers/scheduler.py`).
    """
    tail = [_GROUP_ART.sub("", line) for line in tail]
    if fact.pattern == "traceback" and tail and (process := OUTERMOST.match(tail[0])):
        fact.event, fact.pattern, fact.detail["name"] = Event.PROCESS_CRASHED, "process.crashed", FAILED[process[1]]
    frames = [m[1] for line in tail if (m := _FRAME.match(line))]
    if frames:
        fact.detail["frames"] = frames[-8:]
    exceptions = [line for line in tail if _EXCEPTION.match(line) and not _NO_EXCEPTION.match(line)]
    if exceptions:
        fact.detail["exception"] = exceptions[-1][:400]
        _note_exception(fact, exceptions[-1], tail)
    if fact.event in (Event.WATCHDOG_DUMPED, Event.WATCHDOG_FIRED):
        text = fact.detail.get("error", "") + "\n".join(tail)
        rids = list(dict.fromkeys(_REQ_IN_DUMP.findall(text)))
        if rids:
            fact.detail["rids"] = rids
        if "Req(rid=" in text:
            fact.tainted = True  # the dump prints prompts and rids as they are


def _note_exception(fact: Fact, exception: str, tail: list[str]) -> None:
    """What an exception's text names: a rid as the missing key of a state table, or a failed transfer."""
    key = _MISSING_KEY.fullmatch(exception)
    if key is not None and any(table in line for line in tail for table in ("rid_to_state[", "decode_status[")):
        rid = literals.string(key[1])
        if rid is not None:
            fact.detail["rids"] = [rid]
        return
    inner = _HTTP_EXCEPTION.fullmatch(exception)
    found = table().find(inner[1]) if inner is not None else None
    if found is not None and found[0].event is Event.PD_FAILED:
        event, pattern, tainted = fact.event, fact.pattern, fact.tainted
        from_pattern(found[0], found[1], fact)
        fact.detail["failed"], fact.event, fact.pattern, fact.tainted = found[0].id, event, pattern, tainted
