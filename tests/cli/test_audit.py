"""`audit` as a gate of a pipeline: thresholds, baselines, files, pipes and full disks."""

from __future__ import annotations

import csv
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers.listing import Audit
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.formats import ENDINGS

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def logs(recorded: Any) -> str:
    return str(recorded("0.5.23/s14_timeout_prefix").logs)


def audit(*arguments: str, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sglang_lifecycle", "audit", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


class TestThresholds:
    def test_a_crossed_one_ends_with_5_and_says_by_whom(self, logs: str, capsys: Capture) -> None:
        code = main(["audit", logs, "--format", "json", "--fail-on", "timeout-prefix-* > 3", "--fail-on", "* < 1%"])
        out, err = capsys.readouterr()
        assert code == 5
        assert err == (
            "lifecycle: error: 1 threshold crossed\n"
            "  timeout-prefix-* > 3: 4 of 14 requests (28.6%): job-12, job-10, job-11, job-1-chat\n"
        )
        first, second = json.loads(out)["thresholds"]
        assert (first["crossed"], first["rids"]) == (True, ["job-12", "job-10", "job-11", "job-1-chat"])
        assert (second["crossed"], second["rids"]) == (False, [])

    def test_kept_ones_end_with_0(self, logs: str, capsys: Capture) -> None:
        assert main(["audit", logs, "--fail-on", "scheduler-crash > 0"]) == 0
        out, err = capsys.readouterr()
        assert "scheduler-crash > 0  kept" in out
        assert err == ""

    def test_many_requests_are_not_all_named_on_stderr(self, world: Any, an_audit: Audit, capsys: Capture) -> None:
        an_audit.requests = [an_audit.requests[0].model_copy(update={"rid": f"r{n}"}) for n in range(30)]
        world.audit = an_audit
        assert main(["audit", "server.log", "--fail-on", "waiting-timeout > 0"]) == 5
        assert "r18, r19 and 10 more\n" in capsys.readouterr().err

    def test_a_malformed_one_is_wrong_usage_before_anything_is_read(self, world: Any, capsys: Capture) -> None:
        assert main(["audit", "server.log", "--fail-on", "wating-timeout > 1"]) == 2
        out, err = capsys.readouterr()
        assert (out, world.asked) == ("", {})
        assert err.startswith("lifecycle: error: --fail-on: 'wating-timeout > 1': no cause is named 'wating-timeout'")

    def test_a_crossed_one_outranks_a_missing_path(self, logs: str, capsys: Capture) -> None:
        assert main(["audit", logs, "missing.log", "--fail-on", "interrupted > 0"]) == 5
        assert "missing.log" in capsys.readouterr().err

    def test_a_reader_who_leaves_does_not_hide_it(self, logs: str) -> None:
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            gone = audit(logs, "--fail-on", "interrupted > 0", stdout=pipe)
        assert gone.returncode == 5
        assert gone.stderr.startswith("lifecycle: error: 1 threshold crossed\n")
        assert "Exception" not in gone.stderr


class TestIgnored:
    def test_ignored_requests_leave_the_totals(
        self, logs: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        main(["audit", logs, "--format", "json"])
        before = json.loads(capsys.readouterr().out)
        monkeypatch.setenv("LIFECYCLE_IGNORE", "job-1*, nobody")
        assert main(["audit", logs, "--format", "json", "--fail-on", "timeout-prefix-collision > 0"]) == 0
        after = json.loads(capsys.readouterr().out)
        ignored = [row["rid"] for row in after["requests"] if row["synthetic"] and row["rid"].startswith("job-1")]
        assert len(ignored) >= 5
        assert after["totals"]["requests"] == before["totals"]["requests"] - len(ignored)
        assert "timeout-prefix-collision" not in after["totals"]["by_cause"]


class TestBaseline:
    def test_it_is_compared(self, recorded: Any, tmp_path: Path, logs: str, capsys: Capture) -> None:
        old = tmp_path / "old.json"
        assert main(["audit", str(recorded("0.5.23/s06_abort").logs), "--format", "json", "-o", str(old)]) == 0
        assert main(["audit", logs, "--baseline", str(old), "--format", "json"]) == 0
        comparison = json.loads(capsys.readouterr().out)["comparison"]
        changes = {each["cause"]: each["change"] for each in comparison["causes"]}
        assert changes["waiting-timeout"] == "new"
        assert changes["abort-all"] == "vanished"
        assert comparison["baseline"] == str(old)
        for format in ("table", "markdown", "html", "ndjson"):
            assert main(["audit", logs, "--baseline", str(old), "--format", format]) == 0
            assert "Fisher's exact test" in capsys.readouterr().out.replace("&#x27;", "'")

    @pytest.mark.parametrize(
        ("content", "names"),
        [
            (None, "cannot be read: No such file"),
            ("not json", "not the JSON of an audit"),
            ('{"schema_version": 2}', "not the JSON of an audit: schema_version"),
            ('{"rid": "x"}', "not the JSON of an audit: rid"),
        ],
    )
    def test_what_is_none_is_said_in_one_line(
        self, content: str | None, names: str, tmp_path: Path, world: Any, capsys: Capture
    ) -> None:
        old = tmp_path / "old.json"
        if content is not None:
            old.write_text(content)
        assert main(["audit", "server.log", "--baseline", str(old)]) == 4
        out, err = capsys.readouterr()
        assert (out, err.count("\n"), world.asked) == ("", 1, {})
        assert names in err


class TestOutput:
    def test_a_file_is_written_whole(self, logs: str, tmp_path: Path, capsys: Capture) -> None:
        file = tmp_path / "audit.json"
        file.write_text("older")
        assert main(["audit", logs, "--format", "json", "-o", str(file)]) == 0
        assert Audit.model_validate_json(file.read_bytes()).totals.requests == 14
        assert capsys.readouterr().out == ""
        assert list(tmp_path.iterdir()) == [file]
        assert stat.S_IMODE(file.stat().st_mode) & 0o111 == 0

    def test_a_link_stays_a_link(self, world: Any, tmp_path: Path) -> None:
        link, file = tmp_path / "latest", tmp_path / "real"
        link.symlink_to(file)
        assert main(["audit", "server.log", "-o", str(link)]) == 0
        assert link.is_symlink()
        assert file.read_text()

    @pytest.mark.parametrize("place", ["no/such/folder/x.json", "."])
    def test_an_unwritable_place_is_one_line(
        self, place: str, world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["audit", "server.log", "--format", "json", "-o", place]) == 4
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"lifecycle: error: {place}: the answer can't be written there: ")
        assert err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []

    def test_what_fails_midway_leaves_what_was_there(
        self, world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        file = tmp_path / "audit.json"
        file.write_text("older")

        def full(self: Path, target: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
        assert main(["audit", "server.log", "--format", "json", "-o", str(file)]) == 4
        assert "No space left on device" in capsys.readouterr().err
        assert file.read_text() == "older"
        assert list(tmp_path.iterdir()) == [file]

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
    @pytest.mark.parametrize("format", ["json", "parquet", "table"])
    def test_a_full_disk_is_one_line(self, format: str, logs: str) -> None:
        to_device = audit(logs, "--format", format, "-o", "/dev/full")
        with open("/dev/full", "wb") as full:
            to_stdout = audit(logs, "--format", format, stdout=full)
        for result in (to_device, to_stdout):
            assert result.returncode != 0
            assert "No space left on device" in result.stderr
            assert result.stderr.count("\n") == 1
        assert stat.S_ISCHR(os.stat("/dev/full").st_mode), "the device was written to, not replaced"


class TestQuiet:
    def test_warnings_are_left_out_errors_stay(self, world: Any, capsys: Capture) -> None:
        world.evidence.sources[0].warnings.append("server.log: it ends in the middle of a line")
        main(["audit", "server.log"])
        assert "in the middle" in capsys.readouterr().err
        for arguments in (["audit", "server.log", "--quiet"], ["-q", "audit", "server.log"]):
            main(arguments)
            assert capsys.readouterr().err == ""
        world.evidence.failed.append("gone.log: no such file")
        assert main(["audit", "server.log", "-q"]) == 4
        assert "gone.log" in capsys.readouterr().err
        main(["audit", "server.log"])
        assert "in the middle" in capsys.readouterr().err, "quiet lasts for one command"


class TestServers:
    """With several servers, the first question is which one it was."""

    @pytest.fixture
    def two(self, recorded: Any, tmp_path: Path) -> str:
        for name, scenario in (("a", "0.5.23/s14_timeout_prefix"), ("b", "0.5.23/s06_abort")):
            (tmp_path / name).mkdir()
            shutil.copy(recorded(scenario).server_log, tmp_path / name / "server.log")
        return str(tmp_path)

    def test_each_request_names_its_own(self, two: str, capsys: Capture) -> None:
        assert main(["audit", two, "--json"]) == 0
        servers = {row["rid"]: row["server"] for row in json.loads(capsys.readouterr().out)["requests"]}
        assert servers["job-12"] == f"{two}/a/server.log"
        assert servers["msg-1"] == f"{two}/b/server.log"
        assert main(["audit", two, "--format", "csv"]) == 0
        rows = csv.DictReader(capsys.readouterr().out.splitlines())
        assert {row["rid"]: row["server"] for row in rows} == servers

    @pytest.mark.parametrize("arguments", [["audit"], ["audit", "--format", "markdown"], ["find", "--at", "19:50:07"]])
    def test_people_see_it_without_what_all_share(self, arguments: list[str], two: str, capsys: Capture) -> None:
        assert main([*arguments, two]) == 0
        (line, *_) = [line for line in capsys.readouterr().out.splitlines() if "job-12" in line]
        assert "a/server.log" in line
        assert two not in line

    def test_one_server_is_not_named(self, logs: str, capsys: Capture) -> None:
        assert main(["audit", logs]) == 0
        (heads,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("    rid ")]
        assert "server" not in heads

    def test_lives_of_a_rid_on_two_servers_are_told_apart(self, two: str, capsys: Capture) -> None:
        assert main(["explain", "job-10", two]) == 0
        out = capsys.readouterr().out
        assert "life 1 of a/server.log" in out
        assert "life 1 of b/server.log" in out


@pytest.mark.parametrize("name", ["a.json", "a.parquet", "a.csv", "a.md", "a.HTML", "a.xml", "a.prom", "a.ndjson"])
def test_a_file_is_what_its_name_says(name: str, recorded: Any, tmp_path: Path, capsys: Capture) -> None:
    logs, file = str(recorded("0.5.23/s14_timeout_prefix").logs), tmp_path / name
    assert main(["audit", logs, "-o", str(file)]) == 0
    told = tmp_path / "told"
    assert main(["audit", logs, "-o", str(told), "--format", ENDINGS[name.partition(".")[2].lower()]]) == 0
    assert file.read_bytes() == told.read_bytes()
    assert main(["audit", logs, "-o", str(file), "--format", "table"]) == 0
    assert file.read_bytes().startswith(b"14 requests: ")
    assert capsys.readouterr().out == ""


def test_who_may_have_finished_is_not_just_called_interrupted(recorded: Any, tmp_path: Path, capsys: Capture) -> None:
    lines = recorded("0.5.23/s14_timeout_prefix").server_log.read_bytes().splitlines(keepends=True)
    log = tmp_path / "server.log"
    log.write_bytes(b"".join(line for line in lines if b"Finish: obj=" not in line))
    assert main(["audit", str(log), "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    assert 0 < totals["perhaps_not"] <= totals["by_confidence"]["not-established"]
    main(["audit", str(log)])
    assert f"Of the undecided, {totals['perhaps_not']} may have" in " ".join(capsys.readouterr().out.split())


def test_bounds_ask_for_what_lived_between_them(recorded: Any, capsys: Capture) -> None:
    scenario = recorded("0.5.23/s14_timeout_prefix")
    bounds = ["--since", "2026-11-29T19:50:06", "--until", "2026-11-29T19:50:07"]
    assert main(["audit", str(scenario.logs), *bounds, "--format", "json"]) == 0
    listed = {row.rid for row in Audit.model_validate_json(capsys.readouterr().out).requests}
    assert {"job-1", "job-12", "other"} <= listed  # they came before and ended after
    assert listed < scenario.rows.keys()
