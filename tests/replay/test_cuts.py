"""What could have cut a request, by the rules of each era."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.replay import cuts
from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.cuts import Abort, Alive, Stage
from sglang_lifecycle.replay.ends import End, Seen, message_id
from sglang_lifecycle.replay.profiles import PROFILES, profile_for

WAITING, RUNNING, RETRACTED = (frozenset({stage}) for stage in (Stage.WAITING, Stage.RUNNING, Stage.RETRACTED))
V0_5_8, V0_5_18, V0_5_20 = map(profile_for, ("0.5.8", "0.5.18", "0.5.20"))
ECHO, SCHEDULER, PLAIN = "echo-with-reason", "scheduler", "echo-plain"


def test_a_wait_that_reached_the_limit() -> None:
    me = Alive("r", 3.1, stages=WAITING)
    assert cuts.timeouts(V0_5_18, me, [], 3.0, None) == {End("waiting-timeout", "waiting_timeout", ECHO)}
    assert cuts.timeouts(V0_5_18, me, [], 3.2, None) == set()
    assert cuts.timeouts(V0_5_18, me, [], None, None) == set()


def test_the_text_of_0_5_8_means_the_same() -> None:
    assert cuts.timeouts(V0_5_8, Alive("r", 3.1, stages=WAITING), [], 3.0, 1.0) == {
        End("waiting-timeout", "waiting_timeout", ECHO)
    }


def test_releases_without_timeouts_have_none() -> None:
    for profile in PROFILES:
        found = cuts.timeouts(profile, Alive("r", 9.0, 9.0, WAITING | RUNNING), [], 1.0, 1.0)
        assert {end.cause for end in found} == ({"waiting-timeout"} if profile.waiting_timeout_text else set()) | (
            {"running-timeout"} if profile.has_running_timeout else set()
        )


def test_a_waiting_timeout_hits_nothing_that_runs_and_a_running_one_nothing_that_waits() -> None:
    assert cuts.timeouts(V0_5_18, Alive("r", 9.0, 0.5, RUNNING), [], 3.0, 5.0) == set()
    assert cuts.timeouts(V0_5_18, Alive("r", 4.0, 4.0, WAITING), [], 5.0, 1.0) == set()


def test_a_retracted_request_waits_again() -> None:
    me = Alive("r", 9.0, 4.0, RETRACTED)
    assert cuts.timeouts(V0_5_18, me, [], 3.0, None) == {End("waiting-timeout", "waiting_timeout", ECHO)}


@pytest.mark.parametrize(("stage", "shape"), [(WAITING, ECHO), (RUNNING, SCHEDULER)])
def test_from_0_5_20_on_a_timeout_hits_by_prefix(stage: frozenset[Stage], shape: str) -> None:
    me, root = Alive("r-1", 1.0, 1.0, stage), Alive("r", 3.1, 0.0, WAITING)
    assert cuts.timeouts(V0_5_20, me, [root], 3.0, None) == {End("timeout-prefix-collision", "waiting_timeout", shape)}
    assert cuts.timeouts(V0_5_18, me, [root], 3.0, None) == set()


durations = st.floats(0.0, 100.0).map(lambda value: round(value, 3))


@given(durations, durations, st.floats(0.5, 50.0), st.floats(0.5, 50.0), st.floats(0.01, 100.0))
def test_only_proportions_matter(lived: float, ran: float, waiting: float, running: float, scale: float) -> None:
    ran = min(ran, lived)
    stages = WAITING | RUNNING
    one = cuts.timeouts(V0_5_20, Alive("r", lived, ran, stages), [], waiting, running)
    other = cuts.timeouts(V0_5_20, Alive("r", lived * scale, ran * scale, stages), [], waiting * scale, running * scale)
    assert one == other
    assert ("waiting-timeout" in {end.cause for end in one}) == (lived > waiting)
    assert ("running-timeout" in {end.cause for end in one}) == (ran > running)


ME = Alive("job-12", 1.0, 1.0, WAITING)


@pytest.mark.parametrize(
    ("release", "call", "expected"),
    [
        ("0.5.18", Abort("explicit-abort", "job-12"), {End("explicit-abort", "abort_in_waiting_queue", PLAIN)}),
        ("0.5.18", Abort("prefix", "job-1"), {End("prefix", "abort_in_waiting_queue", PLAIN)}),
        ("0.5.18", Abort("explicit-abort", "job-2"), set()),
        ("0.5.18", Abort("abort-all", None), {End("abort-all", "abort_in_waiting_queue", PLAIN)}),
        ("0.4.3", Abort("prefix", "job-1"), set()),
        ("0.4.6", Abort("explicit-abort", "job-12"), set()),  # nobody was told
    ],
)
def test_whom_an_abort_hits(release: str, call: Abort, expected: set[End]) -> None:
    assert cuts.aborts(profile_for(release), ME, [call], []) == expected


def test_an_abort_that_would_have_hit_a_survivor_was_another_one() -> None:
    survivor = Alive("job-13", 1.0)
    calls = [Abort("explicit-abort", "job-12"), Abort("prefix", "job-1"), Abort("abort-all", None)]
    found = cuts.aborts(V0_5_18, ME, calls, [survivor])
    assert {end.cause for end in found} == {"explicit-abort"}


@pytest.mark.parametrize(("others", "full"), [(1, False), (2, True), (9, True)])
def test_a_full_queue(others: int, full: bool) -> None:
    found = cuts.refusals(V0_5_18, Config(max_queued_requests=2), Alive("r", 0.0), others)
    assert found == ({End("queue-full", "queue_full", ECHO)} if full else set())


def test_priorities_where_they_are_off() -> None:
    config = Config(abort_on_priority_when_disabled=True)
    refused = {End("priority-disabled", "priority_disabled", ECHO)}
    assert cuts.refusals(V0_5_18, config, Alive("r", 0.0, priority=1), 0) == refused
    assert cuts.refusals(V0_5_18, config, Alive("r", 0.0), 0) == set()


@pytest.mark.parametrize(("mine", "newcomer", "evicted"), [(1, 2, True), (2, 2, False), (2, 1, False)])
def test_only_a_more_urgent_newcomer_pushes_out(mine: int, newcomer: int, evicted: bool) -> None:
    config = Config(max_queued_requests=5, enable_priority_scheduling=True)
    found = cuts.evictions(V0_5_18, config, Alive("r", 0.0, priority=mine), newcomer)
    assert found == ({End("priority-evicted", "priority_evicted", ECHO)} if evicted else set())


@pytest.mark.parametrize(("release", "ends"), [("0.5.4", False), ("0.5.10", True), ("0.5.23", True)])
def test_the_last_request_that_does_not_fit_into_memory(release: str, ends: bool) -> None:
    found = cuts.out_of_memory(profile_for(release), Alive("r", 0.0))
    assert found == ({End("kv-out-of-memory", "kv_oom_last", SCHEDULER)} if ends else set())


def test_a_record_without_a_shape_fits_any() -> None:
    end = End("running-timeout", "running_timeout", SCHEDULER)
    assert Seen("running_timeout").fits(end)
    assert Seen("running_timeout", SCHEDULER).fits(end)
    assert not Seen("running_timeout", ECHO).fits(end)
    assert not Seen("waiting_timeout").fits(end)


def test_texts_that_no_table_knows_have_no_id() -> None:
    assert message_id("Aborted") == "aborted"
    assert message_id("no such text") is None
