"""Inputs that are missing, unreadable, empty or no logs: one line each, the right exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.cli.app import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(recorded: Any) -> str:
    """A log in which job-12 was hit by job-1's timeout."""
    return str(recorded("0.5.23/s14_timeout_prefix").server_log)


def causes(text: str) -> dict[str, str]:
    return {row["rid"]: row["cause"] for row in json.loads(text)["requests"]}


def test_a_missing_path_costs_only_itself(log: str, tmp_path: Path, capsys: Capture) -> None:
    missing = str(tmp_path / "nowhere.log")
    assert main(["explain", "job-12", missing, log, "--json"]) == 4
    out, err = capsys.readouterr()
    assert json.loads(out)["cause"] == "timeout-prefix-collision"
    assert err == f"lifecycle: error: {missing}: no such file or folder\n"


def test_a_binary_file_is_refused_when_it_is_named(log: str, tmp_path: Path, capsys: Capture) -> None:
    binary = tmp_path / "core.bin"
    binary.write_bytes(b"\x7fELF\0\0\0" * 100)
    assert main(["audit", str(binary), log, "--format", "json"]) == 4
    out, err = capsys.readouterr()
    assert causes(out)["job-12"] == "timeout-prefix-collision"
    assert err == f"lifecycle: error: {binary}: a binary file, not a log\n"


def test_what_a_folder_holds_besides_logs_does_no_harm(log: str, tmp_path: Path, capsys: Capture) -> None:
    shutil.copy(log, tmp_path / "server.log")
    (tmp_path / "core.bin").write_bytes(b"\x7fELF\0\0\0" * 100)
    (tmp_path / "empty.log").touch()
    (tmp_path / "notes.txt").write_text("call the storage team\n")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    main(["audit", str(tmp_path), "--format", "json"])
    out, err = capsys.readouterr()
    assert causes(out)["job-12"] == "timeout-prefix-collision"
    lines = err.splitlines()
    assert f"lifecycle: warning: {tmp_path}/empty.log: empty, skipped" in lines
    assert f"lifecycle: warning: {tmp_path}/notes.txt: no line of an SGLang log was recognised, skipped" in lines
    assert not any("server.log" in line for line in lines)


@pytest.mark.parametrize("content", ["", "\n\n", "call the storage team\n"])
def test_a_file_that_says_nothing_finds_nobody(content: str, tmp_path: Path, capsys: Capture) -> None:
    log = tmp_path / "server.log"
    log.write_text(content)
    assert main(["explain", "job-12", str(log), "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "not-found"
    assert err.startswith(f"lifecycle: warning: {log}: ")
    assert main(["audit", str(log), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == []


AS_NOBODY = """
import contextlib, io, os, sys
from sglang_lifecycle.cli.app import main
closed, log = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()):
    main(["explain", "job-12", log, "--json"])  # imports all it needs while it still may
if os.geteuid() == 0:  # root may read everything
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(main(["explain", "job-12", closed, log, "--json"]))
"""


def test_a_path_that_is_empty_is_not_the_working_folder(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    shutil.copy(log, tmp_path / "server.log")
    monkeypatch.chdir(tmp_path)
    said = "lifecycle: error: '': the path is empty: no such file or folder\n"
    assert main(["audit", "", "--format", "json"]) == 4
    out, err = capsys.readouterr()
    assert (json.loads(out)["requests"], err) == ([], said)
    assert main(["watch", ""]) == 4
    assert capsys.readouterr() == ("", said)


def test_a_folder_without_a_file_is_named(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "deeper").mkdir()
    assert main(["audit", str(tmp_path), "--format", "json"]) == 0
    assert capsys.readouterr().err == f"lifecycle: warning: {tmp_path}: no file in it\n"


def test_many_files_that_are_no_logs_are_counted(log: str, tmp_path: Path, capsys: Capture) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("call the storage team\n")
    for number in range(3):
        (tmp_path / f"{number}.log").touch()
    assert main(["explain", "job-12", log, str(tmp_path), "--json"]) == 0
    assert capsys.readouterr().err == (
        "lifecycle: warning: 8 files skipped: no line of an SGLang log was recognised (5); empty (3);"
        " lifecycle doctor names them\n"
    )
    assert main(["doctor", log, str(tmp_path)]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 8


def test_a_file_that_we_may_not_read(log: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        open_, closed = Path(folder, "open.log"), Path(folder, "closed.log")
        for copy, mode in ((open_, 0o644), (closed, 0)):
            shutil.copyfile(log, copy)
            copy.chmod(mode)
        arguments = [sys.executable, "-c", AS_NOBODY, str(closed), str(open_)]
        result = subprocess.run(arguments, capture_output=True, text=True)
    assert result.stderr == f"lifecycle: error: {closed}: cannot be read: Permission denied\n"
    assert result.returncode == 4
    assert json.loads(result.stdout)["cause"] == "timeout-prefix-collision"


def test_a_path_that_cannot_be(log: str, capsys: Capture) -> None:
    assert main(["explain", "job-12", f"{log}/deeper", log, "--json"]) == 4
    out, err = capsys.readouterr()
    assert json.loads(out)["cause"] == "timeout-prefix-collision"
    assert err == f"lifecycle: error: {log}/deeper: cannot be read: Not a directory\n"


def test_an_unknown_rid(log: str, capsys: Capture) -> None:
    assert main(["explain", "nobody", log, "--json"]) == 3
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert (answer["rid"], answer["status"], answer["evidence"]) == ("nobody", "not-found", [])
    assert len(err.splitlines()) <= 1


def test_an_unknown_rid_beside_a_known_one(log: str, capsys: Capture) -> None:
    assert main(["explain", "nobody", log, "--json", "--rid", "job-12"]) == 0
    statuses = [json.loads(line)["status"] for line in capsys.readouterr().out.splitlines()]
    assert statuses == ["not-found", "interrupted"]


def test_not_found_goes_before_a_missing_path(tmp_path: Path, capsys: Capture) -> None:
    assert main(["explain", "job-12", str(tmp_path / "gone.log"), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["status"] == "not-found"


def test_an_ambiguous_beginning_lists_its_matches(log: str, capsys: Capture) -> None:
    assert main(["explain", "job", log]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, *matches = err.splitlines()
    assert first.startswith("lifecycle: error: 'job' is the beginning of 7 request ids")
    assert {match.strip() for match in matches} == {
        "job-1",
        "job-10",
        "job-11",
        "job-12",
        "job-1-chat",
        "job-2",
        "job-3",
    }


def test_a_whole_rid_goes_before_those_it_begins(log: str, capsys: Capture) -> None:
    assert main(["explain", "job-1", log, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["rid"], answer["matched_by"], answer["cause"]) == ("job-1", "rid", "waiting-timeout")


def test_a_beginning_that_only_one_has(log: str, capsys: Capture) -> None:
    assert main(["explain", "job-1-", log, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["rid"], answer["matched_by"]) == ("job-1-chat", "prefix")


@pytest.mark.parametrize(("name", "rid"), [("0.5.23/s11a_kill9_scheduler", "k9-r0"), ("0.5.23/s05_disconnect", "dr-s")])
def test_the_lines_of_one_rid_alone_do_not_say_what_ended_it(
    name: str, rid: str, recorded: Any, tmp_path: Path, capsys: Capture
) -> None:
    lines = recorded(name).server_log.read_text().splitlines(keepends=True)
    log = tmp_path / "grepped.log"
    log.write_text("".join(line for line in lines if rid in line))
    assert main(["explain", rid, str(log), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["confidence"]) == ("in-flight", "not-established")
    assert answer["summary"].startswith("Only this request's own lines were given")
    named = {each["cause"] for each in answer["candidates"]}
    assert {"finished", "client-disconnect", "process-killed"} <= named


def test_standard_input_is_a_log(log: str, capsys: Capture) -> None:
    main(["explain", "job-12", log, "--json"])
    from_file = json.loads(capsys.readouterr().out)
    result = subprocess.run(
        [sys.executable, "-m", "sglang_lifecycle", "explain", "job-12", "-", "--json"],
        input=Path(log).read_bytes(),
        capture_output=True,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    from_stdin = json.loads(result.stdout)
    assert {line["source"] for line in from_stdin["evidence"]} == {"-"}
    assert [line["text"] for line in from_stdin["evidence"]] == [line["text"] for line in from_file["evidence"]]
    assert (from_stdin["cause"], from_stdin["times"]) == (from_file["cause"], from_file["times"])


def test_evidence_shows_the_lines_it_names(log: str, capsys: Capture) -> None:
    main(["explain", "job-12", log, "--json"])
    answer = json.loads(capsys.readouterr().out)
    lines = Path(log).read_text("utf-8").split("\n")
    assert answer["evidence"]
    for line in answer["evidence"]:
        raw = lines[line["line"] - 1]
        assert line["text"][:40] == raw[:40]
        with open(log, "rb") as file:
            file.seek(line["offset"])
            assert file.read(line["length"]).decode("utf-8").rstrip("\n") == raw
