"""A 400 of a request that no record names is not the answer of one that runs on."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, decode, hold, prefill, said, stream
from lines import RECEIVE, Story, clock, used

READY = "The server is fired up and ready to roll!"
CAPACITY = (
    "max_total_num_tokens=20000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, "
    "context_len=4096, available_gpu_mem=1.0 GB"
)
RAISED = "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error"


def chat(rid: str, second: int) -> Story:
    body = "ChatCompletionRequest(messages=[{'role': 'user', 'content': 'x'}], model='m', stream=False)"
    record = RECEIVE.format(at=clock(second), rid=rid).replace("text='x'", "text='x', input_ids=[1, 2, 3]")
    return [*said(second, f"Receive OpenAI: obj={body}"), (second, record)]


def beside(second: int, path: str) -> Story:
    """A stream left long ago; a chat runs, and somebody posts what is no request."""
    gone = stream("gone", 20) + answered(20, "/generate") + prefill(20, 0) + decode([21, 22], 1)
    served = (
        used("z", 50, 55)[:1] + prefill(50, 0) + decode([52], 1) + used("z", 50, 55)[1:] + answered(55, "/generate")
    )
    runs = chat("n", 100) + prefill(100, 0) + decode([at for at in (102, 104) if at < second], 1)
    refused = answered(second, path, "400 Bad Request")
    start = said(0, "server_args=ServerArgs(model_path='m', port=30000)") + said(1, CAPACITY) + said(3, READY)
    return start + gone + served + runs + refused + decode([106, 110, 120], 1)


CRASH = said(130, RAISED)
LEFT = frozenset({"client-disconnect", "invalid-request", "input-too-long"})
CASES = {
    f"{what}, {how}": Case(beside(at, path) + end, "n", LEFT, says=says)
    for what, at, path in (
        ("a chat 5 s later", 105, "/v1/chat/completions"),
        ("a chat at once", 101, "/v1/chat/completions"),
        ("an embedding", 105, "/v1/embeddings"),
    )
    for how, end, says in (("and the log ends", [], "in-flight"), ("before a crash", CRASH, "scheduler-crash"))
}


@pytest.mark.parametrize("name", CASES)
def test_who_runs_on_was_not_refused(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)
