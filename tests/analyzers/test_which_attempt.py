"""Which of two attempts of a rid a line is about, and which of two refusals came first."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, Case, answered, changed, decode, prefill, said, told
from lines import Story, used

GONE = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='x'"
FULL = "{'type': 'abort', 'message': 'The request queue is full.', 'status_code': 503}"
FIRST = used("x", 0, 0)[:1] + prefill(0, 0)
SECOND = (
    decode([4], 1) + used("x", 10, 12, LENGTH)[:1] + prefill(10, 1) + used("x", 10, 12, LENGTH)[1:]
    + answered(12, "/generate")
)  # fmt: skip
LATE = said(70, GONE) + answered(70, "/generate", "400 Bad Request")


@pytest.mark.parametrize("release", ["0.4.9", "0.5.3", "0.5.9"])
def test_who_hangs_after_another_took_its_rid_is_the_one_that_gives_up(release: str, tmp_path: Path) -> None:
    verdict = told(Case(FIRST + SECOND + LATE, "x", version=release), tmp_path)
    assert verdict.status == "interrupted"
    assert [each.cause == "finished" for each in verdict.attempts] == [False, True]


@pytest.mark.parametrize("release", ["0.4.9", "0.5.3", "0.5.9"])
def test_a_client_that_leaves_long_after_the_answer_did_get_it(release: str, tmp_path: Path) -> None:
    verdict = told(Case(prefill(0, 0) + SECOND + LATE, "x", version=release), tmp_path)
    assert (verdict.cause, verdict.confidence) != ("finished-undelivered", "proven")
    assert "finished" in {verdict.cause, *(each.cause for each in verdict.candidates)}


def test_an_answer_that_nobody_waited_for_is_not_said_to_be_one(tmp_path: Path) -> None:
    story = used("x", 10, 12, LENGTH) + said(14, GONE) + answered(14, "/generate", "400 Bad Request")
    verdict = told(Case(story, "x"), tmp_path)
    assert verdict.cause == "finished-undelivered"
    assert verdict.summary == "It ran to its end (length), but its client had gone."


def test_an_end_without_a_beginning_may_be_of_a_second_try(tmp_path: Path) -> None:
    story = said(4, GONE) + answered(4, "/generate", "400 Bad Request") + used("x", 5, 8, LENGTH)[1:]
    verdict = told(Case(story, "x"), tmp_path)
    assert (verdict.cause, verdict.confidence) != ("finished-undelivered", "proven")
    assert "finished" in {verdict.cause, *(each.cause for each in verdict.candidates)}


def of_no_session(story: Story) -> Story:
    return changed(story, "stream=False", "stream=False, session_params={'id': 'ghost'}")


def test_a_full_queue_does_not_hide_why_it_was_refused_before(tmp_path: Path) -> None:
    running, waiting, refused = used("r", 0, 25, LENGTH), used("w", 1, 26, LENGTH), of_no_session(used("x", 5, 5, FULL))
    story = (
        running[:1] + prefill(0, 0) + waiting[:1] + decode([2], 1, 1) + refused[:1]
        + said(5, "Invalid request: session id ghost does not exist, self.rid='x'") + refused[1:]
        + answered(5, "/generate", "503 Service Unavailable") + decode(range(6, 25, 4), 1, 1) + running[1:]
        + waiting[1:]
    )  # fmt: skip
    verdict = told(Case(story, "x"), tmp_path)
    assert (verdict.cause, verdict.confidence) != ("queue-full", "proven")
    named = {verdict.cause, *(each.cause for each in verdict.candidates), *(link.cause for link in verdict.chain)}
    assert "session-unknown" in named
