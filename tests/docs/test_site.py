"""The documentation builds without a warning, and leaves nothing out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_lifecycle.analyzers import faults
from sglang_lifecycle.analyzers.catalogue import load
from sglang_lifecycle.cli.errors import ExitCode
from sglang_lifecycle.cli.formats import Format
from sglang_lifecycle.cli.requests_table import COLUMNS
from sglang_lifecycle.cli.settings import SETTINGS, TABLES
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.table import COLUMNS as EVIDENCE
from sglang_lifecycle.parsers.versions import RELEASES

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("sphinx", reason="needs the extra `docs`")
pytest.importorskip("furo", reason="needs the extra `docs`")


def build(builder: str, target: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", builder, str(ROOT / "docs")]
    result = subprocess.run([*command, str(target)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    build("html", target)
    return target


def ids(site: Path, page: str) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', (site / page).read_text("utf-8")))


def codes(site: Path, page: str) -> set[str]:
    """What is shown as code."""
    text = (site / page).read_text("utf-8")
    return {re.sub(r"<[^>]+>", "", each) for each in re.findall(r"<code[^>]*>(.*?)</code>", text, re.DOTALL)}


def test_every_cause_command_and_kind_of_fact_has_its_place(site: Path) -> None:
    assert {f"cause-{id}" for id in load()} | {f"fault-{id}" for id in faults.load()} <= ids(site, "causes.html")
    assert {str(event).replace(".", "-").replace("_", "-") for event in Event} <= ids(site, "evidence.html")
    shown = subprocess.run([sys.executable, "-m", "sglang_lifecycle", "--help"], capture_output=True, text=True).stdout
    commands = re.findall(r"^  (\w+)  ", shown.partition("Commands:")[2], re.MULTILINE)
    assert {"explain", "audit", "selftest"} <= set(commands)
    assert {f"lifecycle-{name}" for name in commands} <= ids(site, "commands.html")


def test_every_column_setting_and_format_is_described(site: Path) -> None:
    assert EVIDENCE.keys() <= codes(site, "evidence.html")
    assert COLUMNS.keys() | {format.value for format in Format} <= codes(site, "audit.html")
    wanted = {setting.name for setting in SETTINGS}
    wanted |= {setting.variable for setting in SETTINGS if setting.kind not in TABLES}
    assert wanted <= codes(site, "configuration.html")


def test_the_man_page(tmp_path: Path) -> None:
    build("man", tmp_path)
    text = (tmp_path / "lifecycle.1").read_text("utf-8")
    assert '.TH "LIFECYCLE" "1"' in text
    assert "lifecycle audit" in text
    assert all(re.search(rf"^{code:d}$", text, re.MULTILINE) for code in ExitCode)


def test_the_changelog_names_the_versions_that_are_covered() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"SGLang {RELEASES[0]} to {RELEASES[-1]}." in changelog
