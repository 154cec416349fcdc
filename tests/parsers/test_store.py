"""The evidence table and the store: nothing is lost on the way, and a store answers like the logs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from sglang_lifecycle.cli.app import main
from sglang_lifecycle.parsers import store, table
from sglang_lifecycle.parsers.evidence import Evidence
from sglang_lifecycle.parsers.log import read

ROOT = Path(__file__).parents[2] / "fixtures"
SCENARIOS = sorted({str(p.parent.relative_to(ROOT)) for p in ROOT.glob("0.*/*/logs")})


@pytest.mark.parametrize("recorded", SCENARIOS)
def test_a_frame_gives_back_every_fact(recorded: str) -> None:
    facts = read([str(ROOT / recorded / "logs")]).facts
    frame = table.frame(facts)
    assert frame.schema == pl.Schema(table.COLUMNS)
    assert list(table.facts(frame)) == facts
    assert table.keys(facts) <= set(table.DETAIL)


def _audit(path: Path | str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["audit", str(path), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("recorded", ["0.5.23/s14_timeout_prefix", "0.5.10/s12_text_dir", "0.5.23/s18_two_lives"])
def test_a_store_answers_like_the_logs(recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs, kept = ROOT / recorded / "logs", tmp_path / "incident.parquet"
    assert main(["ingest", str(logs), "-o", str(kept)]) == 0
    assert "facts of" in capsys.readouterr().out
    assert _audit(kept, capsys) == _audit(logs, capsys)
    assert [p.name for p in tmp_path.iterdir()] == ["incident.parquet"]


def test_a_store_that_cannot_be_written_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = str(ROOT / SCENARIOS[0] / "logs")
    assert main(["ingest", logs, "-o", str(tmp_path / "no" / "such" / "folder.parquet")]) == 4
    assert "cannot be written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_and_a_foreign_one_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign, damaged = tmp_path / "foreign.parquet", tmp_path / "damaged.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(foreign)
    damaged.write_bytes(foreign.read_bytes()[:-20])
    for path, what in ((foreign, "not one of `lifecycle ingest`"), (damaged, "a damaged store")):
        with pytest.raises(store.StoreError, match=what):
            store.load(path)
        assert main(["audit", str(path)]) == 4
        assert path.name in capsys.readouterr().err


def test_whether_it_is_a_store_is_not_asked_of_a_pipe() -> None:
    """What is read from it is gone."""
    end, begin = os.pipe()
    os.write(begin, b"PAR1 and more")
    os.close(begin)
    assert not store.is_store(f"/dev/fd/{end}")
    assert os.read(end, 100) == b"PAR1 and more"
    os.close(end)


def test_what_a_place_tells_is_not_looked_for_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line names who was refused: what lies around is read at once, and not all of the store."""
    for size, value in (("_MANY", 20), ("_BESIDE", 5), ("CONTEXT", 30), ("NEAR", 30)):
        monkeypatch.setattr(store, size, value)
    logs, kept = ROOT / "0.5.23/s08_validation/logs", tmp_path / "incident.parquet"
    assert main(["ingest", str(logs), "-o", str(kept)]) == 0
    read_: list[bool] = []
    load = store.load

    def spied(path: str, about: tuple[str, ...], little: bool, wide: bool) -> Evidence:
        found = load(path, about, little, wide)
        read_.append(found.partial)
        return found

    monkeypatch.setattr(store, "load", spied)
    monkeypatch.setattr("sglang_lifecycle.cli.errand.forkable", lambda: False)
    capsys.readouterr()
    assert main(["explain", "long-n", str(kept), "--json"]) == 0
    assert read_ == [True]
    assert json.loads(capsys.readouterr().out)["cause"] == "input-too-long"
