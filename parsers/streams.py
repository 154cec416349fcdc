"""One log: its files read as one, and the streams of pods and hosts that are interleaved in it told apart."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import Protocol

from sglang_lifecycle.parsers import inputs, views
from sglang_lifecycle.parsers.calibration import Calibration, calibrate
from sglang_lifecycle.parsers.evidence import Fact, Source
from sglang_lifecycle.parsers.inputs import File, Input
from sglang_lifecycle.parsers.lines import CAP, Backward, Forward, Line, Whole
from sglang_lifecycle.parsers.views import View

_TICK = 1 << 22  # bytes between two calls of a progress function
_QUIET = 1 << 62


Choose = Callable[[Sequence[Fact]], Sequence[Fact]]
"""Picks some of the facts of a stream, in their order."""


class Reader(Protocol):
    """Makes facts of the lines of one stream."""

    source: Source

    def feed(self, line: Line) -> None:
        """Take the next line."""

    def finish(self) -> list[Fact]:
        """The facts, once all lines were taken."""

    def twin(self, choose: Choose) -> Reader:
        """A reader of the facts that `choose` picks, copied; it can be finished in this one's stead."""


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

    `tz` is the zone that the user gave. `warnings` are about the log as a whole. Of one that is `growing` a last line
    without its end is left for later.
    """

    def __init__(
        self, log: Input, tz: tzinfo | None, open_reader: Callable[[Source, tzinfo], Reader], growing: bool = False
    ) -> None:
        self.warnings: list[str] = []
        self._log, self._tz, self._open, self._growing = log, tz, open_reader, growing
        self._lines = self._bytes = 0
        self._readers: dict[str | None, Reader] = {}
        self._parts: list[_Part] = []

    def read(self, report: Callable[[int], None] | None = None) -> None:
        """Read it all; `report` is called with the bytes read. Raises OSError; what was read before that stays."""
        if self._log.problem is not None:
            self.warnings.append(f"{self._log.name}: {self._log.problem}")
            return
        lines = offset = 0
        for file in self._log.files:
            part = _Part(file, views.look(file), lines, offset)
            self._parts.append(part)
            with file.open() as stream:
                whole = self._growing and self._can_grow
                physical = Forward(Whole(stream), lines, offset) if whole else part.view.physical(stream, lines, offset)
                (self._plain if part.view.plain else self._wrapped)(part, physical, report)
            part.lines = physical.lines - lines
            self._lines, self._bytes = physical.lines, physical.bytes
            lines, offset = physical.lines, max(physical.bytes, offset + file.size)
            if physical.cut:
                self.warnings.append(f"{file.name}: {physical.cut} bytes of lines beyond {CAP >> 20} MiB were left out")
            if file.note:
                self.warnings.append(f"{file.name}: {file.note}")

    @property
    def path(self) -> Path:
        """Where the bytes of its newest file are."""
        return self._log.files[-1].path

    @property
    def _can_grow(self) -> bool:
        """Whether it can be read on from where it ended: its newest file is being read, and lies there as it is."""
        view = self._parts[-1].view if len(self._parts) == len(self._log.files) else None
        return view is not None and view.plain and not view.backward

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

    def _plain(self, part: _Part, physical: Forward | Backward, report: Callable[[int], None] | None) -> None:
        reader = self._reader(None, part)
        feed, source = reader.feed, reader.source
        lines, offset = physical.lines, physical.bytes
        due = physical.bytes + _TICK if report is not None else _QUIET
        for line in physical:
            feed(line)
            if line.offset >= due and report is not None:
                due = line.offset + _TICK
                report(line.offset)
        source.lines += physical.lines - lines
        source.bytes += physical.bytes - offset

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

    def _reader(self, stream: str | None, part: _Part) -> Reader:
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
        if not any(part.view.backward and not part.lines for part in self._parts):
            yield from self._finish({stream: reader.twin(choose) for stream, reader in self._readers.items()})

    def _finish(self, readers: Mapping[str | None, Reader]) -> Iterator[tuple[Source, list[Fact]]]:
        warnings = self.warnings
        for stream, reader in readers.items():
            found, source = reader.finish(), reader.source
            if source.lines == 0 and len(readers) > 1:
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
