"""Arrays of jobs: each reads its share, one joins them, and nothing differs from reading it all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.cli.app import main
from sglang_lifecycle.parsers import ranges, store


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded logs are small: as if they had many ranges."""
    monkeypatch.setattr(ranges, "SIZE", 10_000)


@pytest.mark.parametrize("name", ["0.5.23/s06_abort", "0.5.10/s06_abort", "0.5.23/s13_adversarial"])
def test_joined_shares_are_the_evidence(recorded: Any, name: str, tmp_path: Path, monkeypatch: Any) -> None:
    scenario = recorded(name)
    log, parts, kept = str(scenario.server_log), tmp_path / "parts", tmp_path / "kept.parquet"
    for share in ("1/3", "2/3", "3/3"):
        assert main(["ingest", log, "--shard", share, "-o", str(parts)]) == 0
    monkeypatch.setattr(ranges._RangeReader, "feed", None)  # everything has been read
    assert main(["ingest", log, "--shards", str(parts), "-o", str(kept)]) == 0
    monkeypatch.undo()
    whole = whole_of(log, tmp_path)
    assert store.load(kept).facts == whole.facts
    assert store.load(kept).sources == whole.sources


def whole_of(log: str, folder: Path) -> Any:
    assert main(["ingest", log, "-o", str(folder / "whole.parquet")]) == 0
    return store.load(folder / "whole.parquet")


def test_a_share_is_read_once(recorded: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(recorded("0.5.23/s06_abort").server_log.read_bytes())
    arguments = ["ingest", str(log), "--shard", "2/2", "-o", str(tmp_path / "parts")]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert main(arguments) == 0
    again = capsys.readouterr().out
    assert " 0 of them read now" not in first
    assert " 0 of them read now" in again
    os.utime(log, (1, 1))  # another log by the same name
    assert main(arguments) == 0
    assert " 0 of them read now" not in capsys.readouterr().out


def test_what_is_missing_is_read_now(recorded: Any, tmp_path: Path) -> None:
    log, parts, kept = str(recorded("0.5.23/s06_abort").server_log), tmp_path / "parts", tmp_path / "kept.parquet"
    assert main(["ingest", log, "--shard", "1/2", "-o", str(parts)]) == 0
    assert main(["ingest", log, "--shards", str(parts), "-o", str(kept)]) == 0
    assert store.load(kept).facts == whole_of(log, tmp_path).facts


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_no_share(share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", "server.log", "--shard", share, "-o", str(tmp_path)]) == 2
    assert "give one such as 2/8" in capsys.readouterr().err


def test_damaged_files_are_read_anew_and_missing_logs_named(
    recorded: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, parts, kept = str(recorded("0.5.23/s06_abort").server_log), tmp_path / "parts", tmp_path / "kept.parquet"
    assert main(["ingest", log, str(tmp_path / "absent.log"), "--shard", "1/1", "-o", str(parts)]) == 4
    assert "absent.log: no such file or folder" in capsys.readouterr().err
    for file in parts.iterdir():
        file.write_bytes(file.read_bytes()[:-20])
    assert main(["ingest", log, "--shards", str(parts), "-o", str(kept)]) == 0
    assert store.load(kept).facts == whole_of(log, tmp_path).facts
