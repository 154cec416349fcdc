"""How long a command takes, whole processes, and how much memory it and its children hold."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 60.0
"""Seconds after which a command is not repeated any more."""
MB = 1_000_000


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    seconds: float
    cpu: float
    """Seconds of all its processes that were waited for."""
    largest: float
    """Peak megabytes of the process that needed most."""
    together: float
    """Peak megabytes of all its processes at one time."""
    status: int
    output: bytes


@dataclass
class Measurement:
    """What was measured of a command: medians, and the peaks of all runs."""

    name: str
    what: str
    bytes: int = 0
    """Of the input."""
    seconds: float = 0.0
    cpu: float = 0.0
    largest: float = 0.0
    together: float = 0.0
    runs: list[float] = field(default_factory=list)
    answer: str = ""
    """`right`, `wrong`, `failed` or `missing`; empty where there is none to check."""

    @property
    def speed(self) -> float:
        """Megabytes of input a second."""
        return self.bytes / self.seconds / MB if self.seconds else 0.0


def measure(
    name: str,
    what: str,
    command: Sequence[str],
    runs: int,
    *,
    size: int = 0,
    check: Callable[[bytes], bool] | None = None,
) -> Measurement:
    """Run a command that often, but no longer than patience lasts, and check each answer."""
    done: list[Run] = []
    while len(done) < runs and sum(each.seconds for each in done) < PATIENCE:
        done.append(run(command, keep=check is not None))
    if any(each.status for each in done):
        answer = "failed"
    elif check:
        answer = "right" if all(_agrees(check, each.output) for each in done) else "wrong"
    else:
        answer = ""
    return Measurement(
        name=name,
        what=what,
        bytes=size,
        seconds=statistics.median(each.seconds for each in done),
        cpu=statistics.median(each.cpu for each in done),
        largest=max(each.largest for each in done),
        together=max(each.together for each in done),
        runs=[each.seconds for each in done],
        answer=answer,
    )


def run(command: Sequence[str], *, keep: bool = False) -> Run:
    """Run a command and watch it and its children; keep what it prints, or throw it away."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as output:
        stdout = output if keep else subprocess.DEVNULL
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL, env=environment
        )
        watch = _Watch(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        largest, together = watch.stop()
        output.seek(0)
        return Run(seconds, usage.ru_utime + usage.ru_stime, largest, together, process.returncode, output.read())


def _agrees(check: Callable[[bytes], bool], output: bytes) -> bool:
    try:
        return check(output)
    except (ValueError, KeyError, IndexError, TypeError):
        return False


class _Watch:
    """Looks at the memory of a process and of its descendants, from time to time.

    `ru_maxrss` would also count what the parent held at the fork, and knows no sum.
    """

    EVERY = 0.02

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.largest = 0
        self.together = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def stop(self) -> tuple[float, float]:
        """End, and return the megabytes of the largest process and of all together."""
        self.over.set()
        self.thread.join()
        return self.largest * 1024 / MB, self.together * 1024 / MB

    def _look(self) -> None:
        while not self.over.wait(self.EVERY):
            now = 0
            for pid in _family(self.pid):
                held = _status(pid)
                self.largest = max(self.largest, held.get("VmHWM", 0))
                now += held.get("VmRSS", 0)
            self.together = max(self.together, now)


def _family(pid: int) -> list[int]:
    pids = [pid]
    for parent in pids:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                pids += map(int, children.read_text().split())
            except OSError:
                continue
    return pids


def _status(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines if line.startswith("Vm"))
    return {name: int(value.split()[0]) for name, _, value in pairs}
