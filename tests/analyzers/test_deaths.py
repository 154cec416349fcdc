"""Who died and who did not: deaths that leave no word, words of deaths that are another's, and their echoes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, crashed, decode, hold, prefill, said, started, stream, told, turn
from lines import Story, used

RESTARTED = (
    started(0, 10) + stream("s", 10) + answered(10, "/generate") + used("n", 10, 10)[:1] + prefill(10, 0, new=2)
    + decode(range(11, 30, 3), 2) + started(40, 20) + used("later", 60, 62)[:1] + prefill(60, 0)
    + used("later", 60, 62)[1:] + answered(62, "/generate")
)  # fmt: skip
OF_ANOTHER = (
    "2026-11-29T10:01:30+00:00 node kernel: Out of memory: Killed process 4242 (python3) total-vm:9kB, anon-rss:8kB"
)
OF_ITS_OWN = OF_ANOTHER.replace("10:01:30", "10:00:30").replace("4242 (python3)", "777 (sglang::schedul)")
QUIT = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
QUEUED = "{'type': 'abort', 'message': 'Abort in waiting queue'}"
LISTED = "Gracefully exiting... Remaining number of requests 1. Remaining requests remaining_rids=['a']."


def ended(second: int, code: int) -> Story:
    text = f"Subprocess scheduler_0 (pid=777) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
    return said(second, text) + said(second, QUIT)


def draining(code: int) -> Story:
    """A server that lets a request go on after SIGTERM, until its scheduler dies of something else."""
    return (
        started(0, 10) + used("a", 10, 10)[:1] + prefill(10, 0) + decode([12, 16, 20], 1)
        + said(20, "SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        + said(21, LISTED) + decode([24], 1) + said(26, LISTED) + decode([28], 1) + ended(30, code)
    )  # fmt: skip


def dumped(second: int, finished: int) -> Story:
    return said(second, "Dumping requests before crash. self.crash_dump_folder='/dumps'") + said(
        second, f"Dumped {finished} finished and 1 unfinished requests before crash to /dumps/host/crash_dump.pkl"
    )


def quick(number: int, start: int) -> Story:
    return used(f"f-{number}", start, start + 2)[:1] + prefill(start, 1) + used(f"f-{number}", start, start + 2)[1:]


UNKNOWN_BEFORE = (
    decode(range(0, 101, 20), 1) + stream("a", 101) + answered(101, "/generate") + prefill(101, 1) + decode([106], 2)
    + decode(range(120, 630, 20), 1) + [line for n in range(5) for line in quick(n, 201 + 80 * n)]
    + crashed(650) + said(650, QUIT) + dumped(650, 3)
)  # fmt: skip
PROBED = (
    started(0, 10) + used("big", 10, 38)[:1] + prefill(10, 0) + decode([20, 30], 1) + stream("a", 37)
    + answered(37, "/generate") + decode([37], 1, 1) + used("big", 10, 38)[1:] + answered(38, "/generate")
    + used("HEALTH_CHECK_8f14e45fceea467d", 68, 68)[:1] + ended(69, -9) + dumped(69, 1)
)  # fmt: skip
# A stream that left an idle server hours before it died: `#running-req: 0, #queue-req: 0, #new-seq: 1`, and one arrival
# since the batch line before.
IDLE = started(pid=10) + stream("s", 10) + answered(10, "/generate") + prefill(10, 0) + decode([12, 14], 1)
NEXT = used("x", 7200, 7200)[:1] + prefill(7200, 0) + decode([7202, 7204], 1)
OF_THE_NEXT = "2026-11-29T12:00:05+00:00 node kernel: Out of memory: Killed process 10 (python3) total-vm:9kB"
CAME_BACK = (  # `s` alone is in the batch at 26: `w`, which came after the last one, was aborted before that
    IDLE + said(20, "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.7 -> 0.9")
    + used("w", 22, 24, QUEUED)[:1] + answered(24, "/abort_request") + used("w", 22, 24, QUEUED)[1:]
    + answered(24, "/generate") + prefill(26, 0) + decode([28], 1) + crashed(30) + said(30, QUIT)
)  # fmt: skip
DEATHS = frozenset({"scheduler-crash", "process-killed"})
SHUT = frozenset({"server-shutdown"})
CASES = {
    "a stream under which the server was started again": Case(
        RESTARTED, "s", {"in-flight"}, status="in-flight", says="process-killed"
    ),
    "a request under which the server was started again": Case(
        RESTARTED, "n", {"in-flight"}, status="in-flight", says="process-killed"
    ),
    "one whose log was copied before the host killed another process": Case(
        started(0, 10) + used("a", 10, 10)[:1] + prefill(10, 0) + decode(range(12, 57, 4), 1),
        "a", says="in-flight", beside={"kern": [(0, OF_ANOTHER)]},
    ),
    "one whose scheduler the kernel killed while the server drained": Case(
        draining(-9), "a", SHUT, says="process-killed", beside={"kern": [(0, OF_ITS_OWN)]}
    ),
    "one whose scheduler somebody killed while the server drained": Case(draining(-9), "a", says="process-killed"),
    **{
        f"one whose scheduler ended by signal {-code} while the server drained": Case(
            draining(code), "a", SHUT, says="process-killed"
        )
        for code in (-11, -6)
    },
    "a stream that left before a crash, beside a request from before the log": Case(
        UNKNOWN_BEFORE, "a", unproven={"scheduler-crash"}, says="client-disconnect"
    ),
    "a stream that left before a kill, beside a health check": Case(
        PROBED, "a", unproven={"process-killed"}, says="client-disconnect"
    ),
    "one whose answer was written, and whose Finish the log lacks, before a crash": Case(
        started(0, 10) + used("big", 8, 8)[:1] + used("a", 10, 10)[:1] + prefill(10, 0, new=2)
        + decode(range(12, 20, 4), 2) + answered(20, "/generate") + crashed(21)
        + said(21, QUIT),
        "a", unproven=DEATHS, says="finished",
    ),
    "one that was retracted and came back when whoever had come since was gone": Case(
        CAME_BACK, "s", says="scheduler-crash"
    ),
    "one that left an idle server, before a crash": Case(
        IDLE + NEXT + crashed(7205), "s", DEATHS, says="client-disconnect"
    ),
    "one that left an idle server, before another start": Case(
        IDLE + NEXT + started(7300), "s", DEATHS, says="client-disconnect"
    ),
    "one that left an idle server, before a kill": Case(
        IDLE + NEXT, "s", DEATHS, says="client-disconnect", beside={"kern": [(0, OF_THE_NEXT)]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_who_died_and_who_did_not(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


TRACEBACK = (
    'Traceback (most recent call last):\n  File "/sglang/srt/managers/scheduler.py", line 1196, in '
    "run_scheduler_process\n    scheduler.event_loop_normal()\nRuntimeError: CUDA error"
)
LAST_WORDS: dict[str, tuple[Story, str]] = {
    "the overlap worker's": (
        said(14, "TpModelWorkerClient hit an exception: Traceback (most recent call last):\nRuntimeError: x", " TP0"),
        "scheduler-crash",
    ),
    "those of 0.3.6": (said(14, TRACEBACK, " TP0"), "scheduler-crash"),
    "a warm-up's": (
        said(14, "Initialization failed. warmup error: Traceback (most recent call last):\nAssertionError: res=502"),
        "process-killed",
    ),
    "the shell's": ([(14, "./run.sh: line 22: 777 Killed      python -m sglang.launch_server")], "process-killed"),
    "a watchdog's": (
        said(14, "self.cur_batch.batch_size()=1\nself.cur_batch.reqs=[Req(rid=a, input_ids=[1])]", " TP0"),
        "watchdog-timeout",
    ),
}


@pytest.mark.parametrize("name", LAST_WORDS)
def test_the_last_words_of_a_server_are_heard(name: str, tmp_path: Path) -> None:
    words, cause = LAST_WORDS[name]
    story = started(0, 10) + used("a", 10, 10)[:1] + prefill(10, 0) + decode([12], 1) + words
    hold(Case(story, "a", says=cause, never=["finished"], version=None), tmp_path)


SHELL = [(14, "./run.sh: line 22: 777 Killed      python -m sglang.launch_server")]
STATS = "Req Time Stats(rid=a, input len=2, output len=3, type=unified): queue_duration=1.00ms, forward_duration=4.00ms"
NOT_THE_LAST: dict[str, tuple[Story, str, list[str]]] = {
    "the shell's about another server": (SHELL + decode([16, 20], 1), "in-flight", ["process-killed"]),
    "the shell's after an exception": (
        said(13, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: x") + SHELL,
        "scheduler-crash",
        ["process-killed"],
    ),
    "time stats, which come before an exception": (
        said(13, f"{STATS}, start_time=1.0")
        + said(13, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: x"),
        "scheduler-crash",
        ["client-disconnect"],
    ),
}


@pytest.mark.parametrize("name", NOT_THE_LAST)
def test_what_looks_like_the_last_word_is_none(name: str, tmp_path: Path) -> None:
    words, cause, never = NOT_THE_LAST[name]
    story = started(0, 10) + stream("a", 10)[:1] + prefill(10, 0) + decode([12], 1) + words
    hold(Case(story, "a", says=cause, never=never, version=None), tmp_path)


# A rank that is killed, and the gloo error of the rank that lives on.
ECHO = (
    "Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/sgl/managers/scheduler.py", line 2967, in run_scheduler_process\n    scheduler.event_loop_overlap()\n'
    '  File "/sgl/utils/common.py", line 1198, in broadcast_pyobj\n    dist.broadcast(tensor_size, src=src)\n'
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:51742"
)
EXIT = "Subprocess scheduler_1 (pid=778) crashed with exit code {}. Triggering SIGQUIT for cleanup..."
TERM = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
OF_A_RANK = "2026-11-29T10:00:21+00:00 node kernel: Out of memory: Killed process 778 (sglang::schedul) total-vm:9kB"
SEGFAULT = [
    (22, 'Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):\n  File "x.py", line 1')
]
FOLLOWER = (
    started(more=", tp_size=2, nnodes=2, node_rank=1")[:1]
    + said(21, "SIGTERM received on node_rank 1. signum=15 frame=None. Shutting down...")
)  # fmt: skip


def served(more: Story) -> Story:
    runs = used("a", 10, 10)[:1] + prefill(10, 0, rank=" TP0") + decode([12, 16, 20], 1, rank=" TP0")
    return started(more=", tp_size=2") + runs + more


DUMP = said(22, "Dumped 0 finished and 1 unfinished requests before crash to /dumps/host/crash_dump.pkl")
ECHOED = said(22, ECHO, " TP0") + said(22, QUIT)
WRONG = frozenset({"scheduler-crash"})
ECHOES = {
    "a rank that was killed, with its exit code": Case(
        served(ECHOED + DUMP + said(23, EXIT.format(-9))), "a", WRONG, says="process-killed"
    ),
    "a rank that the kernel killed, in a release without exit codes": Case(
        served(ECHOED + DUMP), "a", WRONG, says="process-killed", version="0.5.9", beside={"kern": [(0, OF_A_RANK)]}
    ),
    "a rank that fell over in native code": Case(
        served(SEGFAULT + ECHOED + said(23, EXIT.format(-11))), "a", WRONG, says="process-killed"
    ),
    "a follower node that was told to stop": Case(
        served(ECHOED), "a", WRONG, says="server-shutdown", beside={"node1/server": FOLLOWER}, name="node0/server"
    ),
    "a rank that got the SIGTERM of the whole group first": Case(
        served(said(21, TERM) + ECHOED + said(22, EXIT.format(-15))), "a", WRONG, says="server-shutdown"
    ),
    "an echo alone": Case(served(ECHOED + DUMP), "a", unproven=WRONG, says="process-killed"),
}


@pytest.mark.parametrize("name", ECHOES)
def test_an_echo_is_not_the_cause(name: str, tmp_path: Path) -> None:
    hold(ECHOES[name], tmp_path)


# What its session refuses waits in the queue for its answer, as all do.
STUB = (
    started(0, 10) + used("a", 10, 10)[:1] + prefill(10, 0) + decode([12], 1) + turn("t", 13, 13)[:1]
    + said(13, "Invalid request: session id S does not exist, self.rid='t'") + decode([14, 16], 1, 1)
)  # fmt: skip
UNANSWERED = {
    "a crash": (crashed(18), "scheduler-crash"),
    "a kill": (ended(18, -9), "process-killed"),
    "another start": (started(40, 20) + used("later", 60, 60)[:1], "process-killed"),
}


@pytest.mark.parametrize("name", UNANSWERED)
def test_a_refusal_that_was_not_told_any_more_is_behind_the_death(name: str, tmp_path: Path) -> None:
    death, cause = UNANSWERED[name]
    verdict = told(Case(STUB + death, "t"), tmp_path)
    assert (verdict.cause, verdict.confidence) == (cause, "likely")
    assert (verdict.contradictions, verdict.replay) == ([], None)
    assert (verdict.times.ended or "") > (verdict.times.received or "")
    assert "session-unknown" in [link.cause for link in verdict.chain]
    assert {"session-unknown", "client-disconnect"} <= {each.cause for each in verdict.candidates}


@pytest.mark.parametrize(("more", "says"), [([], "in-flight"), (said(18, TERM), "server-shutdown")])
def test_a_refusal_may_not_have_been_told_when_the_log_ends(more: Story, says: str, tmp_path: Path) -> None:
    hold(Case(STUB + more, "t", says=says), tmp_path)
    hold(Case(STUB + more, "t", says="session-unknown"), tmp_path)
