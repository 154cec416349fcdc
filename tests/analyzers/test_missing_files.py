"""Rotated files of which one is missing: what ended in it left no trace, and is nobody's fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import crashed, decode, prefill, said, started, stream
from lines import Story, used, write

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

FIRST = (
    started() + used("x", 10, 14)[:1] + prefill(10, 0) + decode([12], 1) + used("x", 10, 14)[1:] + stream("s", 20)
    + used("n", 20, 20)[:1] + prefill(20, 0, new=2) + decode([24, 28], 2)
)  # fmt: skip


def quick(at: int, beside: int = 0) -> Story:
    """One that is served, beside others that came in the missing file."""
    lines = used(f"y-{at}", at, at + 5)
    return lines[:1] + prefill(at, beside) + decode([at + 2, at + 4], beside + 1) + lines[1:]


SERVED = quick(7200) + quick(7210) + quick(7220)
COUNTED = (
    [line for at in range(7000, 7401, 80) for line in quick(at, 2)] + decode([7480, 7490], 2)
    + crashed(7500)
    + said(7500, "Dumped 3 finished and 2 unfinished requests before crash to /dumps/host/crash_dump.pkl")
)  # fmt: skip
WRONG = frozenset({"client-disconnect", "scheduler-crash", "process-killed"})


@pytest.mark.parametrize("rid", ["s", "n"])
@pytest.mark.parametrize(
    "last",
    [SERVED, started(7100) + SERVED, decode([7190, 7195], 1) + crashed(7300), COUNTED],
    ids=["served", "started again", "crash", "crash whose dump counts two others"],
)
def test_what_ended_in_a_file_that_is_missing_is_not_known(rid: str, last: Story, tmp_path: Path) -> None:
    """`server.log.2` is not there: two hours, in which both may have run to their ends."""
    write(tmp_path / "server.log.3", FIRST)
    write(tmp_path / "server.log.1", last)
    verdict = explain(Incident(read([str(tmp_path)]), "0.5.23"), rid)
    assert verdict.cause not in WRONG
    assert "finished" in {verdict.cause, *(each.cause for each in verdict.candidates)}
