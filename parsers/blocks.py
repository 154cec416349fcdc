"""Blocks: many lines of a file, taken at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import ne
from typing import BinaryIO

from sglang_lifecycle.parsers.lines import CAP, Forward, Line

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

    def lines(self) -> Iterator[Line]:
        """All of its lines, with those that are repeated."""
        for index in range(len(self.bodies)):
            yield self.line(index)
            if index in self.again:
                yield from self.repetitions(index)

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
        at = file.tell()
        data = file.read(min(BLOCK, end - lines.bytes))
        if data and data[-1:] != b"\n":
            data += file.readline(CAP)
        if data[-1:] != b"\n" or len(data) > CAP or (b"\r" in data and b"\r\n" in data):
            file.seek(at)
            return
        bodies = data.split(b"\n")
        bodies.pop()
        offsets = list(accumulate([len(body) + 1 for body in bodies], initial=lines.bytes))
        yield Block(bodies, range(lines.lines + 1, lines.lines + 1 + len(bodies)), offsets).folded()
        lines.lines += len(bodies)
        lines.bytes += len(data)
