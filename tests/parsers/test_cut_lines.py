"""Lines that a collector or a rotation has cut in two are read as one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.parsers.log import read

DOCKER, JOURNAL = 16 * 1024, 48 * 1024  # where Docker and journald cut
LONG = "lorem " * 12_000
FIELDS = "rid='job-1', text='x', sampling_params={'max_new_tokens': 8}, stream=False"
REASON = "{'type': 'abort', 'status_code': 503, 'message': 'Request waiting timeout reached.'}"
LINES = [
    "[2026-11-29 09:59:00] The server is fired up and ready to roll!",
    f"[2026-11-29 10:00:00] Receive: obj=GenerateReqInput({FIELDS})",
    "[2026-11-29 10:00:03] Decode batch, #running-req: 2, #token: 100, token usage: 0.02, #queue-req: 1",
    f"[2026-11-29 10:00:06] Finish: obj=GenerateReqInput({FIELDS}), out={{'text': '{LONG}', 'meta_info': "
    f"{{'id': 'job-1', 'finish_reason': {REASON}, 'e2e_latency': 6.0}}}}",
    '[2026-11-29 10:00:06] INFO:     127.0.0.1:51009 - "POST /generate HTTP/1.1" 503 Service Unavailable',
    "[2026-11-29 10:00:09] Decode batch, #running-req: 2, #token: 100, token usage: 0.02, #queue-req: 0",
]


def pieces(line: str, size: int) -> list[str]:
    return [line[start : start + size] for start in range(0, len(line), size)]


def fluentd() -> Iterator[dict[str, str]]:
    """What Docker's fluentd driver writes."""
    for number, line in enumerate(LINES):
        parts = pieces(line, DOCKER)
        for ordinal, part in enumerate(parts, 1):
            last = "true" if ordinal == len(parts) else "false"
            cut = {"partial_message": "true", "partial_id": f"{number:064x}", "partial_ordinal": str(ordinal)}
            yield {
                "container_id": "ab", "container_name": "/sglang", "source": "stdout", "log": part,
                **({**cut, "partial_last": last} if len(parts) > 1 else {}),
            }  # fmt: skip


def journal() -> Iterator[dict[str, str]]:
    """What `journalctl -o json` writes of lines longer than LineMax."""
    for number, line in enumerate(LINES):
        parts = pieces(line, JOURNAL)
        for part in parts:
            yield {
                "__REALTIME_TIMESTAMP": str(1795946400000000 + 1000 * number), "_HOSTNAME": "n", "_PID": "4120",
                "_SYSTEMD_UNIT": "sglang.service", "PRIORITY": "6", "MESSAGE": part,
                **({"_LINE_BREAK": "line-max"} if part is not parts[-1] else {}),
            }  # fmt: skip


def told(*paths: Path) -> list[tuple[Any, ...]]:
    """What is read of a log."""
    facts = read([str(path) for path in paths]).facts
    return [(f.event, f.rid, f.at, f.finish_type, f.message_id, f.status_code, f.running) for f in facts]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain" / "server.log"
    path.parent.mkdir()
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.mark.parametrize("wrapped", [fluentd, journal])
def test_what_a_collector_cut(wrapped: Callable[[], Iterator[dict[str, str]]], plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "collected.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in wrapped()))
    assert told(path) == told(plain)


@pytest.mark.parametrize("mark", ["lorem lorem", "'meta_info'", "sampling_params", "waiting timeout"])
@pytest.mark.parametrize("packed", [False, True])
def test_what_a_rotation_cut(mark: str, packed: bool, plain: Path, tmp_path: Path) -> None:
    raw = plain.read_bytes()
    place = raw.index(mark.encode(), raw.index(b"Finish:"))
    folder = tmp_path / "rotated"
    folder.mkdir()
    (folder / "server.log").write_bytes(raw[place:])
    older = folder / ("server.log.1.gz" if packed else "server.log.1")
    older.write_bytes(gzip.compress(raw[:place]) if packed else raw[:place])
    assert told(folder) == told(plain)


def test_a_line_cut_within_its_stamp(plain: Path, tmp_path: Path) -> None:
    raw = plain.read_bytes()
    place = raw.index(b"10:00:06] Finish")
    folder = tmp_path / "rotated"
    folder.mkdir()
    (folder / "server.log.1").write_bytes(raw[:place])
    (folder / "server.log").write_bytes(raw[place:])
    assert told(folder) == told(plain)


BARE = 'INFO:     127.0.0.1:51009 - "POST /abort_request HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize("newest", ["", "\ufeff", BARE, "Loading weights took 3 s\n"])
def test_a_last_line_that_is_whole_is_joined_to_nothing(newest: str, plain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rotated"
    folder.mkdir()
    older = "\n".join(LINES[:4])
    (folder / "server.log.1").write_text(older)
    (folder / "server.log").write_text(newest)
    plain.write_text(f"{older}\n{newest}")
    assert told(folder) == told(plain)
