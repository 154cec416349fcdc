"""Writes a large log that is faithful to recorded ones, and what is true of it.

`python benchmarks/generate.py OUT --size 1G --level 2 --format text|json --seed N --flood` writes `OUT`, and
`OUT.truth.json` beside it: how many requests were served, how they ended, and a rid for each cause. The same arguments
write the same bytes. Memory does not grow with the size.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from templates import Logger, Template, pool, start_up

BEGIN = 1795978384
"""Seconds of the epoch: just after the recorded server was ready."""
RATE = 30.0
"""Requests a second."""
BLOCK = 4_000_000
"""Bytes written at a time."""
POOL = 2048
"""Different requests that the traffic is drawn from."""
REPEATED = 9
"""Lines of a flood for each line of the traffic."""
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
FLOODS = {
    "undelivered": b"[%b] Received output for rid='%b' but the state was deleted in TokenizerManager.\n",
    "probe": b'[%b] INFO:     127.0.0.1:40404 - "GET /health HTTP/1.1" 200 OK\n',
}


@functools.lru_cache(maxsize=1024)
def _clock(second: int) -> bytes:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second)).encode()


class Traffic:
    """Requests that come, wait, run and end, many at a time, and the lines a server writes of them."""

    def __init__(self, out: BinaryIO, logger: Logger, seed: int, flood: str | None = None) -> None:
        self.rng = random.Random(seed)
        self.requests = pool(logger, self.rng, POOL)
        self.out = out
        self.flood = flood
        self.now = float(BEGIN)
        self.size = 0
        self.lines = 0
        self.causes: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.samples: dict[str, str] = {}
        self.running = self.waiting = self.new_requests = self.new_tokens = 0
        self.repeated = b""
        self.block: list[bytes] = []
        self.pending = 0
        self.later: list[tuple[float, int, Callable[..., None], Any]] = []
        self.steps = 0

    def write(self, start: bytes, size: int) -> None:
        """Write the start-up lines and then traffic, until that many bytes are there and all requests have ended."""
        self._line(start)
        self.lines += start.count(b"\n") - 1
        self._later(1.0, self._decode, None)
        while self.size + self.pending < size:
            self.now += self.rng.expovariate(RATE)
            self._catch_up(self.now)
            self._arrive(self.rng.choice(self.requests))
        while self.running or self.waiting:
            self.now += 1.0
            self._catch_up(self.now)
        self._flush()

    def truth(self) -> dict[str, Any]:
        """Return what is true of what was written."""
        requests = self.causes.total()
        finished = self.causes["finished"]
        return {
            "bytes": self.size,
            "lines": self.lines,
            "requests": requests,
            "finished": finished,
            "interrupted": requests - finished,
            "by_cause": {cause: count for cause, count in sorted(self.causes.items()) if cause != "finished"},
            "aborts_by_message": dict(sorted(self.messages.items())),
            "samples": dict(sorted(self.samples.items())),
        }

    def _arrive(self, request: Template) -> None:
        rid = b"%032x" % self.rng.getrandbits(128)
        port = self.rng.randrange(32768, 61000)
        values: dict[bytes, Any] = {b"rid": rid, b"port": port, b"arrived": self.now}
        self._fill(request.received, self.now, values)
        self.waiting += 1
        self.causes[request.cause] += 1
        if request.cause not in self.samples:
            self.samples[request.cause] = rid.decode()
        if request.message:
            self.messages[request.message] += 1
        if self.flood and (request.cause == "client-disconnect" or not self.repeated):
            self.repeated = rid
        if request.admitted:
            wait = 0.01 + min(3.0, self.rng.expovariate(4.0))
            self._later(self.now + wait - BEGIN, self._admit, (request, values))
        else:
            self._later(self.now + request.seconds + self.rng.random() * 0.05 - BEGIN, self._end, (request, values))

    def _admit(self, at: float, what: tuple[Template, dict[bytes, Any]]) -> None:
        request, values = what
        self.waiting -= 1
        self.running += 1
        self.new_requests += 1
        self.new_tokens += request.prompt_tokens
        if self.new_requests > self.rng.randrange(3):
            self._line(
                b"[%b] Prefill batch, #new-seq: %d, #new-token: %d, #cached-token: 0, token usage: %.2f,"
                b" #running-req: %d, #queue-req: %d, #pending-token: 0, cpu graph: False,"
                b" input throughput (token/s): %.2f\n"
                % (
                    *(_clock(int(at)), self.new_requests, self.new_tokens, self.running / 1024),
                    *(self.running - self.new_requests, self.waiting, self.new_tokens / 0.05),
                )
            )
            self.new_requests = self.new_tokens = 0
        if request.stream:
            self._access(at, request, values)
        self._later(at + request.seconds + self.rng.random() * 0.02 - BEGIN, self._end, what)

    def _end(self, at: float, what: tuple[Template, dict[bytes, Any]]) -> None:
        request, values = what
        if request.admitted:
            self.running -= 1
        else:
            self.waiting -= 1
        for line in request.before:
            self._fill(line, at, values)
        if request.finished:
            values[b"latency"] = repr(at - values[b"arrived"]).encode()
            values[b"sent"] = repr(at).encode()
            self._fill(request.finished, at, values)
        for line in request.after:
            self._fill(line, at, values)
        if request.status and not (request.stream and request.admitted):
            self._access(at, request, values)

    def _decode(self, at: float, _: None) -> None:
        self._line(
            b"[%b] Decode batch, #running-req: %d, #token: %d, token usage: %.2f, cpu graph: False,"
            b" gen throughput (token/s): %.2f, #queue-req: %d\n"
            % (
                _clock(int(at)),
                self.running,
                self.running * 90,
                self.running / 1024,
                self.running / 0.025,
                self.waiting,
            )
        )
        self._later(at + 0.5 - BEGIN, self._decode, None)

    def _access(self, at: float, request: Template, values: dict[bytes, Any]) -> None:
        self._line(
            b'[%b] INFO:     127.0.0.1:%d - "POST /generate HTTP/1.1" %b\n'
            % (_clock(int(at)), values[b"port"], request.status)
        )

    def _fill(self, line: bytes, at: float, values: dict[bytes, Any]) -> None:
        second = int(at)
        clock = values[b"clock"] = _clock(second)
        values[b"iso"] = b"%bT%b.%06d" % (clock[:10], clock[11:], int((at - second) * 1e6))
        self._line(line % values)

    def _line(self, line: bytes) -> None:
        self.block.append(line)
        self.pending += len(line)
        self.lines += 1
        if self.repeated and self.flood:
            flood = FLOODS[self.flood]
            again = (flood % ((_clock(int(self.now)), self.repeated)[: flood.count(b"%b")])) * REPEATED
            self.block.append(again)
            self.pending += len(again)
            self.lines += REPEATED
        if self.pending > BLOCK:
            self._flush()

    def _flush(self) -> None:
        self.size += self.pending
        self.out.write(b"".join(self.block))
        self.block.clear()
        self.pending = 0

    def _later(self, after: float, what: Callable[..., None], about: Any) -> None:
        self.steps += 1
        heapq.heappush(self.later, (BEGIN + after, self.steps, what, about))

    def _catch_up(self, until: float) -> None:
        while self.later[0][0] <= until:
            at, _, what, about = heapq.heappop(self.later)
            what(at, about)


def generate(
    path: Path, size: int, *, level: int = 2, format: str = "text", seed: int = 1, flood: str | None = None
) -> dict[str, Any]:
    """Write the log and its truth, and return the truth."""
    logger = Logger(format, level)
    with path.open("wb") as out:
        traffic = Traffic(out, logger, seed, flood)
        traffic.write(start_up(logger), size)
    arguments = {"size": size, "level": level, "format": format, "seed": seed, "flood": flood}
    truth = {"arguments": arguments, **traffic.truth()}
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
