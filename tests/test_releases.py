"""A release of SGLang that is added as the documentation says: one line in the list of releases."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sglang_lifecycle
from sglang_lifecycle.parsers.versions import RELEASES

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / RELEASES[-1]
NEXT = "0.5.999"
SCENARIO = FIXTURES / "s14_timeout_prefix" / "logs"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with another release in its list."""
    root = tmp_path_factory.mktemp("grown")
    package = Path(sglang_lifecycle.__file__).parent
    shutil.copytree(package, root / package.name, ignore=shutil.ignore_patterns("fixtures"))
    versions = root / package.name / "parsers" / "versions.py"
    text = versions.read_text("utf-8")
    line = f'    "{RELEASES[-1]}",\n)'
    assert text.count(line) == 1
    versions.write_text(text.replace(line, f'    "{RELEASES[-1]}",\n    "{NEXT}",\n)'), "utf-8")
    return root


def lifecycle(package: Path, *arguments: str) -> Any:
    """What a command of a package prints as JSON."""
    command = [sys.executable, "-P", "-m", "sglang_lifecycle", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    done = subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def test_a_verdict_is_reached_under_the_rules_of_the_newest_era(grown: Path) -> None:
    arguments = ["explain", "job-12", str(SCENARIO), "--json", "--sglang-version", NEXT]
    verdict = lifecycle(grown, *arguments)
    assert (verdict["cause"], verdict["confidence"]) == ("timeout-prefix-collision", "proven")
    assert verdict["sglang_version"]["value"] == NEXT
    assert (verdict["replay"]["era"], verdict["replay"]["agrees"]) == (RELEASES[-1], True)
    assert [(fault["id"], fault["last"]) for fault in verdict["known_faults"]] == [("timeout-by-prefix", NEXT)]


@pytest.mark.parametrize("folder", ["s14_timeout_prefix", "s02a_session", "s06_abort"])
def test_logs_of_the_release_before_tell_the_same(grown: Path, folder: str) -> None:
    def told(package: Path) -> list[tuple[str, ...]]:
        rows = lifecycle(package, "audit", str(FIXTURES / folder / "logs"), "--format", "json")["requests"]
        return [(row["rid"], row["cause"], row["confidence"]) for row in rows]

    assert told(grown) == told(Path(sglang_lifecycle.__file__).parents[1])


def test_what_has_not_gone_is_still_there(grown: Path) -> None:
    causes = lifecycle(grown, "causes", "--json")
    ends = {cause["versions"].split(" to ")[1] for cause in causes}
    assert NEXT in ends
    assert RELEASES[-1] not in ends


def test_it_may_be_the_other_release_of_a_replay(grown: Path) -> None:
    arguments = ["replay", "run", str(SCENARIO), "--json", "--what-if", "no-zombies", "--sglang-version", NEXT]
    assert lifecycle(grown, *arguments)["what_if"]["lost"] == []
