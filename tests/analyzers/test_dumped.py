"""Crash dumps beside the logs: who was open at the crash, who had ended without a line, and what they can't tell."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest
from cases import Case, answered, crashed, decode, hold, prefill, said, started, stream
from dumps import NAME, pickled
from lines import RECEIVE, Story, clock, used

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers import exhibits
from sglang_lifecycle.parsers.evidence import Event, Evidence
from sglang_lifecycle.parsers.log import read

ROOT = Path(__file__).parents[2] / "fixtures"
KILLED = "0.5.23/s11a_kill9_scheduler"


def _dump(recorded: str) -> Path:
    return next((ROOT / "dumps" / recorded).glob("*.pkl"))


def _evidence(recorded: str) -> Evidence:
    """The logs of a scenario with its crash dump."""
    return read([str(ROOT / recorded / "logs"), str(_dump(recorded))])


def _verdict(evidence: Evidence, rid: str) -> Verdict:
    return explain(Incident(evidence), rid)


@pytest.mark.parametrize(
    ("recorded", "rids", "cause"),
    [
        ("0.5.23/s11a_kill9_scheduler", ["k9-r0", "k9-r1", "k9-w0", "k9-w1"], "process-killed"),
        ("0.5.10/s11d_model_exception", ["mx-r0", "mx-r1", "mx-poison"], "scheduler-crash"),
        ("0.5.20/s11d_model_exception", ["mx-r0", "mx-r1", "mx-poison"], "scheduler-crash"),
        ("0.5.10/s02e_session_clear_tree", ["c-2", "plain-1", "c-4"], "scheduler-crash"),
    ],
)
def test_the_open_ones_of_a_crash_dump_are_its_victims_for_sure(recorded: str, rids: list[str], cause: str) -> None:
    incident = Incident(_evidence(recorded))
    for rid in rids:
        verdict = explain(incident, rid)
        assert (verdict.cause, verdict.confidence) == (cause, "proven")
        assert "request.dumped" in {line.event for line in verdict.evidence}
        assert verdict.candidates == []


def _copied(folder: Path, dump: str | None) -> Evidence:
    """The logs of the killed scheduler with a count that says nothing, and the dump under a name."""
    text = (ROOT / KILLED / "logs" / "server.log").read_text()
    (folder / "server.log").write_text(text.replace("and 4 unfinished", "and 9 unfinished"))
    if dump is not None:
        shutil.copy(_dump(KILLED), folder / dump)
    return read([str(folder)])


def test_the_list_speaks_where_the_count_does_not(tmp_path: Path) -> None:
    """Its file name, which the log says, tells that the dump is of this life."""
    verdict = _verdict(_copied(tmp_path, _dump(KILLED).name), "k9-w1")
    assert (verdict.cause, verdict.confidence) == ("process-killed", "proven")


@pytest.mark.parametrize("name", [None, "copy.pkl"])
def test_without_a_dump_that_the_log_names_it_is_likely(name: str | None, tmp_path: Path) -> None:
    verdict = _verdict(_copied(tmp_path, name), "k9-w1")
    assert (verdict.cause, verdict.confidence) == ("process-killed", "likely")


def test_a_dump_alone_says_who_was_open_not_why() -> None:
    alone = read([str(_dump(KILLED))])
    verdict = _verdict(alone, "k9-w1")
    assert verdict.cause == "not-established"
    assert {"scheduler-crash", "process-killed"} <= {c.cause for c in verdict.candidates}
    assert _verdict(alone, "k9-done0").cause == "finished"
    assert _verdict(alone, "k9-done0").sglang_version.value


def _rewritten(recorded: str, rid: str, **changes: object) -> Evidence:
    """The evidence of a scenario, with the entry of a rid in its dump changed; None takes it out."""
    evidence = _evidence(recorded)
    for fact in [f for f in evidence.facts if f.event is Event.REQUEST_DUMPED and f.rid == rid]:
        if changes.pop("gone", False):
            evidence.facts.remove(fact)
        fact.detail["finished"] = changes.pop("finished", False)
        for name, value in changes.items():
            setattr(fact, name, value)
    return evidence


_ABORTED = {"finished": True, "finish_type": "abort", "finish_message": "Aborted", "message_id": "aborted"}


def test_a_stream_that_was_aborted_before_the_crash_had_lost_its_client() -> None:
    evidence = _rewritten(KILLED, "k9-r1", **_ABORTED, at=1795977767.5)
    verdict = _verdict(evidence, "k9-r1")
    assert (verdict.cause, verdict.confidence) == ("client-disconnect", "proven")


def test_one_that_was_aborted_in_the_moment_of_the_crash_is_left_open() -> None:
    """Its `Finish` may have been on its way."""
    verdict = _verdict(_rewritten(KILLED, "k9-r1", **_ABORTED, at=1795977768.7), "k9-r1")
    assert verdict.cause == "not-established"


def test_one_that_had_run_to_its_end_is_no_victim() -> None:
    evidence = _rewritten(KILLED, "k9-r1", finished=True, finish_type="stop", at=1795977767.5)
    assert _verdict(evidence, "k9-r1").cause == "finished-undelivered"


def test_one_that_the_dump_does_not_list_had_left_before() -> None:
    verdict = _verdict(_rewritten(KILLED, "k9-r1", gone=True), "k9-r1")
    assert (verdict.cause, verdict.confidence) == ("client-disconnect", "likely")
    assert "the crash dump does not list it" in verdict.summary
    other = _verdict(_rewritten(KILLED, "k9-r0", gone=True), "k9-r0")  # no stream
    assert other.cause == "not-established"


def test_an_entry_of_another_time_is_not_of_this_attempt() -> None:
    evidence = _evidence(KILLED)
    for fact in evidence.facts:
        if fact.event is Event.REQUEST_DUMPED and fact.rid == "k9-r1":
            fact.detail["created"] -= 60
    lines = _verdict(evidence, "k9-r1").evidence
    assert "request.dumped" not in {line.event for line in lines}


def test_facts_of_a_dump_survive_their_lines() -> None:
    rows = [orjson.loads(line) for line in exhibits.lines("dumps", _dump(KILLED))]
    assert len(rows) == 8
    assert all(row["event"] in ("server.dumped", "request.dumped") for row in rows)


def dumped(second: int, finished: int, unfinished: int) -> Story:
    """A scheduler's exception, and what the API server says of the dump that it then writes."""
    counts = f"Dumped {finished} finished and {unfinished} unfinished requests before crash to /dumps/host/{NAME}"
    return crashed(second) + said(second, counts)


# To 0.5.9 a dump does not list who had not been sent to the scheduler yet.
SERVED = started() + stream("r", 10) + answered(10, "/generate") + prefill(10, 0) + decode([11, 12, 13], 1)
HELD = (
    answered(14, "/pause_generation")
    + stream("p", 16)
    + answered(16, "/generate")
    + said(20, "Start update_weights. Load format=auto")
)
MEDIA = (
    stream("p", 16, more=", image_data=['https://slow/picture.png']") + answered(16, "/generate") + decode([18, 22], 1)
)


@pytest.mark.parametrize("story", [HELD, MEDIA], ids=["a pause that keeps what runs", "an image that is fetched"])
def test_who_was_still_held_by_the_api_server_did_not_leave(story: Story, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(pickled([("r", 10, 30, None)]))
    story = SERVED + story + dumped(30, 0, 1)
    hold(Case(story, "p", {"client-disconnect"}, says="scheduler-crash", version="0.5.9"), tmp_path)


def chat(rid: str, second: int) -> Story:
    body = "ChatCompletionRequest(messages=[{'role': 'user', 'content': 'x'}], model='m', stream=False)"
    return [*said(second, f"Receive OpenAI: obj={body}"), (second, RECEIVE.format(at=clock(second), rid=rid))]


def served(at: int) -> Story:
    lines = used(f"z-{at}", at, at + 3)
    return lines[:1] + prefill(at, 0) + decode([at + 2], 1) + lines[1:] + answered(at + 3, "/generate")


def refused_long_before(between: Story, access: bool) -> Story:
    """`p` is too long and gets its 400 at 20 s; ten minutes later others come and go, then the scheduler crashes."""
    lines = (
        started() + served(5) + chat("p", 20) + between + answered(20, "/v1/chat/completions", "400 Bad Request")
        + [line for at in range(600, 681, 20) for line in served(at)] + used("v", 700, 700)[:1] + prefill(700, 0)
        + dumped(705, 5, 2)
    )  # fmt: skip
    return lines if access else [line for line in lines if "HTTP/1.1" not in line[1]]


@pytest.mark.parametrize(
    ("between", "access"), [([], False), (stream("w", 20), True)], ids=["no access log", "a stream beside"]
)
@pytest.mark.parametrize("says", ["invalid-request", "input-too-long"])
def test_a_leaked_state_is_no_victim(says: str, between: Story, access: bool, tmp_path: Path) -> None:
    """From 0.5.10 to 0.5.12 who was refused stays in the list of what is unfinished."""
    (tmp_path / NAME).write_bytes(pickled([("p", 20, 705, None), ("v", 700, 705, None)], streams=False))
    story = refused_long_before(between, access)
    hold(Case(story, "p", {"scheduler-crash"}, says=says, version="0.5.10"), tmp_path)


_STOP = {"type": "stop", "matched": 2}
_CUT = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def slow_ones_logged() -> tuple[Story, bytes]:
    """A chat service with SGLANG_LOG_REQUEST_EXCEEDED_MS=5000; a weight update with abort_all; then a crash."""
    lines = started()
    entries: list[tuple[str, int, int, dict[str, object] | None]] = []
    for number in range(10):
        at, rid, slow = 10 + 10 * number, f"s-{number:02}", number % 4 == 3
        end = at + (8 if slow else 1)
        lines += stream(rid, at) + answered(at, "/v1/chat/completions") + prefill(at, 0) + decode([at + 1], 1)
        lines += stream(rid, at, end)[1:] if slow else []
        entries.append((rid, at, end, _STOP))
    lines += stream("w", 120) + answered(120, "/v1/chat/completions") + prefill(120, 0)
    lines += said(122, "Start update_weights. Load format=auto") + answered(140, "/update_weights_from_disk")
    entries.append(("w", 120, 122, _CUT))
    lines += stream("v", 145) + answered(145, "/v1/chat/completions") + prefill(145, 0) + dumped(150, 11, 1)
    return lines, pickled([*entries, ("v", 145, 150, None)])


@pytest.mark.parametrize(
    ("rid", "never", "says"),
    [("w", "client-disconnect", "weight-update-abort"), ("s-00", "finished-undelivered", "finished")],
)
def test_who_was_too_quick_for_a_finish_need_not_have_left(rid: str, never: str, says: str, tmp_path: Path) -> None:
    """Where only slow requests have a `Finish`, an aborted entry without one does not say that its client left."""
    lines, dump = slow_ones_logged()
    (tmp_path / NAME).write_bytes(dump)
    hold(Case(lines, rid, {never}, says=says), tmp_path)


CONFIG = said(60, "Config logging: obj=ConfigureLoggingReq(log_requests=True, log_requests_level=2)")


def quick(number: int, start: int) -> Story:
    lines = used(f"f-{number}", start, start + 2)
    return lines[:1] + prefill(start, 1) + lines[1:] + answered(start + 2, "/generate")


def switched_on(config: Story) -> Story:
    """One that came before runs on, unseen; `a` leaves at 110 s, as the decode lines show."""
    return (
        started() + prefill(10, 0) + decode(range(12, 60, 20), 1)
        + config + answered(60, "/configure_logging") + decode(range(62, 101, 20), 1) + stream("a", 101)
        + answered(101, "/generate") + prefill(101, 1) + decode([106], 2) + decode(range(120, 630, 20), 1)
        + [line for n in range(5) for line in quick(n, 201 + 80 * n)] + dumped(650, 3, 1)
    )  # fmt: skip


@pytest.mark.parametrize("config", [CONFIG, []], ids=["with the line", "the access line alone"])
def test_a_count_that_fits_by_chance_proves_nothing(config: Story, tmp_path: Path) -> None:
    """The request log was switched on while a request ran."""
    hold(Case(switched_on(config), "a", unproven={"scheduler-crash"}, says="client-disconnect"), tmp_path)
