"""An audit of long logs in bounded memory: requests are judged while they are read, and what is settled is let go.

A request that has ended is judged once enough of what followed its end has been read; then its facts go, and with them
what routine says of the server's load at that time. What concerns a server, a session or a request without an end
stays. A request without an end is judged again and again, until a batch line shows that it has left the engine, or to
the end of the log.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter

from sglang_lifecycle.analyzers import deaths, happenings
from sglang_lifecycle.analyzers.audit import Tally, event, in_order, inputs, inside, order, row, within
from sglang_lifecycle.analyzers.explain import explain, simply_finished
from sglang_lifecycle.analyzers.happenings import ServerHappening
from sglang_lifecycle.analyzers.horizon import Horizon, left
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.limits import KINDS
from sglang_lifecycle.analyzers.listing import Audit, RequestRow, ServerEvent, Totals
from sglang_lifecycle.analyzers.lives import last, times
from sglang_lifecycle.analyzers.routine import routine, witness
from sglang_lifecycle.analyzers.shelf import Shelf
from sglang_lifecycle.analyzers.verdict import Model, Verdict
from sglang_lifecycle.parsers.evidence import CONTEXT, Event, Evidence, Fact
from sglang_lifecycle.parsers.forms import AGAIN
from sglang_lifecycle.parsers.garbage import uncollected

FACTS = 150_000
"""So many facts of one log are held before what is settled goes; of several twice as many."""


class Sweep:
    """Takes the facts of a log in their order, of several in order of time, and gives the rows of their requests.

    A rid whose second use comes after the first was settled is given anew, with what is then known of it. `incident`
    makes one of evidence, with what the user knows better than the logs. Of a request that simply finished `count`,
    where there is one, gets the rid and whether it is synthetic; it is then not given. `judged` makes a row.
    """

    def __init__(
        self,
        give: Callable[[RequestRow], None],
        incident: Callable[[Evidence], Incident] = Incident,
        count: Callable[[str, bool], None] | None = None,
        judged: Callable[[Incident, str], RequestRow] = row,
    ) -> None:
        self._give, self._incident, self._count, self._row = give, incident, count, judged
        self._facts: list[Fact] = []
        self._logs: set[str] = set()
        self._settled: set[str] = set()
        """Rids that have been given, of which facts are still held."""
        self._gone: dict[str, tuple[RequestRow, int]] = {}
        """Requests without an end that left the engine, by the lines read so far: their rows, and since which round."""
        self._happened: dict[tuple[object, ...], ServerEvent] = {}
        self._round = 0
        self._stayed = 0
        self._left: dict[str, tuple[RequestRow, bool]] = {}
        """Requests without an end that nothing more is waited for: their rows, and whether lines only mention them.

        The rows are given at the end, unless an end comes after all.
        """
        self._bases: set[str] = set()
        """Rids of whole batches that have been given."""
        self._given = _Rids()
        self._mentioned: dict[str, RequestRow] = {}
        """Rids without a record of their own among what is held, which lines name all the same."""

    def take(self, facts: Iterable[Fact]) -> None:
        """Take the next facts; their times have to be settled."""
        rest = list(facts)
        while rest:
            room = max(1, self._limit - len(self._facts))
            more, rest = rest[:room], rest[room:]
            self._facts += more
            self._logs.update(map(_PROCESS, more))
            uses = [fact for fact in more if fact.event in _USES]
            self._settled.difference_update([fact.rid for fact in uses])
            self._come_back(uses)
            if len(self._facts) >= self._limit:
                self._judge(len(self._facts) - self._context)

    def _come_back(self, uses: Iterable[Fact]) -> None:
        """A request that was left has an end, and is judged by that; or its rid is used again."""
        for fact in uses:
            if fact.rid in self._left:
                found, mentioned = self._left.pop(fact.rid)
                if fact.event is Event.REQUEST_RECEIVED:
                    self._settle(found, mentioned)
                    self._settled.discard(found.rid)

    @property
    def _limit(self) -> int:
        """So many facts are held at most: what stays is looked at each time."""
        return self._stayed + max(FACTS * self._share, self._stayed)

    @property
    def _share(self) -> int:
        """How many times as much is held as of one log."""
        return 2 if len(self._logs) > 1 else 1

    @property
    def _context(self) -> int:
        return CONTEXT * self._share

    def finish(self) -> list[ServerEvent]:
        """The log has ended: the rest of the rows is given. Returns what happened to the server."""
        self._judge(None)
        self._facts = []  # who looks for garbage after this would look through them
        for found, mentioned in self._left.values():
            self._settle(found, mentioned)
        before = self._given.among(self._mentioned)  # what a list says of them long after their end is not their story
        for rid, found in self._mentioned.items():
            if rid not in before:
                self._give(found)
        return in_order(self._happened.values())

    def _judge(self, settled: int | None) -> None:
        """Give the rows of requests that ended before a place among the facts; without one, of all."""
        self._round += 1
        incident = self._incident(Evidence(list(self._facts)))
        view = Horizon(incident, settled)
        batches = {member: base for base, members in incident.batches.items() for member in members}
        for rid in incident.by_rid:
            if rid not in self._settled and rid not in self._left and rid not in incident.batches:
                self._look(view, rid, incident.batches.get(batches.get(rid, ""), [rid]))
        for base, members in incident.batches.items():
            if base not in self._bases and self._settled.issuperset(members):
                self._bases.add(base)
                self._give(self._row(incident, base))
        self._note(incident, view)
        held = self._placed(incident)
        incident.dissolve()
        if settled is not None:
            self._let_go(settled - self._context, held)

    def _placed(self, incident: Incident) -> set[int]:
        """The identities of lines without a rid that are read as those of requests that are not settled."""
        return {
            id(fact)
            for rid, peers in incident.by_rid.items()
            if rid not in self._settled
            for _, attempt in peers
            for fact in (*attempt.errors, *attempt.others, attempt.access)
        }

    def _look(self, view: Horizon, rid: str, together: Sequence[str]) -> None:
        """Give the row of a request, if it is settled together with the others of its batch."""
        finished = simply_finished(view.incident, rid)
        if finished is not None:
            alone = len(together) == 1
            if view.settled is None or (view.known(finished) if alone else all(map(view.ended, together))):
                self._gone.pop(rid, None)
                self._settled.add(rid)
                self._given.add(rid)
                if self._count is not None:
                    self._count(rid, finished.synthetic)
                else:
                    self._give(self._row(view.incident, rid))
        elif view.settled is None:
            self._settle(self._last(self._row(view.incident, rid)), view.mentioned(rid))
        elif all(map(view.ended, together)):
            found = self._row(view.incident, rid)
            if not view.may_change(found, rid):
                self._gone.pop(rid, None)
                self._settle(found, view.mentioned(rid))
        elif view.quiet(rid) and not self._contested(view, rid):
            if rid not in self._gone and left(found := self._row(view.incident, rid)):
                self._gone[rid] = found, self._round
            if rid in self._gone and self._round - self._gone[rid][1] >= _ROUNDS:
                self._settled.add(rid)
                self._left[rid] = self._gone.pop(rid)[0], view.mentioned(rid)

    def _contested(self, view: Horizon, rid: str) -> bool:
        """Whether a line that is read as a request's may turn out to be another's, which may still end."""
        known = (self._settled, self._gone, self._left)
        rivals = {rival.rid for _, attempt in view.incident.peers(rid) for rival in attempt.rivals}
        return any(not any(rival in each for each in known) for rival in rivals)

    def _last(self, found: RequestRow) -> RequestRow:
        """What is said of a request without an end, now that nothing more comes."""
        before = self._gone.pop(found.rid, None)
        if before is not None and found.cause in ("in-flight", "not-established", *deaths.CAUSES):
            return before[0]
        return found

    def _settle(self, found: RequestRow, mentioned: bool) -> None:
        """Give a row; later, where lines only mention the request."""
        self._settled.add(found.rid)
        if found.status != "finished" and mentioned:
            self._mentioned[found.rid] = found
        else:
            self._given.add(found.rid)
            self._give(found)

    def _note(self, incident: Incident, view: Horizon) -> None:
        """Note what happened to the server."""
        for happening in happenings.of(incident):
            if view.settled is None or self._before(happening, view):
                self._happened.setdefault(happening.key, event(happening))

    def _before(self, happening: ServerHappening, view: Horizon) -> bool:
        """Whether something happened before what is settled, or is as old as that where no line shows it."""
        settled = view.settled or 0
        if happening.evidence:
            return view.places.get(id(happening.evidence[0]), 0) < settled
        moment = self._facts[settled].at
        return happening.at is not None and moment is not None and happening.at < moment

    def _let_go(self, before: int, held: Container[int]) -> None:
        """Let go of the facts before a place that nothing needs any more; those stay whose identity is `held`."""
        before = max(0, before)
        ends = {fact.rid for fact in self._facts[before:] if fact.event is Event.REQUEST_FINISHED}
        kept = [*_outlined(self._staying(self._facts[:before], held, ends)), *self._facts[before:]]
        self._stayed = len(kept) - (len(self._facts) - before)
        self._facts = kept
        self._settled.intersection_update([fact.rid for fact in kept if fact.rid is not None])

    def _staying(self, facts: Sequence[Fact], held: Container[int], ends: Container[str | None]) -> Iterator[Fact]:
        """Those that concern a server, a session, a request that is not settled, or the limits of timeouts.

        So do those that came and whose `ends` stay: an end without them would tell that lines are lost.
        """
        told = [f.rid for f in facts if f.event is Event.REQUEST_FINISHED and f.message_id in KINDS][-_LIMITS:]
        limits = frozenset(told)
        for fact in facts:
            rids = fact.detail.get("batch") or [fact.rid]
            if (
                not routine(fact)
                or id(fact) in held
                or (fact.event is Event.REQUEST_RECEIVED and fact.rid in ends)
                or fact.session_id is not None
                or fact.parent_rid is not None
                or (fact.rid is not None and (fact.rid in limits or not self._settled.issuperset(rids)))
                or (fact.event is Event.OUTPUT_UNDELIVERABLE and fact.rid in self._left)  # it may have held a slot
            ):
                yield fact
            elif (outline := witness(fact)) is not None:
                yield outline


def _outlined(facts: Iterable[Fact]) -> Iterable[Fact]:
    """Of the outputs that a request has for nobody only the first, which counts for those left out, and the last.

    There may be one for each token, as long as the log. What lies on two sides of an arrival stays apart: outputs are
    looked for between the arrival and the end of whoever waited meanwhile.
    """
    kept: dict[int, Fact] = {}
    told: dict[tuple[str, str], list[int]] = {}
    counting: set[int] = set()
    for fact in facts:
        if fact.event in _APART:
            told.clear()
        elif fact.event is Event.REQUEST_FINISHED and fact.rid is not None:
            told.pop((fact.process, fact.rid), None)
        elif fact.event is Event.OUTPUT_UNDELIVERABLE and fact.rid is not None and not fact.tainted:
            both = told.setdefault((fact.process, fact.rid), [])
            if len(both) > 1:
                first, between = both[0], kept.pop(both.pop())
                if first not in counting:
                    kept[first] = kept[first].copy()
                    counting.add(first)
                _count(kept[first], between)
            both.append(id(fact))
        kept[id(fact)] = fact
    return kept.values()


def _count(fact: Fact, later: Fact) -> None:
    """Let a fact count for a later one that says the same."""
    newest = last(later)
    said = fact.detail.get("again", 0) + times(later), newest.line, newest.offset
    fact.detail.update(zip(AGAIN, said, strict=True))


_PROCESS = attrgetter("process")
_ROUNDS = 3  # judgements after which a request that has left the engine is not looked at again
_LIMITS = 500  # timeouts, the newest, whose times tell the limit
_USES = frozenset({Event.REQUEST_RECEIVED, Event.REQUEST_FINISHED})
_APART = frozenset({Event.REQUEST_RECEIVED, Event.SERVER_ARGS, Event.SERVER_READY})


class _Rids:
    """Remembers rids by their hashes, nine bytes for each: whether the newest use of each was synthetic."""

    def __init__(self) -> None:
        self._parts = [(array("q"), array("b")) for _ in range(_PARTS)]

    def add(self, rid: str, synthetic: bool = False) -> None:
        """Take in a use of a rid."""
        mark = hash(rid)
        marks, synthetics = self._parts[mark % _PARTS]
        marks.append(mark)
        synthetics.append(synthetic)

    def among(self, rids: Iterable[str]) -> set[str]:
        """Those of some rids that were taken in."""
        wanted = {hash(rid): rid for rid in rids}
        return {wanted[mark] for marks, _ in self._parts if wanted for mark in wanted.keys() & set(marks)}

    def numbers(self, but: Iterable[str]) -> tuple[int, int]:
        """How many rids there were, but for some, each once: those of clients, and synthetic ones."""
        left_out = set(map(hash, but))
        newest = (dict(zip(*part, strict=True)) for part in self._parts)
        counts = Counter(synthetic for part in newest for mark, synthetic in part.items() if mark not in left_out)
        return counts[False], counts[True]


_PARTS = 64  # one at a time is made a dictionary of


def _same(before: RequestRow, found: RequestRow) -> bool:
    """Whether two rows are about one end: when the rid is used again, less may be left of what came before it."""
    return found.times.ended is not None and (before.server, before.times.ended) == (found.server, found.times.ended)


@cache
def _fields(kind: type[Model]) -> set[str]:
    return set(kind.model_fields)


class _Rows:
    """The rows that an audit lists: all, or all but those of requests that simply finished.

    These are counted, and put on a shelf where there is one.
    """

    def __init__(self, keeps: Callable[[RequestRow], bool], everything: bool, shelf: Shelf | None = None) -> None:
        self._keeps, self._everything, self._shelf = keeps, everything and shelf is None, shelf
        self._rows: dict[str, RequestRow] = {}
        self._finished = _Rids()

    def give(self, found: RequestRow) -> None:
        """Take in a row; of a rid that was used again the newest interruption counts, else the newest use."""
        if not self._keeps(found):
            return
        before = self._rows.get(found.rid)
        if (
            before is not None
            and before.status == "interrupted"
            and (found.status != "interrupted" or _same(before, found))
        ):
            return
        for model in (found, found.times):  # which fields are set is the same for all: half of what a row takes
            object.__setattr__(model, "__pydantic_fields_set__", _fields(type(model)))
        if self._everything or found.status != "finished":
            self._rows[found.rid] = found
            return
        if self._shelf is not None:
            self._rows.pop(found.rid, None)
            self._shelf.add(found)
        if not found.members:
            self.count(found.rid, found.synthetic)

    def count(self, rid: str, synthetic: bool) -> None:
        """Count a request that simply finished."""
        before = self._rows.get(rid)
        if before is None or before.status != "interrupted":
            self._rows.pop(rid, None)
            self._finished.add(rid, synthetic)

    @property
    def totals(self) -> Totals:
        """The counts so far, of each rid once."""
        tally = Tally()
        for found in self._rows.values():
            tally.add(found)
        finished, synthetic = self._finished.numbers(self._rows)
        tally.finished(finished, synthetic=False)
        tally.finished(synthetic, synthetic=True)
        return tally.totals()

    @property
    def rows(self) -> list[RequestRow]:
        """In the order of an audit."""
        return sorted(self._rows.values(), key=order)


def audit(
    stream: Callable[[Callable[[list[Fact]], None]], Evidence | None],
    incident: Callable[[Evidence], Incident],
    *,
    since: float | None = None,
    until: float | None = None,
    ignores: Callable[[str], bool] = lambda _: False,
    everything: bool = True,
    shelf: Shelf | None = None,
) -> tuple[Audit, Evidence] | None:
    """The audit of long logs whose facts `stream` gives away as they are read; None where it can't.

    The bounds are as for an audit of what is held whole. Requests that `ignores` names are marked as synthetic; without
    `everything` those that simply finished are counted but not listed; they are on the `shelf`, where there is one.
    """

    def keeps(found: RequestRow) -> bool:
        found.synthetic = found.synthetic or ignores(found.rid)
        return inside(found, since, until)

    listed = _Rows(keeps, everything, shelf)

    def count(rid: str, synthetic: bool) -> None:
        listed.count(rid, synthetic or ignores(rid))

    counts = not everything and shelf is None and since is until is None
    sweep = Sweep(listed.give, incident, count if counts else None)
    with uncollected():
        evidence = stream(sweep.take)
        if evidence is None:
            return None
        events = sweep.finish()
    rows = listed.rows
    return (
        Audit(
            inputs=inputs(evidence),
            totals=listed.totals,
            server_events=[each for each in events if within(_epoch(each.at), since, until)],
            requests=rows,
        ),
        evidence,
    )


def verdicts(
    stream: Callable[[Callable[[list[Fact]], None]], Evidence | None],
    incident: Callable[[Evidence], Incident],
    rids: Iterable[str],
) -> dict[str, Verdict] | None:
    """The verdicts on some requests of long logs, as an audit judges them; those that simply finished are left out.

    None where `stream` can't give facts away, or an audit lists a request under another's name.
    """
    wanted = frozenset(rids)
    finished: set[str] = set()
    made: list[tuple[RequestRow, Verdict]] = []

    def judged(incident: Incident, rid: str) -> RequestRow:
        found = row(incident, rid)
        if rid in wanted:
            made.append((found, explain(incident, rid)))
        return found

    listed = _Rows(lambda found: found.rid in wanted, everything=True)
    sweep = Sweep(listed.give, incident, lambda rid, _: finished.add(rid) if rid in wanted else None, judged)
    with uncollected():
        if stream(sweep.take) is None:
            return None
        sweep.finish()
    stand = set(map(id, listed.rows))
    told = {found.rid: verdict for found, verdict in made if id(found) in stand}
    return told if wanted == told.keys() | finished else None


def _epoch(at: str | None) -> float | None:
    return datetime.fromisoformat(at).timestamp() if at is not None else None
