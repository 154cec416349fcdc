"""Records in JSON that are told together say what each says by itself, whatever their fields hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from executors import Here
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_lifecycle.parsers import blocks, ranges
from sglang_lifecycle.parsers.log import read

TEXTS = st.sampled_from(
    ["", "a", "it's", "two\nlines of a text", "x" * 1200, "é" * 90, "[2026-11-29 10:00:00] SIGTERM"]
)
NUMBERS = st.sampled_from([0, 1, 1.0, 2.5, True, False, -3, 10**20])
ANYTHING = st.one_of(st.none(), TEXTS, NUMBERS, st.lists(NUMBERS, max_size=2))
SAMPLING = st.one_of(
    ANYTHING,
    st.dictionaries(st.sampled_from(["n", "max_new_tokens", "stop", "regex", "temperature"]), ANYTHING, max_size=3),
)
REASONS = st.one_of(
    ANYTHING,
    st.fixed_dictionaries({"type": st.sampled_from(["stop", "length", "abort"]), "message": TEXTS}),
    st.fixed_dictionaries({"type": st.just("stop"), "matched": st.one_of(TEXTS, NUMBERS, st.just("NaN happened"))}),
    st.fixed_dictionaries({"type": st.sampled_from(["length", 1, True]), "length": NUMBERS}),
)
OBJ = {
    "rid": st.sampled_from(["r-1", "r-2", "r-3"]),
    "text": st.one_of(st.none(), TEXTS, st.lists(TEXTS, max_size=2)),
    "input_ids": st.one_of(st.none(), st.just([0]), st.lists(NUMBERS, max_size=3)),
    "sampling_params": SAMPLING,
    "stream": ANYTHING,
    "priority": ANYTHING,
    "lora_path": ANYTHING,
    "image_data": ANYTHING,
    "bootstrap_room": ANYTHING,
    "http_worker_ipc": ANYTHING,
    "session_params": st.one_of(st.none(), st.none(), st.just({"id": "s-1", "rid": None, "replace": True})),
    "external_trace_header": st.one_of(st.none(), st.none(), st.just({"traceparent": "00-a-b-01"})),
}
META = {
    "finish_reason": REASONS,
    "prompt_tokens": ANYTHING,
    "completion_tokens": ANYTHING,
    "num_retractions": ANYTHING,
    "e2e_latency": ANYTHING,
    "response_sent_to_client_ts": ANYTHING,
}
STAMPS = st.sampled_from(["2026-11-29T10:00:00.000001", "2026-11-29T10:00:07.5", "2026-11-29 10:00:08", "never", None])
RIDS = st.one_of(OBJ["rid"], st.just(["r-4", "r-5"]), ANYTHING)


@st.composite
def records(draw: st.DrawFn) -> str:
    finished = draw(st.booleans())
    data: dict[str, Any] = {
        "timestamp": draw(STAMPS),
        "event": draw(st.sampled_from(["request.finished" if finished else "request.received"] * 5 + ["another"])),
        "rid": draw(RIDS),
        "obj": draw(st.fixed_dictionaries(OBJ)),
    }
    if draw(st.integers(0, 5)) == 0:
        data["headers"] = draw(st.sampled_from([{}, {"x-request-id": "outer-1"}, None, "none"]))
    if finished:
        data["out"] = {"text": draw(TEXTS), "meta_info": draw(st.fixed_dictionaries(META))}
    return "[2026-11-29 10:00:00] " + json.dumps(data, ensure_ascii=False)


@settings(max_examples=100)
@given(st.lists(records(), min_size=6, max_size=24), st.sampled_from([600, 3_000, 40_000]))
def test_records_told_together_say_what_each_says(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], block: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "server.log"
    path.write_text("\n".join([*lines, *lines]) + "\n")
    whole = read([str(path)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "SIZE", 2_000)
        patch.setattr(ranges, "_FIRST", 100)
        patch.setattr(blocks, "BLOCK", block)
        parts = read([str(path)], pool=Here())
    assert parts.facts == whole.facts
    assert parts.sources == whole.sources
