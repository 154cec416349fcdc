"""How the browser feels with very many requests: the first rows, keys while it fills and after, memory.

Run it as `python benchmarks/browser.py [REQUESTS]`; one in twenty of the made-up requests was interrupted. Or run it on
logs that are there: `python benchmarks/browser.py PATH [SECONDS]`. The times go from a key to the end of the drawing
that follows it. Nothing is asserted: machines differ.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
from math import inf
from time import perf_counter

import polars as pl
from textual.pilot import Pilot

from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.cli.browser import app as browser
from sglang_lifecycle.cli.browser.loading import LOAD, Loading, Progress, Ready
from sglang_lifecycle.cli.browser.rows import SCHEMA
from sglang_lifecycle.cli.inputs import request
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
        "provisional": [False] * number,
        "text": [f"{rid} {cause}" for rid, cause in zip(rids, causes, strict=True)],
    }
    return pl.DataFrame(columns, schema=SCHEMA)


def made_up(number: int) -> type[Loading]:
    """As if so many requests were being judged."""

    class MadeUp(Loading):
        def read(self) -> None:
            chance = random.Random(1)
            self._take(Ready(Incident(Evidence()), pl.DataFrame(schema=LOAD)))
            for start in range(0, number, CHUNK):
                self._take(chunk(start, min(CHUNK, number - start), chance))
                self._take(Progress("judging", start + CHUNK, number))

    return MadeUp


def opened(*paths: str) -> browser.Browser:
    """The browser on some paths."""
    return browser.Browser(request(paths, None, None, None, None, None))


async def filled(number: int) -> None:
    """The list with so many made-up requests."""
    browser.Loading = made_up(number)  # type: ignore[misc, attr-defined]
    app = opened(".")
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
    print(f"memory: {memory():,.0f} MB, {app.rows.frame.estimated_size('mb'):,.0f} MB of them for the rows")


async def read(path: str, seconds: float) -> None:
    """A log that is there: the first rows, and keys while it is read and judged, for so long at most."""
    app = opened(path)
    began = perf_counter()
    first: float | None = None
    last: tuple[str, int] = ("", 0)
    async with app.run_test(size=(160, 48)) as pilot:
        keys: dict[str, list[float]] = {}
        while (elapsed := perf_counter() - began) < seconds and app.is_running and (app.doing or not len(app.rows)):
            keys.setdefault(app.doing.split()[0], []).append(await pressed(pilot, "jk"[int(elapsed * 10) % 2]))
            if first is None and len(app.requests.view):
                first = perf_counter() - began
                print(f"first rows on the screen after {first:.2f} s")
            if app.doing.split()[:1] != last[0].split()[:1] and last[0]:
                print(f"{last[0]}: {last[1]:,} rows after {elapsed:.1f} s, {memory():,.0f} MB")
            last = app.doing, len(app.rows)
            await asyncio.sleep(0.1)
        print(f"{app.doing or 'read'}: {len(app.rows):,} rows after {perf_counter() - began:.1f} s, {memory():,.0f} MB")
        for doing, times in keys.items():
            said(f"a key while {doing}", times)
    if app.problem is not None:
        raise app.problem


def memory() -> float:
    """The most that was needed so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


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
    often = sorted(times)[len(times) * 95 // 100]
    print(f"{name}: {middle * 1000:.0f} ms, 95 % within {often * 1000:.0f} ms, at worst {max(times) * 1000:.0f} ms")


if __name__ == "__main__":
    what, *limit = sys.argv[1:] or ["1000000"]
    asyncio.run(filled(int(what)) if what.isdigit() else read(what, float(limit[0]) if limit else inf))
