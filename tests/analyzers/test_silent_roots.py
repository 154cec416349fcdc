"""An abort call whose rid has no `Finish`: whoever begins with it may be the collateral."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, decode, hold, prefill, said, stream
from lines import ABORTED, used

VICTIM, OTHER = used("job-12", 10, 30, ABORTED), used("q", 10, 40)
STORY = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(3, "The server is fired up and ready to roll!")
    + VICTIM[:1] + OTHER[:1] + prefill(10, 0, new=2) + decode([12, 20], 2) + used("job-1", 27, 27)[:1]
    + decode([28], 2, 1) + answered(29, "/abort_request") + VICTIM[1:] + answered(30, "/generate") + decode([32], 1)
    + OTHER[1:] + answered(40, "/generate")
)  # fmt: skip


@pytest.mark.parametrize("version", ["0.4.8", "0.5.23"])  # in 0.5.23: SGLANG_LOG_REQUEST_EXCEEDED_MS hides its Finish
def test_a_call_may_have_named_one_that_has_no_finish(version: str, tmp_path: Path) -> None:
    hold(Case(STORY, "job-12", says="abort-prefix-collision", version=version), tmp_path)


LEFT, HIT, LATER = stream("traj-1", 10), used("traj-10", 10, 20, ABORTED), used("z", 70, 73)
PAUSED = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(3, "The server is fired up and ready to roll!")
    + LEFT + answered(10, "/generate") + HIT[:1] + prefill(10, 0, new=2) + decode([12, 16, 19], 2) + HIT[1:]
    + answered(20, "/generate") + answered(45, "/pause_generation") + answered(60, "/continue_generation") + LATER[:1]
    + prefill(70, 0) + decode([71], 1) + LATER[1:] + answered(73, "/generate")
)  # fmt: skip


def test_a_pause_long_after_is_not_the_cause_where_a_stream_of_its_prefix_left(tmp_path: Path) -> None:
    """Its client left at 20 s, which writes no line (0.5.20 on), and the abort of its rid hit both."""
    hold(Case(PAUSED, "traj-10", {"pause-abort"}, says="abort-prefix-collision"), tmp_path)
