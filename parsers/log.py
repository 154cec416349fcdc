"""Reading logs into evidence: physical lines to records, records to facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import tzinfo
from functools import partial

from sglang_lifecycle.parsers import exhibits, views
from sglang_lifecycle.parsers.evidence import Event, Evidence, Fact, Source
from sglang_lifecycle.parsers.garbage import uncollected
from sglang_lifecycle.parsers.inputs import expand
from sglang_lifecycle.parsers.outside import Outside
from sglang_lifecycle.parsers.prefix import Prefix, zone
from sglang_lifecycle.parsers.records import RecordReader
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
    with uncollected():
        return _read(paths, zone(tz) if tz is not None else None, progress, about, pool)


def _read(
    paths: Sequence[str],
    given: tzinfo | None,
    progress: Progress | None,
    about: Sequence[str],
    pool: Executor | None,
) -> Evidence:
    evidence = Evidence()
    inputs = expand(paths, evidence.failed, progress)
    total = sum(one.size for one in inputs)
    needles = [text.encode("utf-8", "replace") for text in about]
    done = 0
    for one in inputs:
        if one.files[0].exhibit:
            source, found = exhibits.read(one.name, one.files[0].path)
            views.remember(one.name, views.View(one.files[0].path, one.size), None)
            evidence.sources.append(source)
            evidence.facts.extend(found)
            done += one.size
            continue
        log = Log(one, given, reader, needles)
        try:
            log.read(partial(_report, progress, done, total) if progress is not None else None, pool)
        except OSError as error:
            log.warnings.append(f"{one.name}: cannot be read: {error.strerror or error}")
            if any(file.named for file in one.files):
                evidence.failed.append(log.warnings[-1])
        done += one.size
        evidence.partial = evidence.partial or log.partial
        for source, found in log.finish():
            evidence.sources.append(source)
            evidence.facts.extend(found)
    fold(evidence)
    if progress is not None:
        progress(total, total)
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
    taken is then worth nothing. Raises `UnknownZone`, OSError.
    """
    evidence = Evidence()
    inputs = expand(paths, evidence.failed, progress)
    if len(inputs) != 1 or inputs[0].files[0].exhibit:
        return None
    log = Log(inputs[0], zone(tz) if tz is not None else None, reader)
    report = partial(_report, progress, 0, inputs[0].size) if progress is not None else None
    with uncollected():
        if not log.stream(pool, take, report):
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
    the source that holds it most often: a record that one source repeats stays repeated.
    """
    kept: list[Fact] = []
    seen: dict[tuple[object, ...], int] = {}
    counts: dict[tuple[object, ...], int] = {}
    for fact in evidence.facts:
        if fact.event in _FOLDED:
            key = (fact.event, fact.rid, fact.pattern, *_identity(fact))
            counts[key, fact.process] = counts.get((key, fact.process), 0) + 1
            if counts[key, fact.process] <= seen.get(key, 0):
                continue
            seen[key] = seen.get(key, 0) + 1
        kept.append(fact)
    evidence.facts = kept


_FOLDED = frozenset({Event.REQUEST_RECEIVED, Event.REQUEST_RECEIVED_OPENAI, Event.REQUEST_FINISHED})


def _identity(fact: Fact) -> tuple[object, ...]:
    stamp = fact.at if fact.at_from == "own" else fact.detail.get("response_sent_to_client_ts")
    return (stamp, fact.e2e_s, fact.completion_tokens, fact.finish_message, fact.detail.get("opening"), fact.parent_rid)
