"""Boundaries of the session rules that a recording rarely lands on."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lifecycle.replay.engine import Engine
from sglang_lifecycle.replay.profiles import PROFILES, Profile, profile_for
from sglang_lifecycle.replay.requests import Arrival, SessionParams

REAPING = [profile for profile in PROFILES if profile.has_reaper]
TRACKING = [profile for profile in PROFILES if profile.tracks_inflight]


def turn(name: str, **params: Any) -> Arrival:
    return Arrival(name, 4, 2, session=SessionParams("s", **params))


@pytest.mark.parametrize("profile", REAPING, ids=lambda profile: profile.era)
def test_reaper_needs_more_than_a_second_and_more_than_the_timeout(profile: Profile) -> None:
    engine = Engine(profile)
    engine.open(100.0, "s", timeout=1.0)
    engine.reap(101.0)  # idle for exactly the timeout, a second after the last run
    assert "s" in engine.controller.sessions
    engine.open(101.5, "t", timeout=0.0)  # the reaper runs first and takes "s"
    assert list(engine.controller.sessions) == ["t"]
    engine.reap(102.5)
    assert "t" in engine.controller.sessions
    engine.reap(102.75)
    assert not engine.controller.sessions


@pytest.mark.parametrize("profile", TRACKING, ids=lambda profile: profile.era)
def test_close_waits_for_the_turn_under_way(profile: Profile) -> None:
    engine = Engine(profile)
    engine.open(100.0, "s", streaming=True)
    engine.arrive(100.1, turn("a"))
    engine.close(100.2, "s")
    refused = engine.arrive(100.3, turn("b")).built
    assert refused is not None
    assert refused.rejected is not None
    assert refused.rejected.message == "Invalid request: close was requested for session s"
    engine.admit(100.4, "a")
    engine.step(100.5)
    logs = engine.reap(102.0).logs
    assert logs[0][2] == "Deferred close ready for session s, releasing."
    assert not engine.controller.sessions


@pytest.mark.parametrize("profile", TRACKING, ids=lambda profile: profile.era)
def test_turn_dropped_from_the_queue_blocks_the_next_one_until_0_5_22(profile: Profile) -> None:
    engine = Engine(profile)
    engine.open(100.0, "s", streaming=True)
    engine.arrive(100.1, turn("a"))
    engine.abort(100.2, "a")
    built = engine.arrive(100.3, turn("b")).built
    assert built is not None
    assert (built.rejected is None) == (profile is profile_for("0.5.22") or profile is profile_for("0.5.23"))


def test_replace_aborts_the_branch_and_keeps_what_it_names() -> None:
    engine = Engine(profile_for("0.5.18"))
    engine.open(100.0, "s")
    for rid, parent in (("a", None), ("b", "a"), ("c", "b")):
        engine.arrive(engine.now + 0.1, turn(rid, rid=parent))
        engine.admit(engine.now + 0.1, rid)
        engine.step(engine.now + 0.1, eos=(rid,))
    built = engine.arrive(engine.now + 0.1, turn("d", rid="a", replace=True, offset=-1)).built
    assert built is not None
    assert built.input_length == (4 + 2 - 1) + 4
    assert list(engine.controller.sessions["s"].nodes) == ["a", "d"]


def test_crash_is_an_outcome() -> None:
    """It says what SGLang would die of, and raises nothing here."""
    engine = Engine(profile_for("0.5.18"))
    engine.open(100.0, "s")
    engine.arrive(100.1, turn("a"))
    crash = engine.arrive(100.2, turn("b", replace=True)).crash
    assert crash is not None
    assert (crash.kind, crash.text) == ("RuntimeError", "dictionary changed size during iteration")
