"""Growing sources: nothing is lost or read twice when a file is renamed, truncated or made late."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest

from sglang_lifecycle.parsers import following
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.following import Followed, Pipe, Tail, lines, unwrapped
from sglang_lifecycle.parsers.lines import Line


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL", 0.0)


def now(source: Iterator[Line | None]) -> list[str]:
    """The lines that are there, until the source has no more for now."""
    found = []
    for line in source:
        if line is None:
            return found
        found.append(line.text)
    return found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.fixture
def followed(log: Path) -> Iterator[Line | None]:
    return lines(Tail(log), threading.Event())


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_grows(log: Path, followed: Iterator[Line | None]) -> None:
    append(log, "a\nb\nhal")
    assert now(followed) == ["a", "b"]
    assert now(followed) == []
    append(log, "f\nc\n")
    assert now(followed) == ["half", "c"]


def test_a_file_that_comes_late(log: Path, followed: Iterator[Line | None]) -> None:
    assert now(followed) == []
    append(log, "a\n")
    assert now(followed) == ["a"]


def test_a_file_that_is_renamed(log: Path, followed: Iterator[Line | None]) -> None:
    append(log, "a\n")
    assert now(followed) == ["a"]
    old = log.rename(log.with_name("server.log.1"))
    append(old, "b\nno newline")
    assert now(followed) == ["b"]
    append(log, "c\n")
    assert now(followed) + now(followed) == ["no newline", "c"]
    append(log, "d\n")
    assert now(followed) == ["d"]


def test_a_file_that_is_truncated(log: Path, followed: Iterator[Line | None]) -> None:
    append(log, "a\nb\n")
    assert now(followed) == ["a", "b"]
    log.write_text("c\n")
    assert now(followed) + now(followed) == ["c"]


def test_lines_know_their_place_in_their_file(log: Path) -> None:
    source = lines(Tail(log), threading.Event())
    append(log, "a\nbc\n")
    found = [line for line in (next(source), next(source)) if line]
    assert [(line.number, line.offset, line.length) for line in found] == [(1, 0, 2), (2, 2, 3)]
    assert next(source) is None
    log.rename(log.with_name("old"))
    append(log, "d\n")
    line = next(line for line in source if line is not None)
    assert (line.number, line.offset) == (1, 0)


def test_an_endless_line_is_let_go(log: Path, followed: Iterator[Line | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "CAP", 1000)
    append(log, "x" * 200_000 + "\nb\n")
    assert now(followed)[-1] == "b"


def test_a_pipe_ends() -> None:
    read, write = os.pipe()
    os.write(write, b"a\nb")
    os.close(write)
    assert [line.text for line in lines(Pipe(read), threading.Event()) if line] == ["a", "b"]
    os.close(read)


def test_wrappers_are_taken_off(log: Path) -> None:
    append(log, "".join(f"2026-04-06T12:50:5{i}.0Z stdout F line {i}\n" for i in range(5)))
    source = unwrapped(Tail(log), threading.Event())
    assert next(source).text == "line 0"


READY = "[2026-04-06 12:50:00] The server is fired up and ready to roll!\n"
BARE = "Receive: obj=GenerateReqInput(rid='r-{}', text='x', stream=False)\n"


def test_sources_become_facts_together(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, (READY + BARE.format(1) + READY.replace("00]", "09]") + BARE.format(2)).encode())
    os.close(write)
    source = Followed([], UTC)
    source._sources = {"-": Pipe(read)}
    source._open = 1
    source._follow("-", source._sources["-"])
    while not source.ended:
        source.wait(1)
    found = source.facts()
    assert [f.event for f in found] == [Event.SERVER_READY, Event.REQUEST_RECEIVED] * 2
    assert [f.at_from for f in found] == ["own", "neighbours", "own", "neighbours"]
    source.forget(frozenset({id(found[0])}))
    assert source.facts() == [found[0], found[-1]]  # the newest may still be added to


def test_a_time_is_settled_once_its_bounds_are_there(tmp_path: Path) -> None:
    source = Followed([], UTC)
    source._open = 1
    for number, text in enumerate((READY, BARE.format(1)), 1):
        source._queue.put(("x", Line(number, 0, text.encode())))
    source.wait(0.01)
    assert source.facts()[-1].at is None
    source._queue.put(("x", Line(3, 0, READY.replace("00]", "04]").encode())))
    source.wait(0.01)
    waiting = source.facts()[1]
    assert (waiting.at, waiting.at_error) == (source.facts()[0].at + 2, 2.5)  # type: ignore[operator]
