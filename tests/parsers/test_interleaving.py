"""Several logs side by side: all of their facts once, in order of time, and no log's own out of turn."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.interleaving import interleaved

TIMES = st.none() | st.integers(1, 9).map(float)


def _facts(name: str, times: list[float | None]) -> list[Fact]:
    return [Fact(Event.UNKNOWN, name, line, 0, 1, at=at) for line, at in enumerate(times)]


@given(st.lists(st.lists(st.lists(TIMES, max_size=5), max_size=4), min_size=1, max_size=3))
def test_every_fact_comes_once_in_order_of_time(logs: list[list[list[float | None]]]) -> None:
    parts = [[_facts(str(number), times) for times in log] for number, log in enumerate(logs)]
    clocks = {
        id(fact): at
        for log in parts
        for own in [[fact for part in log for fact in part]]
        for fact, at in zip(own, accumulate((each.at or 0.0 for each in own), max), strict=True)
    }
    found = [fact for part in interleaved(parts) for fact in part]
    wanted = sorted((fact for log in parts for part in log for fact in part), key=lambda each: clocks[id(each)])
    assert list(map(id, found)) == list(map(id, wanted))
