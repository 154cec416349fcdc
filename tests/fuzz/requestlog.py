"""Fuzzes the reader of records that fill a log, from recorded ones on; takes options of libFuzzer: -max_total_time=20.

What a record holds is text or plain values and can be written as JSON; what a line says is the same whether it is of a
known form or read as any other.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC

import atheris

with atheris.instrument_imports(include=["sglang_lifecycle"]):
    from sglang_lifecycle.parsers import lineforms, log, requestlog

import orjson
from seeds import FIXTURES, fuzz

from sglang_lifecycle.parsers.evidence import Source
from sglang_lifecycle.parsers.lines import Line


def check(data: bytes) -> None:
    """Read one message, and twice as a line of a log: as others have left their templates behind, and afresh."""
    record = requestlog.read(data.decode("utf-8", "replace"))
    line = b"[2026-10-30 01:05:00] " + data.replace(b"\n", b" ")
    facts = _facts(line)
    known = requestlog.find, lineforms.form
    requestlog.find = lineforms.form = _nothing
    assert facts == _facts(line), (facts, _facts(line))
    requestlog.find, lineforms.form = known
    if record is not None:
        assert all(isinstance(text, str) for text in record.strangers())
        orjson.dumps([record.obj, record.meta, record.fields], option=orjson.OPT_NON_STR_KEYS)


def _nothing(_line: bytes, _start: int) -> None:
    """No form is known."""


def _facts(line: bytes) -> list[str]:
    """The facts of a line that was there before: the first tells its fields, the second may be filled in.

    They are given as text, since NaN is not itself; in which order details were found makes no difference.
    """
    reader = log.reader(Source("fuzz"), UTC)
    for number in (1, 2):
        reader.feed(Line(number, 0, line))
    return [repr(replace(fact, detail=dict(sorted(fact.detail.items())))) for fact in reader.finish()]


def messages() -> list[bytes]:
    """One recorded message of each length up to a screenful."""
    found: dict[int, bytes] = {}
    heads = [head.encode() for head in (*requestlog.REQUEST_HEADS, "INFO:     ", "Prefill batch", "Decode batch")]
    for path in FIXTURES.rglob("*.log"):
        for line in path.read_bytes().splitlines():
            at = next((at for head in heads if (at := line.find(head)) >= 0), None)
            if at is not None and len(line) - at < 4096:
                found.setdefault(len(line) - at, line[at:])
    return list(found.values())


if __name__ == "__main__":
    fuzz(sys.argv, messages(), check)
