"""An error about an adapter is not that of a request without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, changed, decode, hold, prefill, said, stream
from lines import Story, used

READY = "The server is fired up and ready to roll!"
FAILED = "[http_server] Error: Failed to implicitly load LoRA adapter adapter-x: size mismatch for lora_A"
UNKNOWN = (
    "[http_server] Error: Got LoRA adapter that has never been loaded: adapter-x\nAll loaded adapters: dict_keys([])."
)


def adapted(story: Story, adapter: str) -> Story:
    return changed(story, "stream=", f"lora_path={adapter}, stream=")


def two(error: str, streams: bool) -> Story:
    """One whose adapter is loaded for three seconds in vain, and one without that comes meanwhile and runs on."""
    start = said(0, "server_args=ServerArgs(model_path='m', port=30000, enable_lora=True)") + said(3, READY)
    other = stream("b", 12) + answered(12, "/generate") if streams else used("b", 12, 12)[:1]
    story = adapted(used("a", 10, 10)[:1], "'adapter-x'") + adapted(other, "None") + prefill(12, 0)
    return start + story + said(13, error) + answered(13, "/generate", "400 Bad Request") + decode([14, 16, 20], 1)


CASES = {
    f"{who}, {'a stream' if streams else 'not a stream'} beside, {error[22:40]}": Case(
        two(error, streams), rid, never, status=status, says=says
    )
    for error in (FAILED, UNKNOWN)
    for streams in (True, False)
    for who, rid, never, status, says in (
        ("the one with the adapter", "a", (), "in-flight", "invalid-request"),
        ("the one without", "b", {"invalid-request"}, "interrupted", "in-flight"),
    )
}


@pytest.mark.parametrize("name", CASES)
def test_whose_adapter_it_was(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)
