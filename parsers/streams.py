"""One log: its files read as one, and the streams of pods and hosts that are interleaved in it told apart."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import BinaryIO

from sglang_lifecycle.parsers import clock, inputs, ranges, selection, views
from sglang_lifecycle.parsers.blocks import Block
from sglang_lifecycle.parsers.calibration import Calibration, calibrate
from sglang_lifecycle.parsers.evidence import Fact, Source, Stretch
from sglang_lifecycle.parsers.file import File, Input
from sglang_lifecycle.parsers.lines import CAP, Backward, Forward, Line, Whole
from sglang_lifecycle.parsers.outside import Choose, Outside
from sglang_lifecycle.parsers.views import View

_TICK = 1 << 22  # bytes between two calls of a progress function
_UNDATED = 200_000  # facts that may wait for a stamp
_QUIET = 1 << 62
Lines = Forward | Backward | selection.Selected


@dataclass
class _Part:
    """One file of a log. `first` and `offset` are the lines and bytes of the files before it."""

    file: File
    view: View
    first: int
    offset: int
    lines: int = 0
    calibrations: dict[str | None, Calibration] = field(default_factory=dict)

    def name(self, stream: str | None) -> str:
        return _name(self.file, stream)

    def place(self, line: int, offset: int, length: int) -> tuple[int, int]:
        """The line and the byte of the file that are meant by those of the log."""
        line, offset = line - self.first, offset - self.offset
        if self.view.backward:
            return self.lines + 1 - line, max(0, self.file.size - offset - length)
        return line, offset

    def calibration(self, stream: str | None, tz: tzinfo | None) -> Calibration:
        """How the stamps of a stream are read; one that does not show among the first lines follows the others."""
        found = self.calibrations.get(stream)
        if found is None:
            pairs = self.view.pairs.get(stream) or [pair for each in self.view.pairs.values() for pair in each]
            found = self.calibrations[stream] = calibrate(pairs, tz, self.view.zoned)
        return found


class Log:
    """A log with a reader for each of its streams, which `open_reader` makes for a source and the zone of its stamps.

    `tz` is the zone that the user gave. Where `about` says which texts matter, lines of large files that have nothing
    to do with them may be left out; `partial` tells whether any were. `wide` asks for more around them. `warnings` are
    about the log as a whole. Of one that is `growing` a last line without its end is left for later.
    """

    def __init__(
        self,
        log: Input,
        tz: tzinfo | None,
        open_reader: Callable[[Source, tzinfo], Outside],
        about: Sequence[bytes] = (),
        growing: bool = False,
        wide: bool = False,
    ) -> None:
        self.warnings: list[str] = []
        self.partial = self.narrow = False
        self.stretches: list[Stretch | None] = []
        """Of each file of which a part was read, what was read whole of it; None where that is too little."""
        self._wide = wide
        self._log, self._tz, self._open, self._about, self._growing = log, tz, open_reader, about, growing
        self._lines = self._bytes = 0
        self._joined: ranges.Joined | None = None
        """What several processes have read so far, while they do."""
        self._readers: dict[str | None, Outside] = {}
        self._parts: list[_Part] = []
        self._held: Line | None = None
        """The last line of a file, without its end: it may go on in the next."""

    def read(self, report: Callable[[int], None] | None = None, pool: Executor | None = None) -> None:
        """Read it all, a large one by the processes of a pool; `report` is called with the bytes read.

        Raises OSError; what was read before that stays.
        """
        if self._log.problem is not None:
            self.warnings.append(f"{self._log.name}: {self._log.problem}")
            return
        large = self._log.size > 2 * ranges.SIZE and not self._about and not self._growing
        if pool is not None and large and self._together(pool, report):
            return
        lines = offset = 0
        for file in self._log.files:
            part = _Part(file, views.look(file), lines, offset)
            self._parts.append(part)
            for reader in self._readers.values():
                reader.turn()
            with file.open(near=bool(self._about)) as stream:
                physical: Lines
                if part.view.plain:
                    selected = self._selected(part, stream, report)
                    physical = selected or self._physical(part, stream)
                    self._plain(part, physical, report)
                    if selected is not None:
                        self.narrow = self.narrow or selected.narrow
                        self.stretches.append(self._stretch(part, selected))
                else:
                    physical = wrapped = part.view.physical(stream, lines, offset)
                    self._wrapped(part, wrapped, report)
            part.lines = physical.lines - lines
            self._lines, self._bytes = physical.lines, physical.bytes
            lines, offset = physical.lines, max(physical.bytes, offset + file.size)
            self._remark(part, physical.cut)
        if self._held is not None:
            self._reader(None, self._parts[-1]).feed(self._held)
            self._held = None

    def stream(
        self, pool: Executor, report: Callable[[int], None] | None = None, logs: int = 1
    ) -> Iterator[list[Fact]]:
        """Read it in ranges, one of so many logs that are read at once, and give their facts away, range by range.

        Raises `Apart` where that can't be, as where anything in the log is from around the server; OSError.
        """
        times = clock.Clock()
        held: list[Fact] = []  # facts that a later stamp may bound
        if self._log.problem is not None or any(views.look(file).turned for file in self._log.files):
            raise ranges.Apart
        for joined in self._joining(pool, report, logs):
            facts, joined.facts = joined.facts, []
            if joined.outside or len(held) > _UNDATED:
                raise ranges.Apart
            waiting = times.take(facts)
            if len(self._parts) > 1:
                self._count(joined)
                self._place(None, facts)
            held.extend(facts)
            settled = len(held) - waiting
            yield held[:settled]
            del held[:settled]
        times.finish()
        yield held

    def _together(self, pool: Executor, report: Callable[[int], None] | None) -> bool:
        """Read it in ranges, by the processes of a pool; whether that tells what one reader would have made of it."""
        try:
            deque(self._joining(pool, report), 0)
        except ranges.Apart:
            return False
        return True

    def _joining(self, pool: Executor, report: Callable[[int], None] | None, logs: int = 1) -> Iterator[ranges.Joined]:
        """Read it in ranges, by the processes of a pool; what is known after each of them. Raises `Apart`."""
        found = self.places()
        if not found:
            raise ranges.Apart
        joined = self._joined = ranges.Joined(self._log.name)
        try:
            yield from ranges.read(found, joined, self.zone, pool, report, logs)
        except ranges.Apart:
            self._parts = []
            raise
        finally:
            self._joined = None
        self._count(joined)
        for part in self._parts:
            self._remark(part, joined.cut[part.file.path])
            reader = self._reader(None, part)
        reader.adopt(joined.facts, joined.outside)
        source = reader.source
        source.lines, source.bytes = joined.lines, self._log.size
        source.recognised, source.unknown = joined.recognised, joined.unknown

    def places(self) -> list[ranges.Place]:
        """Its ranges; none where only one reader can read it. Raises OSError."""
        parts: list[_Part] = []
        offset, found = 0, []
        for file in self._log.files:
            parts.append(_Part(file, views.look(file), 0, offset))
            rotated_within_a_line = file is not self._log.files[-1] and not _ended(file.path, file.size)
            if not parts[-1].view.plain or parts[-1].view.backward or rotated_within_a_line:
                return []
            found += ranges.places(file.path, file.size, offset) if file.size else []
            offset += file.size
        self._parts = parts
        return found

    @property
    def zone(self) -> tzinfo:
        """The zone of its stamps, once its ranges are known."""
        return self._parts[0].calibration(None, self._tz).zone

    def _count(self, joined: ranges.Joined) -> None:
        """Say which lines each file has."""
        first = 0
        for part in self._parts:
            part.first, part.lines = first, joined.by_file[part.file.path]
            first += part.lines

    @property
    def path(self) -> Path:
        """Where the bytes of its newest file are."""
        return self._log.files[-1].path

    @property
    def _can_grow(self) -> bool:
        """Whether it can be read on from where it ended: its newest file is being read, and lies there as it is."""
        view = self._parts[-1].view if len(self._parts) == len(self._log.files) else None
        return self._growing and view is not None and view.plain and not view.backward

    def _physical(self, part: _Part, stream: BinaryIO) -> Forward | Backward:
        if self._can_grow:
            return Forward(Whole(stream), part.first, part.offset)
        return part.view.physical(stream, part.first, part.offset)

    def more(self) -> bool:
        """Read on in the newest file of a growing log; returns whether that can be done. Raises OSError."""
        if not self._can_grow:
            return False
        part = self._parts[-1]
        with part.file.open() as stream:
            stream.seek(self._bytes - part.offset)
            physical = Forward(Whole(stream), self._lines, self._bytes)
            self._plain(part, physical, None)
        self._lines, self._bytes = physical.lines, physical.bytes
        return True

    def _selected(
        self, part: _Part, stream: BinaryIO, report: Callable[[int], None] | None
    ) -> selection.Selected | None:
        """The lines of a file that matter, where it is large and its lines are what they are in the file."""
        file = part.file
        if not self._about or file.size < selection.SMALLEST or part.view.backward:
            return None
        try:
            places = selection.everywhere(file.path, file.size, self._about, report)
        except selection.TooLong:
            return None
        self.partial = True
        return selection.Selected(stream, file.size, places, part.first, part.offset, self._wide)

    def _stretch(self, part: _Part, selected: selection.Selected) -> Stretch | None:
        """What was read of a file, unless it would go on in the file before or after it."""
        start, end = selected.stretch or (0, part.file.size)
        first, last = part.file is self._log.files[0], part.file is self._log.files[-1]
        if selected.stretch is None or (start == 0 < end and not first) or (end == part.file.size and not last):
            return None
        return Stretch(part.name(None), start, None if end == part.file.size else end, self._wide)

    def _remark(self, part: _Part, cut: int) -> None:
        """Say what is missing of a file."""
        if cut:
            self.warnings.append(f"{part.file.name}: {cut} bytes of lines beyond {CAP >> 20} MiB were left out")
        if part.file.note:
            self.warnings.append(f"{part.file.name}: {part.file.note}")

    def _plain(self, part: _Part, physical: Lines, report: Callable[[int], None] | None) -> None:
        reader = self._reader(None, part)
        feed, source = reader.feed, reader.source
        lines, offset = physical.lines, physical.bytes
        if isinstance(physical, Forward):
            physical.again = reader.again
        due = physical.bytes + _TICK if report is not None else _QUIET
        for line in self._whole(part, physical):
            if line is None:
                reader.skip()
                continue
            if isinstance(line, Block):
                reader.take(line)
                continue
            feed(line)
            if line.offset >= due and report is not None:
                due = line.offset + _TICK
                report(line.offset)
        source.lines += physical.lines - lines
        source.bytes += physical.bytes - offset

    def _whole(self, part: _Part, lines: Iterable[Line | Block | None]) -> Iterator[Line | Block | None]:
        """The lines of a file; what the one before broke off is joined to the first where that begins no record."""
        last = part.file is self._log.files[-1]
        for line in lines:
            if isinstance(line, Block):
                yield line
                continue
            whole, held, self._held = line, self._held, None
            if held is not None and line is not None and views.broken_off(held.text) and not views.begins(line.text):
                whole = held.followed_by(line)
            elif held is not None:
                yield held
            if not last and line is not None and line.unended:
                self._held = whole
            else:
                yield whole

    def _wrapped(self, part: _Part, physical: Forward | Backward, report: Callable[[int], None] | None) -> None:
        stream, reader, calibration = None, self._reader(None, part), part.calibration(None, self._tz)
        if self._held is not None:
            reader.feed(self._held)
            self._held = None
        due = physical.bytes + _TICK if report is not None else _QUIET
        for line in part.view.within(physical):
            if line.stream != stream:
                stream = line.stream
                reader, calibration = self._reader(stream, part), part.calibration(stream, self._tz)
            calibration.apply(line)
            reader.feed(line)
            reader.source.lines += 1
            reader.source.bytes += line.length
            if line.offset >= due and report is not None:
                due = line.offset + _TICK
                report(line.offset)

    def _reader(self, stream: str | None, part: _Part) -> Outside:
        name = part.name(stream)
        views.remember(name, part.view, stream)
        inputs.remember(name, part.view.path)
        reader = self._readers.get(stream)
        if reader is None:
            calibration = part.calibration(stream, self._tz)
            source = Source(_name(self._log, stream), wrappers=[layer.name for layer in part.view.layers])
            if calibration.derived:
                source.zone = str(calibration.zone)
            if calibration.warning is not None:
                source.warnings.append(calibration.warning)
            reader = self._readers[stream] = self._open(source, calibration.zone)
        return reader

    def finish(self) -> Iterator[tuple[Source, list[Fact]]]:
        """The sources with their facts, each placed in the file that it comes from."""
        return self._finish(self._readers)

    def so_far(self, choose: Choose) -> Iterator[tuple[Source, list[Fact]]]:
        """As if it ended here, with copies of the facts that `choose` picks of each stream.

        A log that is read backwards has no places before its end is reached, and so no facts.
        """
        if self._joined is not None:
            yield from self._finish({None: self._adopted(self._joined, choose)})
        elif not any(part.view.backward and not part.lines for part in self._parts):
            yield from self._finish({stream: reader.twin(choose) for stream, reader in self._readers.items()})

    def _adopted(self, joined: ranges.Joined, choose: Choose) -> Outside:
        self._count(joined)
        source = Source(self._log.name, lines=joined.lines, bytes=self._log.size, recognised=joined.recognised)
        reader = self._open(source, self._parts[0].calibration(None, self._tz).zone)
        outside = choose(joined.facts[: joined.outside])
        own = choose(joined.facts[joined.outside :])
        reader.adopt([fact.copy() for fact in (*outside, *own)], len(outside))
        return reader

    def _finish(self, readers: Mapping[str | None, Outside]) -> Iterator[tuple[Source, list[Fact]]]:
        warnings = self.warnings
        for stream, reader in readers.items():
            found, source = reader.finish(), reader.source
            if source.lines == 0 and len(readers) > 1:
                continue  # nothing but the streams
            if len(self._parts) > 1 or self._parts[0].view.backward:
                self._place(stream, found)
            if source.bytes == 0:
                source.warnings.append(f"{source.path}: empty, skipped")
            elif source.recognised == 0 and (stream is not None or len(readers) == 1):
                source.warnings.append(f"{source.path}: no line of an SGLang log was recognised, skipped")
            source.warnings[:0], warnings = warnings, []
            yield source, found
        if warnings:
            yield Source(self._log.name, warnings=warnings), []

    def _place(self, stream: str | None, found: list[Fact]) -> None:
        starts = [part.offset for part in self._parts]
        for fact in found:
            part = self._parts[bisect_right(starts, fact.offset) - 1]
            fact.source = part.name(stream)
            fact.line, fact.offset = part.place(fact.line, fact.offset, fact.length)
            if "again" in fact.detail:
                last = part.place(fact.detail["last_line"], fact.detail["last_offset"], fact.length)
                fact.detail["last_line"], fact.detail["last_offset"] = last


def _ended(path: Path, size: int) -> bool:
    """Whether a file's last line has its newline, or there is none. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, size - 1))
        return not size or file.read(1) in (b"", b"\n")


def _name(log: File | Input, stream: str | None) -> str:
    return f"{log.name}[{stream}]" if stream else log.name
