"""Ranges of one large log, read by several processes and joined to what one reader would have made of all of it.

A range begins where a record begins. Its reader knows nothing of the lines before; where the meaning of a line depends
on them it takes the usual for granted and notes what it took. Whoever joins the ranges in their order compares: does
it hold, the facts are those of one reader; does it not, the log is read once more by one reader.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from datetime import tzinfo
from itertools import pairwise
from os import cpu_count
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sglang_lifecycle.parsers.blockreader import BlockReader
from sglang_lifecycle.parsers.blocks import blocks
from sglang_lifecycle.parsers.evidence import RECORDS, Event, Fact, Source
from sglang_lifecycle.parsers.forms import Row, packed, unpacked
from sglang_lifecycle.parsers.garbage import uncollected
from sglang_lifecycle.parsers.lines import Forward
from sglang_lifecycle.parsers.outside import Outside
from sglang_lifecycle.parsers.patterns import table
from sglang_lifecycle.parsers.prefix import Prefix
from sglang_lifecycle.parsers.records import STARTS
from sglang_lifecycle.parsers.strangers import HALF, LINES, SHORTEST

SIZE = 32 << 20
"""Bytes of a range."""

_FIRST = 4 << 20  # bytes of the first range: something can be told of a log soon
_REACH = 32 << 20  # bytes after a cut in which such a record has to begin
_AHEAD = 3 * (cpu_count() or 1)  # ranges that workers may have read before they are taken


@dataclass(slots=True)
class Range:
    """What a range of bytes says, what its reader took for granted, and what it leaves to the next one.

    `facts` are packed columns; their lines count from the beginning of the range.
    """

    facts: bytes
    marked: tuple[int, ...]
    """The places of the facts that tell the names of a record's fields, or where a server starts."""
    lines: int
    cut: int
    recognised: int
    unknown: int
    outside: int
    """How many of the facts, the first, are from around a server."""
    begins: bool
    """Whether its first line begins a record; it may not where a file begins."""
    quiet: bool
    """Whether nothing is open at its end that would change how the next line is read."""
    trails: bool
    """Whether a line that begins no record would go on with the last one."""
    repeated: bool
    """Whether lines were just counted, which no gap before could change."""
    received: frozenset[str]
    """Rids without a record in the range, taken for those of open requests."""
    unrepeated: frozenset[str]
    """Errors taken for new: the first lines of a text of several lines would be repetitions."""
    orphaned: frozenset[str]
    """Patterns whose end was seen without their beginning."""
    open: frozenset[str]
    texts: tuple[str, ...]
    raw: frozenset[str]
    """Patterns with raw user text that were seen."""
    strangers: tuple[str, ...]
    gaps: tuple[tuple[str, str], ...]


class _RangeReader(BlockReader):
    """A reader that begins inside a log, unless it is the `first`."""

    def __init__(self, source: Source, prefix: Prefix, first: bool) -> None:
        super().__init__(source, prefix)
        self._first = first
        self.taken: set[str] = set()
        self.repeated = False
        self._finished: set[str] = set()
        self.unrepeated: set[str] = set()
        self.orphaned: set[str] = set()
        self._raws = [pattern for pattern in table().lines if pattern.raw]

    def again(self, times: int, number: int, offset: int) -> bool:
        """Count lines that repeat the one before, and note that it was done."""
        counted = super().again(times, number, offset)
        self.repeated = self.repeated or counted
        return counted

    def _received(self, rid: str | None) -> bool:
        if rid is None or self._first or rid in self._finished or super()._received(rid):
            return super()._received(rid)
        self.taken.add(rid)
        return True

    def _repeat(self, first_line: str) -> None:
        super()._repeat(first_line)
        if not self._echo:
            self.unrepeated.add(first_line)

    def _orphan(self, text: str) -> None:
        super()._orphan(text)
        self.orphaned |= {p.id for p in self._raws if p not in self._raw_ended and p.closes.search(text)}

    def _arrival(self, rid: str, event: Event, line: int) -> int | None:
        if event is Event.REQUEST_FINISHED:
            self._finished.add(rid)
        else:
            self._finished.discard(rid)
        return super()._arrival(rid, event, line)

    def range(
        self, facts: Sequence[Fact | Row | None], lines: int, cut: int, begins: bool, quiet: bool, trails: bool
    ) -> Range:
        """What was read."""
        return Range(
            packed(facts, self.told.values()),
            tuple(i for i, fact in enumerate(facts) if isinstance(fact, Fact) and _marked(fact)),
            lines,
            cut,
            self.source.recognised,
            self.source.unknown,
            len(facts) - len(self.facts),
            begins,
            quiet,
            trails,
            self.repeated,
            frozenset(self.taken),
            frozenset(self.unrepeated),
            frozenset(self.orphaned),
            frozenset(self._arrivals),
            tuple(self._texts),
            frozenset(pattern.id for pattern in self._raw_ended),
            *self._strangers.told(),
        )

    @property
    def quiet(self) -> bool:
        """Whether the next line means what it says."""
        return self._raw is None and not self._echo and not self._tainting and not self._strangers.hiding

    @property
    def trails(self) -> bool:
        """Whether lines without a prefix go on with what was read last."""
        return self._tail is not None


class Place(NamedTuple):
    """A range of bytes of a file. `base` counts the bytes of the log's files before it."""

    path: Path
    start: int
    end: int
    base: int


def read_range(place: Place, zone: tzinfo) -> Range:
    """Read the lines that begin in a range, whose first line begins a record. Raises OSError."""
    with uncollected():  # what was read is gone before garbage is looked for
        return _read_range(place, zone)


def _read_range(place: Place, zone: tzinfo) -> Range:
    with place.path.open("rb", buffering=1 << 20) as file:
        prefix, first = Prefix(zone), place.start == place.base == 0
        reader = _RangeReader(Source(""), prefix, first)
        whole = Outside(reader, prefix) if first else None
        feed = whole.feed if whole is not None else reader.feed
        file.seek(place.start)
        physical = Forward(file, 0, place.base + place.start, place.base + place.end)
        physical.again = reader.again
        opening = next(iter(physical), None)
        begins = opening is None or prefix.split(opening.text) is not None
        if opening is not None:
            feed(opening)
            if not first:
                for block in blocks(file, physical, place.base + place.end):
                    reader.take(block)
            for line in physical:
                feed(line)
        quiet, trails = reader.quiet, reader.trails
        reader.skip()  # times are settled once the ranges are joined
        facts = whole.facts if whole is not None else reader.facts
        return reader.range(facts, physical.lines, physical.cut, begins, quiet, trails)


def places(path: Path, size: int, base: int) -> list[Place]:
    """A file in ranges of about `SIZE`, each of which begins where a record does that does not repeat the line before.

    Raises OSError.
    """
    found = [0]
    with path.open("rb", buffering=1 << 20) as file:
        for nominal in [_FIRST, *range(SIZE, size, SIZE)]:
            if found[-1] < nominal < size and (at := _begin(file, nominal, min(size, nominal + _REACH))) is not None:
                found.append(at)
    return [Place(path, start, end, base) for start, end in pairwise([*found, size])]


def _begin(file: BinaryIO, nominal: int, limit: int) -> int | None:
    """Where the first record begins that a range may begin with, at a place or after it."""
    prefix, before = Prefix(), None
    file.seek(nominal - 1)
    at = nominal - 1 + len(file.readline())  # to the end of the line that the place is in
    while at < limit:
        raw = file.readline()
        body = raw.rstrip(b"\r\n")  # the last line may lack its ending
        if before not in (None, body) and prefix.split(body.decode("utf-8", "replace")) is not None:
            return at
        before = body
        at += len(raw)
    return None


@dataclass
class Joined:
    """The ranges of a log so far, as one reader would have read them."""

    source: str
    facts: list[Fact] = field(default_factory=list)
    lines: int = 0
    recognised: int = 0
    unknown: int = 0
    by_file: Counter[Path] = field(default_factory=Counter)
    """The lines of each file."""
    cut: Counter[Path] = field(default_factory=Counter)
    """The bytes that were left out of endless lines."""
    strangers: set[str] = field(default_factory=set)
    gaps: set[tuple[str, str]] = field(default_factory=set)
    outside: int = 0
    _quiet: bool = True
    _trails: bool = False
    _open: set[str | None] = field(default_factory=set)
    _texts: deque[str] = field(default_factory=lambda: deque(maxlen=64))
    _raw: set[str] = field(default_factory=set)
    _fields: set[tuple[str, ...]] = field(default_factory=set)

    def add(self, place: Place, part: Range) -> bool:
        """Join the next range; False where it took something for granted that does not hold."""
        if self.lines and not self._holds(part):
            return False
        self.outside += part.outside
        facts = unpacked(part.facts, self.source, self.lines)
        for index in part.marked:
            self._once(facts[index])
        self.facts += facts
        self.lines += part.lines
        self.by_file[place.path] += part.lines
        self.cut[place.path] += part.cut
        self.recognised += part.recognised
        self.unknown += part.unknown
        self.strangers.update(part.strangers)
        self.gaps.update(part.gaps)
        self._quiet, self._trails = part.quiet, part.trails
        self._open.difference_update([fact.rid for fact in facts if fact.event is Event.REQUEST_FINISHED])
        self._open |= part.open
        self._texts.extend(part.texts)
        self._raw |= part.raw
        return len(self.strangers) < LINES

    def _holds(self, part: Range) -> bool:
        first_lines = {text.split("\n")[0].rstrip("\r") for text in self._texts}
        return (
            self._quiet
            and (part.begins or not self._trails)
            and self.recognised > self.outside
            and not (part.repeated and self.gaps)
            and part.received <= self._open
            and not part.unrepeated & first_lines
            and not part.orphaned & self._raw
        )

    def _once(self, fact: Fact) -> None:
        """The names of a record's fields are kept where they are new, as one reader keeps them."""
        if fact.event in STARTS:
            self._fields.clear()
        elif fact.event in RECORDS and (fields := fact.detail.get("fields")) is not None:
            if fields in self._fields:
                del fact.detail["fields"]
            self._fields.add(fields)


def _marked(fact: Fact) -> bool:
    return fact.event in STARTS or "fields" in fact.detail


def printed(place: Place, texts: Sequence[str], gaps: Sequence[tuple[str, str]]) -> bool:
    """Whether any line that begins in a range is one that strangers chose, or has the words before a gap in theirs.

    Raises OSError.
    """
    lines: dict[bytes, list[bytes]] = {}
    for text in texts:
        line = text.encode("utf-8", "replace")
        lines.setdefault(line[:SHORTEST], []).append(line)
    words = [(before.encode("utf-8", "replace"), after.encode("utf-8", "replace")) for before, after in gaps]
    at, window = place.start, b""
    with place.path.open("rb", buffering=1 << 20) as file:
        file.seek(at)
        for raw in file:
            if at >= place.end:
                return False
            at += len(raw)
            raw = raw.rstrip(b"\r\n") + b"\n"
            if not raw.isascii():  # what is no text is told by the same marks as where it was quoted
                raw = raw.decode("utf-8", "replace").encode()
            if raw[:SHORTEST] in lines and raw.startswith(tuple(lines[raw[:SHORTEST]])):
                return True
            if words:
                window = (window + raw)[-len(raw) - 4 * HALF :]
                if any(before in window and after not in window for before, after in words):
                    return True
    return False


class Apart(Exception):
    """Only one reader of all of a log can tell what it says, or all of its facts have to be held."""


def read(
    found: Sequence[Place],
    joined: Joined,
    zone: tzinfo,
    pool: Executor,
    report: Callable[[int], None] | None = None,
    logs: int = 1,
) -> Iterator[Joined]:
    """Read the ranges of a log, one of so many that are read at once; what is known after each of them.

    Raises `Apart`, OSError.
    """
    try:
        for place, part in _ahead(pool, found, zone, max(2, _AHEAD // logs)):
            if not joined.add(place, part):
                raise Apart
            yield joined
            if report is not None:
                report(place.base + place.end)
        if joined.strangers or joined.gaps:
            texts, gaps = sorted(joined.strangers), sorted(joined.gaps)
            checks = [pool.submit(printed, place, texts, gaps) for place in found]
            if any(check.result() for check in checks):
                raise Apart
    except BrokenExecutor as died:
        raise Apart from died


def _ahead(pool: Executor, found: Sequence[Place], zone: tzinfo, most: int) -> Iterator[tuple[Place, Range]]:
    """The ranges in their order; the workers are kept busy, but not so far ahead that their answers pile up."""
    waiting: deque[tuple[Place, Future[Range]]] = deque()
    rest = iter(found)
    while True:
        while len(waiting) < most and (place := next(rest, None)) is not None:
            waiting.append((place, pool.submit(read_range, place, zone)))
        if not waiting:
            return
        place, task = waiting.popleft()
        yield place, task.result()
