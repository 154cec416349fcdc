"""What became of a log's lines on their way: told twice, delivered twice, or put together in the wrong order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, pairwise
from operator import eq, le

from sglang_lifecycle.parsers.evidence import RECORDS, Event, Fact
from sglang_lifecycle.parsers.forms import AGAIN

_BACK = 1.5  # seconds by which stamps go back where not only processes race for a place
_BLOCK = 5.0  # seconds by which they go back where a block begins that was written before
_JOIN = 600.0  # seconds between two blocks of one log, at most
_FEWEST = 3  # facts in a row that are told again
_MOST = 64  # leaps: where there are more, two clocks write by turns
_BEGINS = frozenset({Event.SERVER_ARGS, Event.SERVER_STARTED})


def leaps(facts: Sequence[Fact]) -> list[tuple[int, float]]:
    """The places among one log's facts at which its own stamps go back, and by how many seconds."""
    stamps = [fact.at for fact in facts if fact.at is not None and fact.at_from == "own"]
    if all(map(le, stamps, stamps[1:])):
        return []
    found, newest = [], 0.0
    for place, fact in enumerate(facts):
        if fact.at is not None and fact.at_from == "own":
            if fact.at < newest - _BACK:
                found.append((place, newest - fact.at))
                newest = fact.at
            newest = max(newest, fact.at)
    return found


def restored(facts: Sequence[Fact]) -> list[Fact]:
    """One log's facts, each told once, and in the order of time where whole blocks had been put together wrongly.

    `cat server.log server.log.1`, or a collector that sends a chunk again. A clock that was set back looks like
    neither: it does not say the same again, and what had begun before it ends after it.
    """
    facts = _told_once(facts)
    return _in_order(_once(facts)) if 0 < len(leaps(facts)) <= _MOST else list(facts)


def _told_once(facts: Sequence[Fact]) -> Sequence[Fact]:
    """The facts without those that a logger with two handlers, or a collector that tried again, told twice in a row.

    No two requests end with the same rid after the same time, and none arrive in the same microsecond. Where that is
    seen of an end, the `Receive` of the same rid is one as well; where it is of nearly every end, so is all that is
    told twice.
    """
    twins = [two for two in _in_a_row(facts) if _alike(*two)]
    if not any(_unique(first) for first, _ in twins):
        return facts
    ends = sum(fact.event is Event.REQUEST_FINISHED for fact in facts)
    doubled = sum(first.event is Event.REQUEST_FINISHED for first, _ in twins)
    whole = doubled >= _FEWEST and 2 * doubled >= _NEARLY_ALL * ends
    ended = {first.rid for first, _ in twins if first.event is Event.REQUEST_FINISHED}
    kept: list[Fact] = []
    newest: dict[tuple[object, ...], tuple[int, Fact]] = {}
    record, line = 0, 0
    for fact in facts:
        record, line = record + (fact.line != line), fact.line  # one record may be about several requests
        key = _key(fact)
        number, twin = newest.pop(key, (0, fact))
        sure = whole or (fact.event in RECORDS and (fact.rid in ended or _unique(fact)))
        if sure and number and record - number <= _NEAR and _said(twin) == _said(fact):
            continue  # a third is another's
        newest[key] = record, fact
        kept.append(_halved(fact) if whole else fact)
    return kept


def _in_a_row(facts: Sequence[Fact]) -> Iterator[tuple[Fact, Fact]]:
    """Records of the same request that follow upon each other; what another process says may stand between."""
    rids = [fact.rid or place for place, fact in enumerate(facts)]
    for back in range(1, _NEAR + 1):
        for place in compress(range(len(facts)), map(eq, rids, rids[back:])):
            if facts[place].event in RECORDS:
                yield facts[place], facts[place + back]


def _alike(one: Fact, other: Fact) -> bool:
    return _key(one) == _key(other) and _said(one) == _said(other)


def _said(fact: Fact) -> dict[str, object]:
    return {key: value for key, value in fact.detail.items() if key != "fields"}  # told where they are new


def _unique(fact: Fact) -> bool:
    """Whether what a record says, its time or how long it took, is said of one request alone."""
    if fact.event is Event.REQUEST_FINISHED and fact.e2e_s is not None:
        return True
    return fact.at_from in ("own", "meta") and fact.at_error is not None and fact.at_error <= _EXACT


def _halved(fact: Fact) -> Fact:
    """A fact of a line that was said often, each time twice."""
    if "again" not in fact.detail:
        return fact
    fact = fact.copy()
    fact.detail["again"] = (fact.detail["again"] + 1) // 2 - 1
    if fact.detail["again"] <= 0:
        for key in AGAIN:
            del fact.detail[key]
    return fact


_NEAR = 2  # records before one among which its twin is looked for
_EXACT = 1e-5  # seconds
_NEARLY_ALL = 0.9  # the share of ends that are told twice in a log of which all is


def _once(facts: Sequence[Fact]) -> list[Fact]:
    """The facts without blocks that repeat an earlier one."""
    kept, keys = list(facts), [_key(fact) for fact in facts]
    firsts: dict[tuple[object, ...], int] = {}
    for place, key in enumerate(keys):
        firsts.setdefault(key, place)
    for place, _ in reversed(leaps(kept)):
        first, start, length = firsts[keys[place]], place, 0
        if first == place:
            continue
        while first > 0 and start > first + 1 and keys[first - 1] == keys[start - 1]:
            first, start = first - 1, start - 1
        while start + length < len(keys) and first + length < start and keys[first + length] == keys[start + length]:
            length += 1
        if length >= _FEWEST:
            del kept[start : start + length], keys[start : start + length]
    return kept


def _key(fact: Fact) -> tuple[object, ...]:
    stamp = fact.at if fact.at_from in ("own", "meta") else None
    return fact.event, fact.rid, fact.pattern, fact.length, stamp, fact.e2e_s, fact.finish_message


def _in_order(facts: list[Fact]) -> list[Fact]:
    """The facts with blocks in the order of time, where these follow upon each other and their requests bear it out."""
    cuts = [place for place, back in leaps(facts) if back >= _BLOCK]
    if not cuts:
        return facts
    blocks = [facts[start:end] for start, end in pairwise([0, *cuts, len(facts)])]
    spans = sorted((*_span(block), index) for index, block in enumerate(blocks))
    follow = all(-_BACK <= later[0] - earlier[1] <= _JOIN for earlier, later in pairwise(spans))
    ordered = [blocks[index] for *_, index in spans]
    return [fact for block in ordered for fact in block] if follow and _worth(ordered) > _worth(blocks) else facts


def _worth(blocks: Sequence[Sequence[Fact]]) -> tuple[int, bool]:
    """What speaks for an order: requests that begin in one block and end in a later one, a start before all else."""
    open_: set[str | None] = set()
    joined = 0
    for block in blocks:
        came = {fact.rid for fact in block if fact.event is Event.REQUEST_RECEIVED}
        went = {fact.rid for fact in block if fact.event is Event.REQUEST_FINISHED}
        joined += len(open_ & (went - came))
        open_ = (open_ - went) | (came - went)
    return joined, any(fact.event in _BEGINS for fact in blocks[0])


def _span(facts: Sequence[Fact]) -> tuple[float, float]:
    times = [fact.at for fact in facts if fact.at is not None and fact.at_from == "own"]
    return min(times), max(times)
