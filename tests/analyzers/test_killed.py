"""A log that stops without a word, and the platform's word of why: only for the life that it can be about."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cases import Case, answered, decode, hold, prefill, said, started, stream
from lines import used

from sglang_lifecycle.analyzers import deaths, happenings
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
    return [one.cause for one in happenings.of(incident)]


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


KERNEL = "2026-11-29T10:{at}+00:00 node kernel: Out of memory: Killed process {pid} ({name}) total-vm:9kB"
CGROUP = KERNEL.replace("Out of memory", "Memory cgroup out of memory")
UNIT = "2026-11-29T10:00:19+00:00 node systemd[1]: fluent-bit.service: Main process exited, code=killed, status=9/KILL"
POD = """Name:             sglang-0
Namespace:        default
Containers:
  sglang:
    State:          Running
      Started:      Sun, 29 Nov 2026 09:59:50 +0000
    Ready:          True
    Restart Count:  0
  fluent-bit:
    State:          Running
      Started:      Sun, 29 Nov 2026 10:00:20 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Sun, 29 Nov 2026 09:00:00 +0000
      Finished:     Sun, 29 Nov 2026 10:00:19 +0000
    Ready:          True
    Restart Count:  1
Events:           <none>
"""
FAILS = (
    "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
    "tic start time: 10:00:25. last_heartbeat time: 10:00:20"
)
ALONE = (  # to 0.5.9 nothing watches the child: the API server lives on
    started() + used("a", 10, 10)[:1] + stream("s", 10) + prefill(10, 0, new=2) + decode([12, 16, 20], 2)
    + stream("late", 50)
    + [line for at in range(45, 400, 30) for line in said(at, FAILS)
       + answered(at, "/health", "503 Service Unavailable", "GET")]
)  # fmt: skip
RUNS = started(pid=4242) + used("a", 10, 10)[:1] + prefill(10, 0) + decode([12, 16, 20], 1)
TWICE = (  # in a container the pid is always 1, and the kernel's is another
    started(pid=1) + used("a", 10, 10)[:1] + prefill(10, 0) + decode([12, 16, 20], 1)
    + started(40, 1) + used("b", 60, 60)[:1] + prefill(60, 0) + decode(range(62, 100, 4), 1)
)  # fmt: skip
OF_TWICE = [
    (0, CGROUP.format(at=at, pid=pid, name="sglang::schedul")) for at, pid in (("00:21", 3001), ("01:41", 3107))
]
CASES = {
    **{
        f"{rid}, which waits for a scheduler that the kernel killed under its API server": Case(
            ALONE, rid, status="in-flight", says="process-killed", version="0.5.3",
            beside={"kern": [(0, KERNEL.format(at="00:21", pid=778, name="sglang::schedul"))]},
        )
        for rid in ("a", "s", "late")
    },
    **{  # `pt_main_thread` is what torch names every process that imports it; 31007: seen from outside a container
        f"one whose server torch has named, by its pid {pid}": Case(
            RUNS, "a", status="in-flight", says="process-killed",
            beside={"kern": [(0, KERNEL.format(at="00:22", pid=pid, name="pt_main_thread"))]},
        )
        for pid in (4242, 31007)
    },
    "one in the second of two lives that were killed": Case(
        TWICE, "b", status="in-flight", says="process-killed", beside={"kern": OF_TWICE}
    ),
    "one beside another unit that was killed": Case(
        RUNS, "a", {"process-killed"}, says="in-flight", beside={"journal": [(0, UNIT)]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_whom_a_kill_ended(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


@pytest.mark.parametrize("name", ["server", "sglang-0/server"])
def test_another_container_of_its_pod_is_none_of_its_business(name: str, tmp_path: Path) -> None:
    """Its own container runs, as the same description says."""
    (tmp_path / "describe.txt").write_text(POD)
    hold(Case(RUNS, "a", {"process-killed"}, says="in-flight", name=name), tmp_path)
