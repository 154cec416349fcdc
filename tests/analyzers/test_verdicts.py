"""Each cause on a recorded request: who ended it, where it stood, and the lines that show it."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers import catalogue
from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

STEPS = ["session_params", "abort_origin", "timeout", "rid_validity", "time_stats"]

RECEIVED, FINISHED, ACCESS = "request.received", "request.finished", "http.access"
ERROR, REJECTED, GONE = "request.error", "request.rejected", "client.disconnected"

RECORDED = [
    # cause, scenario, rid, stage, actor, kinds of lines that have to be among the evidence
    ("finished", "0.5.23/s14_timeout_prefix", "other", "finished", "scheduler", {FINISHED}),
    ("finished", "0.5.10/s06_abort", "ok-1", "finished", "scheduler", {FINISHED}),
    ("client-disconnect", "0.5.10/s05_disconnect", "dr-ns", "running", "client", {RECEIVED, GONE}),
    ("client-disconnect", "0.5.10/s05_disconnect", "dw-ns", "unknown", "client", {RECEIVED, GONE}),
    ("client-disconnect", "0.5.23/s05_disconnect", "dw-ns", "unknown", "client", {RECEIVED, GONE}),
    ("client-disconnect", "0.5.10/s05_disconnect", "dr-s", "unknown", "client", {RECEIVED, "batch.decode"}),
    ("client-disconnect", "0.5.23/s05_disconnect", "dr-s", "unknown", "client", {RECEIVED, "batch.decode"}),
    ("client-disconnect", "0.5.18/s16_stuck_session", "d-2", "waiting", "client", {RECEIVED, "abort.unknown_rid"}),
    ("explicit-abort", "0.5.10/s06_abort", "aw-s", "waiting", "client", {ACCESS, FINISHED}),
    ("explicit-abort", "0.5.10/s06_abort", "ar-ns", "running", "client", {ACCESS, FINISHED}),
    ("explicit-abort", "0.5.23/s06_abort", "aw-s", "waiting", "client", {ACCESS, FINISHED}),
    ("explicit-abort", "0.5.23/s06_abort", "ar-ns", "running", "client", {ACCESS, FINISHED}),
    ("abort-all", "0.5.10/s06_abort", "all-r0", "running", "operator", {ACCESS, FINISHED}),
    ("abort-all", "0.5.23/s06_abort", "all-w0", "waiting", "operator", {ACCESS, FINISHED}),
    ("abort-prefix-collision", "0.5.10/s06_abort", "job-10", "running", "peer-request", {ACCESS, FINISHED}),
    ("abort-prefix-collision", "0.5.23/s06_abort", "job-11", "waiting", "peer-request", {ACCESS, FINISHED}),
    ("pause-abort", "0.5.23/s09_pause_weights", "pz-r0", "running", "operator", {ACCESS, FINISHED}),
    ("weight-update-abort", "0.5.23/s09_pause_weights", "uw-r0", "running", "operator", {"weights.update", FINISHED}),
    ("waiting-timeout", "0.5.10/s12_text_dir", "m-wt", "waiting", "scheduler", {FINISHED}),
    ("waiting-timeout", "0.5.23/s14_timeout_prefix", "job-2", "waiting", "scheduler", {FINISHED}),
    ("running-timeout", "0.5.10/s04_running_timeout", "rt-0", "running", "scheduler", {FINISHED}),
    ("running-timeout", "0.5.23/s14b_timeout_prefix_running", "run-1", "running", "scheduler", {FINISHED}),
    ("timeout-prefix-collision", "0.5.23/s14_timeout_prefix", "job-12", "running", "peer-request", {FINISHED}),
    ("timeout-prefix-collision", "0.5.23/s14_timeout_prefix", "job-10", "waiting", "peer-request", {FINISHED}),
    ("timeout-prefix-collision", "0.5.23/s14b_timeout_prefix_running", "run-10", "running", "peer-request", {FINISHED}),
    ("queue-full", "0.5.10/s07b_priority", "low2", "waiting", "scheduler", {FINISHED}),
    ("priority-evicted", "0.5.10/s07b_priority", "low", "waiting", "peer-request", {FINISHED}),
    ("priority-disabled", "0.5.23/s07d_priority_disabled", "pd-1", "waiting", "scheduler", {FINISHED}),
    ("session-unknown", "0.5.23/s02a_session", "sU-1", "before-scheduler", "scheduler", {RECEIVED, FINISHED}),
    ("session-unknown", "0.5.10/s12_text_dir", "m-badsess", "before-scheduler", "scheduler", {RECEIVED, FINISHED}),
    ("session-closed", "0.5.23/s02a_session", "sA-11", "before-scheduler", "scheduler", {"session.closed", FINISHED}),
    ("session-reaped", "0.5.23/s02a_session", "sT-2", "before-scheduler", "scheduler", {"session.reaped", FINISHED}),
    ("session-parent-unknown", "0.5.23/s02a_session", "sA-6", "before-scheduler", "scheduler", {RECEIVED, FINISHED}),
    ("session-parent-unfinished", "0.5.23/s02a_session", "sA-5", "before-scheduler", "scheduler", {RECEIVED, FINISHED}),
    (
        "session-mode-unsupported", "0.5.10/s02b_session_streaming_strict", "ss-3", "before-scheduler", "scheduler",
        {RECEIVED, FINISHED},
    ),
    ("session-busy", "0.5.18/s16_stuck_session", "d-3", "before-scheduler", "session", {RECEIVED, FINISHED}),
    ("session-stuck", "0.5.18/s16_stuck_session", "q-3", "before-scheduler", "session", {RECEIVED, FINISHED}),
    ("session-replaced", "0.5.10/s02c_session_replace", "r-2", "running", "session", {RECEIVED, FINISHED}),
    ("session-replaced", "0.5.23/s02d_session_replace_waiting", "w-2", "waiting", "session", {RECEIVED, FINISHED}),
    ("session-branch-cleared", "0.5.10/s02c_session_replace", "r-5", "running", "session", {RECEIVED, FINISHED}),
    ("invalid-request", "0.5.23/s08_validation", "temp-n", "before-scheduler", "api-server", {RECEIVED, ERROR}),
    ("invalid-request", "0.5.10/s12_text_dir", "m-temp", "before-scheduler", "api-server", {RECEIVED, ERROR}),
    ("input-too-long", "0.5.23/s08_validation", "long-n", "before-scheduler", "api-server", {RECEIVED, ERROR}),
    ("input-too-long", "0.5.23/s08_validation", "total-n", "before-scheduler", "api-server", {RECEIVED, ERROR}),
    ("duplicate-rid", "0.5.23/s08_validation", "dup", "before-scheduler", "peer-request", {ERROR}),
    ("duplicate-rid", "0.5.10/s06_abort", "aw-ns", "before-scheduler", "peer-request", {ERROR}),
    ("grammar-failed", "0.5.23/s08_validation", "schema-n", "grammar-queue", "scheduler", {REJECTED, FINISHED}),
    ("grammar-failed", "0.5.10/s13b_injection", "inj-json", "grammar-queue", "scheduler", {FINISHED}),
    ("scheduler-crash", "0.5.10/s11d_model_exception", "mx-r0", "unknown", "scheduler", {RECEIVED, "process.crashed"}),
    ("scheduler-crash", "0.5.10/s02e_session_clear_tree", "c-2", "unknown", "scheduler", {RECEIVED, "process.crashed"}),
    ("process-killed", "0.5.23/s11a_kill9_scheduler", "k9-r0", "unknown", "host", {RECEIVED, "process.exited"}),
    ("server-shutdown", "0.5.23/s11c_sigterm_group", "sg-r0", "unknown", "operator", {RECEIVED, "server.sigterm"}),
    ("never-received", "0.5.10/s02b_session_streaming_strict", "ss-4", "never-received", "unknown", set()),
]  # fmt: skip

CHAINS = [
    # scenario, rid, the request whose fate is behind it, and that fate
    ("0.5.23/s14_timeout_prefix", "job-12", "job-1", "waiting-timeout"),
    ("0.5.23/s14b_timeout_prefix_running", "xyz", "x", "running-timeout"),
    ("0.5.10/s06_abort", "job-10", "job-1", "explicit-abort"),
    ("0.5.18/s16_stuck_session", "q-3", "q-2", "explicit-abort"),
    ("0.5.18/s16_stuck_session", "w-3", "w-2", "waiting-timeout"),
]


@pytest.mark.parametrize(
    ("cause", "name", "rid", "stage", "actor", "kinds"),
    RECORDED,
    ids=[f"{row[0]} {row[1]} {row[2]}" for row in RECORDED],
)
def test_the_cause(cause: str, name: str, rid: str, stage: str, actor: str, kinds: set[str], recorded: Any) -> None:
    verdict = recorded(name).explain(rid)
    assert (verdict.cause, verdict.stage, verdict.actor) == (cause, stage, actor)
    assert kinds <= {line.event for line in verdict.evidence}
    assert verdict.title == catalogue.cause(cause).title
    assert rid not in recorded(name).sent or cause in {
        known for row in recorded(name).sent[rid] for known in (row["cause"], *row["accept"])
    }


def test_every_cause_that_is_recorded_is_tested_here(all_recorded: Any) -> None:
    recorded = {row["cause"] for scenario in all_recorded for rows in scenario.sent.values() for row in rows}
    # whether an answer reached a client that had left is more than a log shows
    assert recorded - {"finished-undelivered"} <= {row[0] for row in RECORDED}


@pytest.mark.parametrize(
    ("name", "rid", "step", "says"),
    [
        ("0.5.23/s05_disconnect", "dw-chat", "timeout", "not ruled out: running-timeout, waiting-timeout"),
        ("0.5.23/s14_timeout_prefix", "job-1", "timeout", "its own waiting timeout, or another rid's"),
        ("0.5.23/s14_timeout_prefix", "job-12", "timeout", "another rid's timeout; it stood in stage running"),
        ("0.5.23/s06_abort", "ar-ns", "timeout", "no timeout of the scheduler"),
        ("0.5.23/s02a_session", "sU-1", "time_stats", "1 token out; "),
    ],
)
def test_a_step_says_no_more_than_the_verdict(name: str, rid: str, step: str, says: str, recorded: Any) -> None:
    (found,) = [each.finding for each in recorded(name).explain(rid).steps if each.step == step]
    assert found.startswith(says)


@pytest.mark.parametrize("kind", [1, 3])
def test_a_disconnect_is_told_by_its_type(kind: int, recorded: Any) -> None:
    scenario = recorded("0.5.10/s05_disconnect")
    types = {fact.rid: fact.detail["kind"] for fact in scenario.evidence.facts if str(fact.event) == GONE}
    rid = next(rid for rid in types if types[rid] == kind)
    verdict = scenario.explain(rid)
    assert (verdict.cause, verdict.confidence) == ("client-disconnect", "proven")


@pytest.mark.parametrize("name", ["0.5.10/s05_disconnect", "0.5.23/s05_disconnect"])
def test_a_stream_whose_client_left_has_no_line_of_its_own(name: str, recorded: Any) -> None:
    verdict = recorded(name).explain("dr-s")
    assert not any(
        "dr-s" in f for f in [str(fact.rid) for fact in recorded(name).evidence.facts if str(fact.event) == GONE]
    )
    assert (verdict.cause, verdict.confidence) == ("client-disconnect", "likely")
    assert verdict.candidates


@pytest.mark.parametrize(("name", "rid", "other", "fate"), CHAINS)
def test_the_chain_leads_to_another_request(name: str, rid: str, other: str, fate: str, recorded: Any) -> None:
    verdict = recorded(name).explain(rid)
    assert verdict.chain[0].cause == verdict.cause
    assert (fate, other) in [(link.cause, link.rid) for link in verdict.chain[1:]]
    link = next(link for link in verdict.chain[1:] if link.rid == other)
    assert any(f"'{other}'" in recorded_line(recorded(name), verdict.evidence[n]) for n in link.evidence)


def recorded_line(scenario: Any, line: Any) -> str:
    with Path(line.source).open("rb") as file:
        file.seek(line.offset)
        return file.read(line.length).decode("utf-8", "replace")


def test_a_crash_names_the_request_that_set_it_off(recorded: Any) -> None:
    verdict = recorded("0.5.10/s02e_session_clear_tree").explain("c-2")
    assert "c-4" in {link.rid for link in verdict.chain}


def test_a_request_is_in_flight_where_the_log_ends(recorded: Any, tmp_path: Path) -> None:
    scenario = recorded("0.5.23/s14_timeout_prefix")
    lines = scenario.server_log.read_bytes().splitlines(keepends=True)
    received = next(n for n, line in enumerate(lines) if b"Receive: obj=GenerateReqInput(rid='job-12'" in line)
    finished = next(n for n, line in enumerate(lines) if b"Finish: obj=GenerateReqInput(rid='job-12'" in line)
    log = tmp_path / "server.log"
    for end, status in ((received, "not-found"), (received + 1, "in-flight"), (finished - 8, "in-flight")):
        log.write_bytes(b"".join(lines[:end]))
        assert explain(Incident(read([str(log)])), "job-12").status == status, end
    log.write_bytes(b"".join(lines[: finished + 1]))
    assert explain(Incident(read([str(log)])), "job-12").cause == "timeout-prefix-collision"


def test_every_verdict_shows_the_five_steps_in_their_order(scenario: Any) -> None:
    for rid in scenario.rows:
        verdict = scenario.explain(rid)
        assert [step.step for step in verdict.steps] == STEPS
        assert all(step.finding.strip() for step in verdict.steps)


def test_every_verdict_is_of_the_catalogue_and_points_at_its_own_evidence(scenario: Any) -> None:
    for rid in scenario.rows:
        verdict = scenario.explain(rid)
        entry = catalogue.cause(verdict.cause)
        assert verdict.stage in catalogue.STAGES
        assert verdict.actor in catalogue.ACTORS
        assert verdict.layer in (entry.layer, "unknown")
        assert set(verdict.effects) <= set(catalogue.EFFECTS)
        pointers = itertools.chain.from_iterable(
            one.evidence for one in (*verdict.steps, *verdict.chain, *verdict.ruled_out)
        )
        assert all(0 <= pointer < len(verdict.evidence) for pointer in pointers)
        named = [*verdict.chain, *verdict.ruled_out, *verdict.candidates]
        assert {one.cause for one in named} <= catalogue.load().keys()
        assert (verdict.status == "interrupted") == bool(verdict.chain) or verdict.status == "finished"


def test_certainty_and_its_limits_agree(scenario: Any) -> None:
    for rid in scenario.rows:
        verdict = scenario.explain(rid)
        if verdict.confidence == "proven":
            assert verdict.contradictions == []
            assert verdict.candidates == []
            assert any(not line.tainted for line in verdict.evidence)
        if verdict.confidence == "not-established":
            assert len(verdict.candidates) >= 1
        assert all(candidate.would_decide for candidate in verdict.candidates)
        assert (
            verdict.cause not in {candidate.cause for candidate in verdict.candidates} or verdict.status == "not-found"
        )
        assert verdict.cause not in {one.cause for one in verdict.ruled_out}


def test_the_release_is_told_by_what_the_log_prints(scenario: Any) -> None:
    for scene in scenario.incident.scenes:
        assert scenario.version in scene.release.possible
    asks = [scenario.explain(rid).sglang_version for rid in scenario.rows]
    assert asks
    assert {version.source for version in asks} <= {"fingerprint", "unknown"}


def test_releases_are_told_apart(all_recorded: Any) -> None:
    exact = {
        scenario.version for scenario in all_recorded if scenario.incident.scenes[0].release.text == scenario.version
    }
    assert {"0.5.10", "0.5.18", "0.5.23"} <= exact


def test_a_release_that_is_told_counts_where_the_logs_leave_it_open(all_recorded: Any) -> None:
    scenario = next(each for each in all_recorded if len(each.incident.scenes[0].release.possible) > 1)
    possible = scenario.incident.scenes[0].release.possible
    for version in possible:
        release = Incident(scenario.evidence, version=version).scenes[0].release
        assert (release.text, release.told) == (version, True)


@pytest.mark.parametrize("version", ["0.5.10", "0.5.18", "0.5.20"])
def test_a_release_that_the_logs_rule_out_changes_no_verdict(recorded: Any, version: str) -> None:
    scenario = recorded("0.5.23/s14_timeout_prefix")
    incident = Incident(scenario.evidence, version=version)
    for rid in scenario.rows:
        assert explain(incident, rid) == scenario.explain(rid)


class TestLives:
    """A rid that lived more than once gets one verdict, and the list of its attempts."""

    @pytest.mark.parametrize(
        ("name", "rid", "attempts"),
        [
            ("0.5.23/s18_two_lives", "same-run", [(1, "process-killed"), (2, "finished")]),
            ("0.5.23/s18_two_lives", "same-run-s", [(1, "process-killed"), (2, "explicit-abort")]),
            ("0.5.23/s18_two_lives", "same-wait", [(1, "process-killed"), (2, "finished")]),
            ("0.5.23/s18_two_lives", "same-done", [(1, "finished"), (2, "client-disconnect")]),
            ("0.5.23/s18_two_lives", "same-ab1", [(1, "explicit-abort"), (2, "finished")]),
            ("0.5.23/s18_two_lives", "same-badsess", [(1, "session-unknown"), (2, "finished")]),
            ("0.5.10/s06_abort", "aw-ns", [(1, "explicit-abort"), (1, "duplicate-rid")]),
            ("0.5.23/s06_abort", "aw-ns", [(1, "explicit-abort"), (1, "finished")]),
            ("0.5.23/s14_timeout_prefix", "job-10", [(1, "timeout-prefix-collision"), (1, "finished")]),
        ],
    )
    def test_attempts(self, name: str, rid: str, attempts: list[tuple[int, str]], recorded: Any) -> None:
        verdict = recorded(name).explain(rid)
        assert [(attempt.life, attempt.cause) for attempt in verdict.attempts] == attempts
        interrupted = [cause for _, cause in attempts if cause != "finished"]
        assert verdict.cause == interrupted[-1]
        times = [attempt.received or attempt.ended for attempt in verdict.attempts]
        assert times == sorted(times)

    def test_lives_are_those_of_the_truth(self, recorded: Any) -> None:
        scenario = recorded("0.5.23/s18_two_lives")
        assert [scene.life.number for scene in scenario.incident.scenes] == [1, 2]
        for rid, sent in scenario.sent.items():
            verdict = scenario.explain(rid)
            for row in sent:
                found = [a.cause for a in verdict.attempts if a.life == row["life"]] or [verdict.cause]
                assert set(found) <= {row["cause"], *row["accept"]}, (rid, row["life"])

    @pytest.mark.parametrize("order", ["ab", "ba"])
    def test_events_of_several_servers_are_in_the_order_of_time(
        self, order: str, recorded: Any, tmp_path: Path
    ) -> None:
        for name, scenario in zip(order, ("0.5.23/s18_two_lives", "0.5.23/s09_pause_weights"), strict=True):
            (tmp_path / name).mkdir()
            shutil.copy(recorded(scenario).server_log, tmp_path / name)
        events = audit(Incident(read([str(tmp_path)]))).server_events
        assert {"server-restarted", "weights-updated"} <= {event.cause for event in events}
        times = [event.at for event in events if event.at is not None]
        assert times == sorted(times)

    def test_a_restart_is_an_event_of_the_server(self, recorded: Any) -> None:
        causes = [event.cause for event in recorded("0.5.23/s18_two_lives").audit.server_events]
        assert {"process-killed", "server-restarted"} <= set(causes)

    def test_who_lived_once_has_no_list(self, recorded: Any) -> None:
        scenario = recorded("0.5.23/s14_timeout_prefix")
        received = Counter(fact.rid for fact in scenario.evidence.facts if str(fact.event) == RECEIVED)
        assert {rid for rid in scenario.rows if scenario.explain(rid).attempts} == {
            rid for rid, times in received.items() if times > 1
        }

    def test_the_time_asked_about_chooses_the_attempt(self, recorded: Any) -> None:
        scenario = recorded("0.5.23/s18_two_lives")
        begin = next(scene.life.begin for scene in scenario.incident.scenes if scene.life.number == 2)
        assert explain(scenario.incident, "same-ab1", since=begin).cause == "finished"
        assert explain(scenario.incident, "same-ab1", until=begin - 1).cause == "explicit-abort"
        assert explain(scenario.incident, "same-run-s", since=begin).cause == "explicit-abort"
        assert explain(scenario.incident, "same-run-s", until=begin - 1).cause == "process-killed"


class TestStrangersText:
    """Prompts, outputs and ids that imitate log lines."""

    @pytest.mark.parametrize("name", ["0.5.10/s13b_injection", "0.5.23/s13b_injection_json"])
    def test_the_imitated_victim_finished(self, name: str, recorded: Any) -> None:
        scenario = recorded(name)
        assert b"rid='victim', text='x'), out={'text': '', 'output_ids': [], 'meta_info'" in scenario.raw
        verdict = scenario.explain("victim")
        assert (verdict.cause, verdict.confidence) == ("finished", "proven")
        assert not any(line.tainted for line in verdict.evidence)

    def test_imitations_in_prompts_and_outputs_end_nobody(self, recorded: Any) -> None:
        scenario = recorded("0.5.23/s13_adversarial")
        finished = [rid for rid, rows in scenario.sent.items() if {row["cause"] for row in rows} == {"finished"}]
        assert len(finished) > 10
        assert {scenario.rows[rid].cause for rid in finished if rid in scenario.rows} == {"finished"}

    def test_what_stands_in_raw_text_is_tainted(self, recorded: Any) -> None:
        facts = recorded("0.5.10/s13b_injection").evidence.facts
        assert any(fact.tainted for fact in facts)
        assert any(not fact.tainted for fact in facts)

    def test_nothing_is_proven_by_tainted_lines_alone(self, scenario: Any) -> None:
        for rid in scenario.rows:
            verdict = scenario.explain(rid)
            if verdict.evidence and all(line.tainted for line in verdict.evidence):
                assert verdict.confidence != "proven"

    def test_a_line_that_may_be_forged_is_never_enough(self, tmp_path: Path) -> None:
        reason = "{'type': 'abort', 'status_code': 503, 'message': 'Request waiting timeout reached.'}"
        obj = "GenerateReqInput(rid='victim', stream=False)"
        finish = (
            f"Finish: obj={obj}, out={{'meta_info': {{'id': 'victim', 'finish_reason': {reason}, 'e2e_latency': 9.0}}}}"
        )
        closing = "[http_server] Error: Invalid request: close was requested for session x"
        log = tmp_path / "server.log"
        lines = [f"[2026-11-29 19:50:01] Receive: obj={obj}", f"[2026-11-29 19:50:09] {finish}"]
        log.write_text("\n".join(lines) + "\n")
        genuine = explain(Incident(read([str(log)])), "victim")
        assert genuine.cause == "waiting-timeout"
        log.write_text("\n".join([lines[0], f"[2026-11-29 19:50:08] {closing}", lines[1]]) + "\n")
        forged = explain(Incident(read([str(log)])), "victim")
        assert forged.confidence != "proven"
        assert forged.cause != "waiting-timeout"


def test_whoever_asks_again_gets_lines_of_their_own(recorded: Any) -> None:
    incident = recorded("0.5.23/s06_abort").incident
    rid = next(iter(incident.by_rid))
    first = explain(incident, rid)
    first.evidence[0].text = "cut to the width of a terminal"
    assert explain(incident, rid).evidence[0].text == ""


LEAVES = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='left'"
COMES = "Receive: obj=GenerateReqInput(rid='left', text='x', stream=False)"


@pytest.mark.parametrize(("minute", "uses"), [("00", 1), ("08", 2)])
def test_a_line_long_before_a_record_is_of_another_use_of_the_rid(minute: str, uses: int, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"[2026-11-29 10:00:43] {LEAVES}\n[2026-11-29 10:{minute}:46] {COMES}\n")
    incident = Incident(read([str(log)]))
    assert len(incident.by_rid["left"]) == uses
    assert (incident.by_rid["left"][-1][1].facts == []) is (uses == 2)


def test_of_a_batch_only_one_is_named(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    lost = "Received output for rid='job_0' but the state was deleted in TokenizerManager."
    log.write_text(f"[2026-11-29 10:00:43] {lost}\n")
    assert [row.rid for row in audit(Incident(read([str(log)]))).requests] == ["job_0"]


@pytest.mark.parametrize(
    ("lines", "received", "ended"),
    [
        # A line that has no stamp of its own: the record says how long it took.
        (
            (
                "[2026-11-29 18:43:55] Receive: obj=GenerateReqInput(rid='r', stream=True)",
                "Finish: obj=GenerateReqInput(rid='r'), out={'meta_info': {'id': 'r',"
                " 'finish_reason': {'type': 'stop'}, 'completion_tokens': 9, 'e2e_latency': 4.5}}",
                "[2026-11-29 18:46:55] Decode batch, #running-req: 0, #token: 0, token usage: 0.00, #queue-req: 0",
            ),
            ("18:43:55.500", 0.5),
            ("18:44:00.000", 0.5),
        ),
        # Stamps of whole seconds behind one of microseconds.
        (
            (
                "[2026-11-29 18:19:14.900] Receive: obj=GenerateReqInput(rid='r', stream=True)",
                "[2026-11-29 18:19:14] Finish: obj=GenerateReqInput(rid='r'), out={'meta_info': {'id': 'r',"
                " 'finish_reason': {'type': 'stop'}, 'completion_tokens': 9}}",
            ),
            None,
            None,
        ),
    ],
)
def test_times_say_how_far_they_may_be_off(
    lines: tuple[str, ...],
    received: tuple[str, float] | None,
    ended: tuple[str, float] | None,
    tmp_path: Path,
) -> None:
    log = tmp_path / "server.log"
    log.write_text("\n".join(lines) + "\n")
    times = explain(Incident(read([str(log)])), "r").times
    assert times.received is not None
    assert times.ended is not None
    assert times.received <= times.ended
    assert times.ended_error_s is not None
    assert times.ended_error_s <= 0.5
    if received is not None and ended is not None:
        assert (times.received[11:23], times.received_error_s) == received
        assert (times.ended[11:23], times.ended_error_s) == ended
