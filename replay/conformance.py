"""Does the reference scheduler do what SGLang did? Replays recorded sequences and compares every outcome field."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglang_lifecycle.replay.digest import outcome_digest
from sglang_lifecycle.replay.transcripts import Transcript, apply, read_transcripts

CRASH_FACTS = ("layer", "type", "message")
"""Of a crash, what is compared; where in SGLang's code it happened is for people."""

SHOWN = 300
"""Characters of a value that a report line shows."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One outcome field that came out otherwise."""

    version: str
    name: str
    source: str
    index: int
    operation: str
    field: str
    expected: Any
    got: Any

    @property
    def kind(self) -> tuple[str, str, str]:
        """What makes two differences alike: version, operation and field."""
        return self.version, self.operation, self.field

    def line(self) -> str:
        """Return the difference in one line."""
        place = f"{self.version} {self.name} ({self.source}) operation {self.index} {self.operation}"
        return f"{place}: {self.field} expected {_short(self.expected)}, got {_short(self.got)}"


@dataclass(slots=True)
class Report:
    """The result of a check. `first` holds the first difference of each kind."""

    sequences: int = 0
    operations: int = 0
    agreeing: int = 0
    differing_sequences: int = 0
    unpredicted: int = 0
    """Operations left out because SGLang's cache layer crashed there, which is not modelled."""
    first: dict[tuple[str, str, str], Difference] = field(default_factory=dict)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def agrees(self) -> bool:
        """Whether every compared operation agrees."""
        return self.agreeing == self.operations

    def add(self, differences: Iterable[Difference]) -> None:
        """Count differences and keep the first of each kind."""
        for difference in differences:
            self.counts[difference.kind] += 1
            self.first.setdefault(difference.kind, difference)

    def lines(self) -> list[str]:
        """Return the report: the first difference of each kind, then the summary as the last line."""
        lines = [
            difference.line() + (f" [{self.counts[kind]} like this]" if self.counts[kind] > 1 else "")
            for kind, difference in self.first.items()
        ]
        if self.unpredicted:
            lines.append(
                f"{self.unpredicted} operations not compared: a crash of the cache layer, which is not modelled"
            )
        lines.append(f"{self.agreeing} of {self.operations} operations agree in {self.sequences} sequences")
        return lines


def check(paths: Iterable[str | os.PathLike[str]]) -> Report:
    """Replay every sequence in the files and return what agrees and what does not.

    Raises ValueError, in one line that names the input, where it is not a transcript; OSError where a file cannot be
    read.
    """
    return check_transcripts(transcript for path in paths for transcript in read_transcripts(Path(path)))


def check_transcripts(transcripts: Iterable[Transcript]) -> Report:
    """Replay sequences that were read already."""
    report = Report()
    for transcript in transcripts:
        _check_one(transcript, report)
    return report


def _check_one(transcript: Transcript, report: Report) -> None:
    """Replay one sequence into the report.

    Only its first differing operation is shown: those after it may differ just because of it. They count all the same.
    """
    report.sequences += 1
    engine = transcript.engine()
    differs = dead = False
    for index, operation in enumerate(transcript.operations):
        expected = _comparable(operation["outcome"])
        if expected.get("crash", {}).get("layer") == "kv":
            report.unpredicted += 1
            break
        report.operations += 1
        if dead:
            continue
        got = outcome_digest(apply(engine, operation), operation["op"], engine)
        differences = [
            Difference(
                transcript.version, transcript.name, transcript.source, index, operation["op"], place, wanted, found
            )
            for place, wanted, found in _compare(expected, got)
        ]
        report.agreeing += not differences
        if differences and not differs:
            report.add(differences)
        differs = differs or bool(differences)
        dead = "crash" in got
    report.differing_sequences += differs


def _comparable(outcome: dict[str, Any]) -> dict[str, Any]:
    crash = outcome.get("crash")
    if not isinstance(crash, dict):
        return outcome
    return outcome | {"crash": {key: crash.get(key) for key in CRASH_FACTS}}


def _compare(expected: dict[str, Any], got: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield every field that differs, with the parts of `state` told apart."""
    for key in sorted(expected.keys() | got.keys()):
        wanted, found = expected.get(key), got.get(key)
        if key == "state" and isinstance(wanted, dict) and isinstance(found, dict):
            for part, inner, outer in _compare(wanted, found):
                yield f"state.{part}", inner, outer
            if wanted == found and (order := list(wanted.get("sessions", ()))) != list(found["sessions"]):
                yield "state.sessions (order)", order, list(found["sessions"])
        elif wanted != found or (key in expected) != (key in got):
            yield key, wanted, found


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
