"""A crash dump of 0.4.9 to 0.5.9 does not list who had not been sent to the scheduler yet: it had not left."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, decode, prefill, said, stream, told
from dumps import NAME, pickled

SERVED = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(3, "The server is fired up and ready to roll!")
    + stream("r", 10) + answered(10, "/generate") + prefill(10, 0) + decode([11, 12, 13], 1)
)  # fmt: skip
CRASH = said(30, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error") + said(
    30, f"Dumped 0 finished and 1 unfinished requests before crash to /dumps/host/{NAME}"
)
HELD = (
    answered(14, "/pause_generation")
    + stream("p", 16)
    + answered(16, "/generate")
    + said(20, "Start update_weights. Load format=auto")
)
MEDIA = (
    stream("p", 16, more=", image_data=['https://slow/picture.png']") + answered(16, "/generate") + decode([18, 22], 1)
)


@pytest.mark.parametrize("story", [HELD, MEDIA], ids=["a pause that keeps what runs", "an image that is fetched"])
def test_who_was_still_held_by_the_api_server_did_not_leave(story, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(pickled([("r", 10, 30, None)]))
    verdict = told(Case(SERVED + story + CRASH, "p", version="0.5.9"), tmp_path)
    assert verdict.cause != "client-disconnect"
    assert "scheduler-crash" in {verdict.cause, *(each.cause for each in verdict.candidates)}
