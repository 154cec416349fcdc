"""Reading logs into evidence: physical lines to records, records to facts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from datetime import tzinfo
from functools import partial
from pathlib import Path

from sglang_lifecycle.parsers import exhibits, requestlog, views
from sglang_lifecycle.parsers.evidence import BATCHES, RECORDS, Evidence, Fact, Source
from sglang_lifecycle.parsers.file import Input
from sglang_lifecycle.parsers.garbage import uncollected
from sglang_lifecycle.parsers.inputs import expand
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
) -> Evidence:
    """Read files, folders, URLs and `-` (standard input) into evidence.

    `tz` is the zone of stamps without one (an IANA name or an offset). If None, it is what a log collector's stamps
    tell, else UTC. `progress` is called with the bytes read and the bytes in all. Where `about` has ids of requests or
    sessions, lines of large logs that have nothing to do with them may be left out: `Evidence.partial`. A path that
    can't be read is named in `Evidence.failed`, everything else is used. Large logs are read in ranges by the workers
    of `pool`, which have to see the files under the same paths; what comes out is the same. Raises `UnknownZone`.
    """
    reading = Reading(tz, about)
    reading.read(paths, progress, pool)
    return reading.evidence()


def _all(found: Sequence[Fact]) -> Sequence[Fact]:
    return found


class Reading:
    """Inputs that can be looked at while they are read, and read on where they have `growing` logs.

    `tz` and `about` are as `read` has them. Raises `UnknownZone`.
    """

    def __init__(self, tz: str | None = None, about: Sequence[str] = (), growing: bool = False) -> None:
        self._tz, self._growing = zone(tz) if tz is not None else None, growing
        self._about = [text.encode("utf-8", "replace") for text in about]
        self._failed: list[str] = []
        self._partial = self._narrow = False
        self._read: list[Log | tuple[Source, list[Fact]]] = []

    def read(self, paths: Sequence[str], progress: Progress | None = None, pool: Executor | None = None) -> None:
        """Read it all; `progress` is called with the bytes read and the bytes in all, `pool` is as `read` has it."""
        with uncollected():
            inputs = expand(paths, self._failed, progress)
            total = sum(one.size for one in inputs)
            done = 0
            for one in inputs:
                self._take(one, partial(_report, progress, done, total) if progress is not None else None, pool)
                done += one.size
        if progress is not None:
            progress(total, total)

    def _take(self, one: Input, report: Callable[[int], None] | None, pool: Executor | None) -> None:
        if one.files[0].exhibit:
            self._read.append(exhibits.read(one.name, one.files[0].path))
            views.remember(one.name, views.View(one.files[0].path, one.size), None)
            return
        log = Log(one, self._tz, reader, self._about, self._growing)
        self._read.append(log)
        try:
            log.read(report, pool)
        except OSError as error:
            log.warnings.append(f"{one.name}: cannot be read: {error.strerror or error}")
            if any(file.named for file in one.files):
                self._failed.append(log.warnings[-1])
        self._partial, self._narrow = self._partial or log.partial, self._narrow or log.narrow
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
        evidence = Evidence(failed=list(self._failed), partial=self._partial, narrow=self._narrow)
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
    """Read one large log without holding its facts: `take` gets them in their order, some tens of thousands at a time.

    Returns the evidence but for the facts; None where that can't be done, for instance with several logs: what was
    taken is then worth nothing. Raises `UnknownZone`.
    """
    evidence = Evidence()
    inputs = expand(paths, evidence.failed, progress)
    if len(inputs) != 1 or inputs[0].files[0].exhibit:
        return None
    log = Log(inputs[0], zone(tz) if tz is not None else None, reader)
    report = partial(_report, progress, 0, inputs[0].size) if progress is not None else None
    try:
        with uncollected():
            if not log.stream(pool, take, report):
                return None
    except OSError:  # whoever holds it all says what is wrong, and keeps what could be read
        return None
    evidence.sources += [source for source, _ in log.finish()]
    return evidence


def reader(source: Source, zone_of_log: tzinfo) -> Outside:
    """A reader of one stream of lines."""
    prefix = Prefix(zone_of_log)
    return Outside(RecordReader(source, prefix), prefix)


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
