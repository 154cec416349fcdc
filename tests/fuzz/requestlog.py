"""Fuzzes the reader of request-log records, from recorded ones on; takes options of libFuzzer: -max_total_time=20.

What a record holds is text or plain values, can be written as JSON, and is the same whether a template that earlier
records left behind fits it or it is scanned afresh.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC

import atheris

with atheris.instrument_imports(include=["sglang_lifecycle"]):
    from sglang_lifecycle.parsers import log, requestlog

import orjson
from seeds import FIXTURES, fuzz

from sglang_lifecycle.parsers.evidence import Source
from sglang_lifecycle.parsers.layouts import Templates
from sglang_lifecycle.parsers.lines import Line


def check(data: bytes) -> None:
    """Read one message twice, and once as a line of a log."""
    message = data.decode("utf-8", "replace")
    templates, requestlog._templates = requestlog._templates, Templates(requestlog._templates.wanted)
    afresh = requestlog.read(message)
    requestlog._templates = templates
    record = requestlog.read(message)
    assert _shown(record) == _shown(afresh), (_shown(record), _shown(afresh))
    raw = b"[2026-10-30 01:05:00] " + data.replace(b"\n", b" ")
    facts = log.reader(Source("fuzz"), UTC)
    facts.feed(Line(1, 0, raw))
    facts.finish()
    if record is not None:
        assert all(isinstance(text, str) for text in record.strangers())
        orjson.dumps([record.obj, record.meta, record.finish_keys, record.fields], option=orjson.OPT_NON_STR_KEYS)


def _shown(record: requestlog.RequestRecord | None) -> str:
    """By text, as NaN is not itself; in one order, as a template's settled values come first."""
    if record is None:
        return ""
    meta = record.meta if record.meta is None else dict(sorted(record.meta.items()))
    return repr(replace(record, obj=dict(sorted(record.obj.items())), meta=meta))


def messages() -> list[bytes]:
    """One recorded message of each length up to a screenful."""
    found: dict[int, bytes] = {}
    heads = [head.encode() for head in requestlog.REQUEST_HEADS]
    for path in FIXTURES.rglob("*.log"):
        for line in path.read_bytes().splitlines():
            at = next((at for head in heads if (at := line.find(head)) >= 0), None)
            if at is not None and len(line) - at < 4096:
                found.setdefault(len(line) - at, line[at:])
    return list(found.values())


if __name__ == "__main__":
    fuzz(sys.argv, messages(), check)
