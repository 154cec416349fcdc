"""Lines taken many at a time: those of known forms become rows together, the others are read one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import not_
from typing import Any

from sglang_lifecycle.parsers import jsonforms, lineforms, requestlog
from sglang_lifecycle.parsers.blocks import Block
from sglang_lifecycle.parsers.evidence import Event, Fact, Source
from sglang_lifecycle.parsers.forms import KEY, Form, Row, Rows, Stamp, packed, unpacked
from sglang_lifecycle.parsers.patterns import Pattern
from sglang_lifecycle.parsers.prefix import Prefix
from sglang_lifecycle.parsers.records import NO_PREFIX, STARTS, RecordReader, stamped
from sglang_lifecycle.parsers.strangers import RECENT


@dataclass(slots=True)
class _Lines:
    """The lines of a block that are of known forms."""

    known: bytearray
    """For each line of the block whether it is."""
    rows: list[Rows] = field(default_factory=list)
    """Those that can be told together with others of their form; their places are those in the block."""
    single: dict[int, Fact | Row] = field(default_factory=dict)
    """The others, by their places in the block."""
    arrived: dict[int, tuple[str, Event, int]] = field(default_factory=dict)
    """Of the records among them the rid, the kind and the number of the line."""
    records: list[int] = field(default_factory=list)
    """Their places, in order."""
    often: set[int] = field(default_factory=set)
    """The places of those that may be said often, word for word."""
    places: list[int] = field(default_factory=list)
    """For each line of the block the place that its fact got among all facts, if it was told with others; else -1."""

    def row(self, place: int) -> Row:
        """What a line told with others says, by the place of its fact."""
        index = self.places.index(place)
        return next(row for rows in self.rows if (row := rows.row(index)) is not None)


class BlockReader(RecordReader):
    """A reader of records that takes blocks as well as lines: what it makes of both is the same.

    A fact that can be told together with others is None among its `facts`, and one of the rows `told`; one that can be
    so another time stays a row.
    """

    def __init__(self, source: Source, prefix: Prefix) -> None:
        super().__init__(source, prefix)
        self.told: dict[Form, Rows] = {}
        self._taken = _Lines(bytearray())  # those of the block at hand
        self._restarted = False  # a server has started in this block: what was known of records no longer counts

    def take(self, block: Block) -> None:
        """Take the next lines."""
        self._restarted = False
        lines = self._taken = self._lines(block)
        place, size = 0, len(block.bodies)
        for other in [*(index for index, known in enumerate(lines.known) if not known), size]:
            while place < other:
                until = self._until(block, place, other)
                if until > place:
                    self._together(block, lines, place, until)
                else:
                    until = place + 1
                    self._alone(block, place)
                place = until
            if other < size:
                self._alone(block, other)
                place = other + 1
        for rows in lines.rows:
            rows.places = [lines.places[index] for index in rows.places]
            told = self.told.setdefault(rows.form, Rows(rows.form, [[] for _ in rows.texts]))
            told.add(rows.chosen([place >= 0 for place in rows.places]))
        self._taken = _Lines(bytearray())

    def finish(self) -> list[Fact]:
        """The end of the source: all facts are made."""
        self.skip()
        self.facts = unpacked(packed(self.facts, self.told.values()), self.source.path, 0)
        self.told.clear()
        return super().finish()

    def _of_row(self, row: Row) -> Fact | Row:
        return row if row.form.plain(row.texts) else super()._of_row(row)

    def _known(self, pattern: Pattern, fact: Fact) -> None:
        super()._known(pattern, fact)
        self._restarted = self._restarted or pattern.event in STARTS

    def _taint(self, facts: Iterable[Fact | Row | int]) -> None:
        super()._taint(self._single(each) if isinstance(each, int) else each for each in facts)

    def _since(self, index: int) -> Iterable[Fact | Row | int]:
        return (place if fact is None else fact for place, fact in enumerate(self.facts[index:], index))

    def _single(self, place: int) -> Fact | Row:
        """What has a place among the facts, told by itself from now on."""
        found: Fact | Row | None = self.facts[place]
        if found is None:
            before = (row for rows in self.told.values() if (row := rows.row(place)) is not None)
            found = next(before, None) or self._taken.row(place)
            self.facts[place] = found
        return found

    def _alone(self, block: Block, index: int) -> None:
        """Take one line, and its repetitions."""
        self.feed(block.line(index))
        if index in block.again and not self.again(*block.again[index]):
            for line in block.repetitions(index):
                self.feed(line)

    def _until(self, block: Block, start: int, end: int) -> int:
        """How far lines of known forms mean what they say, whatever stands before them."""
        if self._raw is not None or self._echo or self._tainting or self._said is not None or self._restarted:
            return start
        return self._strangers.unwritten(block.bodies, start, end)

    def _together(self, block: Block, lines: _Lines, start: int, end: int) -> None:
        """Note lines of known forms, from one to before another."""
        self._close_tail()
        shift = len(self.facts) - start
        self.facts += [lines.single.get(index) for index in range(start, end)]
        self.source.recognised += end - start
        lines.places[start:end] = range(start + shift, end + shift)
        self._strangers.recent.extend(self._recent(block, start, end, shift))
        for index in lines.records[bisect_left(lines.records, start) : bisect_left(lines.records, end)]:
            self._arrival(*lines.arrived[index])
        said = [index for index in block.again if start <= index < end]
        for index in sorted({*said, end - 1}):  # after any other line no repetition follows
            self._said = (block.line(index), self._single(index + shift)) if index in lines.often else None
            if index in block.again:
                self.again(*block.again[index])

    def _recent(self, block: Block, start: int, end: int, shift: int) -> Iterable[tuple[bytes, int, Fact | Row | int]]:
        """The newest of some lines, as far as they are remembered."""
        start = max(start, end - RECENT)
        places = range(start + shift, end + shift)
        return zip(block.bodies[start:end], block.numbers[start:end], places, strict=True)

    def _lines(self, block: Block) -> _Lines:
        """What lines of known forms say."""
        lines = _Lines(bytearray(len(block.bodies)), places=[-1] * len(block.bodies))
        starts, stamps = self._beginnings(block.bodies)
        for key, group in self._groups(block.bodies, starts, stamps).items():
            for form, places, texts in self._formed(block, key, group, [starts[place] for place in group]):
                rows = Rows(form, texts)
                rows.places = places
                rows.lines = [block.numbers[place] for place in places]
                rows.offsets = [block.offsets[place] for place in places]
                rows.lengths = [len(block.bodies[place]) + 1 for place in places]
                rows.stamps = form.stamps(texts, [stamps[place] or _BARE for place in places])
                lines.often.update(compress(places, form.often(texts)))
                for place in places:
                    lines.known[place] = 1
                arrived = zip(form.rids(texts), repeat(form.event), rows.lines, strict=False)
                lines.arrived.update(zip(places, arrived, strict=False))
                if not all(together := form.plains(texts)):
                    others = compress(places, map(not_, together))
                    lines.single.update((place, self._of_row(row)) for place in others if (row := rows.row(place)))
                    rows = rows.chosen(together)
                if rows.places:
                    lines.rows.append(rows)
        lines.records = sorted(lines.arrived)
        return lines

    @staticmethod
    def _groups(
        bodies: Sequence[bytes], starts: Sequence[int], stamps: Sequence[Stamp | None]
    ) -> dict[bytes, list[int]]:
        """The places of lines that begin alike."""
        keys = [body[start : start + KEY] for body, start in zip(bodies, starts, strict=True)]
        groups: dict[bytes, list[int]] = {}
        for place, stamp in enumerate(stamps):
            if stamp is not None:
                groups.setdefault(keys[place], []).append(place)
        return groups

    def _beginnings(self, bodies: Sequence[bytes]) -> tuple[list[int], list[Stamp | None]]:
        """Where the message of each line begins, and what its prefix says; None where that is to be found out."""
        starts = self.prefix.starts(bodies)
        prefixes = [body[:start] for body, start in zip(bodies, starts, strict=True)]
        heads = {prefix: self.prefix.of(prefix) for prefix in set(prefixes)}
        known = {prefix: stamped(head) for prefix, head in heads.items() if head is not None}
        stamps = list(map(known.get, prefixes))
        for place, stamp in enumerate(stamps):
            if stamp is None and bodies[place][:1] != b"[":
                starts[place], stamps[place] = 0, _BARE
        return starts, stamps

    def _formed(
        self, block: Block, key: bytes, group: list[int], starts: list[int]
    ) -> Iterator[tuple[Form, list[int], list[list[Any]]]]:
        """The forms of lines that begin alike: the places of those that have one, and what differs in them."""
        bodies = [block.bodies[place] for place in group]
        line = lineforms.known(key)
        if line is not None:
            found, texts = line.every(bodies, starts)
            if found:
                yield from _once(block, line, [group[index] for index in found], texts, line.often(texts))
            return
        for form, found, values in jsonforms.every(bodies, starts, key, self._seen_fields, self.prefix.zone):
            yield from _once(block, form, [group[index] for index in found], values, ())
        for template, found, values in requestlog.every(bodies, starts, key):
            record = self._form(template)
            if record is not None:
                places, values = _chosen([group[index] for index in found], values, record.taken(values))
                yield from _once(block, record, places, values, record.often(values))


def _chosen(places: list[int], texts: list[list[Any]], kept: Sequence[bool]) -> tuple[list[int], list[list[Any]]]:
    if all(kept):
        return places, texts
    return list(compress(places, kept)), [list(compress(each, kept)) for each in texts]


def _once(
    block: Block, form: Form, places: list[int], texts: list[list[Any]], often: Sequence[bool]
) -> Iterator[tuple[Form, list[int], list[list[Any]]]]:
    """Those of some lines that are not repeated, or may be."""
    if not block.again.keys().isdisjoint(places):
        often = often or [False] * len(places)
        kept = [may or place not in block.again for place, may in zip(places, often, strict=True)]
        places, texts = _chosen(places, texts, kept)
    if places:
        yield form, places, texts


_BARE = stamped(NO_PREFIX)
