"""What batch lines say of who was still in the engine: who ran and waited then, and whether others account for it.

A line counts the requests of one scheduler, and only those that run or wait there. Whoever may stand elsewhere, in
another scheduler, the grammar queue or the API server, is never shown to have left by it (`managers/scheduler.py`,
`managers/scheduler_metrics_mixin.py`, 0.3.6 to 0.5.23).
"""

from __future__ import annotations

import bisect
import re

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import TRANSFERS_UNCOUNTED
from sglang_lifecycle.analyzers.scene import ENGINE_CALL, Scene, per_scene
from sglang_lifecycle.parsers.evidence import Event, Fact

MARGIN = 0.6
"""Seconds by which log lines may lead or trail what the engine's counters say."""

_IDLE = 5.0  # seconds without a batch line, in which an engine with something to do would have written one
_SCHEDULER = re.compile(r" ?\b(?:TP|EP|CP|ATTN_CP|MOE_DP)-?\d+")
"""Ranks that work on the same batches."""


def gone_by(scene: Scene, attempt: Attempt) -> Fact | None:
    """The first batch line that has no room for it: what ran and waited then is accounted for by other requests.

    The line that follows its arrival may be the batch that took it in, so the one after that is the first that counts.
    Up to 0.5.2 the lines of a disaggregated server do not count who waits for a transfer
    (`managers/scheduler_metrics_mixin.py:log_prefill_stats`). Where its own time stats were written, it left just then
    (`observability/req_time_stats.py`, 0.4.7 on).
    """
    stats = attempt.of(Event.REQUEST_STATS)
    if stats and attempt.received is not None:
        return stats[0]
    if attempt.received is None or _several_schedulers(scene) or apart(attempt) or held(scene, attempt):
        return None
    if _transfers(scene, attempt) and scene.release.may_have(TRANSFERS_UNCOUNTED):
        return None  # its lines do not count who waits for a transfer
    listed, missing = last_listed(scene, attempt)
    if missing is not None and not _transfers(scene, attempt):  # who is retracted there is in neither list
        return missing
    return accounted(scene, attempt.order if listed is None else scene.places[id(listed)])


def accounted(scene: Scene, start: int) -> Fact | None:
    """The first batch line from the second after a place on that has room for nobody but who is known to end later.

    None as well where a line does not count all that are in the engine.
    """
    index = bisect.bisect_right(scene.batch_orders, start) + 1  # so there always is a line before it
    if index >= len(scene.batch_orders) or _several_schedulers(scene):
        return None
    return _first_accounted(scene, index)


def last_listed(scene: Scene, attempt: Attempt) -> tuple[Fact | None, Fact | None]:
    """The last status of a scheduler that lists an attempt as running or waiting, and the next, which does not.

    Of one that waited the next tells nothing: between two batches it may be in neither list.
    `SGLANG_LOG_SCHEDULER_STATUS_TARGET` (0.5.8 on, `utils/scheduler_status_logger.py:maybe_dump`). A rid that was used
    more than once may be another's there.
    """
    lists = _lists(scene).get(attempt.rid, ()) if len(scene.by_rid.get(attempt.rid, ())) == 1 else ()
    if not lists:
        return None, None
    series, place = lists[-1]
    ran = attempt.rid in series[place].detail.get("running_rids", ())
    return series[place], series[place + 1] if ran and place + 1 < len(series) else None


@per_scene
def _lists(scene: Scene) -> dict[str, list[tuple[list[Fact], int]]]:
    """The statuses that list a rid: those of its scheduler in order, and the place of one among them."""
    series: dict[tuple[object, ...], list[Fact]] = {}
    found: dict[str, list[tuple[list[Fact], int]]] = {}
    for fact in scene.life.of(Event.SCHEDULER_STATUS):
        own = series.setdefault((fact.process, fact.rank, fact.detail.get("scheduler_rank")), [])
        own.append(fact)
        for name in ("running_rids", "queued_rids"):
            for rid in fact.detail.get(name, ()):
                found.setdefault(rid, []).append((own, len(own) - 1))
    return found


def _first_accounted(scene: Scene, index: int) -> Fact | None:
    """The first batch line, from a place among them on, whose requests are all known to finish later."""
    known: dict[int, Fact | None] = scene.memo.setdefault(_first_accounted, {})
    found, at = None, index
    while at < len(scene.batches):
        if at in known:
            found = known[at]
            break
        if _all_finish(scene, *scene.batches[at]) or _all_new(scene, at):
            found = known[at] = scene.batches[at][1]
            break
        at += 1
    known.update(dict.fromkeys(range(index, at), found))  # many requests without an end ask for what comes next
    return found


def _all_finish(scene: Scene, order: int, fact: Fact) -> bool:
    """Whether the requests of a batch line are all known to finish later.

    Of a batch that takes somebody in this can't be told: who came last may still be on the way, and a chunk of a long
    prompt counts as somebody new.
    """
    if fact.running is None or fact.queued is None or fact.at is None or fact.detail.get("new_seq"):
        return False
    began, ended = _apart(scene)
    seen = fact.running + fact.queued + (fact.detail.get("elsewhere") or 0)
    seen += bisect.bisect_left(began, order) - bisect.bisect_right(ended, order)  # they fill none of its places
    return scene.outlived(order, fact.at + MARGIN, seen)


def _all_new(scene: Scene, index: int) -> bool:
    """Whether a batch line shows an engine that had been idle: nobody is in it but who came since the line before.

    Neither may be a chunk's, the rest of which would count as somebody new.
    """
    (previous, before), (order, fact) = scene.batches[index - 1 : index + 1]
    new = fact.detail.get("new_seq") or 0
    if not new or fact.running != 0 or fact.queued != 0 or fact.detail.get("elsewhere") or before.queued != 0:
        return False
    if fact.at is None or before.at is None or fact.at - before.at < _IDLE:
        return False
    size = chunk(scene)
    if max(each.detail.get("new_token") or 0 for each in (before, fact)) >= size:
        return False
    began, ended = _apart(scene)
    apart_ = bisect.bisect_left(began, order) - bisect.bisect_right(ended, order)
    arrivals = _arrivals(scene)
    since = slice(bisect.bisect_right(arrivals, (previous, scene.life.size)), bisect.bisect_left(arrivals, (order, -1)))
    return apart_ == 0 and new <= sum(over > order for _, over in arrivals[since])


def seen(fact: Fact) -> int:
    """How many requests a batch line counts: those that run, wait, or are taken in."""
    return (fact.running or 0) + (fact.queued or 0) + (fact.detail.get("new_seq") or 0)


@per_scene
def _arrivals(scene: Scene) -> list[tuple[int, int]]:
    """The places of the records that began an attempt, each with that from which on it was not in the engine."""
    return sorted((a.order, _over(scene, a)) for a in scene.attempts if a.received is not None)


def _over(scene: Scene, attempt: Attempt) -> int:
    """The place of the line that tells of an attempt's end, or that its client had gone; the log's end where none."""
    gone = attempt.of(Event.CLIENT_DISCONNECTED)
    told = [*[scene.places[id(fact)] for fact in gone[:1]], attempt.finish_order]
    return min((place for place in told if place is not None), default=scene.life.size)


@per_scene
def chunk(scene: Scene) -> int:
    """Tokens of a prompt that are read at once at most; where the log does not tell, fewer than any default."""
    told = [f.detail.get("chunked_prefill_size") for f in scene.life.of(Event.SERVER_CAPACITY)]
    size = next((size for size in (*told, scene.life.args.get("chunked_prefill_size")) if isinstance(size, int)), 1024)
    return size if size > 0 else 1 << 62  # -1: never in chunks


def _transfers(scene: Scene, attempt: Attempt) -> bool:
    """Whether it is served by two servers, one of which sends its KV to the other."""
    record = attempt.received
    return scene.mode in ("prefill", "decode") or (record is not None and record.room is not None)


@per_scene
def _several_schedulers(scene: Scene) -> bool:
    """Whether a batch line counts the requests of one scheduler of several: of one DP rank, or one stage of PP."""
    if scene.mixed:
        return True
    sizes = (scene.life.args.get(name) for name in ("dp_size", "pp_size"))
    if any(isinstance(size, int) and size > 1 for size in sizes):
        return True
    ranks = {fact.rank for _, fact in scene.batches if fact.rank is not None}
    return len({_SCHEDULER.sub("", rank) for rank in ranks}) > 1


def apart(attempt: Attempt) -> bool:
    """Whether it may have stood where no batch line counts it: while its grammar compiled, while its media loaded."""
    for record in (attempt.received, attempt.finish):
        if record is not None and (record.detail.get("grammar") or record.detail.get("media")):
            return True
    return False


@per_scene
def _apart(scene: Scene) -> tuple[list[int], list[int]]:
    """The places from which on attempts that finish may not have been in the engine, and until which; each in order.

    Before they were in it the last batch that takes somebody in before they end may be theirs: a grammar compiles while
    others come and go. After it their time stats are written, and their `Finish` when the API server comes to it.
    """
    found = [a for a in scene.attempts if a.received is not None and a.finish_order is not None and apart(a)]
    taken = taking(scene)
    until = []
    for attempt in found:
        end = attempt.finish_order or 0
        at = bisect.bisect_left(taken, end) - 1
        until.append(taken[at] if at >= 0 and taken[at] > attempt.order else end)
    began = [a.order for a in found]
    for attempt in scene.attempts if scene.life.of(Event.REQUEST_STATS) else ():
        stats = attempt.of(Event.REQUEST_STATS)
        if stats and attempt.received is not None and attempt.finish_order is not None:
            left = scene.places[id(stats[0])]
            if attempt.order < left < attempt.finish_order:
                began.append(left)
                until.append(attempt.finish_order)
    return sorted(began), sorted(until)


@per_scene
def taking(scene: Scene) -> list[int]:
    """The places of the batch lines that take somebody in, in order."""
    return [order for order, fact in scene.batches if fact.detail.get("new_seq")]


def held(scene: Scene, attempt: Attempt) -> bool:
    """Whether it may have come while the engine was paused (0.4.9 on) or while its weights were updated."""
    return any(_before(begun, attempt.order) > _before(over, attempt.order) for begun, over in _holds(scene))


@per_scene
def _holds(scene: Scene) -> list[tuple[list[int], list[int]]]:
    """Where the engine began to hold requests back, and where that was over: its answer, or a batch that takes some.

    An update that no line ends is over when its answer would have come.
    """
    pauses = sorted(c.order for c in scene.calls if c.kind == "pause" and c.fact.detail.get("http_status") == 200)
    begun = [(scene.places[id(fact)], fact.at) for fact in scene.life.of(Event.WEIGHTS_UPDATE)]
    late = [scene.place_at(at + ENGINE_CALL) for _, at in begun if at is not None]
    orders, taken = scene.call_orders, taking(scene)
    continued = [scene.places[id(fact)] for fact in scene.life.of(Event.ENGINE_CONTINUED)]
    return [
        (pauses, sorted([*orders.get("continue", []), *continued, *taken])),
        ([order for order, _ in begun], sorted([*orders.get("weights", []), *taken, *late])),
    ]


def _before(orders: list[int], order: int) -> int:
    """The last of some places before another; -1 where there is none."""
    at = bisect.bisect_left(orders, order)
    return orders[at - 1] if at else -1
