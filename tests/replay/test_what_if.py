"""Arrivals as discrete events, and the estimate of what was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.profiles import PROFILES, profile_for
from sglang_lifecycle.replay.requests import SessionParams
from sglang_lifecycle.replay.survival import median_total
from sglang_lifecycle.replay.what_if import FINISHED, Act, Deed, Job, simulate

V0_5_18, V0_5_20, V0_5_23 = map(profile_for, ("0.5.18", "0.5.20", "0.5.23"))
ONE_SLOT = Config(max_running=1)


def causes(jobs: Sequence[Job], config: Config, profile=V0_5_18, deeds: Sequence[Deed] = ()) -> list[str]:  # type: ignore[no-untyped-def]
    ends = simulate(profile, config, jobs, deeds)
    return [ends[job.key].cause if job.key in ends else "" for job in jobs]


CROWD = [Job(key, f"r{key}", key * 0.1, 3.0) for key in range(4)]


def test_one_slot_serves_one_after_the_other() -> None:
    ends = simulate(V0_5_18, ONE_SLOT, CROWD)
    assert [round(ends[key].at, 1) for key in range(4)] == [3.0, 6.0, 9.0, 12.0]


def test_a_waiting_timeout_ends_those_whose_turn_does_not_come() -> None:
    config = replace(ONE_SLOT, waiting_timeout=4.0)
    assert causes(CROWD, config) == [FINISHED, FINISHED, "waiting-timeout", "waiting-timeout"]
    assert causes(CROWD, replace(config, waiting_timeout=None)) == [FINISHED] * 4
    assert causes(CROWD, replace(config, max_running=2)) == [FINISHED] * 4


def test_a_running_timeout_ends_what_runs_too_long() -> None:
    jobs = [Job(0, "a", 0.0, 9.0), Job(1, "b", 0.0, 4.0)]
    assert causes(jobs, Config(running_timeout=5.0)) == ["running-timeout", FINISHED]


def test_a_full_queue_refuses() -> None:
    assert causes(CROWD, replace(ONE_SLOT, max_queued_requests=2)) == [FINISHED, FINISHED, FINISHED, "queue-full"]


def test_from_0_5_20_on_a_timeout_takes_others_along() -> None:
    # `b-1` has not waited long when the limit of `b` strikes.
    jobs = [Job(0, "a", 0.0, 4.5), Job(1, "b", 0.5, 1.0), Job(2, "b-1", 3.0, 1.0)]
    config = replace(ONE_SLOT, waiting_timeout=3.0)
    assert causes(jobs, config, V0_5_18) == [FINISHED, "waiting-timeout", FINISHED]
    assert causes(jobs, config, V0_5_20) == [FINISHED, "waiting-timeout", "timeout-prefix-collision"]


def test_deeds() -> None:
    jobs = [Job(0, "a", 0.0, 9.0), Job(1, "a-1", 0.1, 9.0), Job(2, "b", 0.2, 9.0), Job(3, "c", 5.0, 1.0)]
    deeds = [Deed(1.0, Act.ABORT, "a", "explicit-abort"), Deed(2.0, Act.ABORT_ALL, "", "pause-abort")]
    assert causes(jobs, ONE_SLOT, deeds=deeds) == ["explicit-abort", "abort-prefix-collision", "pause-abort", FINISHED]


def test_sessions() -> None:
    turns = [
        Job(0, "a", 1.0, 1.0, session=SessionParams("s")),
        Job(1, "b", 1.5, 1.0, session=SessionParams("s", "a")),
        Job(2, "c", 1.5, 1.0, session=SessionParams("s", "a"), after=0),
        Job(3, "d", 9.0, 1.0, session=SessionParams("s", "a")),
        Job(4, "e", 9.0, 1.0, session=SessionParams("t")),
    ]
    deeds = [Deed(0.0, Act.OPEN, "s"), Deed(8.0, Act.CLOSE, "s")]
    assert causes(turns, Config(), V0_5_23, deeds) == [
        FINISHED, "session-parent-unfinished", FINISHED, "session-unknown", "session-unknown",
    ]  # fmt: skip


def test_a_replace_cuts_what_it_names() -> None:
    turns = [
        Job(0, "a", 1.0, 9.0, session=SessionParams("s")),
        Job(1, "b", 2.0, 1.0, session=SessionParams("s", "a", replace=True)),
    ]
    assert causes(turns, Config(), V0_5_23, [Deed(0.0, Act.OPEN, "s")]) == ["session-replaced", FINISHED]


def test_a_crash_ends_everything() -> None:
    turns = [
        Job(0, "other", 0.0, 9.0),
        Job(1, "a", 1.0, 9.0, session=SessionParams("s")),
        Job(2, "b", 2.0, 1.0, session=SessionParams("s", replace=True)),
    ]
    assert causes(turns, Config(), V0_5_23, [Deed(0.0, Act.OPEN, "s")]) == ["scheduler-crash"] * 3


jobs = st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5), st.integers(0, 30)), max_size=15).map(
    lambda rows: [Job(key, f"r{rid}-{key}", at, service) for key, (at, service, rid) in enumerate(rows)]
)
configs = st.builds(
    Config,
    waiting_timeout=st.none() | st.floats(0.1, 5),
    running_timeout=st.none() | st.floats(0.1, 5),
    max_queued_requests=st.none() | st.integers(1, 5),
    max_running=st.none() | st.integers(1, 4),
)


@settings(max_examples=80)
@given(jobs, configs, st.sampled_from(PROFILES))
def test_every_job_ends_once_within_its_limits_and_the_same_each_time(jobs: list[Job], config: Config, profile) -> None:  # type: ignore[no-untyped-def]
    ends = simulate(profile, config, jobs)
    assert ends == simulate(profile, config, jobs)
    assert ends.keys() == {job.key for job in jobs}
    for job in jobs:
        end = ends[job.key]
        assert end.at >= job.at
        if end.cause == FINISHED:
            assert end.at >= job.at + job.service
        if end.cause == "waiting-timeout":
            assert config.waiting_timeout is not None
            assert end.at > job.at + config.waiting_timeout


@settings(max_examples=40)
@given(jobs, st.none() | st.integers(1, 4), st.sampled_from(PROFILES))
def test_without_limits_nobody_dies(jobs: list[Job], slots: int | None, profile) -> None:  # type: ignore[no-untyped-def]
    ends = simulate(profile, Config(max_running=slots), jobs)
    assert {end.cause for end in ends.values()} <= {FINISHED}


@pytest.mark.parametrize(
    ("observed", "reached", "median"),
    [
        ([(1, True), (2, True), (3, True), (4, True)], 0, 2),
        ([(1, True), (2, True), (3, True), (4, True)], 2, 3),
        ([(1, False), (2, False), (3, True), (4, True)], 0, 3),
        ([(1, True), (5, False), (6, False), (7, False)], 0, 7),
        ([(1, True)], 1, None),
        ([], 0, None),
    ],
)
def test_median_of_what_was_cut(observed: list[tuple[float, bool]], reached: float, median: float | None) -> None:
    assert median_total(observed, reached) == median
