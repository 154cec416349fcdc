"""The public interface, as a notebook uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sglang_lifecycle
from sglang_lifecycle import Logs, audit, explain, read
from sglang_lifecycle.parsers.table import SCHEMA


@pytest.fixture(scope="module")
def logs() -> Logs:
    root = Path(__file__).resolve().parents[2]
    return read(root / "fixtures/0.5.23/s14_timeout_prefix/logs")


def test_explain_is_the_verdict(logs: Logs, recorded: Any) -> None:
    verdict = explain(logs, "job-12")
    assert (verdict.cause, verdict.confidence) == ("timeout-prefix-collision", "proven")
    assert verdict.chain == recorded("0.5.23/s14_timeout_prefix").explain("job-12").chain
    assert all(line.text for line in verdict.evidence)
    assert explain(logs, "nobody").status == "not-found"


def test_audit_is_the_audit(logs: Logs, recorded: Any) -> None:
    found = audit(logs)
    assert found.requests == recorded("0.5.23/s14_timeout_prefix").audit.requests
    assert (
        found.requests_table.filter(pl.col("cause") == "waiting-timeout").height
        == found.totals.by_cause["waiting-timeout"]
    )


def test_both_are_written_as_json(logs: Logs) -> None:
    for found in (explain(logs, "job-12"), audit(logs)):
        assert json.loads(found.model_dump_json()) == found.model_dump(mode="json")


def test_the_tables(logs: Logs) -> None:
    assert logs.evidence_table.schema == SCHEMA
    assert set(logs.evidence_table["rid"].drop_nulls()) == set(logs.rids)


def test_paths_are_taken_as_they_come(recorded: Any, tmp_path: Path) -> None:
    scenario = recorded("0.5.23/s14_timeout_prefix")
    assert explain(scenario.logs, "job-12") == explain([str(scenario.logs)], "job-12")
    missing = read(tmp_path / "none.log")
    assert (len(missing.failed), missing.rids) == (1, [])
    with pytest.raises(ValueError, match="Mars"):
        read(scenario.logs, tz="Mars/Base")


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)


def test_a_notebook_shows_them(logs: Logs) -> None:
    for shown in (explain(logs, "job-12")._repr_html_(), audit(logs)._repr_html_()):
        assert {"h1", "table", "code"} <= Tags(shown).seen
        assert not {"script", "style", "html"} & Tags(shown).seen
        assert "job-12" in shown


def test_the_public_names_exist_and_no_others() -> None:
    assert dir(sglang_lifecycle) == sglang_lifecycle.__all__
    assert all(getattr(sglang_lifecycle, name) for name in sglang_lifecycle.__all__)
    with pytest.raises(AttributeError, match="no attribute 'explian'"):
        sglang_lifecycle.explian  # noqa: B018


def test_the_package_alone_imports_nothing_heavy() -> None:
    code = "import sys, sglang_lifecycle; sglang_lifecycle.__version__; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"polars", "pydantic", "rich", "typer"} & set(loaded)
