"""Shell completion: request ids come from stores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.parsers.store import save


def completed(folder: Path, *words: str) -> list[str]:
    """What bash is offered for the last of the words."""
    asked = {
        "_LIFECYCLE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["lifecycle", *words]),
        "COMP_CWORD": str(len(words)),
    }
    code = "from sglang_lifecycle.cli.app import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=os.environ | asked, capture_output=True, text=True, check=True
    )
    return result.stdout.split()


@pytest.fixture
def folder(recorded: Any, tmp_path: Path) -> Path:
    save(recorded("0.5.23/s14_timeout_prefix").evidence, tmp_path / "night.parquet")
    (tmp_path / "other.parquet").write_bytes(b"PAR1 or so")
    return tmp_path


def test_rids_of_the_stores_here(folder: Path) -> None:
    assert completed(folder, "explain", "job-1") == ["job-1", "job-1-chat", "job-10", "job-11", "job-12"]
    assert completed(folder, "explain", "nobody") == []


def test_rids_of_the_store_that_is_named(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = str(folder / "night.parquet")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert completed(elsewhere, "explain", "x", store, "--rid", "job-12") == ["job-12"]
    assert completed(elsewhere, "explain", "job-12") == []


def test_choices_are_completed(tmp_path: Path) -> None:
    assert completed(tmp_path, "audit", "--format", "o") == ["openmetrics"]
