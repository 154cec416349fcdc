"""A weight update that waits for a straggler did not abort it: a call did, long after the update had begun."""

from __future__ import annotations

from pathlib import Path

from cases import Case, answered, decode, hold, prefill, said
from lines import ABORTED, used

STRAGGLER, QUICK, SLOW = used("a", 10, 34, ABORTED), used("q-0", 10, 18), used("q-1", 11, 24)
STORY = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(3, "The server is fired up and ready to roll!")
    + STRAGGLER[:1] + QUICK[:1] + SLOW[:1] + prefill(10, 0, new=3) + decode([12], 3)
    + said(14, "Start update_weights. Load format=auto") + QUICK[1:] + answered(18, "/generate") + SLOW[1:]
    + answered(24, "/generate") + decode([26, 28], 1) + answered(33, "/abort_request") + STRAGGLER[1:]
    + answered(34, "/generate") + answered(42, "/update_weights_from_disk")
)  # fmt: skip


def test_an_update_that_others_outlived_aborted_nobody(tmp_path: Path) -> None:
    hold(Case(STORY, "a", {"weight-update-abort"}, says="explicit-abort"), tmp_path)
