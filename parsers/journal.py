"""The journal's export format (`journalctl -o export`): fields of an entry as lines, entries parted by an empty one.

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


def is_export(head: bytes) -> bool:
    """Whether a file that begins like `head` is one."""
    return head.startswith(_BEGINS)


def entries(path: Path) -> Iterator[bytes]:
    """The entries as lines. Raises `Plain` where anything is no field: a log may go on so; OSError."""
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
