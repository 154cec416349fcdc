"""A dump's aborted entry without a `Finish`: where only slow requests have one, nobody need have left."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, decode, prefill, said, stream, told
from dumps import NAME, pickled
from lines import Story

STOP = {"type": "stop", "matched": 2}
ABORTED = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def story() -> tuple[Story, bytes]:
    """A chat service with SGLANG_LOG_REQUEST_EXCEEDED_MS=5000; a weight update with abort_all; then a crash."""
    lines = said(0, "server_args=ServerArgs(model_path='m', port=30000)")
    lines += said(3, "The server is fired up and ready to roll!")
    entries: list[tuple[str, int, int, dict[str, object] | None]] = []
    for number in range(10):
        at, rid, slow = 10 + 10 * number, f"s-{number:02}", number % 4 == 3
        end = at + (8 if slow else 1)
        lines += stream(rid, at) + answered(at, "/v1/chat/completions") + prefill(at, 0) + decode([at + 1], 1)
        lines += stream(rid, at, end)[1:] if slow else []
        entries.append((rid, at, end, STOP))
    lines += stream("w", 120) + answered(120, "/v1/chat/completions") + prefill(120, 0)
    lines += said(122, "Start update_weights. Load format=auto") + answered(140, "/update_weights_from_disk")
    entries.append(("w", 120, 122, ABORTED))
    lines += stream("v", 145) + answered(145, "/v1/chat/completions") + prefill(145, 0)
    lines += said(150, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error")
    lines += said(150, f"Dumped 11 finished and 1 unfinished requests before crash to /dumps/host/{NAME}")
    return lines, pickled([*entries, ("v", 145, 150, None)])


@pytest.mark.parametrize(
    ("rid", "never", "says"),
    [("w", "client-disconnect", "weight-update-abort"), ("s-00", "finished-undelivered", "finished")],
)
def test_who_was_too_quick_for_a_finish_need_not_have_left(rid: str, never: str, says: str, tmp_path: Path) -> None:
    lines, dump = story()
    (tmp_path / NAME).write_bytes(dump)
    verdict = told(Case(lines, rid), tmp_path)
    assert verdict.cause != never
    assert says in {verdict.cause, *(each.cause for each in verdict.candidates)}
