"""What SGLang does in some releases only: the rows of the table, and how a release is asked for one."""

from __future__ import annotations

import re

import pytest

from sglang_lifecycle.analyzers import behaviours
from sglang_lifecycle.analyzers.behaviours import Behaviour
from sglang_lifecycle.analyzers.fingerprint import Release, told
from sglang_lifecycle.parsers.versions import RELEASES
from sglang_lifecycle.replay.profiles import profile_for

ROWS = {name: row for name, row in vars(behaviours).items() if isinstance(row, Behaviour)}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_spans_known_releases_in_order_and_names_its_source(row: Behaviour) -> None:
    assert RELEASES.index(row.since) <= RELEASES.index(row.until)
    assert (row.since, row.until) != (RELEASES[0], RELEASES[-1]), "what all releases do needs no row"
    assert re.fullmatch(r"[a-z_]+/[a-z_/]+\.py(:[A-Za-z_.]+)?", row.where)


SOME = Behaviour("managers/scheduler.py", since="0.4.9", until="0.5.9")


@pytest.mark.parametrize(
    ("possible", "has", "may_have"),
    [
        (("0.4.9",), True, True),
        (("0.4.9", "0.5.3", "0.5.9"), True, True),
        (("0.5.9", "0.5.10"), False, True),
        (("0.4.8", "0.5.10"), False, False),
        (("0.5.10",), False, False),
        (RELEASES, False, True),
        ((), False, True),
    ],
    ids=str,
)
def test_a_release_has_what_all_do_that_it_may_be(possible: tuple[str, ...], has: bool, may_have: bool) -> None:
    release = Release(possible)
    assert (release.has(SOME), release.may_have(SOME)) == (has, may_have)


def test_a_post_release_does_what_its_release_did() -> None:
    assert told("0.5.9.post1").has(SOME)
    assert not told("0.5.10").may_have(SOME)


@pytest.mark.parametrize("version", RELEASES)
def test_what_the_replay_knows_as_well_it_says_alike(version: str) -> None:
    release, profile = told(version), profile_for(version)
    assert release.has(behaviours.ABORT_BY_PREFIX) is profile.aborts_by_prefix
    assert release.has(behaviours.TIMEOUT_BY_RID) is profile.timeouts_are_aborts
    assert release.has(behaviours.STREAMING_SESSIONS) is profile.has_reaper
    assert release.has(behaviours.OPEN_TOLD) is profile.logs_session_life
    assert release.has(behaviours.MARK_STAYS) is (profile.tracks_inflight and not profile.drops_clear_inflight)
    assert release.has(behaviours.UNFINISHED_PARENT_TOLD) is ("hasn't finished" in profile.unfinished_parent_error)
