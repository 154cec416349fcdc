"""Fuzzes the reader of pickled dumps, from recorded ones on; takes options of libFuzzer: -max_total_time=20.

A pickle ends in lines of JSON or is refused in words. Nothing is imported, compiled, executed or called for it.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["sglang_lifecycle"]):
    from sglang_lifecycle.parsers import dumps, exhibits, pickles

from seeds import FIXTURES, fuzz

from sglang_lifecycle.parsers.spool import Refused

FORBIDDEN = (
    "exec",
    "import",
    "marshal.",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "pickle.",
    "subprocess.",
)
_armed = False


def _watch(event: str, _: Any) -> None:
    if _armed and event.startswith(FORBIDDEN):
        raise AssertionError(f"a pickle made the reader {event}")


def check(data: bytes) -> None:
    """Read one pickle from a file, as a dump, and once more for its values."""
    global _armed
    PICKLE.write_bytes(data)
    _armed = True
    try:
        with suppress(exhibits.Unreadable, Refused):
            for line in exhibits.lines(dumps.__name__.rpartition(".")[2], PICKLE):
                assert line.endswith(b"}\n")
        with suppress(pickles.PickleError):
            pickles.loads(data)
    finally:
        _armed = False


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PICKLE = Path(folder, "dump.pkl")
        recorded = [path.read_bytes() for path in sorted(FIXTURES.rglob("*.pkl"))]
        plain = ["a\u00e9", b"\xff", 1 << 70, 1.5, {"rid": None, "list": [True, (1,)]}]
        recorded += [pickle.dumps(plain, protocol) for protocol in range(6)]
        for dump in recorded:
            check(dump)  # what is imported when it is first needed
        sys.addaudithook(_watch)
        fuzz(sys.argv, recorded, check)
