"""A clock that is set back within a log turns none of it round."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

START = datetime(2026, 10, 25, 2, 40)
FIELDS = "rid='chat-{n:02}', text='x', sampling_params={{'max_new_tokens': 8}}, stream=True"
FINISHED = "{{'type': 'length', 'length': 8}}"
TURN = (
    (0, "Receive: obj=GenerateReqInput(" + FIELDS + ")"),
    (0, 'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK'),
    (0, "Prefill batch, #new-seq: 1, #new-token: 12, #cached-token: 0, #running-req: 0, #queue-req: 0"),
    (8, "Decode batch, #running-req: 1, #token: 100, token usage: 0.02, #queue-req: 0"),
    (15, "Finish: obj=GenerateReqInput(" + FIELDS + "), out={{'text': 'y', 'meta_info': {{'id': 'chat-{n:02}', "
     "'finish_reason': " + FINISHED + ", 'e2e_latency': 15.0}}}}"),
)  # fmt: skip
KILLED = "Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
HOUR = 3600


def chats(number: int, after: int, back: int) -> list[str]:
    """A chat a minute; after some of them the clock is set back by so many seconds."""
    lines = []
    for n in range(number):
        start = START + timedelta(minutes=n, seconds=-back if n >= after else 0)
        lines += [f"[{start + timedelta(seconds=at)}] {text.format(n=n)}" for at, text in TURN]
    return lines


def written(lines: list[str], folder: Path) -> Path:
    path = folder / "server.log"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("number", "after", "back"),
    [(6, 3, HOUR), (40, 16, HOUR), (40, 20, HOUR), (40, 24, HOUR), (40, 20, 8 * HOUR), (200, 45, 8 * HOUR)],
)
def test_a_log_is_read_from_its_beginning(number: int, after: int, back: int, tmp_path: Path) -> None:
    evidence = read([str(written(chats(number, after, back), tmp_path))])
    lines = [fact.line for fact in evidence.facts]
    assert lines == sorted(lines)
    statuses = {row.status for row in audit(Incident(evidence, "0.5.23")).requests}
    assert statuses == {"finished"}


def test_a_clock_that_is_set_back_while_the_server_starts(tmp_path: Path) -> None:
    boot = [f"[2026-11-30 12:08:{second:02}] Ignore import error when loading a model" for second in range(15)]
    boot += ["[2026-11-30 04:08:16] The server is fired up and ready to roll!"]
    later = [f"[2026-11-30 04:{10 + n}:{at:02}] {text.format(n=n)}" for n in range(3) for at, text in TURN]
    facts = read([str(written(boot + later, tmp_path))]).facts
    assert [fact.line for fact in facts] == sorted(fact.line for fact in facts)
    assert facts[0].line == len(boot)


def test_a_death_at_the_end_takes_nobody_along_who_had_ended(tmp_path: Path) -> None:
    lines = chats(40, 20, HOUR)
    evidence = read([str(written([*lines, f"{lines[-1][:22]}{KILLED}"], tmp_path))])
    assert {row.status for row in audit(Incident(evidence, "0.5.23")).requests} == {"finished"}


@pytest.mark.parametrize("back", [0, HOUR])
def test_a_log_whose_newest_line_comes_first_still_is_one(back: int, tmp_path: Path) -> None:
    facts = read([str(written(chats(40, 20, back)[::-1], tmp_path))]).facts
    lines = [fact.line for fact in facts]
    assert lines == sorted(lines, reverse=True)
