"""The public command: exit codes, and what goes to which stream."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle import __version__
from sglang_lifecycle.analyzers.listing import Audit, ServerEvent
from sglang_lifecycle.analyzers.verdict import EvidenceLine, Verdict
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.parsers.evidence import Event, Fact, Source
from sglang_lifecycle.parsers.versions import RELEASES

Capture = pytest.CaptureFixture[str]
COMMAND = [sys.executable, "-m", "sglang_lifecycle"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=os.environ | environment)


def one_line(text: str) -> str:
    assert text.endswith("\n")
    assert text.count("\n") == 1
    return text[:-1]


class TestExplain:
    def test_answers_people(self, world: Any, capsys: Capture) -> None:
        assert main(["explain", "wt-7", "server.log"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith("Request wt-7 waited too long in the queue: proven.\n")
        assert err == ""
        assert world.asked["paths"] == ["server.log"]

    def test_answers_programs(self, world: Any, capsys: Capture) -> None:
        assert main(["explain", "wt-7", "server.log", "--json"]) == 0
        out, err = capsys.readouterr()
        answer = json.loads(one_line(out))
        assert Verdict.model_validate(answer).rid == "wt-7"
        assert answer["matched_by"] == "rid"
        assert answer["sglang_version"] == {"value": "0.5.10", "from": "fingerprint"}
        assert err == ""

    def test_fills_in_excerpts(self, world: Any, capsys: Capture) -> None:
        world.verdicts["wt-7"].evidence[:] = [
            EvidenceLine(source="server.log", line=1, event="e", offset=5, length=7),
            EvidenceLine(source="server.log", line=2, event="e", offset=9, length=9, text="kept"),
        ]
        main(["explain", "wt-7", "server.log", "--json"])
        assert [line["text"] for line in json.loads(capsys.readouterr().out)["evidence"]] == ["quoted 5+7", "kept"]
        world.verdicts["wt-7"].evidence[0].text = ""
        main(["explain", "wt-7", "server.log"])
        assert "quoted 5+7" in capsys.readouterr().out

    def test_an_input_that_has_gone_costs_the_excerpt_only(
        self, world: Any, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def quote(*_: object) -> str:
            raise FileNotFoundError

        monkeypatch.setattr(sys.modules["sglang_lifecycle.parsers.quote"], "quote", quote)
        world.verdicts["wt-7"].evidence[:] = [EvidenceLine(source="server.log", line=1, event="e", length=7)]
        assert main(["explain", "wt-7", "server.log"]) == 0
        assert "server.log:1 " in capsys.readouterr().out

    def test_takes_a_beginning(self, world: Any, capsys: Capture) -> None:
        del world.evidence.facts[1:]
        assert main(["explain", "wt", "server.log", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["rid"], answer["matched_by"]) == ("wt-7", "prefix")

    def test_lists_the_matches_of_an_ambiguous_beginning(self, world: Any, capsys: Capture) -> None:
        assert main(["explain", "wt-", "server.log"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == [
            "lifecycle: error: 'wt-' is the beginning of 3 request ids; give more of it",
            "  wt-7",
            "  wt-8",
            "  wt-9",
        ]

    def test_lists_no_more_than_twenty_matches(self, world: Any, capsys: Capture) -> None:
        world.evidence.facts = [Fact(Event.REQUEST_RECEIVED, "a", 1, 0, 1, rid=f"r{index:02}") for index in range(23)]
        assert main(["explain", "r", "server.log"]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 22
        assert lines[-2:] == ["  r19", "  and 3 more"]

    def test_time_bounds_narrow_a_beginning(self, world: Any, capsys: Capture) -> None:
        del world.evidence.facts[2:]
        assert main(["explain", "wt-", "server.log", "--json", "--since", "-30s"]) == 0
        assert json.loads(capsys.readouterr().out)["rid"] == "wt-8"

    def test_an_answer_outside_the_bounds_is_given_with_a_warning(self, world: Any, capsys: Capture) -> None:
        assert main(["explain", "wt-7", "server.log", "--since", "2026-08-03"]) == 0
        out, err = capsys.readouterr()
        assert out
        assert one_line(err).startswith(
            "lifecycle: warning: wt-7 lived outside --since/--until: from 2026-08-02 12:00:01"
        )

    def test_unknown_rid(self, world: Any, capsys: Capture) -> None:
        assert main(["explain", "nobody", "server.log"]) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert one_line(err).startswith(
            "lifecycle: error: no request 'nobody' in the inputs (1 input, 3 lines, from 2026-"
        )

    def test_unknown_rid_as_json_is_still_an_object(self, world: Any, capsys: Capture) -> None:
        assert main(["explain", "nobody", "server.log", "--json"]) == 3
        out, err = capsys.readouterr()
        assert json.loads(one_line(out))["status"] == "not-found"
        assert one_line(err).startswith("lifecycle: error: ")

    def test_unknown_rid_gets_a_hint(self, world: Any, capsys: Capture, tmp_path: Path) -> None:
        main(["explain", "t-8", "server.log"])
        assert "did you mean 'wt-8'?" in capsys.readouterr().err
        main(["explain", str(tmp_path), "wt-8"])
        assert "the request id comes before the paths" in capsys.readouterr().err

    @pytest.mark.parametrize("typed", ["jbo-12", "Job-12", "job12", "job--12", "xob-12", "job-22"])
    def test_a_mistyped_rid_gets_a_hint(self, world: Any, capsys: Capture, typed: str) -> None:
        world.evidence.facts[0].rid = "job-12"
        assert main(["explain", typed, "server.log"]) == 3
        assert "did you mean 'job-12'?" in capsys.readouterr().err

    @pytest.mark.parametrize("typed", ["wt-7 ", "'wt-7'", "rid=wt-7", "rid='wt-7', ", '"rid": "wt-7"', "\twt-7\n"])
    def test_what_was_pasted_around_a_rid_is_taken_off(self, world: Any, capsys: Capture, typed: str) -> None:
        assert main(["explain", typed, "server.log", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["rid"], answer["matched_by"]) == ("wt-7", "rid")

    def test_a_rid_may_look_as_if_it_were_pasted(self, world: Any, capsys: Capture) -> None:
        world.evidence.facts[0].rid = "rid=wt-8 "
        world.verdicts["rid=wt-8 "] = world.verdicts["wt-8"].model_copy(update={"rid": "rid=wt-8 "})
        assert main(["explain", "rid=wt-8 ", "server.log", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rid"] == "rid=wt-8 "

    def test_several_rids(self, world: Any, capsys: Capture) -> None:
        arguments = ["explain", "wt-7", "server.log", "--rid", "wt-8", "--rid", "nobody", "--rid", "wt-7"]
        assert main([*arguments, "--json"]) == 0
        out, err = capsys.readouterr()
        statuses = [(answer["rid"], answer["status"]) for answer in map(json.loads, out.splitlines())]
        assert statuses == [("wt-7", "interrupted"), ("wt-8", "interrupted"), ("nobody", "not-found")]
        assert one_line(err).startswith("lifecycle: warning: no request 'nobody'")
        assert main(arguments) == 0
        out, _ = capsys.readouterr()
        assert [line for line in out.splitlines() if line.startswith("Request ")] == [
            f"Request {rid} waited too long in the queue: proven." for rid in ("wt-7", "wt-8")
        ]

    def test_unreadable_path_is_reported_and_the_rest_answered(self, world: Any, capsys: Capture) -> None:
        world.evidence.failed = ["missing.log: no such file; check the path"]
        assert main(["explain", "wt-7", "server.log", "missing.log"]) == 4
        out, err = capsys.readouterr()
        assert out.startswith("Request wt-7 ")
        assert err == "lifecycle: error: missing.log: no such file; check the path\n"

    def test_unknown_rid_goes_before_unreadable_path(self, world: Any, capsys: Capture) -> None:
        world.evidence.failed = ["missing.log: no such file; check the path"]
        assert main(["explain", "nobody", "server.log", "missing.log"]) == 3
        assert capsys.readouterr().err.count("lifecycle: error: ") == 2

    def test_warnings_name_the_input(self, world: Any, capsys: Capture) -> None:
        world.evidence.sources = [Source("a\x1b.log", warnings=["empty", "a\x1b.log: odd", "a\x1b.log: gone"])]
        world.evidence.failed = ["a\x1b.log: gone"]
        assert main(["explain", "wt-7", "server.log"]) == 4
        assert capsys.readouterr().err.splitlines() == [
            "lifecycle: warning: a\\x1b.log: empty",
            "lifecycle: warning: a\\x1b.log: odd",
            "lifecycle: error: a\\x1b.log: gone",
        ]

    def test_bytes_that_are_no_text(self, world: Any, capsys: Capture) -> None:
        assert main(["explain", "no\udcffbody", "server.log", "--json"]) == 3
        assert json.loads(capsys.readouterr().out)["rid"] == "no\ufffdbody"

    def test_passes_zone_and_version_on(self, world: Any, capsys: Capture) -> None:
        assert main(["explain", "wt-7", "-", "--tz", "Asia/Tokyo", "--display-tz", "+09:00"]) == 0
        assert (world.asked["tz"], world.asked["paths"]) == ("Asia/Tokyo", ["-"])
        assert "21:00:21.500 UTC+09:00" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("told", "counts"), [("9.9.9", RELEASES[-1]), ("0.5.3.post1", "0.5.3"), ("0.1.9", "0.3.6")]
    )
    def test_a_release_that_counts_as_another(self, world: Any, capsys: Capture, told: str, counts: str) -> None:
        assert main(["explain", "wt-7", "server.log", "--sglang-version", told]) == 0
        said = f"SGLang {told} is no release that is known here; it counts as {counts}, the nearest one"
        assert one_line(capsys.readouterr().err) == f"lifecycle: warning: {said}"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["explain"],
            ["explain", "wt-7"],
            ["explain", "", "server.log"],
            ["explain", "wt-7", "server.log", "--nonsense"],
            ["explain", "wt-7", "server.log", "--since", "noon"],
            ["explain", "wt-7", "server.log", "--tz", "Mars/Olympus"],
            ["explain", "wt-7", "server.log", "--display-tz", "Mars\nOlympus"],
            ["explain", "wt-7", "server.log", "--sglang-version", "newest"],
            ["explain", "wt-7", "server.log", "--sglang-version", "0.5.10xyz"],
            ["explain", "wt-7", "server.log", "--since", "12:00", "--until", "11:00"],
            ["audit"],
            ["audit", "server.log", "--format", "yaml"],
            ["causes", "waiting-timeou"],
            ["schema", "nonsense"],
            ["nonsense"],
            [],
        ],
    )
    def test_wrong_usage_is_one_line(self, world: Any, capsys: Capture, arguments: list[str]) -> None:
        assert main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert one_line(err).startswith("lifecycle: error: ")

    def test_wrong_usage_is_told_before_reading(self, world: Any) -> None:
        main(["explain", "wt-7", "server.log", "--until", "noon"])
        assert world.asked == {}


class TestAudit:
    def test_table(self, world: Any, an_audit: Audit, capsys: Capture) -> None:
        world.audit = an_audit
        assert main(["audit", "server.log", "logs/"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith("6 requests: 5 interrupted")
        assert err == ""
        assert world.asked["paths"] == ["logs/", "server.log"], "the order of the paths decides nothing"
        assert (world.asked["since"], world.asked["until"]) == (None, None)

    def test_json(self, world: Any, an_audit: Audit, capsys: Capture) -> None:
        an_audit.server_events[0].evidence[0].length = 4
        world.audit = an_audit
        assert main(["audit", "server.log", "--format", "json"]) == 0
        answer = Audit.model_validate_json(one_line(capsys.readouterr().out))
        assert answer.server_events[0].evidence[0].text == "quoted 0+4"
        assert answer.requests == an_audit.requests

    def test_json_as_other_commands_have_it(self, world: Any, an_audit: Audit, capsys: Capture) -> None:
        world.audit = an_audit
        assert main(["audit", "server.log", "--json"]) == 0
        assert Audit.model_validate_json(one_line(capsys.readouterr().out)).requests == an_audit.requests

    @pytest.mark.parametrize("bound", [("--since", "2027-08-02T12:00"), ("--until", "2020-01-01")])
    def test_bounds_that_miss_the_logs(self, world: Any, capsys: Capture, bound: tuple[str, str]) -> None:
        assert main(["audit", "server.log", *bound]) == 0
        assert one_line(capsys.readouterr().err) == (
            "lifecycle: warning: --since/--until lie outside of the logs, which cover the time"
            " from 2026-08-02 12:00:01.500 UTC to 2026-08-02 12:01:01.500 UTC"
        )

    def test_bounds(self, world: Any, capsys: Capture) -> None:
        assert main(["audit", "server.log", "--since", "-1m", "--until", "12:01:00"]) == 0
        shown = [datetime.fromtimestamp(world.asked[key], UTC).strftime("%H:%M:%S.%f") for key in ("since", "until")]
        assert shown == ["12:00:01.500000", "12:01:00.000000"]

    def test_unreadable_path(self, world: Any, capsys: Capture) -> None:
        world.evidence.failed = ["missing.log: no such file; check the path"]
        assert main(["audit", "missing.log", "--format", "json"]) == 4
        out, err = capsys.readouterr()
        assert json.loads(out)["schema_version"] == 1
        assert one_line(err) == "lifecycle: error: missing.log: no such file; check the path"

    def test_all(self, world: Any, capsys: Capture) -> None:
        world.audit = Audit(server_events=[ServerEvent(cause="server-restarted", summary="again")] * 60)
        main(["audit", "server.log"])
        assert capsys.readouterr().out.count("again") == 50
        main(["audit", "server.log", "--all"])
        assert capsys.readouterr().out.count("again") == 60


class TestCauses:
    def test_list(self, capsys: Capture) -> None:
        assert main(["causes"]) == 0
        out = capsys.readouterr().out
        assert "\nSession: how the request was built\n" in out
        assert "  waiting-timeout " in out

    def test_one(self, capsys: Capture) -> None:
        assert main(["causes", "waiting-timeout"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("waiting-timeout  … waited too long in the queue\n")
        assert "\nEasily confused with\n" in out

    def test_one_with_known_faults(self, capsys: Capture) -> None:
        assert main(["causes", "timeout-prefix-collision"]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert f"since 0.5.20, in {RELEASES[-1]} still there (timeout-by-prefix). A timeout message with status" in out
        assert "Requests far below their limit are ended" in out

    def test_a_fault_that_went_without_a_known_fix(self, capsys: Capture) -> None:
        assert main(["causes", "abort-without-effect"]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "since 0.5.18, gone after 0.5.18 (abort-task-fails" in out

    def test_json(self, capsys: Capture) -> None:
        assert main(["causes", "--json"]) == 0
        ids = [each["id"] for each in json.loads(capsys.readouterr().out)]
        assert main(["causes", "queue-full", "--json"]) == 0
        one = json.loads(capsys.readouterr().out)
        assert one["id"] in ids
        assert one["meaning"]

    def test_near_miss(self, capsys: Capture) -> None:
        assert main(["causes", "queue-ful"]) == 2
        assert "did you mean queue-full" in capsys.readouterr().err


class TestSchema:
    @pytest.mark.parametrize(("name", "title"), [("explain", "Verdict"), ("audit", "Audit")])
    def test_one(self, name: str, title: str, capsys: Capture) -> None:
        assert main(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out)["title"] == title

    def test_names_are_those_of_the_json(self, capsys: Capture) -> None:
        main(["schema"])
        version = json.loads(capsys.readouterr().out)["explain"]["$defs"]["Version"]
        assert set(version["properties"]) == {"value", "from"}


class TestEnds:
    """Every way in which the command ends."""

    def test_interrupt(self, world: Any, capsys: Capture) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        world.during_read = interrupt
        assert main(["audit", "server.log"]) == 130
        assert one_line(capsys.readouterr().err) == "lifecycle: error: interrupted"

    def test_internal_error(self, world: Any, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise KeyError("lost\nkey")

        world.during_read = fail
        monkeypatch.delenv("LIFECYCLE_DEBUG", raising=False)
        assert main(["audit", "server.log"]) == 1
        assert one_line(capsys.readouterr().err).startswith("lifecycle: error: internal error: KeyError: 'lost\\nkey'")
        monkeypatch.setenv("LIFECYCLE_DEBUG", "1")
        assert main(["audit", "server.log"]) == 1
        assert "Traceback" in capsys.readouterr().err

    @pytest.mark.parametrize("arguments", [["causes"], ["--help"], ["--version"], ["schema"]])
    def test_closed_pipe(self, arguments: list[str]) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as closed:
            result = subprocess.run([*COMMAND, *arguments], stdout=closed, stderr=subprocess.PIPE, text=True)
        assert (result.returncode, result.stderr) == (0, "")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
    def test_full_disk(self) -> None:
        with open("/dev/full", "w") as full:
            result = subprocess.run([*COMMAND, "causes"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert result.returncode == 1
        assert one_line(result.stderr).startswith("lifecycle: error: the answer can't be written to stdout: No space")

    def test_version(self) -> None:
        result = run("--version")
        assert (result.returncode, result.stdout, result.stderr) == (
            0,
            f"lifecycle {__version__}, for SGLang up to {RELEASES[-1]}\n",
            "",
        )

    @pytest.mark.parametrize("command", ["audit", "find", "sessions", "doctor", "watch", "replay run", "explain s14"])
    def test_quiet_is_understood_by_whatever_reads_logs(self, command: str, tmp_path: Path, capsys: Capture) -> None:
        (tmp_path / "core.bin").write_bytes(b"\x7fELF\0\1\2")
        main([*command.split(), str(tmp_path)])
        assert "warning" in capsys.readouterr().err
        main([*command.split(), str(tmp_path), "-q"])
        assert "warning" not in capsys.readouterr().err
        assert main([*command.split(), str(tmp_path), "-q", "--config", str(tmp_path / "none.toml")]) != 0
        assert "none.toml" in capsys.readouterr().err

    def test_help_names_the_exit_codes(self) -> None:
        result = run("-h")
        assert result.returncode == 0
        assert "3\n  request not in the inputs" in result.stdout

    def test_a_terminal_without_unicode(self) -> None:
        result = run("causes", "waiting-timeout", PYTHONIOENCODING="ascii")
        assert result.returncode == 0
        assert result.stdout.isascii()
        assert "\\u" not in result.stdout


class TestColour:
    @pytest.mark.parametrize(
        ("arguments", "terminal", "environment", "colored"),
        [
            (["causes"], False, {}, False),
            (["causes"], True, {}, True),
            (["causes"], True, {"NO_COLOR": "1"}, False),
            (["causes"], True, {"NO_COLOR": ""}, True),
            (["causes"], True, {"TERM": "dumb"}, False),
            (["causes", "--color"], False, {}, True),
            (["--color", "causes"], False, {}, True),
            (["causes", "--color"], True, {"NO_COLOR": "1"}, True),
            (["--no-color", "causes"], True, {}, False),
            (["--color", "causes", "--no-color"], True, {}, False),
        ],
    )
    def test_who_decides(
        self,
        arguments: list[str],
        terminal: bool,
        environment: dict[str, str],
        colored: bool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name, value in ({"NO_COLOR": "", "TERM": "xterm"} | environment).items():
            monkeypatch.setenv(name, value)
        out = Stream(terminal)
        monkeypatch.setattr(sys, "stdout", out)
        assert main(arguments) == 0
        assert ("\x1b[" in out.getvalue()) is colored


class Stream(io.StringIO):
    """A stream that says it is a terminal, or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class TestProgress:
    def test_none_where_nobody_watches(self, world: Any, capsys: Capture) -> None:
        main(["audit", "server.log"])
        assert world.asked["progress"] is None

    def test_a_bar_for_long_work_on_a_terminal(self, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        err, out = Stream(True), Stream(False)
        monkeypatch.setattr(sys, "stderr", err)
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr("sglang_lifecycle.cli.output.PATIENCE", 0)
        world.during_read = lambda: world.asked["progress"](500_000, 1_000_000)
        assert main(["audit", "server.log", "--format", "json"]) == 0
        assert "0.5/1.0 MB" in err.getvalue()
        assert json.loads(out.getvalue())

    def test_no_bar_for_short_work(self, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        err = Stream(True)
        monkeypatch.setattr(sys, "stderr", err)
        monkeypatch.setattr(sys, "stdout", Stream(False))
        monkeypatch.setattr("sglang_lifecycle.cli.output.PATIENCE", 3600)
        world.during_read = lambda: world.asked["progress"](500_000, 1_000_000)
        assert main(["audit", "server.log"]) == 0
        assert err.getvalue() == ""
