"""Crash dumps as SGLang writes them."""

from __future__ import annotations

import pickle
import sys
from datetime import UTC, datetime
from types import ModuleType

NAME = "crash_dump_2026-11-29_10-02-30.pkl"
START = datetime(2026, 11, 29, 10, tzinfo=UTC).timestamp()


class GenerateReqInput:
    """What a dump holds of a request."""


def pickled(entries: list[tuple[str, int, int, dict[str, object] | None]], streams: bool = True) -> bytes:
    """A crash dump of requests: rid, second of arrival and of end, finish reason."""
    home = "sglang.srt.managers.io_struct"
    GenerateReqInput.__module__ = home
    parts = home.split(".")
    names = [".".join(parts[: n + 1]) for n in range(len(parts))]
    sys.modules.update({name: ModuleType(name) for name in names})
    sys.modules[home].GenerateReqInput = GenerateReqInput  # type: ignore[attr-defined]
    found = []
    for rid, came, ended, reason in entries:
        request = GenerateReqInput()
        request.__dict__.update(rid=rid, text="x", stream=streams, sampling_params={"max_new_tokens": 8})
        meta = {"id": rid, "finish_reason": reason, "completion_tokens": 8}
        output = {} if reason is None else {"text": "y", "output_ids": [1] * 8, "meta_info": meta}
        found.append((request, output, START + came + 0.1, START + ended + 0.3))
    data = pickle.dumps({"server_args": {"model_path": "m"}, "requests": found, "launch_command": ["sglang"]})
    for name in names:
        del sys.modules[name]
    return data
