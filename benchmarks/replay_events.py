"""How long the reference scheduler takes for a trace, and how much memory.

`python benchmarks/replay_events.py [EVENTS] [--release V]` makes up a busy server (arrivals, session turns, admissions,
ends, aborts, retractions, polls, closes), replays it as it is made up, and prints time and peak memory. The trace is
never held: memory grows with what is alive.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
import tracemalloc
from collections.abc import Iterator

from sglang_lifecycle.parsers.versions import RELEASES
from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.engine import Engine, Outcome
from sglang_lifecycle.replay.profiles import profile_for
from sglang_lifecycle.replay.requests import Arrival, SessionParams

RUNNING = 64
TURNS = 8
"""Turns after which a session is closed and another opened."""


def replay(events: int, release: str, seed: int = 7) -> Iterator[Outcome]:
    """Yield the outcome of every event."""
    rng = random.Random(seed)
    config = Config(waiting_timeout=30.0, running_timeout=120.0, max_queued_requests=512, max_running=RUNNING)
    engine = Engine(profile_for(release), config)
    session, turns, last = "", TURNS, None
    now = 0.0
    for number in range(events):
        now += 0.01
        choice = rng.random()
        if turns >= TURNS:
            if session:
                yield engine.close(now, session)
            session, turns, last = f"session-{number}", 0, None
            yield engine.open(now, session)
        elif choice < 0.20:
            yield engine.arrive(now, Arrival(f"r{number:09}", 64, rng.randint(4, 64)))
        elif choice < 0.22:
            rid = f"t{number:09}"
            yield engine.arrive(now, Arrival(rid, 16, 4, session=SessionParams(session, last)))
            turns, last = turns + 1, rid if rng.random() < 0.5 else last
        elif choice < 0.24 and engine.queue.requests:
            yield engine.abort(now, rng.choice(engine.queue.requests).rid)
        elif choice < 0.245:
            yield engine.retract(now)
        elif choice < 0.25:
            yield engine.poll(now)
        else:
            running = engine.batches.running.requests
            ended = [request.rid for request in running if rng.random() < 0.01]
            yield engine.step(now, eos=ended) if ended else engine.iterate(now)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--release", default=RELEASES[-1])
    arguments = parser.parse_args()
    begin = time.perf_counter()
    ends = sum(len(outcome.messages) for outcome in replay(arguments.events, arguments.release))
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{arguments.events:,} events, {ends:,} messages: {seconds:.1f} s, peak memory {peak:.0f} MB")
    for part in (arguments.events // 100, arguments.events // 10):
        tracemalloc.start()
        for _ in replay(part, arguments.release):
            pass
        print(f"{part:,} events: {tracemalloc.get_traced_memory()[1] / 1e6:.2f} MB of objects at the most")
        tracemalloc.stop()


if __name__ == "__main__":
    main()
