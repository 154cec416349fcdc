"""Logs that look like a cause and are another, or are none: what is not so is not said with certainty."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import (
    WAITED,
    Case,
    answered,
    changed,
    crashed,
    decode,
    hold,
    prefill,
    refused,
    said,
    started,
    stream,
    told,
    turn,
)  # fmt: skip
from lines import ABORTED, TIMEOUT, Story, used, write

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

WORKER_LOST = "IPC name is None, output type=<class 'sglang.srt.managers.io_struct.AbortReq'>, skipping..."
LEFT = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='m-1'"


def long(story: Story) -> Story:
    """The same with a prompt that the request log has cut short."""
    return [(at, text.replace("text='x'", "text='x' ... 'y'")) for at, text in story]


def short(rid: str, second: int) -> Story:
    """A request that comes and whose prompt is known to be short."""
    room = "max_total_num_tokens=1000, chunked_prefill_size=2048, max_prefill_tokens=16384, max_running_requests=2"
    came = [(at, text.replace("text='x'", "text=None, input_ids=[1, 2]")) for at, text in used(rid, second, second)[:1]]
    return [*said(0, f"{room}, context_len=512, available_gpu_mem=1.0 GB"), *came]


def invalid(message: str) -> str:
    return refused(f"Invalid request: {message}")


BUSY = refused("Streaming session already has an active request.")
REPLACES = "{'id': 'S', 'rid': 's-1', 'replace': True}"
TOO_LONG = "[http_server] Error: The input (9000 tokens) is longer than the model's context length (8192 tokens)."
REAPED = frozenset({"session-reaped"})
COLLIDED = frozenset({"timeout-prefix-collision"})
CALLED = frozenset({"explicit-abort", "pause-abort", "weight-update-abort", "abort-all"})
COMPILED = changed(used("g-1", 10, 35), "'max_new_tokens': 8", "'max_new_tokens': 8, 'json_schema': '{}'")
COMPILES = (  # its grammar takes longer than the next batch, and all that while another runs alone
    COMPILED[:1] + stream("s-1", 11) + answered(11, "/generate", "200 OK") + prefill(11, 0)
    + decode((15, 19, 23, 27), 1) + prefill(30, 1) + COMPILED[1:] + answered(35, "/generate", "200 OK")
    + decode((37, 41), 1)
)  # fmt: skip
CASES = {
    "two that waited and ran alike": Case(
        used("run-1", 0, 7, TIMEOUT) + used("run-10", 3, 7, TIMEOUT), "run-10", frozenset(), COLLIDED,
        says="running-timeout",
    ),
    "one that ran as long as the limit that is told": Case(
        used("run-1", 0, 7, TIMEOUT) + used("run-10", 3, 7, TIMEOUT),
        "run-10", COLLIDED, says="running-timeout", limits={"running_timeout": 4.0},
    ),
    "a session that expired, was opened again and closed": Case(
        said(0, "Session opened: S (active=1)") + turn("s-1", 1, 2) + said(100, "Session S timed out, closing.")
        + said(100, "Session closed: S (active=0)") + said(150, "Session opened: S (active=1)") + turn("s-2", 200, 302)
        + answered(300, "/close_session", "200 OK") + said(300, "Deferring session close for S (unfinished request)")
        + turn("s-3", 301, 301, invalid("close was requested for session S")),
        "s-3", REAPED, says="session-closed",
    ),
    "a session that expired and served another turn": Case(
        turn("s-1", 1, 2) + said(100, "Session S timed out, closing.") + answered(150, "/open_session", "200 OK")
        + turn("s-2", 200, 202) + answered(300, "/close_session", "200 OK")
        + turn("s-3", 400, 400, invalid("session id S does not exist")),
        "s-3", REAPED, says="session-closed", version="0.5.10",
    ),
    "a turn that was too long to replace": Case(
        turn("s-1", 0, 10, ABORTED) + long(turn("s-2", 7, 8, of=REPLACES)[:1]) + said(7, TOO_LONG)
        + answered(7, "/generate", "400 Bad Request"),
        "s-1", frozenset({"session-replaced"}), says="explicit-abort",
    ),
    "a turn that was refused": Case(
        turn("s-1", 0, 10, ABORTED)
        + turn("s-2", 7, 7, invalid("Streaming sessions do not support replace."), REPLACES),
        "s-1", frozenset({"session-replaced"}), says="explicit-abort",
    ),
    "one of several HTTP workers": Case(
        said(5, WORKER_LOST) + said(30, LEFT), "m-1", frozenset({"client-disconnect"}), says="output-lost"
    ),
    "another's call without a key": Case(
        short("bg", 10) + answered(11, "/generate", "401 Unauthorized")
        + said(40, "Decode batch, #running-req: 1, #token: 13, token usage: 0.00, #queue-req: 0"),
        "bg", frozenset({"invalid-request"}), says="in-flight",
    ),
    **{  # level 0 does not tell whether it has a grammar, and no batch line counts it while that compiles
        f"a stream that no batch line has room for, {what}": Case(
            changed(stream("g-1", 10), "sampling_params={'max_new_tokens': 8}, ", "")
            + answered(10, "/generate", "200 OK") + used("q-1", 12, 30) + prefill(12, 0)
            + decode((16, 20, 24, 28), 1) + end,
            "g-1", says=says,
        )
        for what, end, says in (
            ("before the log ends", [], "in-flight"), ("before a crash", crashed(32), "scheduler-crash")
        )
    },
    "a stream beside one whose grammar compiles": Case(COMPILES, "s-1", {"client-disconnect"}, says="in-flight"),
    "a status that only the scheduler asks for": Case(
        short("hid-1", 10) + answered(10, "/generate", "503 Service Unavailable"),
        "hid-1", frozenset({"invalid-request", "input-too-long"}), says="queue-full",
    ),
    "a list that is older than the request": Case(
        used("old", 50, 60)[:1]
        + said(100, "SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        + said(101, "Gracefully exiting... Remaining number of requests 1. Remaining requests remaining_rids=['old'].")
        + [(at, text.replace("stream=False", "stream=True")) for at, text in used("late", 103, 104)[:1]],
        "late", frozenset({"client-disconnect"}), says="finished",
    ),
    "a weight update that was over": Case(
        said(0, "Start update_weights. Load format=auto") + answered(5, "/update_weights_from_disk", "200 OK")
        + used("r-1", 20, 30, ABORTED) + answered(30, "/abort_request", "200 OK") + used("later", 31, 33),
        "r-1", frozenset({"weight-update-abort"}), says="explicit-abort",
    ),
    "a pause before which another was served": Case(
        used("r-1", 20, 30, ABORTED) + used("x", 32, 34) + answered(70, "/pause_generation", "200 OK"),
        "r-1", frozenset({"pause-abort"}), says="explicit-abort",
    ),
    "a life after a death, without its start": Case(
        used("a", 0, 5)
        + said(60, "Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
        + used("c", 4000, 4005) + used("b", 5000, 5001)[:1] + used("d", 5001, 5003),
        "b", frozenset({"process-killed", "scheduler-crash"}), says="in-flight",
    ),
    **{
        f"{method} {path} that was answered with {status}": Case(
            used("r-1", 20, 30, ABORTED) + answered(30, path, status, method), "r-1", CALLED, says="abort-all"
        )
        for path, status, method in (
            ("/abort_request", "401 Unauthorized", "POST"), ("/abort_request", "405 Method Not Allowed", "GET"),
            ("/pause_generation", "422 Unprocessable Entity", "POST"),
            ("/update_weights_from_disk", "401 Unauthorized", "POST"),
        )
    },
    "a Finish whose kind has a hole": Case(
        used("a", 0, 3, WAITED.replace("abort", "ab\0\0t")), "a", unproven={"finished"}, says="waiting-timeout",
    ),
    "a refusal whose text has lost a byte": Case(
        used("a", 0, 0, refused("Input length (901 tokens) exceeds the maxi\ufffdum allowed length (294).")), "a",
        unproven={"invalid-request"}, says="input-too-long",
    ),
    "a refusal whose text is lost": Case(
        used("a", 0, 0, refused("").replace("message", "mess\0ge")), "a", unproven={"invalid-request"},
        says="grammar-failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_so_is_not_said(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


CAME = used("a", 5, 30)[:1]
AFTER = prefill(5, 0) + decode([8, 20], 1) + used("later", 10, 12) + answered(12, "/generate")
CUT_OFF = started() + CAME + AFTER
STREAM = changed(CUT_OFF, "stream=False", "stream=True")
UNSEEN = used("lost-1", 6, 9)[1:]  # its Receive is not there
SAMPLE = changed(used("sample", 6, 9)[1:], "8}", "8, 'n': 2}")
SIGTERM = said(40, "SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
SWEPT = SIGTERM + said(45, "kill_process_tree called: parent_pid=7, include_parent=True, pid=7")
REFUSAL = said(5, "[http_server] Error: temperature must be non-negative, got -1.")
LOSSY = {
    "a log that lacks lines": Case(CUT_OFF + UNSEEN, "a", never={"in-flight"}, says="running-timeout"),
    "the middle of a log that lacks lines": Case(
        used("first", 1, 2) + CAME + AFTER + UNSEEN, "a", never={"in-flight"}, says="finished",
    ),
    "a stream in a log that lacks lines": Case(STREAM + UNSEEN, "a", never={"in-flight"}, says="waiting-timeout"),
    "the newest in a log that lacks lines": Case(started() + UNSEEN + prefill(10, 0) + used("z", 11, 12)[:1], "z",
        says="finished",
    ),
    "one that is longer than another, where lines are lost": Case(
        CUT_OFF + UNSEEN + used("l", 1, 2) + used("l-1", 7, 30)[:1], "l-1", says="abort-prefix-collision",
    ),
    "timeouts alike where lines are lost": Case(
        CUT_OFF + UNSEEN + used("x-1", 13, 20, TIMEOUT) + used("y-1", 22, 29, TIMEOUT), "x-1",
        unproven={"running-timeout"}, says="timeout-prefix-collision",
    ),
    "an error where lines are lost": Case(started() + CAME + REFUSAL + AFTER + UNSEEN, "a", says="finished"),
    "a crash where lines are lost": Case(CUT_OFF + UNSEEN + crashed(50), "a", says="running-timeout"),
    "an idle server that crashed, where lines are lost": Case(
        started() + CAME + UNSEEN + crashed(50), "a", says="running-timeout",
    ),
    "one that a server lists which keeps what was aborted": Case(
        CUT_OFF + SIGTERM + said(41, "Gracefully exiting... Remaining number of requests 1. Remaining requests "
        "remaining_rids=['a']."), "a", says="client-disconnect", version="0.5.3",
    ),
    "a server that has drained and is gone": Case(CUT_OFF + SWEPT, "a", never={"in-flight"}, says="finished"),
    "a stream at a server that has drained and is gone": Case(
        STREAM + SWEPT, "a", never={"in-flight"}, says="server-shutdown",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSY)
def test_what_a_lost_line_may_have_said_is_among_the_candidates(name: str, tmp_path: Path) -> None:
    hold(LOSSY[name], tmp_path)


@pytest.mark.parametrize("story", [CUT_OFF, CUT_OFF + SAMPLE, CUT_OFF[2:] + used("early", 0, 6)[1:], CUT_OFF + SIGTERM])
def test_what_ran_when_a_whole_log_ended_is_in_flight(story: Story, tmp_path: Path) -> None:
    verdict = told(Case(story, "a"), tmp_path)
    assert (verdict.cause, verdict.confidence) == ("in-flight", "likely")
    assert "finished" not in {each.cause for each in verdict.candidates}


LEAVES_OPEN = {
    "a turn without an end before a refusal": (
        [(at, text.replace("stream=False", "stream=True")) for at, text in turn("q-2", 5, 6)[:1]]
        + turn("q-3", 7, 7, BUSY),
        "q-3", "0.5.18", "session-stuck",
    ),
    "a session's request of which only the end is there": (
        turn("r-7", 5, 10, ABORTED)[1:] + answered(10, "/abort_request", "200 OK"), "r-7", "0.5.18", "session-replaced"
    ),
    "a server that drains": (
        used("a", 0, 5) + used("st", 50, 60)[:1]
        + said(51, "Prefill batch, #new-seq: 1, #new-token: 2, #cached-token: 0, #running-req: 0, #queue-req: 0")
        + said(99, "Decode batch, #running-req: 1, #token: 13, token usage: 0.00, #queue-req: 0")
        + said(100, "SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        + said(101, "Gracefully exiting... Remaining number of requests 1. Remaining requests remaining_rids=['st']."),
        "st", "0.5.23", "finished",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAVES_OPEN)
def test_what_may_be_is_among_the_candidates(name: str, tmp_path: Path) -> None:
    story, rid, version, possible = LEAVES_OPEN[name]
    verdict = explain(Incident(read([str(write(tmp_path / "server.log", story))]), version), rid)
    assert verdict.confidence != "proven"
    assert possible in {verdict.cause, *(each.cause for each in verdict.candidates)}


def test_time_stats_at_the_end_of_a_log_leave_open_whether_a_finish_follows(tmp_path: Path) -> None:
    received = [(at, text.replace("stream=False", "stream=True")) for at, text in used("s-1", 10, 11)[:1]]
    stats = (
        "ReqTimeStats(rid=s-1, input_len=5, cached_input_len=0, output_len=8, attempts=0, type=unified): "
        "queue_duration=0.43ms, forward_duration=28.08ms, entry_time=1796032801.0"
    )
    log = write(tmp_path / "server.log", used("a", 0, 5) + received + said(10, stats))
    verdict = explain(Incident(read([str(log)])), "s-1")
    assert "finished" in {verdict.cause, *(each.cause for each in verdict.candidates)}


@pytest.mark.parametrize("stamp", ["0001-01-01 00:00:00", "9999-12-31 23:59:59"])
@pytest.mark.parametrize("zone", ["-05:00", "+05:00"])
def test_times_beyond_all_calendars_are_none(stamp: str, zone: str, tmp_path: Path) -> None:
    line = used("r-1", 20, 30, ABORTED)[1][1].replace(
        "'e2e_latency'", "'response_sent_to_client_ts': 1e15, 'e2e_latency'"
    )
    for text in (f"[{stamp}]" + line.partition("]")[2], line.partition("] ")[2]):
        log = tmp_path / "server.log"
        log.write_text(text + "\n")
        verdict = explain(Incident(read([str(log)], tz=zone)), "r-1")
        assert verdict.status == "interrupted"
        assert verdict.times.ended is None
