"""Reading the logs a command is given, and the window of time it is asked about."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sglang_lifecycle.cli import settings
from sglang_lifecycle.cli.errors import ExitCode, UsageError, error, warning
from sglang_lifecycle.cli.files import bare
from sglang_lifecycle.cli.output import progress
from sglang_lifecycle.cli.text import count
from sglang_lifecycle.cli.times import Bound, Clock, bound, zone
from sglang_lifecycle.cli.workers import memory, size, workers
from sglang_lifecycle.parsers.versions import key

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_lifecycle.analyzers.incident import Incident
    from sglang_lifecycle.analyzers.listing import Audit
    from sglang_lifecycle.analyzers.verdict import EvidenceLine, Verdict
    from sglang_lifecycle.parsers.envelopes import Envelope
    from sglang_lifecycle.parsers.evidence import Evidence, Fact
    from sglang_lifecycle.parsers.log import Reading
    from sglang_lifecycle.parsers.outside import Choose

EXCERPT = 400
"""Characters of a line's excerpt in JSON."""

SKIPPED = 5
"""So many files that are no logs are named; more of them are counted."""

_VERY_LARGE = 192 << 20
"""Bytes of logs from which on they are not held, where that can be."""

LIMITS = ("waiting_timeout", "running_timeout")
"""The settings that are limits of the servers."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time a question is about, in epoch seconds; either end may be open."""

    since: float | None = None
    until: float | None = None

    def meets(self, start: float | None, end: float | None) -> bool:
        """Whether something that lasted from `start` to `end` was alive in the window; unknown ends count as yes."""
        begins_late = self.until is not None and start is not None and start > self.until
        ends_early = self.since is not None and end is not None and end < self.since
        return not begins_late and not ends_early


@dataclass(frozen=True, slots=True)
class Request:
    """What a command line asks, checked before anything is read."""

    paths: Sequence[str]
    zone: str | None
    clock: Clock
    version: str | None
    bounds: tuple[Bound | None, Bound | None]
    limits: Mapping[str, float]
    ignored: Sequence[str]
    names: Mapping[str, str]
    envelopes: Sequence[Envelope]

    def read(self, cluster: str | None = None, shards: str | None = None, named: bool = False) -> Evidence:
        """Read the inputs; what is wrong with them goes to stderr, with every file `named` or some of them counted.

        Large ones are read on the Dask cluster at an address; what jobs have kept in the folder `shards` is not read
        again.
        """
        with progress("reading") as report:
            evidence = self.evidence(report, cluster=cluster, shards=shards)
        self.complain(evidence, named)
        self.warn_outside(evidence)
        return evidence

    def evidence(
        self,
        report: Callable[[int, int], None] | None = None,
        about: Sequence[str] = (),
        cluster: str | None = None,
        shards: str | None = None,
        wide: bool = False,
    ) -> Evidence:
        """Read the inputs without a word; `report` is called with the bytes read and the bytes in all.

        Of large logs only what may have to do with the ids in `about`, where there are any; `wide` asks for more.
        """
        inputs = Inputs(self, about, wide=wide)
        inputs.read(report, cluster, shards)
        return inputs.evidence()

    @property
    def very_large(self) -> bool:
        """Whether the inputs are better not held as a whole."""
        return size(self.paths) >= _VERY_LARGE

    def stream(
        self, take: Callable[[list[Fact]], None], cluster: str | None = None, shards: str | None = None
    ) -> Evidence | None:
        """Read very large logs without holding them: `take` gets their facts; returns the evidence but for these.

        None where they have to be held: what was taken is then worth nothing.
        """
        with progress("reading") as report:
            evidence = self._given_away(take, report, cluster, shards)
        if evidence is not None:
            self.complain(evidence)
        return evidence

    def _given_away(
        self,
        take: Callable[[list[Fact]], None],
        report: Callable[[int, int], None] | None,
        cluster: str | None = None,
        shards: str | None = None,
    ) -> Evidence | None:
        from sglang_lifecycle.parsers import envelopes, log, store

        if any(map(store.is_store, self.paths)):
            return None
        envelopes.tell(self.envelopes)
        with workers(self.paths, cluster, shards) as pool:
            return log.stream(self.paths, take, pool, tz=self.zone, progress=report) if pool is not None else None

    def about(self, ids: Sequence[str], meanwhile: Callable[[], None] | None = None) -> tuple[Evidence, Incident]:
        """Read what the fate of a few requests rests on: a part of large logs where that is enough, else all.

        Logs that have to be held, and that memory can't hold, are read in part. `meanwhile` is called before logs are
        read, and while another process reads stores.
        """
        from sglang_lifecycle.parsers.ids import searchable

        with progress("reading") as report:
            wanted = list(ids) if all(map(searchable, ids)) else []
            inputs = Inputs(self, wanted)

            from sglang_lifecycle.analyzers import partial

            if meanwhile is not None:
                meanwhile()
            inputs.read(report)
            evidence = partial.around(inputs.evidence())
            incident = self.incident(evidence)
            if evidence.partial and (more := partial.related(incident, ids)):
                wanted += sorted(more)
                evidence = partial.around(self.evidence(report, wanted))
                incident = self.incident(evidence)
            worthwhile = evidence.partial and (evidence.whole or inputs.stored or self.very_large)
            if worthwhile and not partial.enough(incident, ids):
                evidence = partial.around(self.evidence(report, wanted, wide=True))
                incident = self.incident(evidence)
            if evidence.partial and not partial.enough(incident, ids):
                told = self._swept(partial.rids(incident, ids), report)
                if told is not None:
                    incident.verdicts.update(told)
                    evidence.partial = False
                elif size(self.paths) < memory() / 2:
                    evidence = self.evidence(report)
                    incident = self.incident(evidence)
        self.complain(evidence)
        return evidence, incident

    def _swept(
        self, rids: Collection[str], report: Callable[[int, int], None] | None
    ) -> dict[tuple[str, float | None, float | None], Verdict] | None:
        """The verdicts on requests of very large logs, all of which are read without holding them; None if held."""
        if not self.very_large or self.bounds != (None, None):
            return None
        from sglang_lifecycle.analyzers import sweep

        told = sweep.verdicts(functools.partial(self._given_away, report=report), self.incident, rids)
        return {(rid, None, None): verdict for rid, verdict in told.items()} if told is not None else None

    def complain(self, evidence: Evidence, named: bool = False) -> None:
        """Say on stderr what is wrong with the inputs; files that are no logs are counted unless they are `named`."""
        told = [(each, text) for each in evidence.sources for text in each.warnings if text not in evidence.failed]
        skipped = {id(source): text.removeprefix(f"{source.path}: ") for source, text in told if not source.recognised}
        if named or len(skipped) <= SKIPPED:
            skipped = {}
        for source, text in told:
            if id(source) not in skipped:
                warning(text if source.path in text else f"{source.path}: {text}")
        if skipped:
            reasons = Counter(text.removesuffix(", skipped") for text in skipped.values())
            listed = "; ".join(f"{reason} ({number:,})" for reason, number in reasons.most_common())
            warning(f"{count(len(skipped), 'file')} skipped: {listed}; lifecycle doctor names them")
        if self.version is not None and (known := _counts_as(self.version)) is not None:
            warning(f"SGLang {self.version} is no release that is known here; it counts as {known}, the nearest one")
        for folder in bare(self.paths):
            warning(f"{folder}: no file in it")
        for text in evidence.failed:
            error(text + _mistaken(text.partition(": ")[0], evidence))

    def warn_outside(self, evidence: Evidence) -> None:
        """Say on stderr that the bounds miss all that the logs cover."""
        times = _times(evidence)
        if times and not self.window(evidence).meets(min(times), max(times)):
            covered = f"from {self.clock.full(min(times))} to {self.clock.full(max(times))}"
            warning(f"--since/--until lie outside of the logs, which cover the time {covered}")

    def incident(self, evidence: Evidence) -> Incident:
        """The evidence to judge, with what the user knows better than the logs."""
        from sglang_lifecycle.analyzers.incident import Incident
        from sglang_lifecycle.parsers.garbage import uncollected

        with uncollected():
            return Incident(evidence, self.version, self.limits, self.names)

    def ignores(self, rid: str) -> bool:
        """Whether the settings leave a request out of what is counted."""
        return any(fnmatchcase(rid, pattern) for pattern in self.ignored)

    def leave_out(self, audit: Audit) -> None:
        """Mark the requests that are to be ignored, and count anew without them."""
        found = [row for row in audit.requests if not row.synthetic and self.ignores(row.rid)]
        if found:
            from sglang_lifecycle.analyzers.audit import totals

            for row in found:
                row.synthetic = True
            audit.totals = totals(audit.requests)

    @property
    def absolute(self) -> bool:
        """Whether the bounds, if any, mean the same whatever the logs hold."""
        return all(each is None or each.absolute for each in self.bounds)

    def window(self, evidence: Evidence | None = None) -> Window:
        """The bounds; where they aren't absolute it takes the last time in the logs."""
        if self.bounds == (None, None):
            return Window()
        last = max(_times(evidence), default=None)
        since, until = (each.resolve(last) if each else None for each in self.bounds)
        if since is not None and until is not None and since > until:
            raise UsageError(f"--since ({self.clock.full(since)}) is later than --until ({self.clock.full(until)})")
        return Window(since, until)


def _counts_as(version: str) -> str | None:
    """The release that a version is taken for, where it is another."""
    from sglang_lifecycle.analyzers.fingerprint import told

    (known,) = told(version).possible
    return known if key(known) != key(version) else None


def _times(evidence: Evidence | None) -> list[float]:
    return [fact.at for fact in evidence.facts if fact.at is not None] if evidence is not None else []


class Inputs:
    """The inputs of a question: stores, and logs that can be looked at while they are read and read on as they grow."""

    def __init__(self, question: Request, about: Sequence[str] = (), growing: bool = False, wide: bool = False) -> None:
        from sglang_lifecycle.parsers import envelopes, store

        envelopes.tell(question.envelopes)
        stores = [path for path in question.paths if store.is_store(path)]
        self.stored = bool(stores)
        """Whether any of them is a store."""
        self._logs = [path for path in question.paths if path not in stores]
        here = functools.partial(_parts, stores, about, wide=wide)
        self._take_stored = _sent(here) if stores and about and not wide else here
        self._reading: Reading | None = None  # a store alone needs nothing of what reads logs
        if self._logs:
            from sglang_lifecycle.parsers.log import Reading

            self._reading = Reading(question.zone, about, growing, wide)
        self._together = not about and not growing

    def read(
        self,
        report: Callable[[int, int], None] | None = None,
        cluster: str | None = None,
        shards: str | None = None,
    ) -> None:
        """Read the logs; `report` is called with the bytes read and the bytes in all, and may call `so_far`."""
        if self._reading is not None:
            with workers(self._logs if self._together else (), cluster, shards) as pool:
                self._reading.read(self._logs, report, pool)

    def more(self, grown: Collection[Path]) -> bool:
        """Read on in files that have grown; returns False where that can't be. Raises OSError."""
        return self._reading is not None and self._reading.more(grown)

    def evidence(self) -> Evidence:
        """All that they say, once there is nothing more to read."""
        return self._with_stores(self._reading.evidence() if self._reading is not None else None)

    def so_far(self, choose: Choose | None = None) -> Evidence:
        """What they said up to now, in copies; `choose` picks the facts of each stream."""
        if self._reading is None:
            return self._with_stores(None)
        return self._with_stores(self._reading.so_far(choose) if choose else self._reading.so_far())

    @functools.cached_property
    def _stored(self) -> list[Evidence]:
        return self._take_stored()

    def _with_stores(self, evidence: Evidence | None) -> Evidence:
        from sglang_lifecycle.parsers import store

        parts = [*self._stored, evidence] if evidence is not None else self._stored
        return store.merge(parts) if len(parts) > 1 else parts[0]


def _sent(here: Callable[..., list[Evidence]]) -> Callable[[], list[Evidence]]:
    """Send for what stores say of ids; what is too much to be carried is read `here` when it is asked for."""
    from sglang_lifecycle.cli.errand import Errand

    return Errand(functools.partial(here, little=True), here).result


def _parts(stores: Sequence[str], about: Sequence[str], little: bool = False, wide: bool = False) -> list[Evidence]:
    """What stores say, each for itself. Raises `TooMuch` where it should be little and isn't."""
    return [_part(path, about, little, wide) for path in stores]


def _part(path: str, about: Sequence[str], little: bool, wide: bool) -> Evidence:
    from sglang_lifecycle.parsers import store
    from sglang_lifecycle.parsers.evidence import Evidence

    try:
        return store.load(path, about, little, wide)
    except (store.StoreError, OSError) as problem:
        return Evidence(failed=[str(problem)])


def request(
    paths: Sequence[str],
    since: str | None,
    until: str | None,
    tz: str | None,
    display_tz: str | None,
    version: str | None,
) -> Request:
    """Check the options that commands share, completed by the settings; raises `UsageError`."""
    values = settings.effective({"tz": tz, "display_tz": display_tz, "sglang_version": version})
    logs, shown, release = values["tz"], values["display_tz"], values["sglang_version"]
    zone(logs.text, _name("tz", logs))
    clock = Clock(zone(shown.text, _name("display_tz", shown)))
    bounds = bound("--since", since, clock.zone), bound("--until", until, clock.zone)
    limits = {name: float(told) for name in LIMITS if (told := values[name].value) not in (None, settings.OFF)}
    return Request(
        paths,
        logs.text,
        clock,
        _version(release),
        bounds,
        limits,
        values["ignore"].value,
        values["processes"].value,
        _envelopes(values["envelopes"]),
    )


def _version(value: settings.Value) -> str | None:
    """The release that the user names; raises `UsageError` where it is none."""
    if value.text is None:
        return None
    try:
        key(value.text)
    except ValueError as problem:
        raise UsageError(f"{_name('sglang_version', value)} {problem}") from None
    return value.text.strip().lower().removeprefix("v")


def _envelopes(value: settings.Value) -> list[Envelope]:
    """The user's own envelopes; raises `UsageError`."""
    if not value.value:
        return []
    from sglang_lifecycle.parsers.envelopes.prefixes import told

    found: list[Envelope] = []
    for each in value.value:
        try:
            found.append(told(each["name"], each["regex"]))
        except ValueError as problem:
            raise UsageError(f"{value.origin}: envelope {each['name']!r}: {problem}") from None
    return found


def _name(setting: str, value: settings.Value) -> str:
    """What to call a setting in an error: by its flag or variable, or by its name in a file."""
    return value.origin if value.origin.startswith(("-", "LIFECYCLE_")) else f"{value.origin}: {setting}"


def status(evidence: Evidence) -> ExitCode:
    """How a command ends that gave an answer."""
    return ExitCode.UNREADABLE if evidence.failed else ExitCode.OK


def _mistaken(path: str, evidence: Evidence) -> str:
    """What to do with a path that is none but the id of something in the logs."""
    if any(fact.rid == path for fact in evidence.facts):
        return "; a request has this id: lifecycle explain ID PATH…"
    if any(fact.session_id == path for fact in evidence.facts):
        return "; a session has this id: lifecycle sessions PATH… --session ID"
    return ""


def quoted(lines: Sequence[EvidenceLine], characters: int = EXCERPT) -> None:
    """Fill in the excerpts, which only the inputs have."""
    from sglang_lifecycle.parsers.quote import quote

    for line in lines:
        if line.text or not line.length:
            continue
        with suppress(OSError, ValueError):  # the input has changed or gone since it was read; its place still stands
            line.text = quote(line.source, line.offset, line.length, line.event, characters)
