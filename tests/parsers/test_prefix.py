"""The prefix of a record, in the forms of every era."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from sglang_lifecycle.parsers.prefix import Prefix, UnknownZone, zone

EPOCH = datetime(2026, 11, 29, 19, 50, 5, tzinfo=UTC).timestamp()
MESSAGE = "The server is fired up and ready to roll!"


@pytest.mark.parametrize(
    "ranks",
    [
        "DP-1 TP0",
        "TP0",
        "DP0",
        "DP1 TP3 PP1",
        "DP1 TP3 EP3 PP0",
        "DP1 PP0 TP3 EP3",
        "DP1 PP0 ATTN_CP2 MOE_DP1 TP3 EP3",
        "CP1",
        "encode_server",
        "encode_dp_worker[2]",
    ],
)
@pytest.mark.parametrize("milliseconds", ["", ".123"])
def test_ranks_and_time(ranks: str, milliseconds: str) -> None:
    head = Prefix().split(f"[2026-11-29 19:50:05{milliseconds} {ranks}] {MESSAGE}")
    assert head is not None
    assert (head.rank, head.message) == (ranks, MESSAGE)
    assert head.at == pytest.approx(EPOCH + (0.123 if milliseconds else 0))
    assert head.resolution == (0.001 if milliseconds else 1.0)


BARS = (
    "\rLoading safetensors checkpoint shards:  25% Completed | 1/4 [00:00<00:01,  2.14it/s]\r",
    "Capturing batches (bs=120 avail_mem=20.15 GB):   3%|▎     | 1/35 [00:00<00:20,  1.63it/s]",
    "  0%|          | 0/35 [00:00<?, ?it/s]\r 40%|████      | 14/35 [01:00:09<00:00, 12.6s/it]\r\r",
    "model-00001-of-00004.safetensors: 100%|██████| 4.98G/4.98G [00:30<00:00, 163MB/s]\x1b[A\r",
    "Processed prompts:  50%|#####     | 1/2 [00:01<00:01,  1.01s/it, est. speed input: 5.9 toks/s] ",
)


@pytest.mark.parametrize("bar", BARS)
def test_a_record_stands_behind_a_progress_bar(bar: str) -> None:
    head = Prefix().split(f"{bar}[2026-11-29 19:50:05 TP1] {MESSAGE}")
    assert head is not None
    assert (head.at, head.rank, head.message) == (EPOCH, "TP1", MESSAGE)
    bare = Prefix().split(f"{bar}Receive: obj=GenerateReqInput(rid='r')")
    assert bare is not None
    assert bare.message == "Receive: obj=GenerateReqInput(rid='r')"
    for other in (bar, f"{bar}{MESSAGE}", f"user: '{bar}[2026-11-29 19:50:05] {MESSAGE}", f"x {bar[:-9]}[2026-11-29"):
        assert Prefix().split(other) is None


def test_no_rank() -> None:
    head = Prefix().split(f"[2026-11-29 19:50:05] {MESSAGE}")
    assert head is not None
    assert (head.at, head.rank, head.message) == (EPOCH, None, MESSAGE)


@pytest.mark.parametrize("stamp", ["2026-13-29 19:50:05", "2026-02-30 00:00:00", "2026-11-29 25:00:00"])
def test_an_impossible_date_is_no_time(stamp: str) -> None:
    head = Prefix().split(f"[{stamp}] {MESSAGE}")
    assert head is not None
    assert (head.at, head.message) == (None, MESSAGE)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-29 19:50] cut",
        "[2026-11-29 19:50:05 TP0 cut",
        "[http_server] Error: x",
        " [2026-11-29 19:50:05] indented",
        "Traceback (most recent call last):",
        "plain words",
        "",
    ],
)
def test_where_no_prefix_is_no_record_begins(line: str) -> None:
    assert Prefix().split(line) is None


@pytest.mark.parametrize(
    "line",
    ["Receive: obj=G(", "Finish: obj=G(", "Receive OpenAI: obj={", '{"timestamp": "2026', "in=GenerateReqInput("],
)
def test_the_request_log_needs_no_prefix(line: str) -> None:
    head = Prefix().split(line)
    assert head is not None
    assert (head.at, head.message) == (None, line)


@pytest.mark.parametrize("level", ["INFO:     ", "ERROR:    ", "\x1b[32mINFO\x1b[0m:     "])
def test_the_level_of_uvicorn_is_taken_off(level: str) -> None:
    access = '127.0.0.1:51034 - "POST /generate HTTP/1.1" 200 OK'
    head = Prefix().split(f"[2026-11-29 19:50:05] {level}{access}")
    assert head is not None
    assert head.message == access
    assert Prefix().bare(level + access).message == access


def test_a_request_record_keeps_what_looks_like_a_colour() -> None:
    text = "Receive: obj=GenerateReqInput(rid='\x1b[31mr\x1b[0m')"
    head = Prefix().split(f"[2026-11-29 19:50:05] {text}")
    assert head is not None
    assert head.message == text


@pytest.mark.parametrize(
    ("name", "offset"),
    [("Europe/Berlin", 3600), ("+05:30", 19800), ("-0800", -28800), ("UTC", 0), ("z", 0), (None, 0)],
)
def test_the_zone_of_the_log_moves_its_times(name: str | None, offset: int) -> None:
    head = Prefix(zone(name)).split(f"[2026-11-29 19:50:05] {MESSAGE}")
    assert head is not None
    assert head.at == EPOCH - offset


def test_a_zone_knows_its_summer() -> None:
    head = Prefix(zone("Europe/Berlin")).split(f"[2026-07-01 12:00:00] {MESSAGE}")
    assert head is not None
    assert head.at == datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    assert head.at == datetime(2026, 7, 1, 10, tzinfo=timezone(timedelta(0))).timestamp()


@pytest.mark.parametrize("name", ["Mars/Olympus", "+5", "", "../etc/passwd", "Europe/Berlin\0"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(UnknownZone, match="unknown time zone"):
        zone(name)


def test_many_seconds_are_each_their_own() -> None:
    prefix = Prefix()
    start = datetime(2026, 11, 29, tzinfo=UTC)
    for second in range(10_000):
        stamp = (start + timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S")
        head = prefix.split(f"[{stamp}] x")
        assert head is not None
        assert head.at == start.timestamp() + second
