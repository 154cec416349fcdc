"""Logs that are several servers' by accident, or lack a line that says what the others mean."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import WAITED, Case, answered, hold, said, started
from lines import used

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.log import read

Recorded = Callable[[str], Any]


def lines(scenario: Any) -> list[str]:
    text: str = scenario.server_log.read_text("utf-8", errors="surrogateescape")
    return text.splitlines(keepends=True)


def served(scenario: Any) -> list[str]:
    """The lines of a server after its start."""
    found = lines(scenario)
    ready = next(i for i, line in enumerate(found) if "The server is fired up" in line)
    return found[ready + 1 :]


def told(text: list[str], rid: str, folder: Path) -> Verdict:
    (folder / "server.log").write_text("".join(text), "utf-8", errors="surrogateescape")
    verdict = explain(Incident(read([str(folder)])), rid)
    assert verdict.status != "not-found"
    return verdict


def possible(verdict: Verdict) -> set[str]:
    return {verdict.cause, *(each.cause for each in verdict.candidates)}


def test_who_is_not_among_what_a_drain_lists_is_not_cut_by_the_restart(recorded: Recorded, tmp_path: Path) -> None:
    text = lines(recorded("0.5.10/s05_disconnect")) + lines(recorded("0.5.10/s06_abort"))
    assert told(text, "dl-s", tmp_path).cause == "client-disconnect"


@pytest.mark.parametrize(
    ("dead", "rid", "alive"),
    [
        ("0.5.23/s11a_kill9_scheduler", "k9-r1", "0.5.23/s13_adversarial"),
        ("0.5.10/s02e_session_clear_tree", "c-2", "0.5.10/s06_abort"),
    ],
)
def test_a_server_that_goes_on_in_the_same_log_does_not_show_that_the_dead_one_was_left(
    dead: str, rid: str, alive: str, recorded: Recorded, tmp_path: Path
) -> None:
    dying = [line for line in lines(recorded(dead)) if "crash_dump" not in line]
    verdict = told(dying + served(recorded(alive)), rid, tmp_path)
    assert recorded(dead).sent[rid][0]["cause"] in possible(verdict)


def test_a_rid_that_is_first_named_after_a_crash_did_not_die_of_it(recorded: Recorded, tmp_path: Path) -> None:
    drain = "Gracefully exiting... Remaining number of requests 1. Remaining requests remaining_rids=['lone']."
    text = [*lines(recorded("0.5.10/s02e_session_clear_tree")), f"[2026-11-29 18:06:00] {drain}\n"]
    verdict = told(text, "lone", tmp_path)
    assert verdict.confidence == "not-established"
    assert "explicit-abort" in possible(verdict)


def test_the_crash_is_known_by_the_rest_of_its_traceback(recorded: Recorded, tmp_path: Path) -> None:
    text = [line for line in lines(recorded("0.5.10/s02e_session_clear_tree")) if "hit an exception" not in line]
    verdict = told(text, "c-2", tmp_path)
    assert verdict.cause == "scheduler-crash"
    assert "dictionary changed size" in verdict.summary


@pytest.mark.parametrize("older", ["0.5.10/s06_abort", "0.5.18/s12_timestats"])
def test_lines_of_an_older_release_do_not_make_a_timeout_its_own(
    older: str, recorded: Recorded, tmp_path: Path
) -> None:
    scenario = recorded("0.5.23/s14_timeout_prefix")
    hit = [rid for rid, row in scenario.rows.items() if row.cause == "timeout-prefix-collision"]
    assert hit
    text = lines(recorded(older)) + served(scenario)
    assert {told(text, rid, tmp_path).cause for rid in hit} == {"timeout-prefix-collision"}


def test_a_clock_that_was_set_back_hides_no_stroke(tmp_path: Path) -> None:
    root, hit = used("job-1", 0, 30, WAITED), used("job-10", 25, 30, WAITED)
    late = [(second, text.replace("10:00:30", "10:00:20")) for second, text in root[1:]]
    hold(
        Case([*root[:1], *hit, *late], "job-10", unproven=["waiting-timeout"], says="timeout-prefix-collision"),
        tmp_path,
    )


@pytest.mark.parametrize("stamped", [True, False])
def test_a_forged_line_is_no_evidence_where_the_log_lacks_what_quotes_it(
    stamped: bool, recorded: Recorded, tmp_path: Path
) -> None:
    """The log begins anywhere, as one that was rotated."""
    text = lines(recorded("0.5.10/s13b_injection"))
    if not stamped:
        text = [re.sub(r"^\[[-\d]+ [:\d]+\] ", "", line) for line in text]
    victims = [place for place, line in enumerate(text) if "rid='victim'" in line and "innocent" in line]
    for start in range(0, victims[-1], 3):
        verdict = told(text[start:], "victim", tmp_path)
        assert {attempt.cause for attempt in verdict.attempts} <= {"finished"}, f"beginning with line {start + 1}"


def test_who_came_later_was_not_ended_by_the_same_stroke(recorded: Recorded, tmp_path: Path) -> None:
    scenario = recorded("0.5.10/s02c_session_replace")
    text = [line for line in lines(scenario) if not line.startswith("Receive: obj=GenerateReqInput(rid='r-6'")]
    verdict = told(text, "r-5", tmp_path)
    assert verdict.cause != "abort-all"
    assert "session-branch-cleared" in possible(verdict)


def test_the_release_tells_which_records_are_none(recorded: Recorded, tmp_path: Path) -> None:
    """Parts of a rotated log in the shell's order: the newest first, and it begins with a stranger's line."""
    text = lines(recorded("0.5.10/s13b_injection"))
    forged = [place for place, line in enumerate(text) if line.startswith("[2026-11-29 18:00:00] Finish")]
    assert forged
    for place in forged:
        verdict = told(text[place:] + text[:place], "victim", tmp_path)
        assert {attempt.cause for attempt in verdict.attempts} <= {"finished"}


def test_two_servers_in_one_stream_prove_nothing_by_their_batches(recorded: Recorded, tmp_path: Path) -> None:
    """Two pods of two releases that run at once, their lines by turns."""
    dying = [line for line in lines(recorded("0.5.10/s02e_session_clear_tree")) if "crash_dump" not in line]
    other = served(recorded("0.5.23/s13_adversarial"))
    crash = next(i for i, line in enumerate(dying) if "hit an exception" in line)
    text = dying[: crash - 1] + other[: len(other) // 2] + dying[crash - 1 :] + other[len(other) // 2 :]
    assert "scheduler-crash" in possible(told(text, "c-2", tmp_path))


def test_an_error_of_a_session_is_not_about_who_has_none(recorded: Recorded, tmp_path: Path) -> None:
    scenario = recorded("0.5.10/s02b_session_streaming_strict")
    text = lines(scenario)
    for rid in (
        rid for rid, sent in scenario.sent.items() if sent[0]["session"] is None and sent[0]["cause"] == "finished"
    ):
        left = [line for line in text if f"rid='{rid}'" not in line or line.startswith("Receive")]
        assert not told(left, rid, tmp_path).cause.startswith("session-"), rid


def test_a_disconnect_that_is_cut_is_no_refusal(recorded: Recorded, tmp_path: Path) -> None:
    text = lines(recorded("0.5.10/s12_tokworker2"))
    cut = [line[:128].rstrip("\n") + "\n" if "disconnected from the client side" in line else line for line in text]
    for rid, sent in recorded("0.5.10/s12_tokworker2").sent.items():
        if sent[0]["cause"] == "client-disconnect" and sent[0]["client_http_status"] is None:
            verdict = told(cut, rid, tmp_path)
            assert verdict.cause != "invalid-request", rid


def test_lines_that_a_journal_let_go_are_missed(recorded: Recorded, tmp_path: Path) -> None:
    scenario = recorded("0.5.23/s11a_kill9_scheduler")
    text = lines(scenario)
    place = next(i for i, line in enumerate(text) if "Finish: obj=" in line and "k9-done0" in line)
    verdict = told(
        [*text[:place], "Suppressed 1 messages from sglang.service\n", *text[place + 1 :]], "k9-done0", tmp_path
    )
    assert "finished" in possible(verdict)


@pytest.mark.parametrize("name", ["0.5.23/s14_timeout_prefix", "0.5.23/s14b_timeout_prefix_running"])
def test_a_clock_that_leapt_hides_no_stroke(name: str, recorded: Recorded, tmp_path: Path) -> None:
    """The clock leaps between two lines of a stroke: what is stamped later is 10 minutes later."""
    scenario = recorded(name)
    text = lines(scenario)
    hit = [rid for rid, row in scenario.rows.items() if row.cause == "timeout-prefix-collision"]
    ends = {
        rid: next(i for i, line in enumerate(text) if "Finish: obj=" in line and f"rid='{rid}'" in line) for rid in hit
    }
    for rid, place in ends.items():
        later = [re.sub(r"^\[(\S+) 19:(\d)", lambda m: f"[{m[1]} 20:{m[2]}", line) for line in text[place + 1 :]]
        verdict = told(text[: place + 1] + later, rid, tmp_path)
        assert verdict.cause == "timeout-prefix-collision" or verdict.confidence != "proven", rid


def test_a_request_that_lives_through_the_end_of_summer_time_is_one(tmp_path: Path) -> None:
    """Stamps are local and have no zone: the log ends an hour before it begins, and goes on all the same."""
    before = [line for second in range(0, 300, 20) for line in used(f"early-{second}", second, second + 1)]
    after = [line for second in range(320, 600, 20) for line in used(f"late-{second}", second, second + 1)]
    came, went = used("crossing", 298, 310)
    text = [line for _, line in [*before, came]]
    text += [line.replace(" 10:", " 09:") for _, line in [went, *after]]
    verdict = told([f"{line}\n" for line in text], "crossing", tmp_path)
    assert (verdict.cause, len(verdict.attempts)) == ("finished", 0)


def test_a_rid_that_is_sent_again_at_once_is_not_the_one_before(tmp_path: Path) -> None:
    """The log begins late: the Finish of a fixed rid, and its next use in the same second."""
    _, went = used("probe", 99, 100)
    came, _ = used("probe", 100, 130)
    running = (
        "Decode batch, #running-req: 1, #token: 90, token usage: 0.01, gen throughput (token/s): 50.00, #queue-req: 0"
    )
    text = [went[1], came[1], *(f"[2026-11-29 10:01:{second}] {running}" for second in range(45, 59, 4))]
    verdict = told([f"{line}\n" for line in text], "probe", tmp_path)
    assert (verdict.status, len(verdict.attempts)) == ("in-flight", 2)


def test_a_retry_on_another_server_whose_lines_stand_here_too_was_answered(tmp_path: Path) -> None:
    """A gateway sends it to a second server at once, and the first finds the connection closed a moment later."""
    first, second = used("retried", 10, 10)[:1], used("retried", 14, 15)
    gone = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='retried'"
    story = [*started(0), *started(1), *first, *second[:1], *said(14, gone), *second[1:], *answered(15, "/generate")]
    hold(Case(story, "retried", unproven=["finished-undelivered"], says="finished"), tmp_path)
