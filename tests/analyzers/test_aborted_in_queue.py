"""Up to 0.4.8 a request that is aborted while it waits hangs until its client gives up: the client is not the cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, Case, answered, decode, hold, prefill, said, stream, told
from lines import Story, used

RELEASES = ("0.4.7", "0.4.8", None)
LEFT = frozenset({"client-disconnect"})


def left(rid: str, second: int) -> Story:
    """A client that has gone, as the poll notices it."""
    text = f"[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='{rid}'"
    return said(second, text) + answered(second, "/generate", "400 Bad Request")


def behind(story: Story, queued: int, until: int) -> Story:
    """What happens while another request has the only slot; the queue is empty from a second on."""
    other = used("run", 0, 190, LENGTH)
    lines = decode(range(12, until, 8), 1, queued) + decode(range(until, 190, 8), 1)
    return other[:1] + prefill(0, 0) + story + lines + other[1:]


CALL = answered(30, "/abort_request")
BOTH = behind(
    used("w-1", 10, 10)[:1] + stream("ws-1", 10) + answered(10, "/generate") + CALL + CALL + left("w-1", 84), 2, 31
)
ALONE = behind(used("w-1", 10, 10)[:1] + CALL + left("w-1", 84), 1, 31)
PREFIX = behind(used("job-1", 10, 10)[:1] + used("job-10", 10, 10)[:1] + left("job-1", 28) + left("job-10", 84), 2, 30)
CASES = {
    "two that an operator aborts": (BOTH, "w-1", LEFT, "explicit-abort"),
    "one that an operator aborts": (ALONE, "w-1", LEFT, "explicit-abort"),
    "a stream that an operator aborts": (BOTH, "ws-1", frozenset[str](), "explicit-abort"),
    "one that is aborted with another whose rid begins alike": (PREFIX, "job-10", LEFT, "abort-prefix-collision"),
}  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", CASES)
def test_who_gives_up_a_hanging_request_did_not_end_it(name: str, release: str | None, tmp_path: Path) -> None:
    story, rid, unproven, says = CASES[name]
    hold(Case(story, rid, unproven=unproven, says=says, version=release), tmp_path)


@pytest.mark.parametrize("release", RELEASES)
def test_an_abort_call_is_not_ruled_out(release: str | None, tmp_path: Path) -> None:
    verdict = told(Case(ALONE, "w-1", version=release), tmp_path)
    assert "explicit-abort" not in {each.cause for each in verdict.ruled_out}


def test_an_earlier_release_aborts_by_the_whole_rid(tmp_path: Path) -> None:
    verdict = told(Case(PREFIX, "job-10", version="0.4.3"), tmp_path)
    assert (verdict.cause, verdict.candidates) == ("client-disconnect", [])


@pytest.mark.parametrize("release", ["0.4.4", "0.4.6", *RELEASES])
def test_whoever_is_aborted_by_the_beginning_of_its_rid_hangs(release: str | None, tmp_path: Path) -> None:
    hold(Case(PREFIX, "job-10", unproven=LEFT, says="abort-prefix-collision", version=release), tmp_path)


def test_a_later_release_answers_whoever_is_aborted_while_it_waits(tmp_path: Path) -> None:
    hold(Case(ALONE, "w-1", never={"explicit-abort"}, says="client-disconnect", version="0.4.9"), tmp_path)
