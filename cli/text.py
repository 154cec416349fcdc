"""Text that strangers chose, made safe to show: what can't be seen or would move other text becomes an escape."""

from __future__ import annotations

import re
import unicodedata

MARKS = 2
"""So many combining marks may sit on one letter; more of them would spill over the neighbouring lines."""

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})  # a terminal may reorder the whole line around such a letter
# Variation selectors, skin tones and flag letters: terminals don't agree on the width of what they join to.
_JOINING = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef\U0001f3fb-\U0001f3ff\U0001f1e6-\U0001f1ff]")


def clean(text: str) -> str:
    """The text on one line, with every character that is invisible, moves the cursor or reorders the line escaped."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = MARKS  # a mark at the very beginning has no letter to sit on
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        hidden = (
            marks > MARKS
            or category in _HIDDEN
            or unicodedata.bidirectional(character) in _RIGHT_TO_LEFT
            or _JOINING.match(character)
        )
        shown.append(escape(character) if hidden else character)
    return "".join(shown)


def escape(character: str) -> str:
    """The character as Python writes it in a string."""
    if character in _NAMED:
        return _NAMED[character]
    point = ord(character)
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def sound(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates, as in the name of a file that is no text, become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def width(text: str) -> int:
    """How many columns the text takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, columns: int) -> str:
    """The text in at most so many columns, cut in the middle: ids often differ at their ends only."""
    if width(text) <= columns:
        return text
    room = (columns - 1) // 3
    tail = _head(text[::-1], room)[::-1]
    while tail and unicodedata.category(tail[0]).startswith("M"):  # its letter is cut off; it would sit on the dots
        tail = tail[1:]
    return _head(text, columns - 1 - room) + "…" + tail


def pad(text: str, columns: int) -> str:
    """The text followed by as much space as fills the columns."""
    return text + " " * (columns - width(text))


def _head(text: str, columns: int) -> str:
    taken = 0
    for index, character in enumerate(text):
        taken += width(character)
        if taken > columns:
            return text[:index]
    return text


def fold(text: str, columns: int) -> list[str]:
    """The text in rows of at most so many columns, broken anywhere."""
    rows = []
    while width(text) > columns:
        row = _head(text, columns)
        rows.append(row)
        text = text[len(row) :]
    return [*rows, text]


def listed(words: list[str], last: str = "and") -> str:
    """The words as a sentence lists them."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def count(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(number: int) -> str:
    """A number of bytes in the unit that suits it."""
    value = float(number)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def seconds(value: float | None) -> str:
    """A duration as people say it; a dash where it is unknown."""
    if value is None:
        return "–"
    if value < 0:
        return "-" + seconds(-value)
    if not value:
        return "0 s"
    if value < 0.0001:
        return f"{value * 1_000_000:.0f} µs"
    if value < 0.0095:
        return f"{value * 1000:.1f} ms"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 99.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"
