"""Reading logs into evidence: physical lines to records, records to facts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from datetime import tzinfo
from functools import partial
from pathlib import Path

from sglang_lifecycle.parsers import exhibits, ranges, requestlog, views
from sglang_lifecycle.parsers.blockreader import BlockReader
from sglang_lifecycle.parsers.evidence import BATCHES, OUTSIDE, RECORDS, Evidence, Fact, Source, Stretch
from sglang_lifecycle.parsers.file import Input
from sglang_lifecycle.parsers.garbage import uncollected
from sglang_lifecycle.parsers.inputs import expand
from sglang_lifecycle.parsers.interleaving import interleaved
from sglang_lifecycle.parsers.outside import Choose, Outside
from sglang_lifecycle.parsers.prefix import Prefix, zone
from sglang_lifecycle.parsers.records import STARTS, RecordReader
from sglang_lifecycle.parsers.streams import Log

Progress = Callable[[int, int], None]


def read(
    paths: Sequence[str],
    *,
    tz: str | None = None,
    progress: Progress | None = None,
    about: Sequence[str] = (),
    pool: Executor | None = None,
    wide: bool = False,
) -> Evidence:
    """Read files, folders, URLs and `-` (standard input) into evidence.

    `tz` is the zone of stamps without one (an IANA name or an offset). If None, it is what a log collector's stamps
    tell, else UTC. `progress` is called with the bytes read and the bytes in all. Where `about` has ids of requests or
    sessions, lines of large logs that have nothing to do with them may be left out: `Evidence.partial`; `wide` asks for
    more around them. A path that can't be read is named in `Evidence.failed`, everything else is used. Large logs are
    read in ranges by the workers of `pool`, which have to see the files under the same paths; what comes out is the
    same. Raises `UnknownZone`.
    """
    reading = Reading(tz, about, wide=wide)
    reading.read(paths, progress, pool)
    return reading.evidence()


def _all(found: Sequence[Fact]) -> Sequence[Fact]:
    return found


class Reading:
    """Inputs that can be looked at while they are read, and read on where they have `growing` logs.

    `tz` and `about` are as `read` has them; `wide` asks for more around what was asked about (`Evidence.whole`). Raises
    `UnknownZone`.
    """

    def __init__(
        self, tz: str | None = None, about: Sequence[str] = (), growing: bool = False, wide: bool = False
    ) -> None:
        self._tz, self._growing, self._wide = zone(tz) if tz is not None else None, growing, wide
        self._about = [text.encode("utf-8", "replace") for text in about]
        self._failed: list[str] = []
        self._partial = self._narrow = False
        self._stretches: list[Stretch | None] = []
        self._read: list[Log | tuple[Source, list[Fact]]] = []

    def read(self, paths: Sequence[str], progress: Progress | None = None, pool: Executor | None = None) -> None:
        """Read it all; `progress` is called with the bytes read and the bytes in all, `pool` is as `read` has it."""
        with uncollected():
            inputs = expand(paths, self._failed, progress)
            total = sum(one.size for one in inputs)
            done = 0
            for one in inputs:
                self.take(one, partial(_report, progress, done, total) if progress is not None else None, pool)
                done += one.size
        if progress is not None:
            progress(total, total)

    def take(self, one: Input, report: Callable[[int], None] | None = None, pool: Executor | None = None) -> None:
        """Read one of the inputs; `report` is called with its bytes read."""
        if one.files[0].exhibit:
            self._read.append(exhibits.read(one.name, one.files[0].path))
            views.remember(one.name, views.View(one.files[0].path, one.size), None)
            return
        log = Log(one, self._tz, block_reader if self._about else reader, self._about, self._growing, self._wide)
        self._read.append(log)
        try:
            log.read(report, pool)
        except OSError as error:
            log.warnings.append(f"{one.name}: cannot be read: {error.strerror or error}")
            if any(file.named for file in one.files):
                self._failed.append(log.warnings[-1])
        self._partial, self._narrow = self._partial or log.partial, self._narrow or log.narrow
        self._stretches += log.stretches
        if not self._growing:
            self._read[-1:] = log.finish()

    def more(self, paths: Collection[Path]) -> bool:
        """Read on in logs that have grown; returns False if one of them can't be. Raises OSError."""
        grown = [log for log in self._read if isinstance(log, Log) and log.path in paths]
        return len(grown) == len(paths) and all(log.more() for log in grown)

    def evidence(self) -> Evidence:
        """All that was read, once there is nothing more to read."""
        return self._evidence(Log.finish, _all)

    def so_far(self, choose: Choose = _all) -> Evidence:
        """What was read up to here, in copies; `choose` picks the facts of each stream. What is said may still change.

        It may be called from within `progress`.
        """
        return self._evidence(lambda log: log.so_far(choose), choose)

    def _evidence(self, finish: Callable[[Log], Iterable[tuple[Source, list[Fact]]]], choose: Choose) -> Evidence:
        whole = [] if None in self._stretches else [each for each in self._stretches if each is not None]
        evidence = Evidence([], [], list(self._failed), self._partial, self._narrow, whole)
        with uncollected():
            for one in self._read:
                for source, found in finish(one) if isinstance(one, Log) else [(one[0], choose(one[1]))]:
                    evidence.sources.append(source)
                    evidence.facts.extend(found)
            fold(evidence)
        return evidence


def stream(
    paths: Sequence[str],
    take: Callable[[list[Fact]], None],
    pool: Executor,
    *,
    tz: str | None = None,
    progress: Progress | None = None,
) -> Evidence | None:
    """Read large logs without holding their facts: `take` gets them as they come, those of several in order of time.

    Returns the evidence but for the facts; None where that can't be done, as with logs of which one repeats records of
    another: what was taken is then worth nothing. Raises `UnknownZone`.
    """
    evidence = Evidence()
    inputs = expand(paths, evidence.failed, progress)
    if not inputs or all(one.files[0].exhibit for one in inputs):
        return None
    offsets, total = [0] * len(inputs), sum(one.size for one in inputs)

    def report(number: int, offset: int) -> None:
        offsets[number] = offset
        if progress is not None:
            progress(sum(offsets), total)

    logs: list[Log | Evidence] = []
    parts: list[Iterable[list[Fact]]] = []
    try:
        with uncollected():
            for number, one in enumerate(inputs):
                if one.files[0].exhibit or (len(inputs) > 1 and one.size <= ranges.SIZE):
                    small = Reading(tz)
                    small.take(one, partial(report, number))
                    logs.append(whole := small.evidence())
                    parts += ([group] for group in _apart(whole.facts))
                else:
                    logs.append(log := Log(one, zone(tz) if tz is not None else None, reader))
                    parts.append(log.stream(pool, partial(report, number), len(inputs)))
            for found in interleaved(list(map(_its_own, parts))) if len(inputs) > 1 else parts[0]:
                take(found)
    except (OSError, ranges.Apart):  # whoever holds it all says what is wrong, and keeps what could be read
        return None
    for each in logs:
        evidence.sources += each.sources if isinstance(each, Evidence) else [source for source, _ in each.finish()]
        evidence.failed += each.failed if isinstance(each, Evidence) else []
    return evidence


def _apart(facts: Iterable[Fact]) -> Iterable[list[Fact]]:
    """The facts of each stream of a log, and apart from its own words those from around it."""
    found: dict[tuple[str, bool], list[Fact]] = {}
    for fact in facts:
        found.setdefault((fact.process, fact.event in OUTSIDE), []).append(fact)
    return found.values()


def _its_own(parts: Iterable[list[Fact]]) -> Iterator[list[Fact]]:
    """The facts of a log that tells of a scheduler, whose records no other log repeats; else raises `Apart`."""
    speaks = False
    for found in parts:
        speaks = speaks or any(fact.event in _SCHEDULERS for fact in found)
        if not speaks and any(fact.event in RECORDS for fact in found):
            raise ranges.Apart
        yield found


def reader(source: Source, zone_of_log: tzinfo) -> Outside:
    """A reader of one stream of lines."""
    prefix = Prefix(zone_of_log)
    return Outside(RecordReader(source, prefix), prefix)


def block_reader(source: Source, zone_of_log: tzinfo) -> Outside:
    """The same for what is read in blocks where it can be, and looked at when it has ended."""
    prefix = Prefix(zone_of_log)
    return Outside(BlockReader(source, prefix), prefix)


def _report(progress: Progress, done: int, total: int, offset: int) -> None:
    progress(done + offset, total)


def fold(evidence: Evidence) -> None:
    """Make one fact of a request-log record that was written to several targets (`--log-requests-target`, 0.5.8 on).

    Records of different sources are the same where their kind, rid, stamps and outcome are, each counted as often as
    the source that holds it most often: a record that one source repeats stays repeated. Two sources that both tell of
    a scheduler, or are named after two hosts, are two servers', which a router may have sent the same request.
    """
    kept: list[Fact] = []
    own = {fact.process for fact in evidence.facts if fact.event in _SCHEDULERS}
    hosts = {p: requestlog.host(p) if p not in own else None for p in {fact.process for fact in evidence.facts}}
    counts: dict[tuple[object, ...], dict[str, int]] = {}
    for fact in evidence.facts:
        if fact.event in RECORDS:
            key = (fact.event, fact.rid, fact.pattern, *_identity(fact))
            told = counts.setdefault(key, {})
            told[fact.process] = told.get(fact.process, 0) + 1
            others = [
                times
                for process, times in told.items()
                if process != fact.process
                and not {process, fact.process} <= own
                and not (hosts[process] and hosts[fact.process] and hosts[process] != hosts[fact.process])
            ]
            if others and told[fact.process] <= max(others):
                continue
        kept.append(fact)
    evidence.facts = kept


_SCHEDULERS = STARTS | BATCHES


def _identity(fact: Fact) -> tuple[object, ...]:
    stamp = fact.at if fact.at_from == "own" else fact.detail.get("response_sent_to_client_ts")
    return (stamp, fact.e2e_s, fact.completion_tokens, fact.finish_message, fact.detail.get("opening"), fact.parent_rid)
