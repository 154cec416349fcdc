"""How the browser feels with very many requests: the first rows, keys while it fills and after, memory.

Run it as `python benchmarks/browser.py [REQUESTS]`; one in twenty of the made-up requests was interrupted. The times go
from a key to the end of the drawing that follows it. Nothing is asserted: machines differ.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
from collections.abc import Callable, Iterator
from time import perf_counter

import polars as pl
from textual.pilot import Pilot

from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.cli.browser import app as browser
from sglang_lifecycle.cli.browser.loading import LOAD, Progress, Ready, Step
from sglang_lifecycle.cli.browser.rows import SCHEMA
from sglang_lifecycle.cli.inputs import Request, request
from sglang_lifecycle.parsers.evidence import Evidence

CHUNK = 5_000
CAUSES = ("waiting-timeout", "client-disconnect", "explicit-abort", "abort-all", "kv-out-of-memory")


def chunk(start: int, number: int, chance: random.Random) -> pl.DataFrame:
    """Made-up requests, the interrupted ones spread evenly."""
    places = range(start, start + number)
    causes = [chance.choice(CAUSES) if not place % 20 else "finished" for place in places]
    rids = [f"chatcmpl-{chance.getrandbits(96):024x}" for _ in places]
    columns = {
        "rid": rids,
        "status": ["finished" if cause == "finished" else "interrupted" for cause in causes],
        "cause": causes,
        "stage": [chance.choice(("waiting", "running")) for _ in places],
        "actor": ["scheduler"] * number,
        "confidence": [chance.choice(("proven", "likely")) for _ in places],
        "at": [1.79e9 + place / 100 + chance.random() for place in places],
        "waited": [chance.random() * 30 for _ in places],
        "ran": [chance.random() * 300 for _ in places],
        "prompt": [chance.randrange(20_000) for _ in places],
        "completion": [chance.randrange(2_000) for _ in places],
        "session": [f"session-{place % 5000}" for place in places],
        "synthetic": [False] * number,
        "text": [f"{rid} {cause}" for rid, cause in zip(rids, causes, strict=True)],
    }
    return pl.DataFrame(columns, schema=SCHEMA)


def steps(number: int) -> Callable[[Request, Callable[[Progress], None]], Iterator[Step]]:
    """As if so many requests were being judged."""

    def made(question: Request, report: Callable[[Progress], None]) -> Iterator[Step]:
        chance = random.Random(1)
        yield Ready(Incident(Evidence()), pl.DataFrame(schema=LOAD))
        for start in range(0, number, CHUNK):
            yield chunk(start, min(CHUNK, number - start), chance)
            yield Progress("judging", start + CHUNK, number)

    return made


async def measure(number: int) -> None:
    """Drive the browser and print what it took."""
    browser.steps = steps(number)  # type: ignore[attr-defined]
    app = browser.Browser(request(["."], None, None, None, None, None))
    began = perf_counter()
    async with app.run_test(size=(160, 48)) as pilot:
        while not len(app.requests.view):
            await pilot.pause()
        print(f"first rows on the screen after {perf_counter() - began:.2f} s")
        filling = [await pressed(pilot, key) for key in "jjjjkkGgjjjj"]
        said("a key while it fills", filling)
        while app.doing:
            await asyncio.sleep(0.05)
        print(f"all {len(app.rows):,} rows after {perf_counter() - began:.0f} s")
        said("moving", [await pressed(pilot, key) for key in ("j", "k", "G", "g", "pagedown", "pageup") * 10])
        for name, key in [("all", "a"), ("order", "o"), ("reverse", "O"), ("group", "b"), ("interrupted", "a")]:
            before, began = app.requests.view, perf_counter()
            answered = await pressed(pilot, key)
            while app.requests.view is before:
                await asyncio.sleep(0.001)
            print(f"{name}: answered after {answered * 1000:.0f} ms, shown after {perf_counter() - began:.2f} s")
    peak, rows = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, app.rows.frame.estimated_size("mb")
    print(f"memory: {peak:,.0f} MB, {rows:,.0f} MB of them for the rows")


async def pressed(pilot: Pilot[None], key: str) -> float:
    """Seconds from a key to the end of the drawing."""
    began = perf_counter()
    pilot.app.simulate_key(key)
    drawn = asyncio.Event()
    pilot.app.screen.call_after_refresh(drawn.set)
    await drawn.wait()
    return perf_counter() - began


def said(name: str, times: list[float]) -> None:
    """The middle and the worst of some times."""
    middle = sorted(times)[len(times) // 2]
    print(f"{name}: {middle * 1000:.0f} ms, at worst {max(times) * 1000:.0f} ms")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
