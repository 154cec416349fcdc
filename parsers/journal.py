"""The journal's entries, each field a line: `journalctl -o export` and `-o verbose`.

An entry is turned into one JSON object a line, which `envelopes.objects` reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from sglang_lifecycle.parsers.lines import CAP
from sglang_lifecycle.parsers.spool import Plain

_BEGINS = b"__CURSOR="
_NAME = re.compile(rb"[A-Z0-9_]+")
_SIZE = 8  # bytes that tell how long a value is which holds newlines or control characters


_HEADER = re.compile(
    rb"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} \S+ "
    rb"\[s=[0-9a-f]+;(?:[a-z]=[0-9a-f]+;)*t=(?P<at>[0-9a-f]{1,16})(?:;[a-z]=[0-9a-f]+)*\]"
)
"""Where an entry of the verbose form begins; `at` is its time in microseconds."""
_FIELD = re.compile(rb" {4}(?P<name>[A-Z0-9_]+)=(?P<value>.*)", re.DOTALL)


def is_export(head: bytes) -> bool:
    """Whether a file that begins like `head` has one of these forms."""
    return head.startswith(_BEGINS) or _HEADER.match(head) is not None


def entries(path: Path) -> Iterator[bytes]:
    """The entries as lines. Raises `Plain` where anything is no field: a log may go on so; OSError."""
    with path.open("rb") as file:
        begins = file.read(len(_BEGINS))
    yield from _exported(path) if begins == _BEGINS else _verbose(path)


def _verbose(path: Path) -> Iterator[bytes]:
    """Fields are indented; a value of several lines is indented more."""
    entry: dict[str, str] = {}
    name = ""
    with path.open("rb") as file:
        while line := file.readline(CAP).rstrip(b"\r\n"):
            if header := _HEADER.fullmatch(line):
                if entry:
                    yield orjson.dumps(entry) + b"\n"
                entry = {"__REALTIME_TIMESTAMP": str(int(header["at"], 16))}
            elif field := _FIELD.fullmatch(line):
                name = field["name"].decode()
                entry[name] = field["value"].decode("utf-8", "replace")
            elif line.startswith(b" " * 5) and name in entry:
                entry[name] += "\n" + line.decode("utf-8", "replace").lstrip(" ")
            else:
                raise Plain
    if entry:
        yield orjson.dumps(entry) + b"\n"


def _exported(path: Path) -> Iterator[bytes]:
    """Entries are parted by an empty line."""
    entry: dict[str, str] = {}
    with path.open("rb") as file:
        while line := file.readline(CAP):
            if field := line.removesuffix(b"\n"):
                name, equals, value = field.partition(b"=")
                if not _NAME.fullmatch(name):
                    raise Plain
                value = value if equals else _binary(file)
                entry[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
            elif entry:
                yield orjson.dumps(entry) + b"\n"
                entry = {}
    if entry:
        yield orjson.dumps(entry) + b"\n"


def _binary(file: BinaryIO) -> bytes:
    value = file.read(min(CAP, int.from_bytes(file.read(_SIZE), "little")))
    file.readline(CAP)
    return value
