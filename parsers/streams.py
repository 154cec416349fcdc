"""One log: its files read as one, and the streams of pods and hosts that are interleaved in it told apart."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import BinaryIO

from sglang_lifecycle.parsers import clock, inputs, ranges, selection, views
from sglang_lifecycle.parsers.calibration import Calibration, calibrate
from sglang_lifecycle.parsers.evidence import Fact, Source
from sglang_lifecycle.parsers.inputs import File, Input
from sglang_lifecycle.parsers.lines import CAP, Backward, Forward
from sglang_lifecycle.parsers.outside import Outside
from sglang_lifecycle.parsers.views import View

_TICK = 1 << 22  # bytes between two calls of a progress function
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
    to do with them may be left out; `partial` tells whether any were. `warnings` are about the log as a whole.
    """

    def __init__(
        self,
        log: Input,
        tz: tzinfo | None,
        open_reader: Callable[[Source, tzinfo], Outside],
        about: Sequence[bytes] = (),
    ) -> None:
        self.warnings: list[str] = []
        self.partial = False
        self._log, self._tz, self._open, self._about = log, tz, open_reader, about
        self._readers: dict[str | None, Outside] = {}
        self._parts: list[_Part] = []

    def read(self, report: Callable[[int], None] | None = None, pool: Executor | None = None) -> None:
        """Read it all, a large one by the processes of a pool; `report` is called with the bytes read.

        Raises OSError; what was read before that stays.
        """
        if self._log.problem is not None:
            self.warnings.append(f"{self._log.name}: {self._log.problem}")
            return
        if pool is not None and not self._about and self._log.size > 2 * ranges.SIZE and self._together(pool, report):
            return
        lines = offset = 0
        for file in self._log.files:
            part = _Part(file, views.look(file), lines, offset)
            self._parts.append(part)
            with file.open() as stream:
                physical: Lines
                if part.view.plain:
                    physical = self._selected(part, stream, report) or part.view.physical(stream, lines, offset)
                    self._plain(part, physical, report)
                else:
                    physical = wrapped = part.view.physical(stream, lines, offset)
                    self._wrapped(part, wrapped, report)
            part.lines = physical.lines - lines
            lines, offset = physical.lines, max(physical.bytes, offset + file.size)
            self._remark(part, physical.cut)

    def _together(self, pool: Executor, report: Callable[[int], None] | None) -> bool:
        """Read it in ranges, by the processes of a pool; whether that tells what one reader would have made of it."""
        facts: list[Fact] = []

        def take(more: list[Fact], _: ranges.Joined) -> bool:
            facts.extend(more)
            return True

        joined = self._joined(pool, take, report)
        if joined is not None:
            self._readers[None].adopt(facts, joined.outside)
        return joined is not None

    def stream(
        self, pool: Executor, take: Callable[[list[Fact]], None], report: Callable[[int], None] | None = None
    ) -> bool:
        """Read it in ranges and give their facts away, range by range; whether that could be done.

        It can where each line has its own stamp and nothing in the log is from around the server. Raises OSError.
        """

        def place(facts: list[Fact], so_far: ranges.Joined) -> bool:
            if so_far.outside or any(fact.at_from != "own" for fact in facts):
                return False
            clock.settle(facts)
            self._number(so_far)
            if len(self._parts) > 1:
                self._place(None, facts)
            take(facts)
            return True

        return self._log.problem is None and self._joined(pool, place, report) is not None

    def _joined(
        self,
        pool: Executor,
        take: Callable[[list[Fact], ranges.Joined], bool],
        report: Callable[[int], None] | None,
    ) -> ranges.Joined | None:
        offset, found = 0, []
        for file in self._log.files:
            self._parts.append(_Part(file, views.look(file), 0, offset))
            found += ranges.places(file.path, file.size, offset)
            offset += file.size
        joined = None
        if all(part.view.plain and not part.view.backward for part in self._parts):
            zone = self._parts[0].calibration(None, self._tz).zone
            joined = ranges.read(found, self._log.name, zone, pool, take, report)
        if joined is None:
            self._parts.clear()
            return None
        self._number(joined)
        for part in self._parts:
            self._remark(part, joined.cut[part.file.path])
            source = self._reader(None, part).source
        source.lines, source.bytes = joined.lines, offset
        source.recognised, source.unknown = joined.recognised, joined.unknown
        return joined

    def _number(self, joined: ranges.Joined) -> None:
        """Note the lines of each file, as far as they have been counted."""
        first = 0
        for part in self._parts:
            part.first, part.lines = first, joined.by_file[part.file.path]
            first += part.lines

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
        return selection.Selected(stream, file.size, places, part.first, part.offset)

    def _remark(self, part: _Part, cut: int) -> None:
        """Say what is missing of a file."""
        if cut:
            self.warnings.append(f"{part.file.name}: {cut} bytes of lines beyond {CAP >> 20} MiB were left out")
        if part.file.note:
            self.warnings.append(f"{part.file.name}: {part.file.note}")

    def _plain(self, part: _Part, physical: Lines, report: Callable[[int], None] | None) -> None:
        reader = self._reader(None, part)
        feed, source = reader.feed, reader.source
        due = physical.bytes + _TICK if report is not None else _QUIET
        for line in physical:
            if line is None:
                reader.skip()
                continue
            feed(line)
            if line.offset >= due and report is not None:
                due = line.offset + _TICK
                report(line.offset)
        source.lines += physical.lines - part.first
        source.bytes += physical.bytes - part.offset

    def _wrapped(self, part: _Part, physical: Forward | Backward, report: Callable[[int], None] | None) -> None:
        stream, reader, calibration = None, self._reader(None, part), part.calibration(None, self._tz)
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
        warnings = self.warnings
        for stream, reader in self._readers.items():
            found, source = reader.finish(), reader.source
            if source.lines == 0 and len(self._readers) > 1:
                continue  # nothing but the streams
            if len(self._parts) > 1 or self._parts[0].view.backward:
                self._place(stream, found)
            if source.bytes == 0:
                source.warnings.append(f"{source.path}: empty, skipped")
            elif source.recognised == 0:
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
            fact.offset -= part.offset
            fact.line -= part.first
            if part.view.backward:
                fact.offset = max(0, part.file.size - fact.offset - fact.length)
                fact.line = part.lines + 1 - fact.line


def _name(log: File | Input, stream: str | None) -> str:
    return f"{log.name}[{stream}]" if stream else log.name
