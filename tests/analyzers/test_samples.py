"""Requests for several samples, which SGLang answers under rids of their own: whose samples they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, Case, answered, changed, decode, hold, prefill, said, told
from lines import Story, used

GONE = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='{rid}'"
NUMBER = "'max_new_tokens': 8, 'n': 2"


def asked(rid: str, second: int) -> Story:
    """Two samples of one prompt: first the prompt alone, then both."""
    story = changed(used(rid, second, second)[:1], f"rid='{rid}'", f"rid=['{rid}_0', '{rid}_1']")
    return story + prefill(second, 0) + prefill(second, 0, new=2) + decode([second + 2], 2)


def samples(start: int, end: int, *rids: str) -> Story:
    return [line for rid in rids for line in used(rid, start, end, LENGTH)[1:]]


def two(left: Story, streams: bool) -> Story:
    """Two clients that ask for two samples each; the first leaves, the second gets its own."""
    served = samples(10, 15, "4b1d0e5c7a0f4f6d9a4c1d2e3f405162", "7c2e1f6d8b104a7eab5d2e3f40516273")
    early, late = (answered(0, "/generate"), answered(10, "/generate")) if streams else ([], [])
    last = [] if streams else answered(15, "/generate")
    story = asked("A", 0) + early + left + asked("B", 10) + late + served + last
    story = changed(story, "'max_new_tokens': 8", NUMBER)
    return changed(story, "stream=False", "stream=True") if streams else story


NOTICED = said(6, GONE.format(rid="11112e5c7a0f4f6d9a4c1d2e3f405162")) + answered(6, "/generate", "400 Bad Request")
CASES = {
    f"{which}, of {how}": Case(story, rid, status=status, says=says)
    for how, story in (("streams", two([], True)), ("others", two(NOTICED, False)))
    for which, rid, status, says in (
        ("one whose client left", "A_0", "finished", "client-disconnect"),
        ("one who got its samples", "B_0", "interrupted", "finished"),
    )
}


@pytest.mark.parametrize("name", CASES)
def test_who_gets_no_samples_is_not_answered_by_another_s(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


def together(rid: str) -> Story:
    return changed(used(rid, 10, 10)[:1], f"rid='{rid}'", f"rid=['{rid}_0', '{rid}_1']") + answered(10, "/generate")


ENDS = [line for rid in ("4b1d0e5c7a0f4f6d9a4c1d2e3f405162", "7c2e1f6d8b104a7eab5d2e3f40516273")
        for line in used(rid, 10, 16)[1:]]  # fmt: skip
BOTH = changed(
    changed(together("A") + together("B") + prefill(10, 0, new=4) + decode([12], 4) + decode([14], 2) + ENDS,
            "'max_new_tokens': 8", NUMBER),
    "stream=False", "stream=True",
) + used("z", 30, 33)[:1] + prefill(30, 0) + decode([31], 1) + used("z", 30, 33)[1:]  # fmt: skip


def test_two_samples_do_not_answer_two_who_asked_for_two_each(tmp_path: Path) -> None:
    """They came together, and two samples ended: one of both got none."""
    verdicts = [told(Case(BOTH, rid), tmp_path) for rid in ("A_0", "B_0")]
    assert [verdict.cause for verdict in verdicts] != ["finished", "finished"]
