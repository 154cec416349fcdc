"""Looking at what was read so far disturbs nothing, and a log that grows reads as one that was there at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sglang_lifecycle.parsers import ranges, streams
from sglang_lifecycle.parsers.evidence import Evidence
from sglang_lifecycle.parsers.log import Reading, read

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LOGS = sorted(FIXTURES.glob("*/*/logs"))


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is reported every few lines."""
    monkeypatch.setattr(streams, "_TICK", 20_000)


@pytest.mark.usefixtures("ticks")
@pytest.mark.parametrize("logs", LOGS, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_looking_disturbs_nothing(logs: Path) -> None:
    reading, seen = Reading(), []
    reading.read([str(logs)], lambda done, total: seen.append(len(reading.so_far().facts)))
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]
    assert reading.evidence() == read([str(logs)])


def test_a_look_can_be_at_some_of_the_facts() -> None:
    reading = Reading()
    reading.read([str(LOGS[0])])
    assert len(reading.so_far(lambda facts: facts[-7:]).facts) < len(reading.so_far().facts)


def grown(source: Path, target: Path, cuts: list[int]) -> Iterator[Evidence]:
    """What is said of a log after each piece of it was written."""
    raw, start = source.read_bytes(), 0
    reading = Reading(growing=True)
    for end in [*cuts, len(raw)]:
        with target.open("ab") as stream:
            stream.write(raw[start:end])
        if not start or not reading.more([target.resolve()]):  # as where lines are wrapped
            reading = Reading(growing=True)
            reading.read([str(target)])
        start = end
        yield reading.so_far()


@pytest.mark.parametrize("logs", LOGS, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_a_grown_log_reads_as_a_whole_one(logs: Path, tmp_path: Path) -> None:
    source, target = max(logs.rglob("*.log"), key=lambda path: path.stat().st_size), tmp_path / "server.log"
    size = source.stat().st_size
    cuts = [size // 3, size // 3 + 1, size // 2, size - 1]  # mostly in the middle of a line
    *_, last = grown(source, target, cuts)
    assert last == read([str(target)])


def test_half_a_line_is_left_for_later(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    line = b"[2026-11-29 19:50:08] The server is fired up and ready to roll!\n"
    log.write_bytes(line + line[:40])
    reading = Reading(growing=True)
    reading.read([str(log)])
    assert len(reading.so_far().facts) == 1
    with log.open("ab") as stream:
        stream.write(line[40:])
    assert reading.more([log.resolve()])
    first, second = reading.so_far().facts
    assert (second.line, second.offset) == (2, len(line))
    assert first.event == second.event


def test_what_lies_in_a_packed_file_can_not_be_read_on(tmp_path: Path) -> None:
    import gzip

    log = tmp_path / "server.log.gz"
    log.write_bytes(gzip.compress(b"[2026-11-29 19:50:08] The server is fired up and ready to roll!\n"))
    reading = Reading(growing=True)
    reading.read([str(log)])
    assert not reading.more([log.resolve()])


@pytest.mark.parametrize("logs", LOGS, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_looking_at_what_several_read_together_disturbs_nothing(
    logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ranges, "SIZE", 20_000)
    monkeypatch.setattr(ranges, "_FIRST", 10_000)
    source = max(logs.rglob("*.log"), key=lambda path: path.stat().st_size)
    reading, seen = Reading(), []
    with ThreadPoolExecutor(1) as pool:
        reading.read([str(source)], lambda done, total: seen.append(reading.so_far()), pool)
    whole = read([str(source)])
    assert reading.evidence() == whole
    assert seen[-1].facts == whole.facts
    assert [(fact.line, fact.offset) for fact in seen[0].facts[:20]] == [
        (fact.line, fact.offset) for fact in whole.facts[:20]
    ][: len(seen[0].facts)]
