"""A scene: one life of a server with its attempts, calls and batches, indexed so that no question walks all of it.

An audit asks the same questions of every request; each index here is built once per life, when it is first asked for,
and answers by bisection or by a dictionary.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, takewhile
from typing import Any, Protocol, TypeVar

from sglang_lifecycle.analyzers import responses
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.fingerprint import Release
from sglang_lifecycle.analyzers.lives import Life
from sglang_lifecycle.analyzers.texts import ended_plainly
from sglang_lifecycle.parsers.evidence import Event, Fact

ENGINE_CALL = 45.0
"""Seconds by which a pause or a weight update answers after the aborts that it caused."""

CALL_BEFORE = 8.0
"""Seconds from an abort call's line to the end that it brings: of a running request, its next result may be late."""

CALL_AFTER = 1.0
"""Seconds by which an access line may be written before what it brought: up to its own second."""

_Answer = TypeVar("_Answer")
_BLOCK = 512  # facts between two snapshots of who was in flight


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP call that is not a request for text. Its line is written when its response starts; it names no rid."""

    kind: str
    order: int
    fact: Fact

    @property
    def at(self) -> float | None:
        """When its line was written, UTC epoch seconds."""
        return self.fact.at


@dataclass(eq=False)
class Scene:
    """One life with its attempts, calls and batches, each in order."""

    life: Life
    attempts: list[Attempt]
    release: Release
    calls: list[Call] = field(default_factory=list)
    batches: list[tuple[int, Fact]] = field(default_factory=list)
    responses: responses.Responses = field(default_factory=responses.Responses)
    every: Mapping[tuple[str, int], Scene] = field(default_factory=dict, repr=False)
    """The scenes of the incident, this one among them, by the names of their servers and the numbers of their lives."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """The limits that the user knows, in seconds, by the text of the timeout (`waiting_timeout`, `running_timeout`)."""
    partial: bool = False
    """Whether lines of other requests may have been left out."""
    memo: dict[object, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each fact among the life's, by the fact's identity."""
        return dict(zip(map(id, self.life.told), self.life.places, strict=False))

    @cached_property
    def _newest(self) -> list[float]:
        """The newest time up to each fact that was told, UTC epoch seconds."""
        return list(accumulate([fact.at or 0.0 for fact in self.life.told], max))

    def place_at(self, at: float) -> int:
        """The place of the first fact that is not older than a time, UTC epoch seconds; their number where none is."""
        return self.life.places[bisect.bisect_left(self._newest, at)]

    @cached_property
    def by_rid(self) -> dict[str, list[Attempt]]:
        """The attempts of each rid, in the order in which they began."""
        return group(self.attempts, lambda a: a.rid)

    @cached_property
    def _lengths(self) -> list[int]:
        """How many characters rids have, each number once, in order."""
        return sorted(set(map(len, self.by_rid)) - {0})

    def beginnings(self, rid: str) -> list[str]:
        """The known rids that are a beginning of another, the shortest first."""
        shorter = self._lengths[: bisect.bisect_left(self._lengths, len(rid))]
        return [rid[:length] for length in shorter if rid[:length] in self.by_rid]

    def prefixes(self, rid: str) -> list[Attempt]:
        """The attempts whose rid is a beginning of another, the shortest first."""
        return [a for beginning in self.beginnings(rid) for a in self.by_rid[beginning]]

    @property
    def others(self) -> list[Scene]:
        """The scenes of the other lives and servers of the incident."""
        return [scene for scene in self.every.values() if scene is not self]

    @cached_property
    def following(self) -> Scene | None:
        """The next life of the same server, if there is one."""
        return self.every.get((self.life.server, self.life.number + 1))

    @cached_property
    def mixed(self) -> bool:
        """Whether another server's lines stand among these, as in a stream of several pods without labels.

        Records of two releases, a second server that is ready, or what was open at a start and goes on after that.
        """
        ready = len(self.life.of(Event.SERVER_READY))
        if self.release.mixed or (ready > 1 and not self.several_workers):
            return True
        before, after = self.every.get((self.life.server, self.life.number - 1)), self.following
        return (before is not None and _goes_on(before, self)) or (after is not None and _goes_on(self, after))

    @cached_property
    def mode(self) -> object:
        """`prefill` or `decode`: what its arguments say of its side of a disaggregation; None where they do not."""
        return self.life.args.get("disaggregation_mode")

    @cached_property
    def sees_access(self) -> bool:
        """Whether access lines are written at all."""
        return bool(self.life.of(Event.HTTP_ACCESS))

    @cached_property
    def sees_requests(self) -> bool:
        """Whether the request log is on."""
        return bool(self.life.of(Event.REQUEST_RECEIVED, Event.REQUEST_FINISHED))

    @cached_property
    def several_workers(self) -> bool:
        """Whether several HTTP workers serve the life (`--tokenizer-worker-num`, 0.5.2 on)."""
        number = self.life.args.get("tokenizer_worker_num")
        if isinstance(number, int):
            return number > 1
        if any(f.pattern == "router.ipc_none" for f in self.life.of(Event.OUTPUT_LOST)):
            return True
        return any(f.detail.get("worker") for f in self.life.told)

    @cached_property
    def _answers(self) -> list[int]:
        """The places of the HTTP 200s that no attempt explains."""
        return [o for o, f in self.responses.unclaimed if f.detail.get("http_status") == 200]

    @property
    def last_answer(self) -> int:
        """The place of the last HTTP 200 that no attempt explains; -1 where there is none."""
        return self._answers[-1] if self._answers else -1

    @cached_property
    def hides_finishes(self) -> bool:
        """Whether `Finish` lines are held back (SGLANG_LOG_REQUEST_EXCEEDED_MS, 0.5.7 on).

        Shown by native requests without a stream that have none although an HTTP 200 was written for them. One such
        answer may be a stream's that was matched to another request; the filter hides more.
        """
        return len(self._answers) > 1 and any(
            a.finish is None and a.stream is False and not a.facts and not a.errors and a.access is None
            and (a.received is None or (a.received.detail.get("n") or 1) == 1) and self.last_answer > a.order
            for a in self.attempts
        )  # fmt: skip

    @cached_property
    def plain_ends(self) -> list[Attempt]:
        """Attempts ended by an abort without a reason, by the place of their end: some of the times are coarse."""
        ended = [a for a in self.attempts if (line := a.cut) is not None and ended_plainly(line)]
        return sorted(ended, key=self.cut_order)

    def cut_order(self, attempt: Attempt) -> int:
        """The place of the line that tells first of an attempt's end; 0 where none does."""
        line = attempt.cut
        return (attempt.finish_order or 0) if line is None or line is attempt.finish else self.places[id(line)]

    @cached_property
    def ended_with(self) -> dict[str, list[Attempt]]:
        """Attempts by the text of their finish reason."""
        ended = [a for a in self.attempts if a.finish is not None and a.finish.message_id is not None]
        return group(ended, lambda a: a.finish.message_id if a.finish is not None else None)

    @cached_property
    def sessions(self) -> dict[str, list[Attempt]]:
        """Attempts built from each session, in the order of their arrival."""
        turns = (a for a in self.attempts if a.session_id is not None)
        return group(sorted(turns, key=lambda a: a.order), lambda a: a.session_id)

    @cached_property
    def _session_facts(self) -> dict[str, list[tuple[int, Fact]]]:
        placed = [
            (o, f)
            for o, f in self.life.placed()
            if f.session_id is not None
            and f.event.startswith("session.")  # its turns are many
            and (not f.tainted or f.detail.get("raw"))
        ]
        return group(placed, lambda item: item[1].session_id)

    def about_session(self, session_id: str, *events: Event) -> list[tuple[int, Fact]]:
        """The life's facts of some kinds about a session itself, with their places."""
        return [(o, f) for o, f in self._session_facts.get(session_id, ()) if f.event in events]

    @cached_property
    def _calls_by_time(self) -> dict[str, list[Call]]:
        dated = sorted((c for c in self.calls if c.at is not None), key=lambda c: (c.at or 0.0, c.order))
        return group(dated, lambda c: c.kind)

    def calls_between(self, kind: str, start: float, end: float) -> list[Call]:
        """The calls of a kind whose line was written in a window of UTC epoch seconds."""
        calls = self._calls_by_time.get(kind, [])
        first = bisect.bisect_left(calls, start, key=lambda c: c.at or 0.0)
        return calls[first : bisect.bisect_right(calls, end, key=lambda c: c.at or 0.0)]

    @cached_property
    def _updates(self) -> tuple[list[float], list[Fact]]:
        """When weight updates began, UTC epoch seconds, in order, and the lines that say so."""
        dated = sorted(((f.at, f) for f in self.life.of(Event.WEIGHTS_UPDATE) if f.at is not None), key=lambda u: u[0])
        return [at for at, _ in dated], [fact for _, fact in dated]

    def updates_between(self, start: float, end: float) -> list[Fact]:
        """The weight updates that began in a window of UTC epoch seconds (0.4.1 to 0.5.23)."""
        times, facts = self._updates
        return facts[bisect.bisect_left(times, start) : bisect.bisect_right(times, end)]

    def engine_causes(self, at: float) -> list[str]:
        """What ends everything in flight and may have done so at a time, UTC epoch seconds: a pause, a weight update.

        Both answer later; an update says when it begins (0.4.9 to 0.5.23).
        """
        found = [
            cause
            for kind, cause in (("pause", "pause-abort"), ("weights", "weight-update-abort"))
            if self.calls_between(kind, at - CALL_AFTER, at + ENGINE_CALL)
        ]
        begun = self.updates_between(at + CALL_AFTER - ENGINE_CALL, at + CALL_AFTER)
        if "weight-update-abort" not in found and begun:
            found.append("weight-update-abort")
        return found

    @cached_property
    def call_orders(self) -> dict[str, list[int]]:
        """The places of the calls of each kind, in order."""
        return {kind: sorted(c.order for c in calls) for kind, calls in group(self.calls, lambda c: c.kind).items()}

    @cached_property
    def batch_orders(self) -> list[int]:
        """The places of the batch lines."""
        return [order for order, _ in self.batches]

    def batches_between(self, start: int, end: int) -> list[Fact]:
        """The batch lines from one place to another, both included."""
        first, last = bisect.bisect_left(self.batch_orders, start), bisect.bisect_right(self.batch_orders, end)
        return [fact for _, fact in self.batches[first:last]]

    @cached_property
    def _ending(self) -> list[Attempt]:
        """Attempts that were received and have a `Finish`, in the order of their arrival."""
        both = [a for a in self.attempts if a.received is not None and a.finish_order is not None]
        return sorted(both, key=lambda a: a.order)

    @cached_property
    def _arriving(self) -> list[int]:
        """The places at which the attempts of `_ending` arrived, in order."""
        return [a.order for a in self._ending]

    @cached_property
    def _silent(self) -> list[Attempt]:
        """Attempts that were received and have no `Finish`, in the order of their arrival."""
        return sorted((a for a in self.attempts if a.received is not None and a.finish is None), key=lambda a: a.order)

    @cached_property
    def _snapshots(self) -> list[tuple[int, list[Attempt]]]:
        """For every block of facts: how many of `_ending` had arrived at its beginning, and which were in flight."""
        found: list[tuple[int, list[Attempt]]] = []
        flying: list[Attempt] = []
        arrived = 0
        for start in range(0, self.life.size + 1, _BLOCK):
            first = arrived
            arrived = bisect.bisect_left(self._arriving, start, lo=first)
            flying = [a for a in (*flying, *self._ending[first:arrived]) if (a.finish_order or 0) > start]
            found.append((arrived, flying))
        return found

    def alive_at(self, order: int) -> list[Attempt]:
        """Attempts that were between `Receive` and `Finish` at a place, in the order of their arrival."""
        if order < 0 or not self._snapshots:
            return []
        index, flying = self._snapshots[min(order // _BLOCK, len(self._snapshots) - 1)]
        alive = [a for a in flying if (a.finish_order or 0) > order]
        while index < len(self._ending) and self._ending[index].order < order:
            if (self._ending[index].finish_order or 0) > order:
                alive.append(self._ending[index])
            index += 1
        return alive

    def ended_between(self, start: float, end: float) -> list[Attempt]:
        """The attempts of `_ending` that ended in a span of UTC epoch seconds, in the order of their ends."""
        attempts, earliest = self._latest
        first = bisect.bisect_left(earliest, start)
        return list(takewhile(lambda a: (a.ended_at or 0.0) <= end, attempts[first:]))

    @cached_property
    def _ends(self) -> list[int]:
        """The places at which the attempts of `_ending` end, in order."""
        return sorted(a.finish_order for a in self._ending if a.finish_order is not None)

    def known_alive(self, order: int) -> int:
        """How many attempts that do finish were between `Receive` and `Finish` at a place."""
        arrived = bisect.bisect_left(self._arriving, order)
        return arrived - bisect.bisect_right(self._ends, order)

    @cached_property
    def _latest(self) -> tuple[list[Attempt], list[float]]:
        """The attempts of `_ending` in the order of their ends, and the earliest time of each end or a later one."""
        attempts = sorted(self._ending, key=lambda a: a.finish_order or 0)
        earliest = list(accumulate((a.ended_at or 0.0 for a in reversed(attempts)), min))
        return attempts, earliest[::-1]

    @cached_property
    def _soonest(self) -> list[float]:
        """For each of these attempts the earliest time at which it or a later one may have ended."""
        return list(accumulate((_soonest_end(a) for a in reversed(self._latest[0])), min))[::-1]

    def outlived(self, order: int, at: float, number: int) -> bool:
        """Whether so many attempts that were between `Receive` and `Finish` at a place end at `at` or later.

        `at` is in UTC epoch seconds.
        """
        alive, ended = self.known_alive(order), bisect.bisect_right(self._ends, order)
        (attempts, _), earliest = self._latest, self._soonest
        looked_at = 0
        while alive >= number and ended < len(attempts) and earliest[ended] < at:
            if looked_at == _BLOCK:  # the log's clock has been set back
                return sum(_soonest_end(a) >= at for a in self.alive_at(order)) >= number
            attempt = attempts[ended]
            alive -= attempt.order < order and _soonest_end(attempt) < at
            ended, looked_at = ended + 1, looked_at + 1
        return alive >= number

    def open_at(self, order: int) -> list[Attempt]:
        """Attempts received before a place and not finished there, those that never finish last."""
        silent = bisect.bisect_left(self._silent, order, key=lambda a: a.order)
        return self.alive_at(order) + self._silent[:silent]


_COARSE = 1.0  # seconds by which the time of a line without one may be off, more than a stamp's


def _soonest_end(attempt: Attempt) -> float:
    """The earliest time of an attempt's end, UTC epoch seconds, where its record has no time of its own."""
    finish, ended = attempt.finish, attempt.finish.at or 0.0 if attempt.finish is not None else 0.0
    error = finish.at_error or 0.0 if finish is not None else 0.0
    return ended - error if error > _COARSE else ended


def _goes_on(scene: Scene, following: Scene) -> bool:
    """Whether a request that one life received without an end is ended in the next, which did not receive it."""
    return any(
        a.received is None and a.finish is not None and any(b.finish is None for b in scene.by_rid.get(a.rid, ()))
        for a in following.attempts
    )


_Item = TypeVar("_Item")


def group(items: Iterable[_Item], key: Callable[[_Item], str | None]) -> dict[str, list[_Item]]:
    """Items by a key, each group in their order; items without one are left out."""
    found: defaultdict[str, list[_Item]] = defaultdict(list)
    for item in items:
        name = key(item)
        if name is not None:
            found[name].append(item)
    return dict(found)


class Remembering(Protocol):
    """What keeps the answers to questions about it."""

    memo: dict[object, Any]


_Asked = TypeVar("_Asked", bound=Remembering)


def once(question: Callable[[_Asked], _Answer]) -> Callable[[_Asked], _Answer]:
    """Answer a question once for each that it is asked about."""

    def answer(about: _Asked) -> _Answer:
        if answer not in about.memo:
            about.memo[answer] = question(about)
        found: _Answer = about.memo[answer]
        return found

    answer.__doc__ = question.__doc__
    return answer


per_scene = once


def per_attempt(question: Callable[[Scene, Attempt], _Answer]) -> Callable[[Scene, Attempt], _Answer]:
    """Answer a question once for each attempt of a scene that it is asked about."""

    def answer(scene: Scene, attempt: Attempt) -> _Answer:
        known: dict[Attempt, _Answer] = scene.memo.setdefault(answer, {})
        if attempt not in known:
            known[attempt] = question(scene, attempt)
        return known[attempt]

    answer.__doc__ = question.__doc__
    return answer
