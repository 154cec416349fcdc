"""A batch that was answered with the refusal of one of its members: no client left."""

from __future__ import annotations

from pathlib import Path

from cases import Case, answered, decode, hold, prefill, refused, said
from lines import RECEIVE, clock, used

LONG = "Input length (9000 tokens) exceeds the maximum allowed length (100 tokens)."
BATCH = [(10, RECEIVE.format(at=clock(10), rid="?").replace("rid='?'", "rid=['b_0', 'b_1']"))]
STORY = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(3, "The server is fired up and ready to roll!")
    + BATCH + prefill(10, 0, new=2) + said(10, f"{LONG}, self.rid='b_1'") + used("b_1", 10, 11, refused(LONG))[1:]
    + said(11, f"[http_server] Error: {LONG}") + answered(11, "/generate", "400 Bad Request") + decode([12, 16], 1)
    + [line for at in range(12, 20) for line in
       said(at, "Received output for rid='b_0' but the state was deleted in TokenizerManager.")]
)  # fmt: skip


def test_who_is_given_up_with_its_batch_did_not_leave(tmp_path: Path) -> None:
    hold(Case(STORY, "b_0", {"client-disconnect"}, says="input-too-long", version="0.5.18"), tmp_path)
