"""Recorded scenarios: `scenario` runs a test over all of them, `recorded` gives one by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import Audit, RequestRow
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.evidence import Evidence
from sglang_lifecycle.parsers.log import read

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures"

settings.register_profile("lifecycle", deadline=None)  # a busy machine is no fault of what is tested
settings.load_profile("lifecycle")


class Scenario:
    """A folder of `fixtures/`: its logs, its truth, and what the analyzers make of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.relative_to(FIXTURES).as_posix()
        self.version = folder.parent.name
        self.logs = folder / "logs"

    @cached_property
    def truth(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "truth.json").read_text("utf-8")))

    @cached_property
    def sent(self) -> dict[str, list[dict[str, Any]]]:
        """What the truth says about each rid, once per time that it was sent."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self.truth["requests"]:
            if isinstance(row["rid"], str):
                rows.setdefault(row["rid"], []).append(row)
        return rows

    @cached_property
    def files(self) -> list[Path]:
        return sorted(path for path in self.logs.rglob("*") if path.is_file())

    @cached_property
    def raw(self) -> bytes:
        return b"\n".join(path.read_bytes() for path in self.files)

    @property
    def server_log(self) -> Path:
        return self.logs / "server.log"

    @cached_property
    def evidence(self) -> Evidence:
        return read([str(self.logs)])

    @cached_property
    def incident(self) -> Incident:
        return Incident(self.evidence)

    @cached_property
    def audit(self) -> Audit:
        return audit(self.incident)

    @cached_property
    def rows(self) -> dict[str, RequestRow]:
        return {row.rid: row for row in self.audit.requests}

    def copied(self, folder: Path) -> Path:
        """Copy the logs, to be changed; a dump can't be. Returns the server's."""
        for file in self.files:
            if file.suffix == ".log":
                target = folder / file.relative_to(self.logs)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
        return folder / "server.log"

    def explain(self, rid: str) -> Verdict:
        return explain(self.incident, rid)

    def __repr__(self) -> str:
        return self.name


@cache
def scenarios() -> dict[str, Scenario]:
    return {s.name: s for s in (Scenario(truth.parent) for truth in sorted(FIXTURES.rglob("truth.json")))}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" in metafunc.fixturenames:
        found = scenarios()
        metafunc.parametrize("scenario", found.values(), ids=found.keys())


@pytest.fixture
def recorded() -> Callable[[str], Scenario]:
    """One scenario, by `<version>/<scenario>`."""
    return scenarios().__getitem__


@pytest.fixture(scope="session")
def all_recorded() -> list[Scenario]:
    return list(scenarios().values())


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have said how wide the screens are to be."""
    monkeypatch.delenv("COLUMNS", raising=False)
