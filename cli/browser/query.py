"""What the list is asked for, and the line of text that says so: `cause:abort-all since:12:00 zombie`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo

import polars as pl

from sglang_lifecycle.cli.browser.rows import SURE
from sglang_lifecycle.cli.times import Clock, bound

FACETS = ("cause", "stage", "actor", "confidence")
"""The columns whose values are counted and chosen; several chosen values of one mean any of them."""

SHOWN = {"confidence": "verdict"}
"""What the list calls a column; a line may say either."""

HELP = "words, cause: stage: actor: verdict: session: since: until:"
"""What may stand in the line."""


@dataclass(frozen=True, slots=True)
class Query:
    """Which requests are shown. Chosen values are kept in the order in which they were chosen."""

    words: tuple[str, ...] = ()
    chosen: tuple[tuple[str, str], ...] = ()
    session: str | None = None
    since: float | None = None
    until: float | None = None
    everything: bool = False
    """Whether requests that were not interrupted are shown too."""

    def values(self, facet: str) -> list[str]:
        """The values of a facet that are asked for; none means all."""
        return [value for name, value in self.chosen if name == facet]

    def toggled(self, facet: str, value: str) -> Query:
        """With a value chosen that wasn't, or the other way round."""
        pair = (facet, value)
        rest = tuple(each for each in self.chosen if each != pair)
        return replace(self, chosen=rest if pair in self.chosen else (*rest, pair))

    def cleared(self) -> Query:
        """Without any filter."""
        return Query(everything=self.everything)

    @property
    def filters(self) -> bool:
        """Whether it leaves anything out."""
        return self != self.cleared()

    def condition(self, without: str | None = None) -> pl.Expr:
        """As a condition on rows; `without` leaves the values of one facet open."""
        parts = list(self._conditions(without))
        return pl.all_horizontal(parts) if parts else pl.lit(True)

    def _conditions(self, without: str | None) -> Iterator[pl.Expr]:
        if not self.everything:
            yield (pl.col("status") == "interrupted") & ~pl.col("synthetic")
        for facet in FACETS:
            if facet != without and (values := self.values(facet)):
                yield pl.any_horizontal(_is(facet, value) for value in values)
        if self.session is not None:
            yield pl.col("session") == self.session
        if self.since is not None:
            yield pl.col("at") >= self.since
        if self.until is not None:
            yield pl.col("at") <= self.until
        for word in self.words:
            yield pl.col("text").str.contains(word.lower(), literal=True)

    def text(self, clock: Clock) -> str:
        """The line that asks for this; `parse` reads it back."""
        parts = [f"{SHOWN.get(facet, facet)}:{shlex.quote(_shown(facet, value))}" for facet, value in self.chosen]
        if self.session is not None:
            parts.append(f"session:{shlex.quote(self.session)}")
        for name, at in (("since", self.since), ("until", self.until)):
            if (moment := clock.at(at)) is not None:
                parts.append(f"{name}:{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}")
        return " ".join([*parts, *map(shlex.quote, self.words)])


def _is(facet: str, value: str) -> pl.Expr:
    """A value, or, where no row has it, all that begin with it: half a word is asked for while it is being typed."""
    same = pl.col(facet) == value
    return same | (~same.any() & pl.col(facet).cast(pl.String).str.starts_with(value))


def parse(text: str, query: Query, zone: tzinfo, last: float | None) -> Query:
    """Read a line; `last` is the last time in the logs. Raises `UsageError`."""
    found = query.cleared()
    for part in _split(text):
        said, colon, value = part.partition(":")
        name = next((column for column, shown in SHOWN.items() if shown == said), said)
        if colon and not value and (name in FACETS or name in _SINGLE):
            continue  # it is still being typed
        if colon and name in FACETS:
            found = replace(found, chosen=(*found.chosen, (name, _meant(name, value))))
        elif colon and name in _SINGLE:
            found = _SINGLE[name](found, value, zone, last)
        else:
            found = replace(found, words=(*found.words, part))
    return found


def _shown(facet: str, value: str) -> str:
    """A value as the list says it, where that is one word."""
    word = SURE.get(value, value) if facet == "confidence" else value
    return word if " " not in word else value


def _meant(facet: str, value: str) -> str:
    """A value, or half of one, by what the list says; as it is where the list says no such thing."""
    if facet != "confidence" or any(each.startswith(value) for each in SURE):
        return value
    return next((each for each, word in SURE.items() if word.startswith(value)), value)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is still open: half a line is asked for while it is being typed
        return text.split()


def _session(query: Query, value: str, zone: tzinfo, last: float | None) -> Query:
    return replace(query, session=value)


def _since(query: Query, value: str, zone: tzinfo, last: float | None) -> Query:
    return replace(query, since=_time("since:", value, zone, last))


def _until(query: Query, value: str, zone: tzinfo, last: float | None) -> Query:
    return replace(query, until=_time("until:", value, zone, last))


_SINGLE: dict[str, Callable[[Query, str, tzinfo, float | None], Query]] = {
    "session": _session,
    "since": _since,
    "until": _until,
}


def _time(name: str, value: str, zone: tzinfo, last: float | None) -> float:
    found = bound(name, value, zone)
    assert found is not None  # there is a text to read
    return found.resolve(last)
