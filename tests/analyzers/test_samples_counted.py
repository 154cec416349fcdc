"""Two requests for two samples each that came together, and two samples: one of both got none."""

from __future__ import annotations

from pathlib import Path

from cases import Case, answered, changed, decode, prefill, told
from lines import Story, used


def asked(rid: str) -> Story:
    return changed(used(rid, 10, 10)[:1], f"rid='{rid}'", f"rid=['{rid}_0', '{rid}_1']") + answered(10, "/generate")


ENDS = [line for rid in ("4b1d0e5c7a0f4f6d9a4c1d2e3f405162", "7c2e1f6d8b104a7eab5d2e3f40516273")
        for line in used(rid, 10, 16)[1:]]  # fmt: skip
STORY = changed(
    changed(asked("A") + asked("B") + prefill(10, 0, new=4) + decode([12], 4) + decode([14], 2) + ENDS,
            "'max_new_tokens': 8", "'max_new_tokens': 8, 'n': 2"),
    "stream=False", "stream=True",
) + used("z", 30, 33)[:1] + prefill(30, 0) + decode([31], 1) + used("z", 30, 33)[1:]  # fmt: skip


def test_two_samples_do_not_answer_two_who_asked_for_two_each(tmp_path: Path) -> None:
    verdicts = [told(Case(STORY, rid), tmp_path) for rid in ("A_0", "B_0")]
    assert [verdict.cause for verdict in verdicts] != ["finished", "finished"]
