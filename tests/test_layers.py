"""One direction, no circle: cli, analyzers, replay, parsers; a folder knows only what stands to its right."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "sglang_lifecycle"
LAYERS = ["cli", "analyzers", "replay", "parsers"]


def imported(source: str) -> set[str]:
    """The modules that a file imports anywhere in it, also for its types."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def layers(names: set[str]) -> set[str]:
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == PACKAGE and len(part) > 1 and part[1] in LAYERS}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_stands_to_its_right(layer: str) -> None:
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    allowed = set(LAYERS[LAYERS.index(layer) :])
    wrong = {file.relative_to(ROOT).as_posix(): layers(imported(file.read_text("utf-8"))) - allowed for file in files}
    assert {file: names for file, names in wrong.items() if names} == {}


def graph(layer: str) -> dict[str, set[str]]:
    """The modules of a layer, each with those of the same layer that it imports."""
    files = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in (ROOT / layer).rglob("*.py")}
    modules = {name.removesuffix(".__init__"): file for name, file in files.items()}
    imports = {name: imported(file.read_text("utf-8")) for name, file in modules.items()}
    return {
        name: {other for other in modules if other != name and f"{PACKAGE}.{other}" in found}
        for name, found in imports.items()
    }


@pytest.mark.parametrize("layer", ["analyzers", "replay", "parsers"])
def test_no_module_imports_what_imports_it(layer: str) -> None:
    modules = graph(layer)
    assert any(modules.values())
    TopologicalSorter(modules).prepare()  # raises `CycleError`, which names the circle


def test_imports_are_seen_wherever_they_stand() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from sglang_lifecycle.cli.app import main\n"
        "def f():\n    import sglang_lifecycle.analyzers.audit\n    from sglang_lifecycle import replay\n"
    )
    assert layers(imported(source)) == {"cli", "analyzers", "replay"}


@pytest.mark.parametrize("layer", ["analyzers", "replay", "parsers"])
def test_only_the_command_line_prints(layer: str) -> None:
    for file in (ROOT / layer).rglob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Name)}
        assert "print" not in names, file
