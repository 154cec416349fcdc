"""Which release of SGLang wrote a log: told by what it prints, never by what it claims.

Every field and every message is known to exist in a range of releases; what a life of a server shows narrows the
range. An absent field says something only where the request log prints all of them (level 2 and above).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from operator import attrgetter

from sglang_lifecycle.analyzers.behaviours import UNSTAMPED_RECORDS, Behaviour
from sglang_lifecycle.analyzers.lives import Life
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.patterns import table
from sglang_lifecycle.parsers.versions import RELEASES, key

_ALL = frozenset(RELEASES)
_WHOLE = frozenset({"input_ids", "sampling_params", "image_data"})  # left out below level 2


@dataclass(frozen=True, slots=True)
class Release:
    """The releases that a life may be of, oldest first; empty where the lines contradict each other."""

    possible: tuple[str, ...]
    told: bool = False
    mixed: bool = False
    """Whether records of several releases stand side by side."""

    @property
    def text(self) -> str | None:
        """`0.5.10`, `0.5.20 to 0.5.21`, or None where nothing narrowed it."""
        if not self.possible or len(self.possible) == len(RELEASES):
            return None
        first, last = self.possible[0], self.possible[-1]
        return first if first == last else f"{first} to {last}"

    def within(self, first: str, last: str = RELEASES[-1]) -> bool | None:
        """Whether it lies in a range of releases, both ends included; None where it may or may not."""
        return _within(self.possible, first, last)

    def may_be(self, first: str, last: str = RELEASES[-1]) -> bool:
        """Whether it can lie in a range of releases."""
        return self.within(first, last) is not False

    def has(self, behaviour: Behaviour) -> bool:
        """Whether every release that it may be does so."""
        return self.within(behaviour.since, behaviour.until) is True

    def may_have(self, behaviour: Behaviour) -> bool:
        """Whether a release that it may be does so."""
        return self.may_be(behaviour.since, behaviour.until)


@cache
def _within(possible: tuple[str, ...], first: str, last: str) -> bool | None:
    inside = [v in _range(first, last) for v in possible]
    if not inside or (any(inside) and not all(inside)):
        return None
    return all(inside)


def told(version: str) -> Release:
    """A release that the user names; one that is not known counts as the nearest known before it."""
    wanted = key(version)
    known = [v for v in RELEASES if key(v) <= wanted]
    return Release((known[-1] if known else RELEASES[0],), told=True)


_SENT = "response_sent_to_client_ts"
_ROUGHLY = attrgetter("pattern", "message_id", "at_from")


def fingerprint(life: Life, told: Release | None = None) -> Release:
    """The releases that can have written a life's facts; what a user `told`, where it can be.

    Records that no one release writes side by side are those of several servers whose logs became one, as in a rolling
    upgrade: each of their releases is possible.
    """
    possible = set(_ALL)
    seen = set()
    others: list[frozenset[str]] = []  # what records allow that contradict the lines before
    for fact in life.told:
        roughly = _ROUGHLY(fact)
        if roughly in seen and "fields" not in fact.detail and fact.at_from != "neighbours":
            continue
        kind = (*roughly, fact.detail.get("fields"), _SENT in fact.detail)
        if fact.tainted or kind in seen:  # what narrows no further does not narrow later
            continue
        seen |= {roughly, kind}
        for allowed in _allowed(fact):
            narrowed = possible & allowed
            if narrowed:  # a line of another process or a damaged one must not empty the set
                possible = narrowed
            elif set(fact.detail.get("fields") or ()) >= _WHOLE:
                others.append(allowed)
    possible = possible.union(*others)
    if told is not None and possible.issuperset(told.possible):
        return told
    return Release(tuple(v for v in RELEASES if v in possible), mixed=bool(others))


def out_of_form(facts: Sequence[Fact]) -> frozenset[int]:
    """The identities of request-log records that the release of a log's other records does not write.

    Where records have no stamp (0.5.8 to 0.5.11, `utils/log_utils.py`), one with a stamp and with only some of the
    fields is a text that imitates one, of a record whose beginning the log lacks.
    """
    told = [fact for fact in facts if fact.pattern == "reqlog.text" and fact.event in _RECORDS and not fact.tainted]
    kinds = [fact for fact in told if "fields" in fact.detail]
    stamped = [fact for fact in kinds if fact.at_from == "own"]
    whole = [set(fact.detail["fields"]) for fact in kinds if set(fact.detail["fields"]) >= _WHOLE]
    if not whole or not stamped or any(set(fact.detail["fields"]) >= _WHOLE for fact in stamped):
        return frozenset()
    possible = _ALL.intersection(*(_of_fields(tuple(sorted(each))) for each in whole))
    bare = possible and possible <= _with(UNSTAMPED_RECORDS)
    return frozenset(id(fact) for fact in told if fact.at_from == "own") if bare else frozenset()


_RECORDS = frozenset({Event.REQUEST_RECEIVED, Event.REQUEST_FINISHED})


def _allowed(fact: Fact) -> Iterable[frozenset[str]]:
    fields = fact.detail.get("fields")
    if fields:
        yield _of_fields(fields)
    if fact.pattern is not None and fact.pattern in _pattern_ranges():
        yield _pattern_ranges()[fact.pattern]
    if fact.pattern == "reqlog.text" and fact.event is not Event.REQUEST_RECEIVED_OPENAI:
        bare = fact.at_from != "own" and _SENT not in fact.detail
        if bare and fact.at_from == "neighbours":
            yield _with(UNSTAMPED_RECORDS)
    if fact.message_id is not None and fact.message_id in _message_ranges():
        yield _message_ranges()[fact.message_id]


@cache
def _of_fields(fields: tuple[str, ...]) -> frozenset[str]:
    possible = _ALL
    for name in fields:
        ranges = _fields().get(name)
        if ranges is not None and possible & ranges:
            possible = possible & ranges
    if set(fields) >= _WHOLE:
        absent = [ranges for name, ranges in _fields().items() if "." not in name and name not in fields]
        possible = possible.difference(*absent) or possible
    return possible


@cache
def _range(first: str, last: str = RELEASES[-1]) -> frozenset[str]:
    return frozenset(RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1])


def _with(behaviour: Behaviour) -> frozenset[str]:
    """The releases that have a behaviour."""
    return _range(behaviour.since, behaviour.until)


@cache
def _fields() -> dict[str, frozenset[str]]:
    text = (files(__package__) / "fingerprints.toml").read_text("utf-8")
    rows: dict[str, list[list[str]]] = tomllib.loads(text)["fields"]
    return {name: frozenset().union(*(_range(*ends) for ends in ranges)) for name, ranges in rows.items()}


@cache
def _pattern_ranges() -> dict[str, frozenset[str]]:
    return {p.id: _range(p.since, p.until) for p in table().lines}


@cache
def _message_ranges() -> dict[str, frozenset[str]]:
    """Texts of the same meaning in several wordings share an id: their ranges are joined."""
    ranges: dict[str, frozenset[str]] = {}
    for message in table().messages:
        ranges[message.id] = ranges.get(message.id, frozenset()) | _range(message.since, message.until)
    return ranges
