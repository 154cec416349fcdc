"""Every release belongs to an era, and the recorded ones to the profile that was compared with them."""

from __future__ import annotations

import pytest

from sglang_lifecycle.parsers.versions import RELEASES, key
from sglang_lifecycle.replay.profiles import PROFILES, profile_for

RECORDED = "0.4.9 0.5.3 0.5.8 0.5.9 0.5.10 0.5.12 0.5.14 0.5.18 0.5.20 0.5.21 0.5.22 0.5.23".split()


@pytest.mark.parametrize("version", RECORDED)
def test_recorded_release_has_its_own_profile(version: str) -> None:
    assert version in profile_for(version).recorded
    assert sum(version in profile.recorded for profile in PROFILES) == 1


def test_nothing_else_counts_as_recorded() -> None:
    assert sorted(version for profile in PROFILES for version in profile.recorded) == sorted(RECORDED)


def test_eras_are_in_order_and_told_apart() -> None:
    eras = [key(profile.era) for profile in PROFILES]
    assert {profile.era for profile in PROFILES} <= set(RELEASES)
    assert eras == sorted(set(eras))


@pytest.mark.parametrize(
    ("version", "era"),
    [
        ("0.3.6", "0.3.6"),
        ("0.3.6.post3", "0.3.6"),
        ("0.4.1", "0.3.6"),
        ("0.4.6.post5", "0.4.4"),
        ("0.4.10", "0.4.9"),
        ("0.5.0rc2", "0.5.0rc2"),
        ("0.5.3.post3", "0.5.3"),
        ("0.5.6", "0.5.5"),
        ("0.5.11", "0.5.11"),
        ("0.5.13", "0.5.11"),
        ("0.5.17", "0.5.14"),
        ("0.5.19", "0.5.18"),
        ("v0.5.21", "0.5.20"),
        ("0.5.23", "0.5.23"),
        ("0.5.23.post1", "0.5.23"),
    ],
)
def test_every_release_maps_to_an_era(version: str, era: str) -> None:
    assert profile_for(version).era == era


@pytest.mark.parametrize("version", ["0.3.5", "0.5.24", "1.0.0", "latest", "", "0"])
def test_other_versions_are_refused_with_what_to_give(version: str) -> None:
    with pytest.raises(ValueError, match=r"give .*0\.5\.23"):
        profile_for(version)
