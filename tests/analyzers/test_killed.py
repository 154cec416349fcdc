"""A log that stops without a word, and the platform's word of why: only for the life that it can be about."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

START = datetime(2026, 11, 29, 18, 0, 0, tzinfo=UTC)
LOG = (
    "[2026-11-29 18:00:00] INFO:     Started server process [836]\n"
    "[2026-11-29 18:00:01] The server is fired up and ready to roll!\n"
    "[2026-11-29 18:00:05] Decode batch. #running-req: 1, #token: 5, token usage: 0.00, #queue-req: 0\n"
)
OOM = "[Sun Nov 29 18:00:{second:02} 2026] Out of memory: Killed process {pid} ({name}) total-vm:1kB\n"


def _causes(folder: Path, log: str = LOG, second: int = 9, pid: int = 836, name: str = "python3") -> list[str]:
    (folder / "server.log").write_text(log)
    (folder / "dmesg.txt").write_text(OOM.format(second=second, pid=pid, name=name))
    incident = Incident(read([str(folder)]))
    return [one.cause for one in deaths.happenings(incident)]


def test_a_log_that_stops_was_killed(tmp_path: Path) -> None:
    assert _causes(tmp_path) == ["process-killed"]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "postgres", "pid": 900},
        {"log": LOG + "[2026-11-29 18:05:00] Decode batch. #running-req: 1, #token: 5, #queue-req: 0\n"},
        {"log": LOG.replace("18:00:0", "17:00:0")},
        {"log": LOG.replace("29 18:00:0", "28 18:00:0")},
    ],
)
def test_another_process_or_another_time_is_none_of_its_business(changes: dict[str, Any], tmp_path: Path) -> None:
    assert _causes(tmp_path, **changes) == []


def test_of_two_servers_it_is_the_one_that_is_named(tmp_path: Path) -> None:
    for name, pid in (("a", 836), ("b", 900)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_text(LOG.replace("[836]", f"[{pid}]"))
    (tmp_path / "dmesg.txt").write_text(OOM.format(second=9, pid=900, name="python3"))
    incident = Incident(read([str(tmp_path)]))
    assert [bool(scene.life.killed) for scene in incident.scenes] == [False, True]
    (tmp_path / "dmesg.txt").write_text(OOM.format(second=9, pid=5, name="python3"))
    assert not any(scene.life.killed for scene in Incident(read([str(tmp_path)])).scenes)


def test_a_child_s_death_by_sigkill_gets_its_reason(tmp_path: Path) -> None:
    log = LOG + (
        "[2026-11-29 18:00:09] Subprocess scheduler_0 (pid=840) crashed with exit code -9. "
        "Triggering SIGQUIT for cleanup...\n"
    )
    (tmp_path / "server.log").write_text(log)
    (tmp_path / "dmesg.txt").write_text(OOM.format(second=9, pid=840, name="sglang::schedul"))
    (scene,) = Incident(read([str(tmp_path)])).scenes
    death = deaths.death(scene)
    assert death is not None
    assert death.cause == "process-killed"
    assert "memory ran out" in death.chain[0].summary
