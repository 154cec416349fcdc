"""Whose abort it was: a call, a pause, an abort of all, or a client that left whose rid is a prefix."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, Case, answered, changed, decode, hold, prefill, refused, said, started, stream, told, turn
from lines import ABORTED, Story, used

NOTICED = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='{}'"
GONE = NOTICED.format("job-1")
CALL = "/abort_request"


def came(*rids: str, second: int = 0) -> Story:
    return [line for number, rid in enumerate(rids) for line in used(rid, second, second)[:1] + prefill(second, number)]


def ended(second: int, *rids: str, reason: str = ABORTED, since: int = 0) -> Story:
    finishes = [line for rid in rids for line in used(rid, since, second, reason)[1:]]
    return finishes + [line for _ in rids for line in answered(second, "/generate")]


def later(second: int) -> Story:
    """Another request, once all is over."""
    return (
        used("later", second, second)[:1] + prefill(second, 0) + ended(second + 2, "later", reason=LENGTH, since=second)
    )


PREFIX_LEFT = (
    came("job-1", "job-12", "other", second=10) + decode([12, 14], 3) + used("q-1", 15, 15)[:1] + prefill(15, 3)
    + ended(16, "q-1", reason=LENGTH, since=15) + decode(range(18, 27, 2), 3) + answered(26, CALL) + decode([28], 3)
    + said(30, GONE) + answered(30, "/generate", "400 Bad Request") + ended(30, "job-12", since=10)
    + decode(range(32, 60, 4), 1) + ended(60, "other", reason=LENGTH, since=10)
)  # fmt: skip
JOBS = ("job-1", "job-2", "job-3", "job-4", "job-10", "job-11")
ALL = came(*JOBS) + decode([3], 6) + answered(5, CALL) + ended(5, *JOBS) + later(10)
RESUMED = answered(50, "/continue_generation") + later(51)
PAUSED_AT_ONCE = (
    came("x-a", "x-b", "x-c") + decode([3], 3) + answered(5, CALL) + ended(5, "x-a") + ended(6, "x-b", "x-c")
    + answered(7, "/pause_generation") + RESUMED
)  # fmt: skip
PAUSED_LATER = (
    came("x", "y") + decode([5], 2) + answered(10, CALL) + ended(10, "x") + decode([12], 1) + ended(15, "y")
    + answered(16, "/pause_generation") + RESUMED
)  # fmt: skip
CAME_AFTER = (
    came("r") + decode([5], 1) + answered(10, CALL) + used("new", 10, 10)[:1] + ended(10, "r") + prefill(10, 0)
    + ended(13, "new", reason=LENGTH, since=10)
)  # fmt: skip
VICTIM, OTHER = used("job-12", 10, 30, ABORTED), used("q", 10, 40)
SILENT_ROOT = (
    started() + VICTIM[:1] + OTHER[:1] + prefill(10, 0, new=2) + decode([12, 20], 2) + used("job-1", 27, 27)[:1]
    + decode([28], 2, 1) + answered(29, CALL) + VICTIM[1:] + answered(30, "/generate") + decode([32], 1)
    + OTHER[1:] + answered(40, "/generate")
)  # fmt: skip
HIT, LATER = used("traj-10", 10, 20, ABORTED), used("z", 70, 73)
PAUSED_LONG_AFTER = (  # the client of `traj-1` left at 20 s, which writes no line (0.5.20 on)
    started() + stream("traj-1", 10) + answered(10, "/generate") + HIT[:1] + prefill(10, 0, new=2)
    + decode([12, 16, 19], 2) + HIT[1:] + answered(20, "/generate") + answered(45, "/pause_generation")
    + answered(60, "/continue_generation") + LATER[:1] + prefill(70, 0) + decode([71], 1) + LATER[1:]
    + answered(73, "/generate")
)  # fmt: skip
STRAGGLER, QUICK, SLOW = used("a", 10, 34, ABORTED), used("q-0", 10, 18), used("q-1", 11, 24)
UPDATED = (
    started() + STRAGGLER[:1] + QUICK[:1] + SLOW[:1] + prefill(10, 0, new=3) + decode([12], 3)
    + said(14, "Start update_weights. Load format=auto") + QUICK[1:] + answered(18, "/generate") + SLOW[1:]
    + answered(24, "/generate") + decode([26, 28], 1) + answered(33, CALL) + STRAGGLER[1:]
    + answered(34, "/generate") + answered(42, "/update_weights_from_disk")
)  # fmt: skip
QUEUED = "{'type': 'abort', 'message': 'Abort in waiting queue'}"
ONE_OF_TWO_CALLS = (
    came("job-1", "job-12", "z") + decode([3], 1, 2) + answered(5, CALL) + ended(5, "job-1", "job-12", reason=QUEUED)
    + answered(5, CALL) + ended(5, "z", reason=QUEUED) + later(10)
)  # fmt: skip
STRUCK = came("run", "wait") + decode([3], 1, 1) + answered(5, CALL) + ended(5, "wait", reason=QUEUED)
AT_ITS_NEXT_RESULT = STRUCK + ended(8, "run") + later(20)
THEN_ANOTHER_CALL = (
    STRUCK + used("new", 6, 6)[:1] + ended(8, "run") + answered(8, CALL) + prefill(9, 0)
    + ended(12, "new", reason=LENGTH, since=6)
)  # fmt: skip
LAST_TOKEN = (
    came("job-1", "job-12") + decode([3], 1, 1) + answered(5, CALL) + ended(5, "job-12", reason=QUEUED)
    + ended(5, "job-1", reason=LENGTH) + later(10)
)  # fmt: skip
PAIR = came("job-1", "job-12") + decode([3], 2) + answered(5, CALL) + ended(5, "job-1", "job-12") + later(10)
PAUSED_AND_UPDATED = (
    came("x", "y") + decode([3], 2) + ended(5, "x", "y") + answered(5, "/pause_generation")
    + answered(5, "/continue_generation") + said(5, "Start update_weights. Load format=auto")
    + answered(7, "/update_weights_from_disk") + later(10)
)  # fmt: skip
SENT_AGAIN = (  # its client gave up and sent it again; then all were aborted
    came("again") + decode([3], 1) + said(9, NOTICED.format("again")) + answered(9, "/generate", "400 Bad Request")
    + used("again", 9, 9)[:1] + used("x", 9, 9)[:1] + answered(10, CALL) + ended(10, "again", "x", since=9)
    + later(20)
)  # fmt: skip
BRANCH = (  # `t-1` is replaced, and with it goes `t-12`, whom an abort of `t-1` would have hit as well
    turn("t-0", 0, 1) + changed(turn("t-1", 2, 5, QUEUED, "{'id': 'S', 'rid': 't-0'}"), "'y'", "''")
    + turn("t-12", 2, 6, ABORTED, "{'id': 'S', 'rid': 't-1'}")
    + turn("new", 4, 9, of="{'id': 'S', 'rid': 't-1', 'replace': True}") + answered(9, "/generate")
)  # fmt: skip
SILENT_BEFORE_AN_UPDATE = (  # the stream's client left, of which no line tells
    stream("job-1", 0) + answered(0, "/generate") + prefill(0, 0) + used("job-12", 1, 5)[:1] + decode([3], 1, 1)
    + ended(5, "job-12", reason=QUEUED, since=1) + said(6, "Start update_weights. Load format=auto")
    + answered(8, "/update_weights_from_disk") + later(10)
)  # fmt: skip
AFTER_ANOTHER_STROKE = (  # `job-1` waited and ended at once, `job-12` ran
    came("job-12", "job-1", "x") + decode([3], 1, 2) + answered(5, CALL) + ended(5, "job-1", reason=QUEUED)
    + answered(5, CALL) + ended(5, "x", reason=QUEUED) + ended(6, "job-12") + later(10)
)  # fmt: skip
BYSTANDER = (  # of the two that fell at once the session had cut one; the call was for the other
    turn("p", 0, 1) + turn("c", 2, 6, ABORTED, "{'id': 'S', 'rid': 'p'}")[:1] + came("x", second=2) + decode([3], 2)
    + turn("new", 5, 9, of="{'id': 'S', 'rid': 'p', 'replace': True}")[:1] + answered(6, CALL)
    + turn("c", 2, 6, ABORTED, "{'id': 'S', 'rid': 'p'}")[1:] + ended(6, "x", since=2) + prefill(7, 0)
    + turn("new", 5, 9, of="{'id': 'S', 'rid': 'p', 'replace': True}")[1:] + answered(9, "/generate")
)  # fmt: skip

EARLY = refused("Aborted by AbortReq.")
ALONE_AND_EARLY = came("j") + answered(5, CALL) + ended(5, "j", reason=EARLY) + later(10)
IMITATED = (  # a client's regex is quoted in the refusal, and chosen to end like an abort
    came("job-1", "job-12", "x") + decode([3], 3) + answered(5, CALL)
    + ended(5, "job-1", reason=refused("Failed to compile regex grammar: Aborted by AbortReq.")) + ended(5, "job-12")
    + ended(9, "x", reason=LENGTH)
)  # fmt: skip
BEGUN_LATE = (  # the call ended `x`; the client of the stream `job-1`, which came before the log begins, left silently
    decode([3], 3) + answered(5, CALL) + ended(5, "x") + decode([6], 2) + ended(7, "job-12") + later(10)
)  # fmt: skip
UPDATED_BEFORE = (  # the access log is not written
    started() + said(9, "Start update_weights. Load format=auto") + used("r-1", 12, 12)[:1] + used("x", 12, 12)[:1]
    + prefill(12, 0, new=2) + used("r-1", 12, 15, ABORTED)[1:] + used("x", 12, 15, ABORTED)[1:]
)  # fmt: skip
UPDATED_UNSEEN = (
    started() + used("r-1", 10, 10)[:1] + used("r-12", 10, 10)[:1] + prefill(10, 0, new=2) + decode([12], 2)
    + said(15, "Start update_weights. Load format=auto") + used("r-1", 10, 15, ABORTED)[1:]
    + used("r-12", 10, 15, ABORTED)[1:]
)  # fmt: skip


def finely(story: Story, second: float) -> Story:
    """Ends whose records carry the time to the millisecond, as those of requests that are no streams do."""
    return changed(story, "'e2e_latency'", f"'response_sent_to_client_ts': {second}, 'e2e_latency'")


FIVE = 1795946405.0  # the second 5 of these stories, UTC epoch seconds
COARSE_AND_FINE = (  # the stream's end has whole seconds alone, and stands first
    came("job-12") + stream("job-1", 0) + used("job-120", 5, 5)[:1] + decode([3], 1, 1) + answered(5, CALL)
    + stream("job-1", 0, 5, QUEUED)[1:] + finely(ended(5, "job-12"), FIVE + 0.1) + answered(5, CALL)
    + finely(ended(5, "job-120", reason=QUEUED, since=5), FIVE + 0.2) + later(10)
)  # fmt: skip
CASES = {
    "one that fell with its prefix, before the call that ended the next": Case(
        ONE_OF_TWO_CALLS, "job-12", says="abort-prefix-collision"
    ),
    **{
        f"{rid} of two, of which the one that ran met an abort of all at its next result{name}": Case(
            story, rid, says="abort-all"
        )
        for name, story in {"": AT_ITS_NEXT_RESULT, ", before another call": THEN_ANOTHER_CALL}.items()
        for rid in ("wait", "run")
    },
    "one whose prefix met the abort with its last token": Case(LAST_TOKEN, "job-12", says="abort-prefix-collision"),
    "one that was there alone, before the queue, when all was aborted": Case(ALONE_AND_EARLY, "j", says="abort-all"),
    "one whose prefix may have come before the log begins": Case(BEGUN_LATE, "job-12", says="abort-prefix-collision"),
    "one beside a refusal that imitates an abort": Case(
        IMITATED, "job-12", {"abort-prefix-collision"}, says="explicit-abort"
    ),
    "one that came when a weight update had begun": Case(
        UPDATED_BEFORE, "r-1", {"weight-update-abort"}, says="pause-abort"
    ),
    **{
        f"one that ended as an update began, where no call is logged: {cause}": Case(UPDATED_UNSEEN, "r-12", says=cause)
        for cause in ("pause-abort", "abort-prefix-collision", "weight-update-abort")
    },
    "one that was there with its prefix alone when all was aborted": Case(PAIR, "job-12", says="abort-all"),
    "one that a pause ended just before an update began": Case(PAUSED_AND_UPDATED, "x", says="pause-abort"),
    "one that was sent again before all was aborted": Case(SENT_AGAIN, "again", says="abort-all", version="0.5.3"),
    "one whose branch was cleared as its prefix was aborted": Case(BRANCH, "t-12", says="abort-prefix-collision"),
    "one whose prefix's client left before an update began": Case(
        SILENT_BEFORE_AN_UPDATE, "job-12", says="abort-prefix-collision"
    ),
    "one that ran, and ended after its prefix and another": Case(
        AFTER_ANOTHER_STROKE, "job-12", says="abort-prefix-collision"
    ),
    "one that fell with a stream whose end is coarsely dated": Case(
        COARSE_AND_FINE, "job-12", says="abort-prefix-collision"
    ),
    "one whose prefix's client left, after a call that ended nobody": Case(
        PREFIX_LEFT, "job-12", says="abort-prefix-collision"
    ),
    **{
        f"{rid} of a stroke in which all ended after one call": Case(
            ALL, rid, {"abort-prefix-collision"}, says="abort-all"
        )
        for rid in ("job-10", "job-11")
    },
    "one that a pause ended a second after another's call": Case(PAUSED_AT_ONCE, "x-b", says="pause-abort"),
    "one that a pause ended five seconds after another's call": Case(PAUSED_LATER, "y", says="pause-abort"),
    "one that a call ended with all that were there, before another came": Case(CAME_AFTER, "r", says="abort-all"),
    **{  # in 0.5.23: SGLANG_LOG_REQUEST_EXCEEDED_MS hides its Finish
        f"one whose prefix a call may have named, which has no Finish, in {version}": Case(
            SILENT_ROOT, "job-12", says="abort-prefix-collision", version=version
        )
        for version in ("0.4.8", "0.5.23")
    },
    "one whose prefix's client left as it ended, long before a pause": Case(
        PAUSED_LONG_AFTER, "traj-10", {"pause-abort"}, says="abort-prefix-collision"
    ),
    "one that a call ended while an update waited for it, which others had outlived": Case(
        UPDATED, "a", {"weight-update-abort"}, says="explicit-abort"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_abort_is_not_another_s(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


def test_who_needs_no_call_takes_none_from_another(tmp_path: Path) -> None:
    assert told(Case(BYSTANDER, "x"), tmp_path).cause == "explicit-abort"


def test_a_call_that_follows_a_stroke_is_about_the_next(tmp_path: Path) -> None:
    verdict = told(Case(ONE_OF_TWO_CALLS, "job-12"), tmp_path)
    assert verdict.cause == "abort-prefix-collision"
    assert [(link.cause, link.rid) for link in verdict.chain[1:]] == [("explicit-abort", "job-1")]


def test_who_came_after_the_call_does_not_speak_against_an_abort_of_all(tmp_path: Path) -> None:
    verdict = told(Case(CAME_AFTER, "r"), tmp_path)
    assert "abort-all" not in {each.cause for each in verdict.ruled_out}


# Up to 0.4.8 a request that is aborted while it waits hangs until its client gives up: the client is not the cause.
RELEASES = ("0.4.7", "0.4.8", None)
LEFT = frozenset({"client-disconnect"})


NOTICED_0_4_6 = "Error: Request is disconnected from the client side. Abort request {}"
NOTICED_0_4_3 = "Error: Abort request {}"


def left(rid: str, second: int, words: str = NOTICED) -> Story:
    """A client that has gone, as the poll notices it."""
    return said(second, words.format(rid)) + answered(second, "/generate", "400 Bad Request")


def behind(story: Story, queued: int, until: int) -> Story:
    """What happens while another request has the only slot; the queue is empty from a second on."""
    other = used("run", 0, 190, LENGTH)
    lines = decode(range(12, until, 8), 1, queued) + decode(range(until, 190, 8), 1)
    return other[:1] + prefill(0, 0) + story + lines + other[1:]


CALLED = answered(30, CALL)
BOTH = behind(
    used("w-1", 10, 10)[:1] + stream("ws-1", 10) + answered(10, "/generate") + CALLED + CALLED + left("w-1", 84), 2, 31
)
ALONE = behind(used("w-1", 10, 10)[:1] + CALLED + left("w-1", 84), 1, 31)


def alike(words: str = NOTICED) -> Story:
    came = used("job-1", 10, 10)[:1] + used("job-10", 10, 10)[:1]
    return behind(came + left("job-1", 28, words) + left("job-10", 84, words), 2, 30)


HANGS = came("run") + used("w-1", 10, 10)[:1] + CALLED + ended(40, "run", reason=LENGTH)
IN_QUEUE = {
    "one that an operator aborts and whose client still waits": (HANGS, "w-1", LEFT, "explicit-abort"),
    "two that an operator aborts": (BOTH, "w-1", LEFT, "explicit-abort"),
    "one that an operator aborts": (ALONE, "w-1", LEFT, "explicit-abort"),
    "a stream that an operator aborts": (BOTH, "ws-1", frozenset[str](), "explicit-abort"),
    "one that is aborted with another whose rid begins alike": (alike(), "job-10", LEFT, "abort-prefix-collision"),
}  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", IN_QUEUE)
def test_who_gives_up_a_hanging_request_did_not_end_it(name: str, release: str | None, tmp_path: Path) -> None:
    story, rid, unproven, says = IN_QUEUE[name]
    hold(Case(story, rid, unproven=unproven, says=says, version=release), tmp_path)


@pytest.mark.parametrize("release", RELEASES)
def test_an_abort_call_is_not_ruled_out(release: str | None, tmp_path: Path) -> None:
    verdict = told(Case(ALONE, "w-1", version=release), tmp_path)
    assert "explicit-abort" not in {each.cause for each in verdict.ruled_out}


def test_an_earlier_release_aborts_by_the_whole_rid(tmp_path: Path) -> None:
    verdict = told(Case(alike(NOTICED_0_4_3), "job-10", version="0.4.3"), tmp_path)
    assert (verdict.cause, verdict.candidates) == ("client-disconnect", [])


@pytest.mark.parametrize("release", ["0.4.4", "0.4.6"])
def test_whoever_is_aborted_by_the_beginning_of_its_rid_hangs(release: str, tmp_path: Path) -> None:
    story = alike(NOTICED_0_4_6)
    hold(Case(story, "job-10", unproven=LEFT, says="abort-prefix-collision", version=release), tmp_path)


def test_a_later_release_answers_whoever_is_aborted_while_it_waits(tmp_path: Path) -> None:
    hold(Case(ALONE, "w-1", never={"explicit-abort"}, says="client-disconnect", version="0.4.9"), tmp_path)
