"""Recorded logs that lack lines: what is said with any certainty of what they still hold is so, or left open."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SCENARIOS = [
    path.parent.relative_to(FIXTURES).as_posix()
    for path in sorted(FIXTURES.glob("*/*/truth.json"))
    if (path.parent / "logs" / "server.log").exists()
]
OPEN = frozenset({"in-flight", "not-established"})
READY = b"fired up"


def truth(name: str) -> dict[str, set[str]]:
    """The causes that are right, by rid."""
    found: dict[str, set[str]] = {}
    for row in json.loads((FIXTURES / name / "truth.json").read_text())["requests"]:
        if isinstance(row["rid"], str):
            found.setdefault(row["rid"], set()).update([row["cause"], *row.get("accept", [])])
    return found


@pytest.mark.parametrize("within", [False, True], ids=["between lines", "within a line"])
@pytest.mark.parametrize("part", [0.2, 0.4, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_log_that_ends_early_misleads_nobody(name: str, part: float, within: bool, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(FIXTURES / name / "logs", logs)
    raw = (logs / "server.log").read_bytes()
    start = raw.find(READY) + 1
    cut = start + int(part * (len(raw) - start))
    (logs / "server.log").write_bytes(raw[: cut if within else raw.rfind(b"\n", 0, cut) + 1])
    assert misled(name, logs, OPEN) == []


def misled(name: str, logs: Path, admitted: frozenset[str]) -> list[tuple[str, str, str]]:
    """What is neither right, nor admitted to be open, nor has what is right among the candidates."""
    right = truth(name)
    return [
        (row.rid, row.cause, row.confidence)
        for row in audit(Incident(read([str(logs)]))).requests
        if row.rid in right
        and row.cause not in admitted | right[row.rid]
        and not right[row.rid] & {each.cause for each in row.candidates}
    ]


def grepped(lines: list[bytes]) -> Iterator[bytes]:
    """What `grep -C 3 Finish` shows."""
    matches = [place for place, line in enumerate(lines) if b"Finish" in line]
    shown = sorted({near for place in matches for near in range(max(0, place - 3), place + 4) if near < len(lines)})
    for before, place in zip([None, *shown], shown, strict=False):
        if before is not None and place > before + 1:
            yield b"--\n"
        yield lines[place]


def without_access(lines: list[bytes]) -> Iterator[bytes]:
    """What `--log-level-http warning` lets through."""
    return (line for line in lines if not re.search(rb'INFO: +[\d.]+:\d+ - "', line))


def records(lines: list[bytes]) -> Iterator[bytes]:
    """What `--log-requests-target` writes to a folder."""
    return (line for line in lines if re.match(rb"(?:\[[^]]*\] )?(?:Receive|Receive OpenAI|Finish): ", line))


UNDECIDED = frozenset({"not-established"})


@pytest.mark.parametrize("lacking", [grepped, without_access, records])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_log_that_lacks_lines_of_a_kind_misleads_nobody(
    name: str, lacking: Callable[[list[bytes]], Iterator[bytes]], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    lines = (FIXTURES / name / "logs" / "server.log").read_bytes().splitlines(keepends=True)
    left = b"".join(lacking(lines))
    (logs / "server.log").write_bytes(left)
    ends_early = lacking is grepped and b"--\n" not in left  # as far as it shows
    assert misled(name, logs, OPEN if ends_early else UNDECIDED) == []
