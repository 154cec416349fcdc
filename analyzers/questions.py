"""The questions that stay open for a set of logs, and what would answer them the next time."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sglang_lifecycle.analyzers.coverage_models import LifeCoverage, OpenQuestion, Remedy, Way
from sglang_lifecycle.analyzers.fingerprint import Release
from sglang_lifecycle.parsers.versions import RELEASES


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the catalogue: when it is asked, and what has to be there to answer it."""

    id: str
    asks: str
    when: tuple[str, ...]
    needs: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Means:
    """A remedy of the catalogue: what it brings, in which releases, and which traits call for it or forbid it."""

    brings_for: tuple[str, ...]
    how: Way
    what: tuple[str, ...]
    brings: str
    since: str = RELEASES[0]
    until: str = RELEASES[-1]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """`questions.toml`."""

    questions: tuple[Question, ...]
    means: tuple[Means, ...]


@cache
def catalogue() -> Catalogue:
    """The packaged catalogue."""
    data = tomllib.loads((files(__package__) / "questions.toml").read_text("utf-8"))
    return Catalogue(
        tuple(
            Question(q["id"], q["asks"], tuple(q["when"]), tuple(q["needs"]), q["because"]) for q in data["question"]
        ),
        tuple(
            Means(
                tuple(r["for"]),
                r["how"],
                tuple(r["what"]),
                r["brings"],
                r.get("since", RELEASES[0]),
                r.get("until", RELEASES[-1]),
                tuple(r.get("if", ())),
                tuple(r.get("unless", ())),
            )
            for r in data["remedy"]
        ),
    )


def open_questions(lives: Sequence[LifeCoverage], releases: Sequence[Release]) -> list[OpenQuestion]:
    """The questions that the lives leave open, with what each of their releases can do about it."""
    sides = {life.mode for life in lives}
    traits = [_traits(life, both_sides={"prefill", "decode"} <= sides) for life in lives]
    found = []
    for question in catalogue().questions:
        open_for = [
            index
            for index, life in enumerate(lives)
            if set(question.when) <= set(life.circumstances) and not set(question.needs) <= traits[index]
        ]
        if open_for:
            remedies = {means: None for index in open_for for means in _means(question, traits[index], releases[index])}
            found.append(
                OpenQuestion(
                    id=question.id,
                    asks=question.asks,
                    because=question.because,
                    lives=open_for,
                    remedies=[_remedy(means) for means in remedies],
                )
            )
    return found


def _means(question: Question, traits: set[str], release: Release) -> list[Means]:
    """What the release has that brings what is missing, and isn't on already."""
    missing = set(question.needs) - traits
    return [
        means
        for means in catalogue().means
        if missing & set(means.brings_for)
        and release.may_be(means.since, means.until)
        and set(means.required) <= traits
        and not traits & set(means.forbidden)
    ]


def _remedy(means: Means) -> Remedy:
    return Remedy(
        how=means.how,
        what=list(means.what),
        brings=means.brings,
        since=means.since,
        until=means.until,
    )


def _traits(life: LifeCoverage, both_sides: bool) -> set[str]:
    """What a life's logs have, in the words of the catalogue."""
    log = life.request_log
    timed = "json" in log.formats or not log.received or life.times.get("neighbours", 0) < log.received
    several = any(size > 1 for size in life.sizes.values())
    has = {
        "request-log": log.switch == "on",
        "request-log-set": log.switch == "unseen",
        "finish-lines": not log.held_back,
        "arguments": life.arguments,
        "scheduler-lines": "scheduler" in life.processes,
        "request-times": timed,
        "milliseconds": life.milliseconds,
        "time-stats": life.time_stats == "on",
        "debug-lines": life.debug_lines == "on",
        "access-log": life.access_log == "on",
        "access-log-off": life.access_log == "off",
        "status-snapshots": life.status_snapshots == "on",
        "metrics-export": life.metrics_export == "on",
        "session-lines": life.session_lines == "on",
        "crash-dump": life.crash_dump in ("on", "unseen"),
        "all-ranks": not several,
        "both-sides": both_sides,
    }
    return {name for name, is_so in has.items() if is_so}
