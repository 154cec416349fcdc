"""How the lines of a log lie in its files: their direction, a terminal's width, collectors' wrappers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import BinaryIO

from sglang_lifecycle.parsers import envelopes, requestlog, wrapping
from sglang_lifecycle.parsers.calibration import Pair
from sglang_lifecycle.parsers.envelopes import Envelope
from sglang_lifecycle.parsers.file import File
from sglang_lifecycle.parsers.lines import CAP, Backward, Forward, Line, line_start
from sglang_lifecycle.parsers.patterns import table
from sglang_lifecycle.parsers.prefix import Prefix

_SAMPLE_LINES, _SAMPLE_BYTES = 400, 8 << 20
_LONGEST = 1 << 20  # longer lines are not looked at: they take time and say nothing more
_END = 64 << 10  # bytes of a file's end that are looked at
_EQUAL = 3  # different lines that are exactly as long and go on
_EDGE = 5  # stamps at either end that are compared


@dataclass(frozen=True, slots=True)
class View:
    """A file, seen as lines of a log. `pairs` are the stamps of its first lines, by stream."""

    path: Path
    size: int
    backward: bool = False
    width: int | None = None
    layers: tuple[Envelope, ...] = ()
    pairs: dict[str | None, list[Pair]] = field(default_factory=dict)
    zoned: bool = True
    turned: bool = False
    """Whether it ends before it begins: its parts are in the wrong order."""

    @property
    def plain(self) -> bool:
        """Whether lines are what they are in the file."""
        return self.width is None and not self.layers

    def physical(self, file: BinaryIO, lines: int, offset: int) -> Forward | Backward:
        """The file's own lines, in the order of time; counted from those of the files before it."""
        return Backward(file, self.size, lines, offset) if self.backward else Forward(file, lines, offset)

    def within(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The log's lines within the file's."""
        if self.width is not None:
            lines = wrapping.rejoin(lines, self.width)
        return envelopes.unwrap(lines, self.layers)

    def text(self, offset: int, length: int, stream: str | None) -> str:
        """What stands in a span of the file, without wrappers. Raises OSError."""
        with self.path.open("rb") as file:
            if self.plain and not self.backward:
                file.seek(offset)
                return file.read(length).decode("utf-8", "replace").rstrip()
            start = line_start(file, offset)
            file.seek(start)
            raw = file.read(offset - start + length)
            if not raw.endswith(b"\n"):
                raw += file.readline(CAP)
        lines = []
        for piece in raw.removesuffix(b"\n").split(b"\n"):
            lines.append(Line(0, start, piece))
            start += len(piece) + 1
        inner = [line for line in self.within(lines[::-1] if self.backward else lines) if line.stream == stream]
        chosen = [line for line in inner if offset <= line.offset < offset + length] or inner
        return "\n".join(line.text for line in chosen).rstrip()


def look(file: File) -> View:
    """Find out how a file's lines lie, from its beginning and its end. Raises OSError."""
    with file.open() as stream:
        sample = [line for line in _first(Forward(stream)) if len(line.text) <= _LONGEST]
        stream.seek(max(0, file.size - _END))
        end = [line.text for line in islice(Forward(stream), 1, None)]
    texts = [line.text for line in sample]
    layers = envelopes.recognise(texts, _speaks, _stamped)
    inner = envelopes.texts_within(texts, layers)
    width = wrapping.width(texts)
    if width is not None:
        joined = [line.text for line in wrapping.rejoin(sample, width)]
        others = envelopes.recognise(joined, _speaks, _stamped)
        better = envelopes.texts_within(joined, others)
        (records, rest), (before, left) = _records(better), _records(inner)
        certain = len({text for text in texts if len(text) == width}) >= _EQUAL
        if records > before or (records == before > 0 and (certain or rest == 0 < left) and not _hides(better, inner)):
            inner, layers = better, others
        else:
            width = None
    stamps = [line.stamp for line in inner if line.stamp is not None]
    last = envelopes.texts_within(end, layers)
    backward = width is None and _falls(inner, last)
    return View(
        file.path,
        file.size,
        backward=backward,
        width=width,
        layers=layers,
        pairs=_pairs(inner),
        zoned=all(stamp.zoned for stamp in stamps),
        turned=not backward and max(_times(last), default=0.0) < min(_times(inner), default=0.0),
    )


def _first(lines: Forward) -> Iterator[Line]:
    for line in islice(lines, _SAMPLE_LINES):
        yield line
        if lines.bytes > _SAMPLE_BYTES:
            return


def _speaks(text: str) -> bool:
    """Whether a bare line is one of SGLang's."""
    return _stamped(text) or (table().may_be_bare(text) and table().find(Prefix().bare(text).message) is not None)


def _stamped(text: str) -> bool:
    """Whether a line begins as nothing but a record does."""
    return Prefix().split(text) is not None


def begins(text: str) -> bool:
    """Whether a record may begin with a line."""
    return _stamped(text) or table().may_be_bare(text)


def broken_off(text: str) -> bool:
    """Whether a line ends within a stamp or a request-log record: its rest is to come."""
    head = Prefix().split(text)
    if head is None:
        return text.startswith("[")
    record = requestlog.read(head.message) if head.message.startswith(requestlog.REQUEST_HEADS) else None
    return record is not None and record.cut


def _records(lines: Iterable[Line]) -> tuple[int, int]:
    """How many lines are records of SGLang as a whole, less those that are cut; and how many are no records."""
    prefix, records, others = Prefix(), 0, 0
    for line in lines:
        head = prefix.split(line.text)
        if head is None and table().may_be_bare(line.text):
            head = prefix.bare(line.text)
        worth = _worth(head.message) if head is not None else 0
        records += worth
        others += not worth and bool(line.text.strip())
    return records, others


def _hides(joined: Iterable[Line], apart: Iterable[Line]) -> bool:
    """Whether lines that begin records are gone once they are joined: they were cut at a width, not broken."""
    begun, before = (sum(_stamped(line.text) for line in lines) for lines in (joined, apart))
    return begun < before


def _worth(message: str) -> int:
    record = requestlog.read(message) if message.startswith(requestlog.REQUEST_HEADS) else None
    if record is not None:
        return -1 if record.cut else 1
    return table().find(message) is not None


def _pairs(lines: Iterable[Line]) -> dict[str | None, list[Pair]]:
    prefix = Prefix()
    found: dict[str | None, list[Pair]] = {}
    for line in lines:
        if line.stamp is not None and (head := prefix.split(line.text)) is not None and head.at is not None:
            found.setdefault(line.stream, []).append(Pair(head.at, head.resolution, line.stamp))
    return found


def _falls(first: Sequence[Line], last: Sequence[Line]) -> bool:
    """Whether the newest line comes first: half a sample later it is earlier, and at the end still more so.

    Single stamps prove nothing: text of strangers may begin lines, and processes race for a place. Where a clock was
    set back in a log that goes on, time falls once and rises from line to line. Where no time tells, tracebacks may.
    """
    from statistics import median  # it takes decimals and fractions along, and few logs come to this

    for clock in (_own, _collected):
        times, ends = clock(first), clock(last)
        (rises, drops), (climbs, falls) = (_turns(times, apart) for apart in (max(1, len(times) // 2), 1))
        if falls >= max(_SURE, 4 * climbs):
            return True
        edge = min(_EDGE, len(times) // 2)
        if not edge or not ends or median(ends[-edge:]) == median(times[:edge]):
            continue
        if median(ends[-edge:]) > median(times[:edge]):
            return False
        if drops >= 4 * rises and falls > climbs and (drops > 1 or times[0] - ends[-1] > 1):
            return True
    pairs = [(above.text, below.text) for above, below in pairwise(first)]
    return any(map(_rises_to, pairs)) and not any(_rises_to((below, above)) for above, below in pairs)


def _rises_to(pair: tuple[str, str]) -> bool:
    """Whether the first of two lines is the outermost call of a traceback, and the second what announces it."""
    return pair[0].lstrip(" |").startswith('File "') and pair[1].endswith("Traceback (most recent call last):")


_SURE = 8  # times that time falls from line to line


def _turns(times: Sequence[float], apart: int) -> tuple[int, int]:
    """How often time rises, and how often it falls, over so many lines."""
    steps = [later - earlier for earlier, later in zip(times, times[apart:], strict=False)]
    return sum(step > 0 for step in steps), sum(step < 0 for step in steps)


def _own(lines: Iterable[Line]) -> list[float]:
    """The lines' own times."""
    prefix = Prefix()
    return [head.at for line in lines if (head := prefix.split(line.text)) is not None and head.at is not None]


def _collected(lines: Iterable[Line]) -> list[float]:
    """The collector's times."""
    return [line.stamp.at for line in lines if line.stamp is not None]


def _times(lines: Sequence[Line]) -> list[float]:
    """The lines' own times where they have one, else the collector's; not a mixture of both."""
    return _own(lines) or _collected(lines)


_known: dict[str, tuple[View, str | None]] = {}


def remember(name: str, view: View, stream: str | None) -> None:
    """Let `text` find a source."""
    _known[name] = view, stream


def text(source: str, offset: int, length: int) -> str:
    """What a record says, as its source has it within its wrappers. Raises OSError where the input is gone."""
    view, stream = _known.get(source) or (View(Path(source), 0), None)
    return view.text(offset, length, stream)
