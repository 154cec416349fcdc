"""Who left the engine: batch lines that count others, requests that wait elsewhere, a request log that is silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import LENGTH, WAITED, Case, answered, changed, decode, hold, prefill, refused, said, started, stream, told
from lines import RECEIVE, STOP, TIMEOUT, Story, clock, used

LEFT = frozenset({"client-disconnect"})
RAISED = "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error"
KILLED = said(20, "Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
QUIT = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
PREALLOC = "pre-allocated usage: 0.01, #prealloc-req: {prealloc}, #transfer-req: {transfer}, #retracted-req: 0, "
TWO_RANKS = (
    stream("a", 0) + prefill(0, 0, rank=" DP0 TP0") + stream("b", 2, 14) + prefill(2, 0, rank=" DP1 TP1")
    + decode(range(4, 14, 2), 1, rank=" DP0 TP0") + decode(range(4, 14, 2), 1, rank=" DP1 TP1")
    + decode(range(14, 20, 2), 1, rank=" DP0 TP0")
)  # fmt: skip
TWO_STAGES = changed(changed(TWO_RANKS, " DP0 TP0]", " PP0]"), " DP1 TP1]", " PP1]")
UNEVEN = (
    used("n-0", 0, 8)[:1] + prefill(0, 0, rank=" DP0") + stream("a", 1) + prefill(1, 0, rank=" DP1")
    + used("n-1", 1, 1)[:1] + prefill(1, 1, rank=" DP1") + used("n-2", 2, 9)[:1] + prefill(2, 1, rank=" DP0")
    + used("n-3", 2, 10)[:1] + prefill(2, 2, rank=" DP0")
    + [line for at in (4, 6) for line in decode([at], 3, rank=" DP0") + decode([at], 2, rank=" DP1")]
    + used("n-0", 0, 8)[1:] + used("n-2", 2, 9)[1:] + used("n-3", 2, 10)[1:] + decode([11], 2, rank=" DP1")
)  # fmt: skip
GRAMMAR = "sampling_params={'max_new_tokens': 8, 'json_schema': '{\"type\": \"object\"}'}"


def beside(story: Story, counted: Story | None = None) -> Story:
    """A story during which another request runs, and the batch lines count that one only."""
    other = stream("b", 0, 16)
    lines = decode(range(4, 16, 2), 1) if counted is None else counted
    return other[:1] + prefill(0, 0) + story + lines + other[1:]


def chunks(seconds: range, queued: int = 0) -> Story:
    return [line for second in seconds for line in prefill(second, 1, queued, tokens=4096)]


def chat(first: int, number: int, slow: int, lasts: int) -> Story:
    """Streams one after the other, of which every so many is slow: only those have a Finish."""
    story: Story = []
    for index in range(number):
        at, lasting = first + 10 * index, index % slow == slow - 1
        story += stream(f"s-{index:02}", at) + answered(at, "/v1/chat/completions") + prefill(at, 0)
        story += decode([at + 1], 1) + (stream(f"s-{index:02}", at, at + lasts)[1:] if lasting else [])
    return story


def switched(second: int, on: bool) -> Story:
    config = f"Config logging: obj=ConfigureLoggingReq(log_requests={on}, log_requests_level=None)"
    return said(second, config) + answered(second, "/configure_logging")


LONG = "Input length (9000 tokens) exceeds the maximum allowed length (100 tokens)."
REFUSED_BATCH = (  # it was answered with the refusal of one of its members
    started() + [(10, RECEIVE.format(at=clock(10), rid="?").replace("rid='?'", "rid=['b_0', 'b_1']"))]
    + prefill(10, 0, new=2) + said(10, f"{LONG}, self.rid='b_1'") + used("b_1", 10, 11, refused(LONG))[1:]
    + said(11, f"[http_server] Error: {LONG}") + answered(11, "/generate", "400 Bad Request") + decode([12, 16], 1)
    + [line for at in range(12, 20) for line in
       said(at, "Received output for rid='b_0' but the state was deleted in TokenizerManager.")]
)  # fmt: skip
CASES = {
    "a member of a batch that was given up for another": Case(
        REFUSED_BATCH, "b_0", LEFT, says="input-too-long", version="0.5.18"
    ),
    "two data-parallel ranks, each counting its own": Case(TWO_RANKS, "a", LEFT, says="in-flight"),
    "two stages of a pipeline, each counting its own": Case(TWO_STAGES, "a", LEFT, says="in-flight"),
    "two ranks, one of which dies": Case(
        TWO_RANKS + said(20, RAISED, " DP0 TP0") + said(20, QUIT), "a", LEFT, says="scheduler-crash"
    ),
    "a rank with two requests and one with three": Case(UNEVEN, "a", LEFT, says="in-flight"),
    "a rank with two requests that dies": Case(
        UNEVEN + said(12, RAISED, " DP1") + said(12, QUIT), "a", LEFT, says="scheduler-crash"
    ),
    "not a stream, on a rank that dies": Case(
        UNEVEN + said(12, RAISED, " DP1") + said(12, QUIT), "n-1", LEFT, says="scheduler-crash"
    ),
    "one that waits for its grammar": Case(
        beside(changed(stream("a", 2), "sampling_params={'max_new_tokens': 8}", GRAMMAR)), "a", LEFT, says="in-flight"
    ),
    "not a stream, that waits for its grammar": Case(
        beside(changed(used("a", 2, 2)[:1], "sampling_params={'max_new_tokens': 8}", GRAMMAR)), "a", says="in-flight"
    ),
    "one that waited for its grammar when its scheduler was killed": Case(
        beside(changed(stream("a", 2), "sampling_params={'max_new_tokens': 8}", GRAMMAR)) + KILLED + said(20, QUIT),
        "a", LEFT, says="process-killed",
    ),
    "one that decode has no room for yet": Case(
        beside(
            changed(stream("a", 2), "stream=True", "stream=True, bootstrap_room=12"),
            decode(range(4, 16, 2), 1, more=PREALLOC.format(prealloc=1, transfer=0)),
        ),
        "a", LEFT, says="in-flight",
    ),
    "one whose cache is on its way to decode": Case(
        beside(
            changed(stream("a", 2), "stream=True", "stream=True, bootstrap_room=12"),
            decode(range(4, 16, 2), 1, more=PREALLOC.format(prealloc=0, transfer=1)),
        ),
        "a", LEFT, says="in-flight",
    ),
    "one whose images are still fetched": Case(
        beside(stream("a", 2, more=", image_data=['http://example.com/big.png']")), "a", LEFT, says="in-flight"
    ),
    "one that waits until the weights are updated": Case(
        beside(said(2, "Start update_weights. Load format=auto") + stream("a", 3)), "a", LEFT, says="in-flight"
    ),
    "a long prompt in chunks, beside one that came just before a chunk": Case(
        beside(
            changed(stream("a", 2), "text='x', ", ""),
            chunks(range(2, 4)) + stream("c", 4) + chunks(range(4, 5)) + chunks(range(5, 7), 1),
        )
        + stream("c", 4, 17)[1:],
        "a", LEFT, says="in-flight",
    ),
    "a chat service whose quick requests have no Finish": Case(chat(0, 12, 6, 6), "s-03", LEFT, says="finished"),
    "a chat service whose quick requests have none, all of them native": Case(
        changed(chat(0, 40, 5, 3), "/v1/chat/completions", "/generate"), "s-03", LEFT, says="finished"
    ),
    "one that ended while the request log was off": Case(
        stream("a", 0) + prefill(0, 0) + decode([1], 1) + switched(2, False) + decode([4, 6], 1) + switched(30, True)
        + stream("b", 40, 50)[:1] + prefill(40, 0) + decode([42, 44], 1) + stream("b", 40, 50)[1:],
        "a", LEFT, says="finished",
    ),
    "one of several that ended while the request log was off": Case(
        [line for at in range(3) for line in stream(f"chat-{at}", at) + answered(at, "/generate") + prefill(at, at)]
        + decode([4], 3) + switched(5, False) + decode([8, 12, 16], 3) + switched(30, True)
        + used("later", 31, 35)[:1] + prefill(31, 0) + decode([33], 1) + used("later", 31, 35)[1:],
        "chat-0", LEFT, says="finished",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_who_is_still_there_did_not_leave(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


def cut(story: Story, mark: str, rest: str = "") -> Story:
    """A story whose last line ends at a mark; `rest`: what is written instead of the rest."""
    (at, text), head = story[-1], story[:-1]
    return [*head, (at, text[: text.index(mark)] + rest)]


def torn(story: Story, mark: str, between: str) -> Story:
    """A story into whose last line another process writes a whole one."""
    (at, text), head = story[-1], story[:-1]
    place = text.index(mark)
    return [*head, (at, f"{text[:place]}{between}\n{text[place:]}")]


DECODE = decode([30], 1)[0][1]
RAN_OUT = stream("a", 0, 30, TIMEOUT)
JSON = '{"timestamp": "2026-11-29T10:00:%02d.500000", "event": "request.%s", "rid": "a", "obj": {"text": "x"'
AS_JSON = said(0, JSON % (0, "received") + "}}") + said(30, JSON % (30, "finished") + ', "sampling_params": {"max')
WAITED_OUT = used("a", 0, 5, WAITED)
CUT = {
    "cut within the request": Case(cut(RAN_OUT, "am=True"), "a", status="finished", says="running-timeout"),
    "cut within the answer": Case(cut(RAN_OUT, "'meta_info'"), "a", status="finished", says="running-timeout"),
    "cut within the request, as JSON": Case(AS_JSON, "a", status="finished", says="running-timeout"),
    "torn within the request": Case(
        torn(RAN_OUT, "am=True", DECODE), "a", status="finished", says="running-timeout"
    ),
    "torn within the answer": Case(
        torn(RAN_OUT, "'meta_info'", DECODE), "a", status="finished", says="running-timeout"
    ),
    "cut where the log was copied, before the reason": Case(
        cut(WAITED_OUT, "'finish_reason'"), "a", status="finished", says="waiting-timeout"
    ),
    "cut by a collector, with the status after it": Case(
        cut(WAITED_OUT, "'y'") + answered(5, "/generate", "503 Service Unavailable")
        + used("bg", 0, 9, LENGTH), "a", status="finished", says="waiting-timeout",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_a_finish_that_is_cut_says_of_nobody_that_it_went_well(name: str, tmp_path: Path) -> None:
    hold(CUT[name], tmp_path)


def test_a_finish_that_is_cut_after_its_reason_says_it(tmp_path: Path) -> None:
    hold(Case(cut(stream("a", 0, 30, STOP), ", 'e2e"), "a", status="interrupted", says="finished"), tmp_path)


STATS = (
    "Req Time Stats(rid={}, input len=2, output len=3, type=unified): queue_duration=1.00ms, "
    "forward_duration=4000.00ms, start_time=1.0"
)


def test_nobody_has_left_before_its_own_time_stats(tmp_path: Path) -> None:
    """Batch lines of before count one too few."""
    both = stream("b", 6, 90)
    story = (
        stream("a", 5) + both[:1] + prefill(7, 0, new=2) + decode([10, 12], 1) + said(20, STATS.format("a"))
        + decode(range(22, 72), 1) + both[1:]
    )  # fmt: skip
    verdict = told(Case(story, "a", version=None), tmp_path)
    assert verdict.times.ended is not None
    assert "10:00:20" in verdict.times.ended


def test_a_finish_that_is_late_holds_no_place_in_the_batch(tmp_path: Path) -> None:
    """Two run; the one whose stats are written has left, though its Finish comes later."""
    slow = used("slow", 5, 20)
    story = (
        slow[:1] + stream("a", 6) + prefill(7, 0, new=2)
        + said(10, STATS.format("slow"))
        + decode([12, 14], 1) + slow[1:]
    )  # fmt: skip
    hold(Case(story, "a", never=["client-disconnect"], version=None, says="in-flight"), tmp_path)


def status(second: int, running: list[str], queued: list[str]) -> Story:
    """What `SGLANG_LOG_SCHEDULER_STATUS_TARGET` writes once a minute."""
    stamp = f"2026-11-29T10:{second // 60:02}:{second % 60:02}.000001"
    data = {"timestamp": stamp, "event": "scheduler.status", "rank": 0, "running_rids": running, "queued_rids": queued}
    return [(second, json.dumps(data))]


@pytest.mark.parametrize(
    ("later", "says", "never"),
    [
        (status(130, ["b"], []), "client-disconnect", ["in-flight"]),
        (status(130, ["b", "a"], []), "in-flight", ["client-disconnect"]),
        (decode([130], 1), "in-flight", ["client-disconnect"]),  # counted before a list that has it
    ],
)
def test_who_is_no_longer_listed_has_left(later: Story, says: str, never: list[str], tmp_path: Path) -> None:
    """Batch lines tell nothing here: others come and go without an end."""
    story = (
        stream("a", 5) + prefill(6, 0) + stream("b", 7, 190) + prefill(8, 1) + decode([20, 40], 1)
        + status(70, ["a", "b"], []) + later + stream("b", 7, 190)[1:]
    )  # fmt: skip
    hold(Case(story, "a", never=never, version=None, says=says), tmp_path)


def test_who_waited_may_be_between_two_lists(tmp_path: Path) -> None:
    """A batch that is on its way has it, and neither list."""
    story = stream("a", 5) + status(70, [], ["a"]) + prefill(129, 0) + status(130, [], []) + decode([140], 1)
    hold(Case(story, "a", never=["client-disconnect"], version=None, says="in-flight"), tmp_path)


def test_a_health_check_has_no_client_that_leaves(tmp_path: Path) -> None:
    """It goes on with the first answer of the engine, to whomever; its own may come later, and holds no slot."""
    probe = "HEALTH_CHECK_1795946400.5"
    late = said(12, f"Received output for rid='{probe}' but the state was deleted in TokenizerManager.")
    story = used(probe, 10, 10)[:1] + used("a", 11, 14, WAITED) + late * 2
    verdict = told(Case(story, probe, version="0.5.10"), tmp_path)
    assert (verdict.cause, verdict.effects) == ("finished-undelivered", [])
    assert [link.cause for link in told(Case(story, "a", version="0.5.10"), tmp_path).chain] == ["waiting-timeout"]


def undated(story: Story) -> Story:
    """Records of the request log without a time, as 0.5.8 to 0.5.11 write them."""
    return [(at, text.split("] ", 1)[1]) for at, text in story]


def test_an_end_without_a_time_may_be_as_old_as_the_line_before_it(tmp_path: Path) -> None:
    """The batch line still counts the one that has just ended beside it, and nothing is written for long after."""
    brief = undated(used("e", 11, 12, LENGTH))
    story = (
        started() + undated(used("c", 10, 10)[:1]) + prefill(10, 0) + brief[:1] + prefill(11, 1) + decode([12], 1)
        + brief[1:] + said(30, RAISED) + said(30, QUIT)
    )  # fmt: skip
    hold(Case(story, "c", says="scheduler-crash", version="0.5.8"), tmp_path)
