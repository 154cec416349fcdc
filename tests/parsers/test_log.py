"""From lines to facts: records, times, raw user text, tracebacks, duplicates, and what nothing knows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.parsers.evidence import Event, Evidence, Fact
from sglang_lifecycle.parsers.inputs import read_span
from sglang_lifecycle.parsers.log import read

READY = "The server is fired up and ready to roll!"
BASE = 1795981805.0  # 2026-11-29 19:50:05 UTC


def evidence_of(text: str, folder: Path, **options: Any) -> Evidence:
    log = folder / "server.log"
    log.write_bytes(text.encode("utf-8"))
    return read([str(log)], **options)


def facts_of(text: str, folder: Path, **options: Any) -> list[Fact]:
    return evidence_of(text, folder, **options).facts


def receive(rid: str) -> str:
    return f"Receive: obj=GenerateReqInput(rid={rid!r}, stream=False)"


def finish(rid: str, sent: float | None = None) -> str:
    stamp = f", 'response_sent_to_client_ts': {sent}" if sent is not None else ""
    reason = "{'type': 'abort', 'message': 'Aborted', 'status_code': None, 'err_type': None}"
    meta = f"{{'id': {rid!r}, 'finish_reason': {reason}, 'completion_tokens': 4{stamp}}}"
    return f"Finish: obj=GenerateReqInput(rid={rid!r}, stream=False), out={{'meta_info': {meta}}}"


class TestRecordedLogs:
    def test_every_fact_stands_where_it_says(self, scenario: Any) -> None:
        assert scenario.evidence.facts
        for fact in scenario.evidence.facts:
            raw = read_span(fact.source, fact.offset, fact.length)
            assert len(raw) == fact.length
            assert raw.endswith(b"\n") or fact.offset + fact.length == Path(fact.source).stat().st_size
            before = Path(fact.source).read_bytes()[: fact.offset]
            assert before.count(b"\n") + 1 == fact.line
            assert before == b"" or before.endswith(b"\n")

    def test_every_rid_of_a_fact_stands_in_its_lines(self, scenario: Any) -> None:
        for fact in scenario.evidence.facts:
            if fact.rid is not None:
                text = read_span(fact.source, fact.offset, fact.length).decode("utf-8", "replace")
                spelled = (fact.rid, repr(fact.rid)[1:-1], json.dumps(fact.rid, ensure_ascii=False)[1:-1])
                assert any(form in text.replace("\r\n", "\n") or form in text for form in spelled), fact

    def test_times_are_those_of_the_recording(self, scenario: Any) -> None:
        events = [event["at"] for event in scenario.truth["events"]]
        sent = [row["sent_at"] for row in scenario.truth["requests"] if row.get("sent_at")]
        first, last = min(events + sent) - 120, max(events + sent) + 120
        timed = [fact for fact in scenario.evidence.facts if fact.at is not None and not fact.tainted]
        assert len(timed) > len(scenario.evidence.facts) / 2
        assert all(first <= fact.at <= last for fact in timed)

    def test_counts_add_up(self, scenario: Any) -> None:
        for source in scenario.evidence.sources:
            path = Path(source.path)
            assert source.bytes == path.stat().st_size
            assert source.lines == path.read_bytes().count(b"\n")
            assert 0 < source.recognised <= source.lines
            assert source.unknown <= source.lines


class TestTimes:
    def test_a_stamp_stands_for_the_second_it_begins(self, tmp_path: Path) -> None:
        (fact,) = facts_of(f"[2026-11-29 19:50:05] {READY}\n", tmp_path)
        assert (fact.at, fact.at_error, fact.at_from) == (BASE + 0.5, 0.5, "own")

    def test_milliseconds_narrow_it(self, tmp_path: Path) -> None:
        (fact,) = facts_of(f"[2026-11-29 19:50:05.250] {READY}\n", tmp_path)
        assert fact.at == pytest.approx(BASE + 0.2505)
        assert fact.at_error == pytest.approx(0.0005)

    def test_a_line_without_a_stamp_lies_between_its_neighbours(self, tmp_path: Path) -> None:
        log = f"[2026-11-29 19:50:05] {READY}\n{receive('a')}\n{receive('b')}\n[2026-11-29 19:50:09] {READY}\n"
        _, first, second, _ = facts_of(log, tmp_path)
        for fact in (first, second):
            assert fact.at_from == "neighbours"
            assert (fact.at - fact.at_error, fact.at + fact.at_error) == (BASE, BASE + 5)

    def test_before_the_first_stamp_and_after_the_last_one_bound_is_all(self, tmp_path: Path) -> None:
        early, own, late = facts_of(f"{receive('a')}\n[2026-11-29 19:50:05] {READY}\n{receive('b')}\n", tmp_path)
        assert (early.at, early.at_error, early.at_from) == (own.at + 0.5, None, "neighbours")
        assert (late.at, late.at_error, late.at_from) == (own.at - 0.5, None, "neighbours")

    def test_without_any_stamp_there_is_no_time(self, tmp_path: Path) -> None:
        (fact,) = facts_of(f"{receive('a')}\n", tmp_path)
        assert (fact.at, fact.at_error, fact.at_from) == (None, None, None)

    def test_the_stamp_inside_a_finish_tells_the_instant(self, tmp_path: Path) -> None:
        log = f"[2026-11-29 19:50:05] {READY}\n{finish('a', BASE + 2.25)}\n[2026-11-29 19:50:09] {READY}\n"
        fact = facts_of(log, tmp_path)[1]
        assert (fact.at, fact.at_from) == (BASE + 2.25, "meta")
        assert fact.at_error < 0.1

    def test_the_stamp_inside_a_finish_knows_no_zone(self, tmp_path: Path) -> None:
        log = f"[2026-11-29 20:50:05] {READY}\n{finish('a', BASE + 2.25)}\n[2026-11-29 20:50:09] {READY}\n"
        told = facts_of(log, tmp_path, tz="Europe/Berlin")[1]
        assert told.at == BASE + 2.25
        untold = facts_of(log, tmp_path)[1]  # read as UTC, all is an hour later, in keeping with its neighbours
        assert untold.at == BASE + 3600 + 2.25

    def test_a_stamp_inside_that_contradicts_the_line_is_not_believed(self, tmp_path: Path) -> None:
        log = f"[2026-11-29 19:50:05] {READY}\n{finish('a', BASE + 300)}\n[2026-11-29 19:50:09] {READY}\n"
        assert facts_of(log, tmp_path)[1].at_from == "neighbours"

    def test_another_zone_moves_every_time(self, scenario: Any) -> None:
        moved = read([str(scenario.logs)], tz="-05:00").facts
        for here, there in zip(scenario.evidence.facts, moved, strict=True):
            if here.at is not None and here.event is not Event.METRICS_EXPORTED:
                assert there.at == pytest.approx(here.at + 5 * 3600)


class TestRawUserText:
    FAKE = f"[2026-11-29 19:50:05] {finish('victim')}"

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("[http_server] Error: Invalid request: session id x", " does not exist"),
            ("session id x", " already exist, cannot open."),
            ("Abort request for rid=x", " not found in rid_to_state; likely already finished/removed."),
            ("Req Time Stats(rid=x", ", input len=1, output len=1, type=unknown): Unknown Time Stats"),
            (
                "ReqTimeStats(rid=x",
                ", input_len=1, cached_input_len=0, output_len=1, attempts=0, type=unknown): Unknown Time Stats",
            ),
            ("Session opened: x", " (active=1)"),
        ],
    )
    @pytest.mark.parametrize("ending", ["\n", "\r\n"])
    def test_lines_inside_are_no_records(self, before: str, after: str, ending: str, tmp_path: Path) -> None:
        log = f"[2026-11-29 19:50:04] {before}{ending}{self.FAKE}{ending}{after}\n[2026-11-29 19:50:09] {READY}\n"
        fact, ready = facts_of(log, tmp_path)
        assert fact.tainted
        assert fact.rid != "victim"
        assert fact.event is not Event.REQUEST_FINISHED
        assert fact.length == len(log.encode()) - len(f"[2026-11-29 19:50:09] {READY}\n")
        assert (ready.event, ready.tainted) == (Event.SERVER_READY, False)

    @pytest.mark.parametrize("bar", ["", "\r 50%|##   | 1/2 [00:01<00:01,  1.2s/it]\r"])
    def test_a_text_with_an_open_end_taints_what_follows(self, bar: str, tmp_path: Path) -> None:
        closing = "[http_server] Error: Invalid request: close was requested for session x"
        access = '[2026-11-29 19:50:06] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 400 Bad Request'
        log = f"[2026-11-29 19:50:04] {closing}\n{bar}{self.FAKE}\n{access}\n[2026-11-29 19:50:09] {finish('real')}\n"
        by_rid = {fact.rid: fact for fact in facts_of(log, tmp_path) if fact.event is Event.REQUEST_FINISHED}
        assert by_rid["victim"].tainted
        assert not by_rid["real"].tainted

    def test_an_imitated_end_is_found_out_by_the_real_one(self, tmp_path: Path) -> None:
        after = " already exist, cannot open."
        log = f"[2026-11-29 19:50:04] session id x\ny{after}\n{self.FAKE}\nz{after}\n[2026-11-29 19:50:09] {READY}\n"
        finished = [fact for fact in facts_of(log, tmp_path) if fact.event is Event.REQUEST_FINISHED]
        assert [fact.tainted for fact in finished] == [True]

    def test_an_end_that_never_comes_loses_nothing(self, tmp_path: Path) -> None:
        follow = "".join(f"[2026-11-29 19:50:05] {finish(f'r-{n}')}\n" for n in range(50))
        log = f"[2026-11-29 19:50:04] session id x\n{follow}"
        facts = facts_of(log, tmp_path)
        assert [fact.rid for fact in facts] == [f"r-{n}" for n in range(50)]
        assert all(fact.tainted for fact in facts)

    @pytest.mark.parametrize(
        "line",
        [
            "[2026-11-29 19:50:04 TP0] Session 172.20.0.9:15004 failed.",
            "Session affinity is switched on in our gateway.",
        ],
    )
    def test_what_only_begins_like_such_a_text_hides_nothing(self, line: str, tmp_path: Path) -> None:
        facts = facts_of(f"{line}\n[2026-11-29 19:50:05] {finish('r-1')}\n", tmp_path)
        assert [fact.tainted for fact in facts if fact.event is Event.REQUEST_FINISHED] == [False]

    def test_a_quoted_rid_cannot_break_out(self, tmp_path: Path) -> None:
        rid = f"x'\n{self.FAKE}"
        log = f"[2026-11-29 19:50:04] Invalid request session id, self.rid={rid!r}\n"
        (fact,) = facts_of(log, tmp_path)
        assert (fact.rid, fact.event, fact.tainted) == (rid, Event.REQUEST_REJECTED, False)

    @pytest.mark.parametrize("name", ["0.5.10/s13b_injection", "0.5.23/s13b_injection_json"])
    def test_recorded_injections_are_tainted(self, name: str, recorded: Any) -> None:
        facts = recorded(name).evidence.facts
        raw = [fact for fact in facts if fact.detail.get("raw")]
        assert raw
        assert all(fact.tainted for fact in raw)
        victims = [fact for fact in facts if fact.rid == "victim" and not fact.tainted]
        assert {fact.event for fact in victims} == {
            Event.REQUEST_RECEIVED, Event.REQUEST_FINISHED, Event.REQUEST_STATS,
        }  # fmt: skip
        assert {fact.finish_type for fact in victims if fact.event is Event.REQUEST_FINISHED} == {"length"}


class TestRecords:
    TRACEBACK = (
        "Traceback (most recent call last):\n"
        '  File "/x/scheduler.py", line 12, in run_scheduler_process\n'
        "    scheduler.event_loop_overlap()\n"
        '  File "/x/scheduler.py", line 34, in event_loop_overlap\n'
        "    raise RuntimeError\n"
        "RuntimeError: dictionary changed size during iteration\n"
    )

    @pytest.mark.parametrize("same_line", [True, False])
    def test_a_traceback_is_one_record(self, same_line: bool, tmp_path: Path) -> None:
        start = "[2026-11-29 19:50:05 TP0] Scheduler hit an exception: "
        log = f"{start}{'' if same_line else chr(10)}{self.TRACEBACK}\n[2026-11-29 19:50:06] {READY}\n"
        crash, ready = facts_of(log, tmp_path)
        assert crash.event is Event.PROCESS_CRASHED
        assert crash.detail["exception"] == "RuntimeError: dictionary changed size during iteration"
        assert crash.detail["frames"] == ["run_scheduler_process", "event_loop_overlap"]
        assert crash.offset + crash.length >= log.index("RuntimeError: dictionary") + len("RuntimeError: dictionary")
        assert ready.event is Event.SERVER_READY

    def test_a_traceback_ends_with_the_block_that_it_was_pasted_in(self, tmp_path: Path) -> None:
        start = "[2026-11-29 19:50:05 TP0] Scheduler hit an exception: "
        log = f"It stops:\n```shell\n{start}{self.TRACEBACK}```\n\nEnvironment\n"
        (crash,) = facts_of(log, tmp_path)
        assert crash.detail["exception"] == "RuntimeError: dictionary changed size during iteration"
        assert crash.offset + crash.length == log.index("\n```\n") + 1

    def test_a_fence_within_a_dump_is_a_prompts(self, tmp_path: Path) -> None:
        dump = "[2026-11-29 19:50:05] self.cur_batch.batch_size()=2, self.cur_batch.reqs=["
        log = f"{dump}Req(rid=a, input_ids=[1], text=\n```\n), Req(rid=b, input_ids=[1])]\n"
        (fact,) = facts_of(log, tmp_path)
        assert fact.detail["rids"] == ["a", "b"]

    def test_the_recorded_crash_names_its_exception(self, recorded: Any) -> None:
        facts = recorded("0.5.10/s11d_model_exception").evidence.facts
        (crash,) = [fact for fact in facts if fact.event is Event.PROCESS_CRASHED]
        raw = read_span(crash.source, crash.offset, crash.length).decode()
        assert crash.detail["exception"] in raw
        assert raw.count("Traceback (most recent call last)") >= 1
        assert not [f for f in facts if crash.offset < f.offset < crash.offset + crash.length]

    def test_unknown_lines_are_counted_and_make_no_facts(self, tmp_path: Path) -> None:
        log = f"[2026-11-29 19:50:05] never heard of this\nnor of this\n\n[2026-11-29 19:50:06] {READY}\n"
        evidence = evidence_of(log, tmp_path)
        (source,) = evidence.sources
        assert len(evidence.facts) == 1
        assert (source.lines, source.recognised, source.unknown) == (4, 1, 2)

    def test_a_file_without_a_last_newline_loses_nothing(self, tmp_path: Path) -> None:
        (fact,) = facts_of(f"[2026-11-29 19:50:05] {finish('a')}", tmp_path)
        assert fact.rid == "a"

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_bytes(b"[2026-11-29 19:50:05] \xff\xfe\n" + f"[2026-11-29 19:50:06] {finish('a')}\n".encode())
        assert [fact.rid for fact in read([str(log)]).facts] == ["a"]


class TestDuplicates:
    def test_a_record_in_two_targets_is_one_fact(self, recorded: Any) -> None:
        scenario = recorded("0.5.10/s12_text_dir")
        assert len(scenario.files) == 2
        apart = [read([str(path)]).facts for path in scenario.files]
        kinds = {Event.REQUEST_RECEIVED, Event.REQUEST_FINISHED}
        counts = [Counter((f.event, f.rid) for f in facts if f.event in kinds) for facts in apart]
        assert all(counts)
        together = Counter((f.event, f.rid) for f in scenario.evidence.facts if f.event in kinds)
        assert together == counts[0] | counts[1]
        assert together.total() < counts[0].total() + counts[1].total()

    def test_a_record_that_one_file_repeats_stays_repeated(self, tmp_path: Path) -> None:
        line = f"[2026-11-29 19:50:05] {receive('a')}\n"
        assert len(facts_of(line * 2, tmp_path)) == 2
        (tmp_path / "copy.log").write_text(line)
        assert len(read([str(tmp_path)]).facts) == 2

    def test_the_same_file_named_twice_is_read_once(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text(f"[2026-11-29 19:50:05] {READY}\n")
        (tmp_path / "link.log").symlink_to(log)
        assert len(read([str(log), str(tmp_path), str(log)]).facts) == 1


def test_progress_ends_at_the_whole(recorded: Any) -> None:
    scenario = recorded("0.5.10/s12_text_dir")
    seen: list[tuple[int, int]] = []
    read([str(scenario.logs)], progress=lambda done, total: seen.append((done, total)))
    size = sum(path.stat().st_size for path in scenario.files)
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_number_beyond_all_bounds_is_none(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-11-29 19:00:00] Finish: obj=GenerateReqInput(rid='a', text='x'), out={'text': '', 'meta_info': "
        "{'id': 'a', 'finish_reason': {'type': 'stop'}, 'response_sent_to_client_ts': 1e999, 'e2e_latency': 1e999}}\n"
    )
    [fact] = read([str(log)]).facts
    assert (fact.rid, fact.e2e_s, fact.at_from) == ("a", None, "own")


def test_a_line_that_is_said_again_and_again_is_counted(recorded: Any) -> None:
    scenario = recorded("0.5.18/s12_timestats")
    facts = [fact for fact in scenario.evidence.facts if fact.event is Event.OUTPUT_UNDELIVERABLE]
    written = [line for line in scenario.raw.splitlines() if b"Received output for rid=" in line]
    assert sum(1 + fact.detail.get("again", 0) for fact in facts) == len(written)
    assert len(facts) < len(written)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{0} INFO: 1:1 - "GET /health HTTP/1.1" 200 OK'] * 5, [4]),
        (['{0} INFO: 1:1 - "POST /generate HTTP/1.1" 200 OK'] * 5, [0] * 5),  # each answers a request of its own
        (
            ['{0} INFO: 1:1 - "GET /health HTTP/1.1" 200 OK', '{1} INFO: 1:1 - "GET /health HTTP/1.1" 200 OK'] * 3,
            [0] * 6,
        ),
    ],
)
def test_only_what_directly_repeats_a_line_is_counted(lines: list[str], said: list[int], tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("\n".join(line.format("[2026-10-30 01:05:00]", "[2026-10-30 01:05:01]") for line in lines))
    assert [fact.detail.get("again", 0) for fact in read([str(log)]).facts] == said
