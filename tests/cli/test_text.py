"""Text from strangers stays on its line, in its columns, and tells what it hides."""

from __future__ import annotations

import unicodedata

import pytest

from sglang_lifecycle.cli.text import clean, fold, pad, seconds, shorten, size, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold]text[/] \\", "plain [bold]text[/] \\"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x00\x7f\x9b\x85", "\\x00\\x7f\\x9b\\x85"),
        ("abc\u202egnp.exe", "abc\\u202egnp.exe"),
        ("\u2066x\u2069\u200f\ufeff\u200b", "\\u2066x\\u2069\\u200f\\ufeff\\u200b"),
        ("\u05d0\u0627", "\\u05d0\\u0627"),
        ("line\u2028end", "line\\u2028end"),
        ("e\u0301\u0302", "e\u0301\u0302"),
        ("e\u0301\u0302\u0303", "e\u0301\u0302\\u0303"),
        ("\u0301x", "\\u0301x"),
        ("漢字", "漢字"),
        ("👩\u200d💻", "👩\\u200d💻"),
        ("☠\ufe0f", "☠\\ufe0f"),
        ("\U0001f44d\U0001f3fd", "\U0001f44d\\U0001f3fd"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_would_deceive_is_escaped(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_no_control_character_survives() -> None:
    everything = "".join(map(chr, range(0x3000)))
    categories = {unicodedata.category(character) for character in clean(everything)}
    assert categories.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@pytest.mark.parametrize("text", ["x" * 40, "漢" * 40, "e\u0301" * 40, "a漢" * 40])
@pytest.mark.parametrize("columns", [7, 12, 13, 39])
def test_cut_text_fits_its_columns(text: str, columns: int) -> None:
    short = shorten(text, columns)
    assert columns - 3 <= width(short) <= columns
    assert "…" in short
    assert width(pad(short, columns)) == columns


@pytest.mark.parametrize("columns", range(2, 24))
def test_a_tail_begins_with_a_letter(columns: int) -> None:
    short = shorten("x" * 20 + "漢\u0301\u0302漢\u0301e\u0301" * 4, columns)
    assert not unicodedata.combining(short.partition("…")[2][:1] or "x")


@pytest.mark.parametrize("text", ["x" * 40, "漢" * 40, "e\u0301" * 40, "a漢" * 40, ""])
@pytest.mark.parametrize("columns", [7, 12, 40])
def test_folded_text_fits_and_loses_nothing(text: str, columns: int) -> None:
    rows = fold(text, columns)
    assert "".join(rows) == text
    assert all(columns - 1 <= width(row) <= columns for row in rows[:-1])
    assert width(rows[-1]) <= columns


def test_short_text_is_left_alone() -> None:
    assert shorten("漢字", 4) == "漢字"


def test_the_middle_of_an_id_goes_first() -> None:
    assert shorten("chatcmpl-0123456789-retry-2", 13) == "chatcmpl…ry-2"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.000035, "35 µs"),
        (0.0004, "0.4 ms"),
        (0.25, "250 ms"),
        (30.04, "30.0 s"),
        (99.96, "1 m 40 s"),
        (3599.6, "1 h 00 m"),
        (90_000, "1 d 01 h"),
        (-2, "-2.0 s"),
    ],
)
def test_durations(value: float | None, shown: str) -> None:
    assert seconds(value) == shown


def test_sizes() -> None:
    assert [size(number) for number in (0, 999, 1_000, 2_500_000, 4_200_000_000)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "2.5 MB",
        "4.2 GB",
    ]
