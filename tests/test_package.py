"""The wheel: everything is in it, and it works in an environment of its own, away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ["analyzers", "cli", "fixtures", "parsers", "replay"]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")


def tracked() -> list[Path]:
    """The files of the project: those that git knows, in a checkout."""
    listed = subprocess.run(["git", "ls-files", "-z", *FOLDERS], cwd=ROOT, capture_output=True, check=True).stdout
    return [Path(name) for name in listed.decode().split("\0") if name]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=LEFT_OUT)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(folder / "source")]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that holds the wheel and sees the dependencies installed here."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    interpreter = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    purelib = subprocess.run(
        [interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", purelib, str(wheel)]
    subprocess.run(install, check=True, stdin=subprocess.DEVNULL, cwd=folder)
    # The dependencies are those of this environment; of the checkout nothing must be seen.
    borrowed = Path(purelib, "borrowed")
    borrowed.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("__editable__", "sglang_lifecycle", "sglang-lifecycle")):
            (borrowed / entry.name).symlink_to(entry)
    Path(purelib, "borrowed.pth").write_text(str(borrowed) + "\n")
    return interpreter


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *arguments], capture_output=True, text=True, cwd=cwd, env=environment)


def test_every_module_and_every_fixture_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name.removeprefix("sglang_lifecycle/"): name for name in archive.namelist()}
        missing = [file.as_posix() for file in tracked() if file.as_posix() not in held]
        assert missing == []
        assert {"__init__.py", "__main__.py", "py.typed"} <= held.keys()
        for file in tracked():
            if file.parts[0] == "fixtures":
                assert archive.read(held[file.as_posix()]) == (ROOT / file).read_bytes(), file


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"sglang_lifecycle"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


def test_the_installed_command_explains_a_request(python: Path, tmp_path: Path) -> None:
    where = run(python, "-c", "import sglang_lifecycle; print(sglang_lifecycle.__file__)", cwd=tmp_path)
    assert where.returncode == 0, where.stderr
    installed = Path(where.stdout.strip()).parent
    assert ROOT not in installed.parents
    log = installed / "fixtures" / "0.5.23" / "s14_timeout_prefix" / "logs" / "server.log"
    result = run(python, "-m", "sglang_lifecycle", "explain", "job-12", str(log), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Request job-12 was hit by the timeout of another request: proven.")


def test_the_command_is_named(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "lifecycle = sglang_lifecycle.__main__:main" in archive.read(entry).decode()
