"""What logs hold and leave open, on recorded logs and on small ones made for what was not recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers.coverage import coverage
from sglang_lifecycle.analyzers.coverage_models import Coverage
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.lives import lives
from sglang_lifecycle.analyzers.questions import catalogue, open_questions
from sglang_lifecycle.parsers.log import read
from sglang_lifecycle.parsers.versions import RELEASES, key

Recorded = Callable[[str], Any]
Covered = Callable[..., Coverage]


def record(kind: str, rid: str, second: int, out: str = "", minute: int = 0, fields: str = "text='x'") -> str:
    stamp = f"[2026-11-29 12:{minute:02}:{second:02}] "
    return f"{stamp}{kind}: obj=GenerateReqInput(rid={rid!r}, stream=False, {fields}){out}"


def finish(rid: str, second: int, minute: int = 0, meta: str = "") -> str:
    reason = f", out={{'meta_info': {{'id': {rid!r}, 'finish_reason': {{'type': 'stop', 'matched': 2}}{meta}}}}}"
    return record("Finish", rid, second, reason, minute)


@pytest.fixture
def covered(tmp_path: Path) -> Covered:
    def cover(*lines: str, version: str | None = None, **others: list[str]) -> Coverage:
        for name, own in {"server": list(lines), **others}.items():
            (tmp_path / f"{name}.log").write_text("\n".join(own) + "\n", encoding="utf-8")
        return coverage(Incident(read([str(tmp_path)]), version))

    return cover


def asked(found: Coverage) -> dict[str, list[list[str]]]:
    return {question.id: [remedy.what for remedy in question.remedies] for question in found.questions}


class TestRecorded:
    def test_a_text_log_with_all_in_one_file(self, recorded: Recorded) -> None:
        (life,) = coverage(recorded("0.5.23/s02a_session").incident).lives
        assert life.sglang_version.value == "0.5.23"
        assert (life.request_log.switch, life.request_log.formats, life.request_log.levels) == ("on", ["text"], [2])
        assert (life.request_log.received, life.request_log.finished) == (28, 27)
        assert (life.requests, life.unfinished) == (27, 1)
        assert (life.time_stats, life.access_log, life.debug_lines, life.session_lines) == ("off", "on", "off", "on")
        assert life.processes == ["API server", "scheduler"]
        assert life.ended_by == "server-shutdown"
        assert life.arguments
        assert life.gaps == []

    def test_time_stats_are_seen(self, recorded: Recorded) -> None:
        found = coverage(recorded("0.5.18/s12_timestats").incident)
        assert found.lives[0].time_stats == "on"
        assert "durations" not in asked(found)

    def test_a_request_log_without_times(self, recorded: Recorded) -> None:
        found = coverage(recorded("0.5.10/s02c_session_replace").incident)
        assert found.lives[0].times["neighbours"] > 0
        assert asked(found)["arrival"] == [["--log-requests-format json"]]
        assert "arrival" not in asked(coverage(recorded("0.5.23/s02a_session").incident))

    def test_a_log_without_a_request_log(self, recorded: Recorded) -> None:
        found = coverage(recorded("0.5.23/s12_nolog").incident)
        assert found.lives[0].request_log.switch == "off"
        assert ["--log-requests", "--log-requests-level 1"] in asked(found)["requests"]

    def test_json_is_told_from_text(self, recorded: Recorded) -> None:
        assert coverage(recorded("0.5.23/s12_json_stdout").incident).lives[0].request_log.formats == ["json"]

    def test_level_one_shows_no_texts(self, recorded: Recorded) -> None:
        assert coverage(recorded("0.4.9/s12_level1").incident).lives[0].request_log.levels == [1]

    def test_every_life_is_told_of(self, recorded: Recorded) -> None:
        found = coverage(recorded("0.5.23/s18_two_lives").incident)
        assert [life.life for life in found.lives] == [1, 2]
        order = next(question for question in found.questions if question.id == "order")
        assert order.lives == [0, 1]

    def test_a_file_of_its_own_agrees_with_the_rest(self, recorded: Recorded) -> None:
        for offset in coverage(recorded("0.5.10/s12_text_dir").incident).offsets:
            assert offset.seconds == 0


class TestGaps:
    def test_a_long_silence_while_a_request_is_open(self, covered: Covered) -> None:
        found = covered(record("Receive", "a", 0), record("Receive", "b", 1), finish("b", 2), finish("a", 0, minute=5))
        (gap,) = found.lives[0].gaps
        assert (gap.seconds, gap.open) == (298.0, 1)
        assert "gap" in asked(found)

    def test_a_long_silence_with_nothing_open_is_none(self, covered: Covered) -> None:
        found = covered(
            record("Receive", "a", 0), finish("a", 1), record("Receive", "b", 0, minute=5), finish("b", 1, 5)
        )
        assert found.lives[0].gaps == []
        assert "gap" not in asked(found)

    def test_what_is_usual_is_no_gap(self, covered: Covered) -> None:
        lines = [record("Receive", "a", 0)]
        lines += [record("Receive", f"r{i}", 20 * i % 60, minute=i // 3) for i in range(1, 30)]
        assert covered(*lines, finish("a", 0, minute=10)).lives[0].gaps == []


class TestClocks:
    def test_sources_that_stand_apart(self, covered: Covered) -> None:
        stats = "[2026-11-29 12:01:0{}] Req Time Stats(rid=a, input len=5, output len=2, type=unified): queue_duration="
        found = covered(
            "[2026-11-29 12:00:00] The server is fired up and ready to roll!",
            record("Receive", "a", 0),
            finish("a", 3),
            second=[stats.format(2) + "1.00ms, forward_duration=2.00ms, start_time=1.000"],
        )
        (offset,) = found.offsets
        assert (offset.seconds, offset.requests) == (59.0, 1)
        assert offset.second.endswith("server.log") != offset.first.endswith("server.log")

    def test_lines_inside_a_request_agree(self, covered: Covered) -> None:
        stats = "[2026-11-29 12:00:02] Req Time Stats(rid=a, input len=5, output len=2, type=unified): queue_duration="
        found = covered(
            "[2026-11-29 12:00:00] The server is fired up and ready to roll!",
            record("Receive", "a", 0),
            finish("a", 3),
            second=[stats + "1.00ms, forward_duration=2.00ms, start_time=1.000"],
        )
        assert [offset.seconds for offset in found.offsets] == [0.0]

    @pytest.mark.parametrize(("hours", "offset"), [(0, 0.0), (2, 7200.0), (-5, -18000.0)])
    def test_a_zone_shows_in_the_stamps_inside_records(self, covered: Covered, hours: int, offset: float) -> None:
        sent = 1795953603.4 - 3600 * hours  # 2026-11-29 12:00:03 UTC
        meta = f", 'response_sent_to_client_ts': {sent}"
        assert covered(record("Receive", "a", 0), finish("a", 3, meta=meta)).lives[0].zone_offset_s == offset


class TestLevels:
    @pytest.mark.parametrize(
        ("version", "fields", "levels"),
        [
            ("0.5.23", "log_metrics=True", [0]),
            ("0.5.23", "log_metrics=True, sampling_params={}", [1]),
            ("0.5.23", "text='x', sampling_params={}", [2, 3]),
            ("0.4.6", "log_metrics=True, sampling_params={}", [0]),
            ("0.4.6", "text='x'", [1, 2]),
            ("0.4.2", "text='x'", [0, 1]),
        ],
    )
    def test_fields_tell_the_level(self, covered: Covered, version: str, fields: str, levels: list[int]) -> None:
        found = covered(record("Receive", "a", 0, fields=fields), version=version)
        assert found.lives[0].request_log.levels == levels


class TestQuestions:
    def test_only_what_a_release_has_is_suggested(self, covered: Covered) -> None:
        old = asked(covered(record("Receive", "a", 0), finish("a", 1), version="0.4.6"))
        new = asked(covered(record("Receive", "a", 0), finish("a", 1), version="0.5.23"))
        assert old["order"] == []
        assert new["order"] == [["SGLANG_LOG_MS=1"]]
        assert old["durations"] == []
        assert new["durations"] == [["--enable-request-time-stats-logging"]]
        assert new["queued-or-running"] == [["SGLANG_LOG_SCHEDULER_STATUS_TARGET=stdout", "--enable-metrics"]]

    def test_what_is_on_is_not_suggested(self, covered: Covered) -> None:
        line = "[2026-11-29 12:00:01.250] Abort running request. req.rid='a'"
        found = asked(
            covered(
                record("Receive", "a", 0),
                line,
                '[2026-11-29 12:00:02] INFO:     1.2.3.4:5 - "POST /abort_request HTTP/1.1" 200 OK',
            )
        )
        assert found.keys().isdisjoint({"abort-rid", "order", "abort-caller"})

    def test_an_abort_that_nothing_names(self, covered: Covered) -> None:
        found = asked(covered('[2026-11-29 12:00:02] INFO:     1.2.3.4:5 - "POST /abort_request HTTP/1.1" 200 OK'))
        assert found["abort-rid"] == [["--log-level debug"]]

    def test_nothing_is_asked_of_nothing(self) -> None:
        assert open_questions([], []) == []

    def test_every_need_has_a_remedy_and_every_remedy_a_need(self) -> None:
        needs = {need for question in catalogue().questions for need in question.needs}
        brought = {trait for means in catalogue().means for trait in means.brings_for}
        assert needs == brought

    def test_remedies_name_known_releases_in_order(self) -> None:
        for means in catalogue().means:
            assert {means.since, means.until} <= set(RELEASES)
            assert key(means.since) <= key(means.until)
            assert means.how in {"set", "unset", "call", "logs", "upgrade"}


def test_no_log_has_no_lives(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("")
    assert coverage(Incident(read([str(tmp_path)]))).lives == []


def test_a_log_that_speaks_of_no_server_goes_to_the_nearest_however_paths_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    ready = "[2026-10-30 01:05:00] The server is fired up and ready to roll!\n"
    for name in ("a.log", "other/b.log"):
        (tmp_path / name).write_text(ready)
    (tmp_path / "other/access.log").write_text(
        '[2026-10-30 01:05:00] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'
    )
    monkeypatch.chdir(tmp_path)
    other = str(tmp_path / "other")
    found = lives(read(["a.log", f"{other}/b.log", f"{other}/access.log"]).facts)
    assert {(life.server, len(life.facts)) for life in found} == {("a.log", 1), (f"{other}/b.log", 2)}
