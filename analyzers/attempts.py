"""The attempts of a rid: each from its `Receive` to its end, within one life of a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from sglang_lifecycle.analyzers import fingerprint
from sglang_lifecycle.analyzers.lives import Life, times
from sglang_lifecycle.analyzers.texts import aborted_early
from sglang_lifecycle.parsers.evidence import Event, Fact

_EVENT = attrgetter("event")
WARM_UP = "The capital city of France is"
_PROBE = "HEALTH_CHECK_"
_HEALTH = re.compile(rf"{_PROBE}[\w.]+")


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt. `order` is its place among all facts of its life, for comparisons finer than a second."""

    rid: str
    life: Life
    order: int
    received: Fact | None = None
    finish: Fact | None = None
    finish_order: int | None = None
    openai: Fact | None = None
    facts: list[Fact] = field(default_factory=list)
    """Everything else that names the rid."""
    forged: list[Fact] = field(default_factory=list)
    """Tainted facts about it: a stranger may have written them."""
    errors: list[Fact] = field(default_factory=list)
    """API errors without a rid that are read as this attempt's, by their place."""
    access: Fact | None = None
    """The line of its HTTP response, by its place: which of several alike it is may be a guess."""
    access_alone: bool = False
    """Whether no other request waited for a response, so that the line, and the peer in it, is its own."""
    guessed: bool = False
    """Whether an error or a status that is read as its own may be another's."""
    rivals: list[Attempt] = field(default_factory=list)
    """Those whose it may be, and which have no end either."""
    others: list[Fact] = field(default_factory=list)
    """Errors and statuses without a rid that are read as another's and may be its own."""
    rejoined: bool = False
    """Whether a `Finish` and a `Receive` behind it are taken for its own: they may be two requests'."""
    overwritten: bool = False
    """A second `Receive` of the same rid came while this one was open."""
    refused_twin: bool = False
    """There was no `Receive`: the API server refused it because the rid was in flight."""
    _by_event: dict[Event, list[Fact]] = field(default_factory=dict)
    _sorted: int = 0  # so many of its facts are known by their kinds

    def of(self, *events: Event) -> list[Fact]:
        """Its facts of some kinds, in their order."""
        if self._sorted < len(self.facts):
            for event, alike in groupby(self.facts[self._sorted :], _EVENT):
                self._by_event.setdefault(event, []).extend(alike)
            self._sorted = len(self.facts)
        found = [self._by_event[event] for event in events if event in self._by_event]
        return list(found[0]) if len(found) == 1 else [f for f in self.facts if f.event in events] if found else []

    @property
    def peer(self) -> str | None:
        """The HTTP peer, where no other request can have been meant."""
        return self.access.detail.get("peer") if self.access is not None and self.access_alone else None

    @property
    def stream(self) -> bool | None:
        """Whether the client asked for a stream; None where no record says."""
        for fact in (self.received, self.finish):
            if fact is not None and "stream" in fact.detail:
                return bool(fact.detail["stream"])
        return None

    @property
    def session_id(self) -> str | None:
        """The session that it was built from."""
        for fact in (self.received, self.finish):
            if fact is not None and fact.detail.get("session"):
                return fact.session_id
        return None

    @property
    def parent_rid(self) -> str | None:
        """The rid that it refers to inside its session."""
        for fact in (self.received, self.finish):
            if fact is not None and fact.detail.get("session"):
                return fact.parent_rid
        return None

    @property
    def begun(self) -> list[Fact]:
        """The record that began it, where there is one."""
        return [self.received] if self.received is not None else []

    @property
    def received_at(self) -> float | None:
        """When it was received, UTC epoch seconds: the API server's own stamp where `Finish` carries it."""
        if self.received is None:
            return None
        at, finish = self.received.at, self.finish
        if at is None or finish is None or finish.at is None:
            return at
        own = finish.detail.get("request_received_ts")
        if own is None and finish.e2e_s is not None and finish.at_from in ("own", "meta"):
            own = finish.at - finish.e2e_s
        if own is not None and abs(own - at) <= (self.received.at_error or 0.0) + (finish.at_error or 0.0) + 0.5:
            return float(own)
        return min(at, finish.at)

    @property
    def latest_arrival(self) -> float | None:
        """The latest time at which its `Receive` can have been written, UTC epoch seconds."""
        record = self.received
        return record.at + (record.at_error or 0.0) if record is not None and record.at is not None else None

    @property
    def ended_at(self) -> float | None:
        """When its `Finish` was written, UTC epoch seconds: by the time that it took, where the record has no stamp."""
        finish, record = self.finish, self.received
        if finish is None or finish.at is None or (finish.at_error or 0.0) <= _COARSE:
            return finish.at if finish is not None else None
        if record is None or record.at is None or finish.e2e_s is None:
            return finish.at
        coarse, end = finish.at_error or 0.0, record.at + finish.e2e_s
        return end if (record.at_error or 0.0) < coarse and abs(end - finish.at) <= coarse else finish.at

    @property
    def cut(self) -> Fact | None:
        """The line that tells of its end first: that of an abort on its way to the queue, else its `Finish`.

        Whom an abort meets in the grammar queue ends when its stub has run, which waits behind others (0.4.7 to 0.5.23,
        constrained/grammar_manager.py:abort_requests, before 0.5.8 managers/scheduler.py:abort_request).
        """
        finish = self.finish
        told = self.of(Event.REQUEST_REJECTED, Event.EPD_FAILED, Event.PD_FAILED) if self.facts else []
        early = next(filter(aborted_early, told), None)
        if early is None or early.at is None or finish is None or finish.at is None:
            return early or finish
        at_once = aborted_early(finish) and finish.at - early.at <= _AT_ONCE
        return finish if at_once else early  # among the API server's lines its own place is the surer one

    @property
    def ends(self) -> tuple[float, ...]:
        """When it ended, by its `Finish` and by the time that it took: they differ where the clock leapt.

        UTC epoch seconds.
        """
        record, finish = self.received, self.finish
        if finish is None or finish.at is None:
            return ()
        if record is None or record.at is None or finish.e2e_s is None or (record.at_error or 0.0) > _COARSE:
            return (finish.at,)
        return finish.at, record.at + finish.e2e_s

    @property
    def torn(self) -> bool:
        """Whether its `Finish` tells of less time than lies between its records: a later use of the rid may have it."""
        if len(self.ends) < 2 or self.received is None or self.finish is None:
            return False
        written, took = self.ends
        return written - took > _TORN + (self.received.at_error or 0.0) + (self.finish.at_error or 0.0)

    @property
    def went_well(self) -> bool:
        """Whether it ended as its client wished: at a stop, or at its length."""
        return self.finish is not None and self.finish.finish_type in ("stop", "length")

    @property
    def latency(self) -> float | None:
        """Seconds from its arrival to its end, as SGLang measured them, else by the log's clock."""
        if self.finish is not None and self.finish.e2e_s is not None:
            return self.finish.e2e_s
        start, end = self.received_at, self.ended_at
        return end - start if start is not None and end is not None else None

    @property
    def health_check(self) -> bool:
        """Whether SGLang sent it itself, to see whether the engine answers."""
        return self.rid.startswith(_PROBE) and _HEALTH.fullmatch(self.rid) is not None

    @property
    def synthetic(self) -> bool:
        """Whether SGLang sent it itself: a health check, or the warm-up before the server was ready."""
        if self.health_check:
            return True
        record = self.received if self.received is not None and "opening" in self.received.detail else self.finish
        opening = record.detail.get("opening") if record is not None else None
        if opening != WARM_UP:
            return False
        ready = next((i for i, f in self.life.placed() if f.event is Event.SERVER_READY), None)
        return ready is None or self.order < ready

    @property
    def completion_tokens(self) -> int | None:
        """Tokens that it produced, as far as any record says."""
        for fact in (self.finish, *self.of(Event.REQUEST_STATS, Event.METRICS_EXPORTED)):
            if fact is not None and fact.completion_tokens is not None:
                return fact.completion_tokens
        return None


def attempts(life: Life) -> list[Attempt]:
    """All attempts of a life, in the order in which they began."""
    return list(_Collector(life).collect())


class _Collector:
    def __init__(self, life: Life) -> None:
        self.life = life
        self.found: list[Attempt] = []
        self.newest: dict[str, Attempt] = {}
        self.rooms: dict[int | None, str | None] = {}  # whose KV is sent in a bootstrap room; None of several
        self.displaced: dict[str, Attempt] = {}  # open ones whose rid another took, the newest of each rid

    def collect(self) -> Iterator[Attempt]:
        openai: tuple[int, Fact] | None = None
        odd = fingerprint.out_of_form(self.life.told)
        dumped: list[tuple[int, Fact]] = []
        for order, fact in self.life.placed():
            if fact.event in _NAMELESS or (odd and id(fact) in odd):
                continue
            if fact.event is Event.REQUEST_RECEIVED_OPENAI:
                openai = (order, fact)
            elif fact.event is Event.REQUEST_RECEIVED and fact.rid is not None and not fact.tainted:
                attempt = self._receive(order, fact)
                if openai is not None and order - openai[0] <= _OPENAI_GAP and _same_kind(openai[1], fact):
                    attempt.openai = openai[1]
                    openai = None
            elif fact.event is Event.REQUEST_FINISHED and fact.rid is not None and not fact.tainted:
                self._finish(order, fact)
            elif fact.event is Event.REQUEST_DUMPED:
                dumped.append((order, fact))
            elif fact.message_id == "duplicate_rid" and not fact.tainted:
                self._twin(order, fact)
            elif fact.rid is not None:
                self._mention(order, fact.rid, fact)
            else:
                for rid in fact.detail.get("rids", ()):  # a drain's or a watchdog's list
                    self._mention(order, rid, fact)
                alone = self.rooms.get(fact.room) if fact.event is Event.PD_FAILED else None
                if alone is not None:
                    self._mention(order, alone, fact)
        if dumped:
            self._dumped(dumped)
        self._rejoin()
        for attempt in self.found:
            exported = attempt.of(Event.METRICS_EXPORTED) if attempt.finish is None else None
            if exported and exported[-1].finish_type is not None:
                attempt.finish, attempt.finish_order = exported[-1], self.life.facts.index(exported[-1])
        return iter(self.found)

    def _begin(self, rid: str, order: int) -> Attempt:
        attempt = Attempt(rid, self.life, order)
        self.found.append(attempt)
        self.newest[rid] = attempt
        return attempt

    def _receive(self, order: int, fact: Fact) -> Attempt:
        assert fact.rid is not None
        if fact.room is not None:
            self.rooms[fact.room] = fact.rid if self.rooms.get(fact.room, fact.rid) == fact.rid else None
        before = self.newest.get(fact.rid)
        if before is not None and before.finish is None and not before.refused_twin and _just_named(before, fact):
            before.received, before.order = fact, order  # named before its record, by another process's line
            return before
        if before is not None and before.received is not None and before.finish is None:
            before.overwritten = True
            self.displaced[fact.rid] = before
        attempt = self._begin(fact.rid, order)
        attempt.received = fact
        return attempt

    def _finish(self, order: int, fact: Fact) -> None:
        assert fact.rid is not None
        attempt = self.newest.get(fact.rid)
        if attempt is not None and attempt.finish is not None and _copied(attempt.finish, fact):
            return
        if attempt is not None and attempt.finish is not None and id(attempt.finish) in self.life.suspects:
            attempt.forged.append(attempt.finish)
            attempt.finish = None
        if attempt is None or attempt.finish is not None or attempt.refused_twin:
            attempt = (self._open(fact.rid) if attempt is not None else None) or self._begin(fact.rid, order)
        attempt.finish, attempt.finish_order = fact, order

    def _rejoin(self) -> None:
        """Two attempts of which the one lacks its beginning and the other its end may be one, or one told twice.

        A collector may deliver lines out of turn or more than once: a `Finish` before its `Receive`, a `Receive` anew.
        """
        last: dict[str, Attempt] = {}
        gone: set[int] = set()
        whole = self.life.whole
        for attempt in self.found:
            before = last.get(attempt.rid)
            if before is not None and attempt.received is not None and attempt.finish is None:
                if whole and _out_of_turn(before, attempt):  # of a log that begins late it may have a record before
                    before.received, before.rejoined = attempt.received, True
                elif not self._delivered_again(before, attempt):
                    before = None
                if before is not None:
                    before.overwritten = False
                    before.openai = before.openai or attempt.openai
                    before.facts += attempt.facts
                    before.forged += attempt.forged
                    gone.add(id(attempt))
                    continue
            last[attempt.rid] = attempt
        if gone:
            self.found = [attempt for attempt in self.found if id(attempt) not in gone]

    def _delivered_again(self, before: Attempt, attempt: Attempt) -> bool:
        """Whether a `Receive` is the one before, delivered again: a stamp as fine as that, or older than its place."""
        one, other = before.received, attempt.received
        if one is None or other is None or one.at is None or not _alike(one, other):
            return False
        if (one.at_error or 0.0) <= _FINE:
            return True
        at = self.life.places.index(attempt.order) if attempt.order in self.life.places else 0
        until = one.at + (one.at_error or 0.0)
        around = (f for f in self.life.told[max(0, at - _NEAR) : at] if f.process == other.process)
        return any(f.at is not None and f.at_from == "own" and f.at - (f.at_error or 0.0) >= until for f in around)

    def _open(self, rid: str) -> Attempt | None:
        """The newest attempt of a rid that was received and has no end yet."""
        return next((a for a in reversed(self.found) if a.rid == rid and a.finish is None and a.received), None)

    def _twin(self, order: int, fact: Fact) -> None:
        for rid in fact.detail.get("rids", ()):
            twin = Attempt(rid, self.life, order, refused_twin=True)
            twin.facts.append(fact)
            self.found.append(twin)
            self.newest.setdefault(rid, twin)

    def _dumped(self, dumped: list[tuple[int, Fact]]) -> None:
        """A dump knows when the API server took a request in: that tells the attempts of a rid apart."""
        received: dict[str, list[tuple[Attempt, float, float]]] = {}
        for attempt in self.found:
            record = attempt.received
            if record is not None and record.at is not None:
                within = _CREATED_WITHIN + (record.at_error or 0.0)
                received.setdefault(attempt.rid, []).append((attempt, record.at, within))
        for order, fact in dumped:
            created = fact.detail["created"]
            peers = received.get(fact.rid or "", [])
            close = [(abs(at - created), a) for a, at, within in peers if abs(at - created) <= within]
            if close:
                min(close, key=lambda each: each[0])[1].facts.append(fact)
            elif fact.rid is not None and not peers:
                self._mention(order, fact.rid, fact)

    def _mention(self, order: int, rid: str, fact: Fact) -> None:
        attempt = self.newest.get(rid)
        if attempt is None:
            if fact.tainted and fact.event is not Event.WATCHDOG_DUMPED:
                return  # a rid that only a stranger's line names is no request
            attempt = self._begin(rid, order)
        if fact.event is Event.CLIENT_DISCONNECTED and attempt.finish is not None:
            attempt = self.displaced.pop(rid, attempt)  # whoever has ended leaves nobody behind to notice it
        said = attempt.forged if fact.tainted else attempt.facts
        said += [fact] * times(fact) if "again" in fact.detail else [fact]


def _just_named(attempt: Attempt, record: Fact) -> bool:
    """Whether lines named a rid just before its record, as those of other processes may."""
    if attempt.received is not None:
        return False
    newest = next((fact for fact in reversed(attempt.facts or attempt.forged) if fact.at is not None), None)
    return newest is None or newest.at is None or record.at is None or record.at - newest.at <= _NAMED_BEFORE


def _copied(one: Fact, other: Fact) -> bool:
    """Whether a `Finish` is another one, delivered again: no two requests last as long to the microsecond."""
    measured = one.e2e_s is not None and one.at == other.at
    return measured and (one.e2e_s, one.completion_tokens, one.length) == (
        other.e2e_s,
        other.completion_tokens,
        other.length,
    )


def _alike(one: Fact, other: Fact) -> bool:
    """Whether two records may be one line, delivered twice."""
    if one.at_from not in ("own", "wrapper") or (one.at, one.length, one.process) != (
        other.at,
        other.length,
        other.process,
    ):
        return False
    first, second = ({k: v for k, v in each.detail.items() if k != "fields"} for each in (one, other))
    return one.line != other.line and first == second


def _out_of_turn(ended: Attempt, begun: Attempt) -> bool:
    """Whether a `Finish` stands just before the `Receive` of the same attempt, by the time that it took."""
    finish, record = ended.finish, begun.received
    if ended.received is not None or finish is None or record is None or finish.at is None or record.at is None:
        return False
    if not 0 < begun.order - (ended.finish_order or 0) <= _NEAR:
        return False
    slack = (finish.at_error or 0.0) + (record.at_error or 0.0) + 0.5
    alike = all(record.detail.get(name) == finish.detail.get(name) for name in _OF_BOTH if name in finish.detail)
    return alike and abs(finish.at - (finish.e2e_s or 0.0) - record.at) <= slack


_OF_BOTH = ("stream", "session", "max_new_tokens", "prompt_ids", "opening")
_TORN = 10.0  # seconds that lie beside what a `Finish` tells of, at most: before its `Receive` is timed, and behind it
_COARSE = 1.0  # seconds by which the time of a `Receive` may be off
_AT_ONCE = 1.5  # seconds from the scheduler's line of an abort to the end of a stub that waited for nobody
_FINE = 0.01  # seconds: no two records of one rid are so close in time
_NEAR = 40  # facts by which a collector may deliver lines out of turn
_NAMED_BEFORE = 60.0  # seconds from a line that names a rid to the record that it precedes
_NAMELESS = frozenset({Event.HTTP_ACCESS, Event.BATCH_PREFILL, Event.BATCH_DECODE})
"""Routine that names no request."""

_CREATED_WITHIN = 2.0  # seconds from an API server's taking a request in to its `Receive`
_OPENAI_GAP = 6  # facts between the OpenAI body and the request made of it


def _same_kind(openai: Fact, received: Fact) -> bool:
    """Whether a request may have been made of an OpenAI body: same stream flag, and the same rid if one was sent."""
    if openai.detail.get("stream", False) != received.detail.get("stream", False):
        return False
    return openai.rid is None or openai.rid == received.rid
