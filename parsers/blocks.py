"""Lines taken many at a time: those of known forms become rows together, the others are read one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress, repeat
from operator import ne
from os import SEEK_CUR
from typing import Any, BinaryIO

from sglang_lifecycle.parsers import lineforms, requestlog
from sglang_lifecycle.parsers.evidence import Fact, Source
from sglang_lifecycle.parsers.forms import Form, Row, Stamp
from sglang_lifecycle.parsers.layouts import Template
from sglang_lifecycle.parsers.lines import CAP, Forward, Line
from sglang_lifecycle.parsers.patterns import Pattern
from sglang_lifecycle.parsers.prefix import Prefix
from sglang_lifecycle.parsers.recordforms import RecordForm
from sglang_lifecycle.parsers.records import NO_PREFIX, STARTS, RecordReader, stamped

BLOCK = 1 << 20
"""Bytes that are taken at once: few enough to stay in the cache while they are looked at again and again."""


@dataclass(slots=True)
class Block:
    """Whole lines that end with a newline alone, without their endings, each with its number and its offset.

    `again` tells of lines, by their index, that are repeated: how often, and the last one's number and offset. The
    repetitions are left out.
    """

    bodies: list[bytes]
    numbers: Sequence[int]
    offsets: Sequence[int]
    again: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def line(self, index: int) -> Line:
        """One of its lines."""
        return Line(self.numbers[index], self.offsets[index], self.bodies[index] + b"\n")

    def repetitions(self, index: int) -> Iterator[Line]:
        """The lines that are one of its lines again."""
        times, number, offset = self.again[index]
        body = self.bodies[index] + b"\n"
        for left in range(times - 1, -1, -1):
            yield Line(number - left, offset - left * len(body), body)

    def folded(self) -> Block:
        """The same with repetitions told apart."""
        bodies = self.bodies
        kept = [0, *(i for i, new in enumerate(map(ne, bodies, bodies[1:]), 1) if new)]
        if len(kept) == len(bodies):
            return self
        lasts = [*(i - 1 for i in kept[1:]), len(bodies) - 1]
        again = {
            place: (last - first, self.numbers[last], self.offsets[last])
            for place, (first, last) in enumerate(zip(kept, lasts, strict=True))
            if last > first
        }
        numbers, offsets = ([each[i] for i in kept] for each in (self.numbers, self.offsets))
        return Block([bodies[i] for i in kept], numbers, offsets, again)


def blocks(file: BinaryIO, lines: Forward, end: int) -> Iterator[Block]:
    """The next lines of a file that begin before `end`, of whose lines some were read.

    Ends where a line is not of the kind that blocks are made of; `lines` then goes on with it. Raises OSError.
    """
    while lines.bytes < end:
        data = file.read(min(BLOCK, end - lines.bytes))
        if data and data[-1:] != b"\n":
            data += file.readline(CAP)
        if data[-1:] != b"\n" or len(data) > CAP or b"\r\n" in data:
            file.seek(-len(data), SEEK_CUR)
            return
        bodies = data.split(b"\n")
        bodies.pop()
        offsets = list(accumulate([len(body) + 1 for body in bodies], initial=lines.bytes))
        yield Block(bodies, range(lines.lines + 1, lines.lines + 1 + len(bodies)), offsets).folded()
        lines.lines += len(bodies)
        lines.bytes += len(data)


class BlockReader(RecordReader):
    """A reader of records that takes blocks as well as lines: what it makes of both is the same.

    A fact that can be told together with others stays a row.
    """

    def __init__(self, source: Source, prefix: Prefix) -> None:
        super().__init__(source, prefix)
        self._restarted = False  # a server has started in this block: what was known of records no longer counts

    def take(self, block: Block) -> None:
        """Take the next lines."""
        self._restarted = False
        rows, rids = self._rows(block)
        place, size = 0, len(rows)
        for other in [*(index for index, row in enumerate(rows) if row is None), size]:
            while place < other:
                until = self._until(block, place, other)
                if until > place:
                    self._together(block, rows[place:until], rids, place)
                else:
                    until = place + 1
                    self._alone(block, place)
                place = until
            if other < size:
                self._alone(block, other)
                place = other + 1

    def _of_row(self, row: Row) -> Fact | Row:
        return row if row.form.plain(row.texts) else super()._of_row(row)

    def _known(self, pattern: Pattern, fact: Fact) -> None:
        super()._known(pattern, fact)
        self._restarted = self._restarted or pattern.event in STARTS

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

    def _together(self, block: Block, rows: Sequence[Fact | Row | None], rids: dict[int, str], start: int) -> None:
        """Note lines of known forms, the first of which is at `start`."""
        self._close_tail()
        noted = [row for row in rows if row is not None]
        self.facts += noted
        self.source.recognised += len(noted)
        end = start + len(noted)
        self._strangers.recent.extend(zip(block.bodies[start:end], noted, strict=True))
        for index, row in enumerate(noted, start):
            if index in rids:
                self._arrival(rids[index], row.event, block.numbers[index])
        said = {index for index in block.again if start <= index < end}
        for index in sorted({*said, end - 1}):  # after any other line no repetition follows
            row, self._said = noted[index - start], None
            self._say(block.line(index), row, row.form.path(row.texts) if isinstance(row, Row) else None)
            if index in block.again:
                self.again(*block.again[index])

    def _rows(self, block: Block) -> tuple[list[Fact | Row | None], dict[int, str]]:
        """What lines of known forms say, by their places, and the rids of the records among them."""
        rows: list[Fact | Row | None] = [None] * len(block.bodies)
        rids: dict[int, str] = {}
        starts, stamps = self._beginnings(block.bodies)
        keys = [body[start : start + lineforms.KEY] for body, start in zip(block.bodies, starts, strict=True)]
        groups: dict[bytes, list[int]] = {}
        for place, stamp in enumerate(stamps):
            if stamp is not None:
                groups.setdefault(keys[place], []).append(place)
        for form, places, texts in self._formed(block, groups, starts):
            made = map(
                Row,
                repeat(form),
                [block.numbers[place] for place in places],
                [block.offsets[place] for place in places],
                [len(block.bodies[place]) + 1 for place in places],
                [stamps[place] for place in places],
                texts,
            )
            told: Iterable[Fact | Row] = made if form.alike(texts) else map(self._of_row, made)
            for place, row in zip(places, told, strict=True):
                rows[place] = row
            if isinstance(form, RecordForm):
                rids.update(zip(places, map(form.rid, texts), strict=True))
        return rows, rids

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
        self, block: Block, groups: dict[bytes, list[int]], starts: Sequence[int]
    ) -> Iterator[tuple[Form, list[int], list[Sequence[Any]]]]:
        """The forms of lines, given by how they begin: the places of those that have it, and what differs in them."""
        bodies, again = block.bodies, block.again
        for key, group in groups.items():
            form = lineforms.known(key)
            if form is not None:
                told: list[tuple[int, Sequence[Any]]] = [
                    (place, texts)
                    for place in group
                    if (texts := form.find(bodies[place], starts[place])) is not None
                    and (place not in again or lineforms.repeats(form.event, form.path(texts)))
                ]
                if told:
                    yield form, [place for place, _ in told], [texts for _, texts in told]
            elif requestlog.begins(key):
                templates: dict[Template, list[tuple[int, Sequence[bytes]]]] = {}
                for place in group:
                    known = requestlog.find(bodies[place], starts[place])
                    if known is not None and place not in again:
                        templates.setdefault(known[0], []).append((place, known[1]))
                for template, found in templates.items():
                    record = self._form(template)
                    if record is not None:
                        taken = list(compress(found, record.taken([texts for _, texts in found])))
                        yield record, [place for place, _ in taken], [texts for _, texts in taken]


_BARE = stamped(NO_PREFIX)
