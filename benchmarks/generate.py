"""Writes a large log that is faithful to recorded ones, and what is true of it.

`python benchmarks/generate.py OUT --size 1G --level 2 --format text|json --seed N --flood` writes `OUT`, and
`OUT.truth.json` beside it: how many requests were served, how they ended, and a rid for each cause. The same arguments
write the same bytes. Memory does not grow with the size.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from templates import RUNNING, STEP, Logger, Template, pool, start_up

BEGIN = 1795978384
"""Seconds of the epoch: just after the recorded server was ready."""
RATE = 60.0
"""Requests a second."""
BLOCK = 4_000_000
"""Bytes written at a time."""
REPEATED = 9
"""Lines of a flood for each line of the traffic."""
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
FLOODS = {
    "undelivered": b"[%(clock)b] Received output for rid='%(rid)b' but the state was deleted in TokenizerManager.\n",
    "probe": b'[%(clock)b] INFO:     127.0.0.1:40404 - "GET /health HTTP/1.1" 200 OK\n',
}


@functools.lru_cache(maxsize=1024)
def _clock(second: int) -> bytes:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second)).encode()


class Log:
    """The file that the lines go to, in blocks, each line with its share of the flood."""

    def __init__(self, out: BinaryIO, flood: bytes = b"") -> None:
        self.out = out
        self.flood = flood
        self.victim = b""
        """The request that the flood speaks of; there is none before the first is known."""
        self.size = 0
        self.lines = 0
        self.block: list[bytes] = []
        self.flushed = 0

    def write(self, line: bytes, clock: bytes) -> None:
        """Write a line, and what repeats after it."""
        self._add(line, 1)
        if self.flood and self.victim:
            self._add(self.flood % {b"clock": clock, b"rid": self.victim} * REPEATED, REPEATED)
        if self.size - self.flushed > BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write what has piled up."""
        self.out.write(b"".join(self.block))
        self.block.clear()
        self.flushed = self.size

    def _add(self, text: bytes, lines: int) -> None:
        self.block.append(text)
        self.size += len(text)
        self.lines += lines


class Life:
    """One request on its way: what it is made from, and what its lines are filled in with."""

    __slots__ = ("arrived", "request", "values")

    def __init__(self, request: Template, arrived: float, rid: bytes, port: int) -> None:
        self.request = request
        self.arrived = arrived
        self.values: dict[bytes, Any] = {b"rid": rid, b"port": port}


class Traffic:
    """Requests that come, wait, run and end, many at a time, and the lines a server writes of them."""

    def __init__(self, log: Log, requests: list[Template], rng: random.Random) -> None:
        self.log = log
        self.requests = requests
        self.rng = rng
        self.now = float(BEGIN)
        self.running = self.waiting = 0
        self.new_requests = self.new_tokens = 0
        """Admitted since the last line about a prefill."""
        self.causes: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.samples: dict[str, str] = {}
        self.later: list[tuple[float, int, Callable[..., None], Any]] = []
        self.numbers = itertools.count()

    def run(self, size: int) -> None:
        """Let requests come until the log has that many bytes, and then end."""
        self._later(self.now + 1.0, self._decode, None)
        while self.log.size < size:
            self.now += self.rng.expovariate(RATE)
            self._catch_up()
            self._arrive(self.rng.choice(self.requests))
        while self.running or self.waiting:
            self.now += 1.0
            self._catch_up()

    def truth(self) -> dict[str, Any]:
        """Return what is true of the requests that came."""
        requests = self.causes.total()
        finished = self.causes.pop("finished", 0)
        return {
            "requests": requests,
            "finished": finished,
            "interrupted": requests - finished,
            "by_cause": dict(sorted(self.causes.items())),
            "aborts_by_message": dict(sorted(self.messages.items())),
            "samples": dict(sorted(self.samples.items())),
        }

    def _later(self, at: float, what: Callable[..., None], about: Any) -> None:
        heapq.heappush(self.later, (at, next(self.numbers), what, about))

    def _catch_up(self) -> None:
        while self.later[0][0] <= self.now:
            at, _, what, about = heapq.heappop(self.later)
            what(at, about)

    def _arrive(self, request: Template) -> None:
        life = Life(request, self.now, b"%032x" % self.rng.getrandbits(128), self.rng.randrange(32768, 61000))
        self._fill(request.received, self.now, life)
        self.waiting += 1
        self.causes[request.cause] += 1
        if request.message:
            self.messages[request.message] += 1
        if self.rng.random() * self.causes[request.cause] < 1.0:  # each as likely as any other
            self.samples[request.cause] = life.values[b"rid"].decode()
        if request.runs:
            self._later(self.now + 0.01 + min(3.0, self.rng.expovariate(4.0)), self._admit, life)
        else:
            self._later(self.now + request.seconds + self.rng.random() * 0.05, self._end, life)

    def _admit(self, at: float, life: Life) -> None:
        self.waiting -= 1
        self.running += 1
        self.new_requests += 1
        self.new_tokens += life.request.prompt_tokens
        if self.rng.random() < 0.6:
            self._prefill(at)
        if life.request.stream:
            self._respond(at, life)
        self._later(at + life.request.seconds + self.rng.random() * 0.02, self._end, life)

    def _end(self, at: float, life: Life) -> None:
        if life.request.runs:
            self.running -= 1
        else:
            self.waiting -= 1
        life.values[b"latency"] = b"%r" % (at - life.arrived)
        life.values[b"sent"] = b"%r" % at
        for line in life.request.end:
            self._fill(line, at, life)
        if life.request.status and not life.request.stream:
            self._respond(at, life)
        if life.request.cause == "client-disconnect":
            self.log.victim = life.values[b"rid"]

    def _prefill(self, at: float) -> None:
        clock = _clock(int(at))
        line = (
            b"[%b] Prefill batch, #new-seq: %d, #new-token: %d, #cached-token: 0, token usage: %.2f, #running-req: %d,"
            b" #queue-req: %d, #pending-token: 0, cpu graph: False, input throughput (token/s): %.2f\n"
        )
        before = max(0, self.running - self.new_requests)
        numbers = (self.new_requests, self.new_tokens, self.running / RUNNING, before, self.waiting)
        self.log.write(line % (clock, *numbers, self.new_tokens / 0.05), clock)
        self.new_requests = self.new_tokens = 0

    def _decode(self, at: float, _: None) -> None:
        clock = _clock(int(at))
        line = (
            b"[%b] Decode batch, #running-req: %d, #token: %d, token usage: %.2f, cpu graph: False,"
            b" gen throughput (token/s): %.2f, #queue-req: %d\n"
        )
        numbers = (self.running, self.running * 90, self.running / RUNNING, self.running / STEP, self.waiting)
        self.log.write(line % (clock, *numbers), clock)
        self._later(at + 0.5, self._decode, None)

    def _respond(self, at: float, life: Life) -> None:
        clock = _clock(int(at))
        line = b'[%b] INFO:     127.0.0.1:%d - "POST /generate HTTP/1.1" %b\n'
        self.log.write(line % (clock, life.values[b"port"], life.request.status), clock)

    def _fill(self, line: bytes, at: float, life: Life) -> None:
        second = int(at)
        clock = life.values[b"clock"] = _clock(second)
        life.values[b"iso"] = b"%bT%b.%06d" % (clock[:10], clock[11:], (at - second) * 1e6)
        self.log.write(line % life.values, clock)


def generate(
    path: Path, size: int, *, level: int = 2, format: str = "text", seed: int = 1, flood: str | None = None
) -> dict[str, Any]:
    """Write the log and its truth, and return the truth."""
    logger = Logger(format, level)
    rng = random.Random(seed)
    with path.open("wb") as out:
        log = Log(out, FLOODS[flood] if flood else b"")
        for line in start_up(logger):
            log.write(line, b"")
        traffic = Traffic(log, pool(logger, rng), rng)
        traffic.run(size)
        log.flush()
    arguments = {"size": size, "level": level, "format": format, "seed": seed, "flood": flood}
    truth = {"arguments": arguments, "bytes": log.size, "lines": log.lines, **traffic.truth()}
    path.with_name(path.name + ".truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def size_of(text: str) -> int:
    """Read a size: `20000`, `256M`, `1G`."""
    unit = UNITS.get(text[-1:].upper(), 1)
    return int(float(text.rstrip("kKmMgG")) * unit)


def main() -> None:
    """Write the log that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=size_of, default=size_of("1G"))
    parser.add_argument("--level", type=int, choices=(1, 2), default=2)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--flood", nargs="?", choices=tuple(FLOODS), const="undelivered", help="90 %% of the lines are one message"
    )
    arguments = parser.parse_args()
    begin = time.perf_counter()
    truth = generate(
        arguments.out,
        arguments.size,
        level=arguments.level,
        format=arguments.format,
        seed=arguments.seed,
        flood=arguments.flood,
    )
    print(f"{truth['bytes']:,} bytes, {truth['lines']:,} lines in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
