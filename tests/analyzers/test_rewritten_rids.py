"""Several tokenizer workers of 0.5.2 to 0.5.3 write a rid behind their pid: its client knows only what it sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import answered, changed, prefill, said
from lines import ABORTED, used, write

from sglang_lifecycle.cli.app import main

GONE = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='4712_job-9'"
CUT = used("4711_job-7", 10, 14, ABORTED)
STORY = (
    said(0, "server_args=ServerArgs(model_path='m', port=30000, tokenizer_worker_num=2)")
    + said(3, "The server is fired up and ready to roll!") + CUT[:1] + prefill(10, 0) + answered(13, "/abort_request")
    + changed(CUT[1:], "'id': '4711_job-7'", "'id': 'job-7'") + answered(14, "/generate")
    + used("4712_job-9", 30, 30)[:1] + prefill(30, 0) + said(40, GONE) + answered(40, "/generate", "400 Bad Request")
)  # fmt: skip


@pytest.mark.parametrize("release", ["0.5.2", "0.5.3"])
@pytest.mark.parametrize(("rid", "says"), [("job-7", "abort-all"), ("job-9", "client-disconnect")])
def test_a_rid_is_found_by_what_its_client_sent(
    rid: str, says: str, release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "server.log", STORY)
    main(["explain", rid, str(log), "--json", "--sglang-version", release])
    (verdict,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert verdict["status"] == "interrupted"
    assert says in {verdict["cause"], *(each["cause"] for each in verdict["candidates"])}
