"""What a set of logs holds: which processes, times and records, for how long, and with which gaps."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from statistics import median, mode

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.audit import inputs
from sglang_lifecycle.analyzers.behaviours import ONE_LEVEL, TEXT_BY_LEVEL
from sglang_lifecycle.analyzers.coverage_models import Coverage, Gap, LifeCoverage, Mode, Offset, RequestLog, Switch
from sglang_lifecycle.analyzers.explain import timestamp, version
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.limits import KINDS
from sglang_lifecycle.analyzers.questions import open_questions
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.skew import shared_rooms
from sglang_lifecycle.parsers.evidence import BATCHES, Event, Fact

GAP_LEAST = 15.0
"""Seconds of silence that are never a gap."""

GAP_USUAL = 20.0
"""A gap is so many times as long as the silences that are usual."""

_PROCESSES = {
    "API server": ("http.", "client.", "request.received", "request.finished", "request.error", "logging."),
    "scheduler": (
        "batch.",
        "session.",
        "kv.",
        "abort.executed",
        "request.rejected",
        "request.stats",
        "server.capacity",
    ),
}
"""Which process writes which events; a process that has only crashed names itself."""

_CRASHED = {"Scheduler": "scheduler", "TokenizerManager": "API server", "DetokenizerManager": "detokenizer"}

_PLAIN_OFF = frozenset({"warning", "warn", "error", "critical"})
_QUARTER = 900.0  # seconds: zones differ by quarters of an hour
_SLACK = 1.5  # seconds that a record may be written after the stamp inside it


def coverage(incident: Incident) -> Coverage:
    """What the logs of an incident can and cannot answer."""
    scenes = [scene for scene in incident.scenes if scene.life.facts]
    found = [_life(scene) for scene in scenes]
    return Coverage(
        inputs=inputs(incident.evidence),
        lives=found,
        offsets=[offset for scene in scenes for offset in _offsets(scene)] + list(_across(scenes)),
        questions=open_questions(found, [scene.release for scene in scenes]),
    )


def _life(scene: Scene) -> LifeCoverage:
    life, args = scene.life, scene.life.args
    end = deaths.death(scene)
    real = [a for a in scene.attempts if not a.synthetic]
    return LifeCoverage(
        server=life.server,
        life=life.number,
        sources=list(dict.fromkeys(f.source for f in life.facts)),
        sglang_version=version(scene),
        mode=_MODES.get(str(args.get("disaggregation_mode", "unknown")), "unknown"),
        processes=_processes(scene),
        ranks=sorted({f.rank for f in life.facts if f.rank is not None}),
        sizes={k: v for k in ("tp_size", "pp_size", "dp_size") if isinstance(v := args.get(k), int)},
        start=timestamp(life.begin),
        end=timestamp(life.end),
        ended_by=end.cause if end is not None else "server-restarted" if life.restarted else None,
        gaps=list(_gaps(scene)),
        times=dict(Counter(f.at_from or "none" for f in life.facts)),
        milliseconds=any(
            f.at_from == "own" and (f.at_error or 1) < 0.01 and not _of_request_log(f) for f in life.facts
        ),
        zone_offset_s=_zone_offset(scene),
        request_log=_request_log(scene),
        arguments=bool(args),
        requests=len(real),
        unfinished=sum(a.received is not None and a.finish is None for a in real),
        tainted=sum(f.tainted for f in life.facts),
        circumstances=list(_circumstances(scene, real, end is not None and end.cause != "server-shutdown")),
        **_switches(scene),
    )


_MODES: dict[str, Mode] = {"null": "unified", "None": "unified", "prefill": "prefill", "decode": "decode"}
"""What a server is, by its `--disaggregation-mode`."""


def _of_request_log(fact: Fact) -> bool:
    return (fact.pattern or "").startswith("reqlog.")


def _processes(scene: Scene) -> list[str]:
    found: dict[str, None] = {}
    for fact in scene.life.facts:
        found |= {name: None for name, events in _PROCESSES.items() if fact.event.startswith(events)}
        if fact.event is Event.PROCESS_CRASHED:
            name = str(fact.detail.get("name", "a process"))
            found[_CRASHED.get(name, name)] = None
    return sorted(found)


def _gaps(scene: Scene) -> Iterator[Gap]:
    """Silences while requests were open. Those that never end don't count: they may have ended without a word."""
    whole = [a for a in scene.attempts if a.received is not None and a.finish_order is not None]
    begins, ends = sorted(a.order for a in whole), sorted(a.finish_order or 0 for a in whole)
    silences: list[tuple[float, float, int]] = []
    last: float | None = None
    for order, fact in enumerate(scene.life.facts):
        if fact.at is None or fact.at_from not in ("own", "meta"):
            continue
        alive = bisect_left(begins, order) - bisect_left(ends, order)
        if last is not None and fact.at > last and alive:
            silences.append((last, fact.at, alive))
        last = fact.at if last is None else max(last, fact.at)
    usual = median([end - start for start, end, _ in silences]) if silences else 0.0
    for start, end, alive in silences:
        if end - start > max(GAP_LEAST, GAP_USUAL * usual):
            yield Gap(start=timestamp(start) or "", end=timestamp(end) or "", seconds=round(end - start, 3), open=alive)


def _zone_offset(scene: Scene) -> float | None:
    """How far the log's clock is from the epoch stamps in its records, in quarters of an hour."""
    found = []
    for fact in scene.life.facts:
        sent = fact.detail.get("response_sent_to_client_ts")
        if fact.at is not None and isinstance(sent, float):
            quarters = round((fact.at - sent) / _QUARTER) * _QUARTER
            if abs(fact.at - sent - quarters) <= _SLACK + (fact.at_error or 0.0):
                found.append(quarters)
    return mode(found) if found else None


def _request_log(scene: Scene) -> RequestLog:
    records = [f for f in scene.life.facts if _of_request_log(f)]
    told = scene.life.args.get("log_requests")
    return RequestLog(
        switch=_switch(bool(records), told if isinstance(told, bool) else None, scene.sees_access),
        formats=[name for name in ("text", "json") if any(f.pattern == f"reqlog.{name}" for f in records)],
        levels=sorted(_levels(scene, records)),
        received=sum(f.event is Event.REQUEST_RECEIVED for f in records),
        finished=sum(f.event is Event.REQUEST_FINISHED for f in records),
        held_back=scene.hides_finishes,
        changed=bool(scene.life.of(Event.LOGGING_CONFIGURED)),
    )


def _levels(scene: Scene, records: list[Fact]) -> set[int]:
    """The levels that the fields shown allow: what a level leaves out has changed twice (0.4.4, 0.4.9).

    `managers/tokenizer_manager.py:get_log_request_metadata`, from 0.5.7 on `utils/request_logger.py`.
    """
    found: set[int] = set()
    for fact in records:
        fields = fact.detail.get("fields")
        if not fields or fact.detail.get("cut") or fact.event is Event.REQUEST_RECEIVED_OPENAI:
            continue
        whole, sampling = "text" in fields or "input_ids" in fields, "sampling_params" in fields
        if scene.release.has(ONE_LEVEL):
            found |= {0, 1}
        elif scene.release.has(TEXT_BY_LEVEL):
            found |= {1, 2} if whole else {0}
        else:
            found |= {2, 3} if whole else {1} if sampling else {0}
    told = scene.life.args.get("log_requests_level")
    return {told} if isinstance(told, int) and told in found and not scene.life.of(Event.LOGGING_CONFIGURED) else found


def _switches(scene: Scene) -> dict[str, Switch]:
    """Which records there are, which the server's arguments promise, and which are off."""
    args, facts = scene.life.args, scene.life.facts
    events = {f.event for f in facts}
    ended = any(a.finish is not None for a in scene.attempts)
    lines = bool(events & BATCHES)

    def told(name: str) -> bool | None:
        return bool(args[name]) if name in args else None

    quiet = args.get("log_level_http") in _PLAIN_OFF
    debug = Event.ABORT_EXECUTED in events or args.get("log_level") == "debug"
    return {
        "time_stats": _switch(
            Event.REQUEST_STATS in events, told("enable_request_time_stats_logging"), ended and lines
        ),
        "access_log": _switch(scene.sees_access, False if quiet else None, scene.sees_requests),
        "debug_lines": _switch(debug, False if "log_level" in args else None, False),
        "session_lines": _switch(
            bool(events & {Event.SESSION_OPENED, Event.SESSION_CLOSED}), None, bool(scene.sessions)
        ),
        "status_snapshots": _switch(Event.SCHEDULER_STATUS in events, None, Event.BATCH_DECODE in events),
        "metrics_export": _switch(Event.METRICS_EXPORTED in events, told("export_metrics_to_file"), False),
        "crash_dump": _switch(Event.SERVER_DUMPED in events, told("crash_dump_folder"), False),
    }


def _served_session(scene: Scene) -> bool:
    """Whether a turn of a session ran to its end: one that names a session may name one that never was."""
    ends = [turn.finish for turns in scene.sessions.values() for turn in turns]
    return any(end is not None and end.finish_type != "abort" for end in ends)


def _switch(seen: bool, told: bool | None, would_show: bool) -> Switch:
    """`told` is what the server's arguments say, `would_show` whether it would be seen if it were on."""
    if seen:
        return "on"
    if told:
        return "unseen"
    return "off" if told is False or would_show else "unknown"


def _circumstances(scene: Scene, real: list[Attempt], crashed: bool) -> Iterator[str]:
    """What happened in a life, as far as questions depend on it."""
    args, facts = scene.life.args, scene.life.facts
    said = {f.message_id for f in facts if f.message_id is not None and not f.tainted}
    sizes = [args.get(name) for name in ("tp_size", "pp_size", "dp_size")]
    happened = {
        "requests": bool(real) or any(f.event is Event.HTTP_ACCESS for f in facts),
        "unfinished": any(a.received is not None and a.finish is None for a in real),
        "aborts": bool(scene.plain_ends) or any(call.kind == "abort" for call in scene.calls),
        "timeouts": bool(said & set(KINDS)),
        "disconnects": any(f.event is Event.CLIENT_DISCONNECTED for f in facts),
        "streams": any(a.stream for a in real),
        "sessions": _served_session(scene),
        "gaps": any(True for _ in _gaps(scene)),
        "crashed": crashed,
        "ranks": any(isinstance(size, int) and size > 1 for size in sizes) or len({f.rank for f in facts}) > 2,
        "disaggregated": args.get("disaggregation_mode") in ("prefill", "decode"),
    }
    yield from (name for name, is_so in happened.items() if is_so)


def _offsets(scene: Scene) -> Iterator[Offset]:
    """How far the sources of one life stand apart: where one has a request whole, the other's lines lie inside it."""
    spans: dict[str, dict[str, tuple[float, float]]] = {}
    ends: dict[str, dict[str, set[Event]]] = {}
    for fact in scene.life.facts:
        if fact.rid is None or fact.at is None or fact.at_error is None or fact.at_from not in ("own", "meta"):
            continue
        own = spans.setdefault(fact.source, {})
        start, end = own.get(fact.rid, (fact.at, fact.at))
        own[fact.rid] = min(start, fact.at - fact.at_error), max(end, fact.at + fact.at_error)
        if fact.event in _WHOLE:
            ends.setdefault(fact.source, {}).setdefault(fact.rid, set()).add(fact.event)
    for first, second in combinations(spans, 2):
        apart = []
        for rid in spans[first].keys() & spans[second].keys():
            if ends.get(first, {}).get(rid) == _WHOLE:
                apart.append(_outside(spans[second][rid], spans[first][rid]))
            elif ends.get(second, {}).get(rid) == _WHOLE:
                apart.append(-_outside(spans[first][rid], spans[second][rid]))
        if apart:
            yield Offset(first=first, second=second, seconds=round(median(apart), 3), requests=len(apart))


_WHOLE = {Event.REQUEST_RECEIVED, Event.REQUEST_FINISHED}


def _outside(span: tuple[float, float], whole: tuple[float, float]) -> float:
    """How far a span reaches beyond the one that it should lie in: later is positive."""
    late, early = span[1] - whole[1], span[0] - whole[0]
    return late if late > _SLACK else early if early < -_SLACK else 0.0


def _across(scenes: list[Scene]) -> Iterator[Offset]:
    """How far prefill and decode stand apart: both receive a request of one bootstrap room at the same time."""
    for a, b in combinations(scenes, 2):
        apart = shared_rooms(a, b)
        if apart and a.life.server != b.life.server:
            seconds = round(median(apart), 3)
            yield Offset(first=a.life.server, second=b.life.server, seconds=seconds, requests=len(apart))
