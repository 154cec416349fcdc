"""How fast lifecycle reads large logs, against the read limit of the machine and against peers that do a part of it.

`python benchmarks/speed.py --size 1G -o speed.json --plot growth.html` makes up the logs, measures whole processes, and
checks every answer against what is true of the logs. Times are medians; all of one run are of the same files, and the
ratios between them are what counts: a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import summary
from generate import generate, size_of
from measure import Measurement, measure, run
from peers import PEERS
from rich.console import Console

LIFECYCLE = str(Path(sys.executable).with_name("lifecycle"))
PEER = str(Path(__file__).with_name("peers.py"))
QUICK = 9
"""Runs of what takes a moment."""
PARTS = (8, 4, 2, 1)
"""The sizes that growth is measured at: an eighth of the whole, and so on."""
PHASES = ("text", "json", "growth", "flood", "start")
CAUSE = "waiting-timeout"
"""Of the request that is looked for."""


@dataclass(frozen=True)
class Log:
    """A log that was made up, and what is true of it."""

    path: Path
    truth: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.truth["bytes"])

    @property
    def rid(self) -> str:
        """A request that was interrupted."""
        return str(self.truth["samples"][CAUSE])


class Bench:
    """One run of all measurements; the files are in a folder that goes away."""

    def __init__(self, folder: Path, size: int, level: int, runs: int, seed: int, console: Console) -> None:
        self.folder = folder
        self.size = size
        self.level = level
        self.runs = runs
        self.seed = seed
        self.console = console
        self.found: dict[str, Measurement] = {}

    def run(self, phases: Sequence[str]) -> None:
        """Measure what belongs to these phases, each command by itself."""
        self.warm_up()
        for format in ("text", "json"):
            if format in phases:
                self.read(format)
        for phase, measured in (("growth", self.grow), ("flood", self.flood), ("start", self.start)):
            if phase in phases:
                measured()

    def warm_up(self) -> None:
        """Have everything compiled and in memory that the commands import."""
        log = self.log(1_000_000)
        run([LIFECYCLE, "audit", str(log.path), "--format", "json"])
        run([LIFECYCLE, "explain", log.rid, str(log.path), "--json"])
        _remove(log.path)

    def log(self, size: int, format: str = "text", flood: str | None = None) -> Log:
        """Make up a log."""
        path = self.folder / f"{format}-{size}-{flood}.log"
        return Log(path, generate(path, size, level=self.level, format=format, seed=self.seed, flood=flood))

    def read(self, format: str) -> None:
        """Measure all that reads one whole log: the floor, one request, all requests, and the peers."""
        log = self.log(self.size, format)
        path, rid = str(log.path), log.rid
        quick = partial(self.note, size=log.size, runs=QUICK)
        quick(f"{format} cat", "read it", ["cat", path])
        quick(
            f"{format} wc",
            "count its lines",
            ["wc", "-l", path],
            check=lambda out: int(out.split()[0]) == log.truth["lines"],
        )
        if shutil.which("rg"):
            quick(f"{format} rg", "find one rid", ["rg", "-F", rid, path], check=lambda out: out.count(b"\n") >= 2)
        else:
            self.missing(f"{format} rg", "find one rid", "ripgrep")

        def explained(out: bytes) -> bool:
            return bool(json.loads(out)["cause"] == CAUSE)

        explain = [LIFECYCLE, "explain", rid, "--json", "--quiet"]
        self.note(f"{format} explain", "judge one rid", [*explain, path], size=log.size, check=explained)
        store = self.folder / "store"
        self.note(
            f"{format} ingest",
            "keep its evidence",
            [LIFECYCLE, "ingest", path, "-o", str(store)],
            size=log.size,
            runs=1,
        )
        quick(f"{format} explain store", "judge one rid", [*explain, str(store)], check=explained)
        _remove(store)

        self.audit(f"{format} audit", log)
        for name, peer in PEERS.items():
            if peer.format != format:
                continue
            if peer.missing:
                self.missing(f"{format} {name}", "list all ends", peer.missing)
                continue
            self.note(
                f"{format} {name}",
                "list all ends",
                [sys.executable, PEER, name, path],
                size=log.size,
                check=lambda out: json.loads(out) == log.truth["aborts_by_message"],
            )
        _remove(log.path)

    def grow(self) -> None:
        """Measure the audit at growing sizes."""
        for part in PARTS:
            log = self.log(self.size // part)
            self.audit(f"growth 1/{part}", log)
            _remove(log.path)

    def flood(self) -> None:
        """Measure the audit of logs that are nine tenths one message."""
        for flood in ("undelivered", "probe"):
            log = self.log(self.size // 4, flood=flood)
            self.audit(f"flood {flood}", log)
            _remove(log.path)

    def start(self) -> None:
        """Measure what it costs to start."""
        self.note("start python", "nothing", [sys.executable, "-c", "pass"], runs=QUICK)
        self.note("start typer", "import typer", [sys.executable, "-c", "import typer"], runs=QUICK)
        for option in ("--version", "--help"):
            self.note(f"start {option}", f"lifecycle {option}", [LIFECYCLE, option], runs=QUICK)

    def audit(self, name: str, log: Log) -> None:
        """Measure an audit, and hold it against the truth."""
        answer = self.folder / "audit.json"

        def right(_: bytes) -> bool:
            totals = json.loads(answer.read_bytes())["totals"]
            return all(totals[key] == log.truth[key] for key in ("requests", "finished", "interrupted", "by_cause"))

        command = [LIFECYCLE, "audit", str(log.path), "--format", "json", "--quiet", "-o", str(answer)]
        self.note(name, "judge all", command, size=log.size, check=right)
        answer.unlink(missing_ok=True)

    def note(
        self,
        name: str,
        what: str,
        command: list[str],
        *,
        size: int = 0,
        runs: int | None = None,
        check: Callable[[bytes], bool] | None = None,
    ) -> None:
        """Measure a command and keep what was found."""
        with self.console.status(name):
            self.found[name] = measure(name, what, command, runs or self.runs, size=size, check=check)

    def missing(self, name: str, what: str, needed: str) -> None:
        """Keep that something could not be measured."""
        self.found[name] = Measurement(name, f"{what} (needs {needed})", answer="missing")


def _remove(path: Path) -> None:
    for each in path.parent.glob(path.name + "*"):
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()


def machine() -> dict[str, Any]:
    """Say where it was measured, for whoever compares two results."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=size_of("256M"), help="of the largest log: 256M, 8G")
    parser.add_argument("--level", type=int, choices=(1, 2), default=2, help="of the request log")
    parser.add_argument("--runs", type=int, default=3, help="of each command; fewer where they take over a minute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=PHASES, action="append", help="leave the others out; repeatable")
    parser.add_argument("--folder", type=Path, help="for the logs: where reading is fast, with room for one and a half")
    parser.add_argument("-o", "--output", type=Path, help="write what was measured as JSON")
    parser.add_argument("--plot", type=Path, help="write how time and memory grow as one HTML page")
    arguments = parser.parse_args()
    phases = arguments.only or PHASES
    if arguments.plot and "growth" not in phases:
        parser.error("--plot shows growth: add --only growth")
    console = Console(width=None if sys.stdout.isatty() else 120)
    shared = Path("/dev/shm")
    parent = arguments.folder or (shared if shared.is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="speed-", dir=parent) as folder:
        bench = Bench(Path(folder), arguments.size, arguments.level, arguments.runs, arguments.seed, console)
        bench.run(phases)
    settings = {key: value for key, value in vars(arguments).items() if key in ("size", "level", "runs", "seed")}
    result = summary.document(bench.found, settings | machine())
    summary.show(result, console)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.plot:
        arguments.plot.write_text(summary.plot(result))


if __name__ == "__main__":
    main()
