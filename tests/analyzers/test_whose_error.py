"""Whose error and whose status it is: lines without a rid are not laid to the request that happens to be open."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, changed, crashed, decode, hold, prefill, said, started, stream
from lines import RECEIVE, Story, clock, used

REFUSED = frozenset({"invalid-request", "input-too-long"})
ROOM = "max_total_num_tokens=20000, chunked_prefill_size=4096, max_prefill_tokens=16384, max_running_requests=8"
READY = said(0, f"{ROOM}, context_len=8192, available_gpu_mem=17.10 GB")
CRASHED = crashed(40) + said(40, "SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
KILLED = said(40, "Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
TOO_LONG = "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
TOO_MANY = (
    "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9003 "
    "tokens: 3 tokens from the input messages and 9000 tokens for the completion. Please reduce the number of tokens "
    "in the input messages or the completion to fit within the limit."
)
TRACEBACK = """ERROR:    Exception in ASGI application
Traceback (most recent call last):
  File "/opt/sglang/srt/entrypoints/http_server.py", line 1400, in v1_score_request
    return await raw_request.app.state.openai_serving_score.handle_request(
TypeError: unsupported operand type(s)"""
BEFORE_RECEIVE = (
    "text and input_ids cannot be provided at the same time",
    "At least one of text, input_ids, or image should be provided",
    "At least one of text, input_ids, image, video, or audio should be provided",
    "input_ids cannot be empty.",
    "Text should be a list for batch processing.",
    "input_ids should be a list of lists for batch processing.",
    "lora_path should be a list or a string.",
    "lora_path list length (2) must match batch size (3)",
    "Cannot use list token_ids_logprob with parallel_sample_num > 1",
    "The length of cache_salt should be equal to the batch size.",
    "max_thinking_tokens requires the server to be launched with --enable-strict-thinking",
    "priority must be a signed 64-bit integer between -9223372036854775808 and 9223372036854775807",
)
"""Errors that SGLang raises before it writes a Receive."""


def came(rid: str, second: int, tokens: int = 8) -> Story:
    """The Receive of a prompt of three tokens."""
    story = changed(used(rid, second, second)[:1], "text='x'", "text=None, input_ids=[1, 2, 3]")
    return changed(story, "'max_new_tokens': 8", f"'max_new_tokens': {tokens}")


def raised(second: int, text: str) -> Story:
    """An error and the status that its client gets."""
    return said(second, f"[http_server] Error: {text}") + answered(second, "/generate", "400 Bad Request")


RUNS = READY + came("a", 10) + prefill(10, 0, tokens=3)
STREAMS = READY + stream("a", 10) + answered(10, "/generate") + prefill(10, 0)
GOES_ON = decode(range(14, 36, 4), 1)
BARE = answered(12, "/generate", "400 Bad Request")
BOTH = READY + came("long", 10)
CASES = {
    **{
        f"{how} beside another's: {text}": Case(begin + raised(12, text) + GOES_ON, "a", REFUSED, says="in-flight")
        for text in BEFORE_RECEIVE
        for how, begin in (("a request", RUNS), ("a stream", STREAMS))
    },
    "a request that died long after another's error": Case(
        RUNS + raised(12, BEFORE_RECEIVE[0]) + GOES_ON + CRASHED, "a", REFUSED, says="scheduler-crash"
    ),
    "another's body that is no JSON": Case(RUNS + BARE + GOES_ON, "a", REFUSED, says="in-flight"),
    "another's body that is no JSON, and a crash": Case(
        RUNS + BARE + GOES_ON + CRASHED, "a", REFUSED, says="scheduler-crash"
    ),
    "another's body that is no JSON, and a kill": Case(
        RUNS + BARE + GOES_ON + KILLED, "a", REFUSED, says="process-killed"
    ),
    "a short prompt that came after one that is too long": Case(
        changed(BOTH, "input_ids=[1, 2, 3]", "input_ids=[1, 2, 3] ... [4, 5, 6]") + came("a", 10)
        + raised(10, TOO_LONG) + prefill(10, 0, tokens=3) + GOES_ON,
        "a", REFUSED, says="in-flight",
    ),
    "one that is too long, before a short prompt": Case(
        changed(BOTH, "input_ids=[1, 2, 3]", "input_ids=[1, 2, 3] ... [4, 5, 6]") + came("a", 10)
        + raised(10, TOO_LONG) + prefill(10, 0, tokens=3) + GOES_ON,
        "long", says="input-too-long",
    ),
    "a stream that was answered already when another is too long": Case(
        changed(BOTH, "text=None, input_ids=[1, 2, 3]", f"text='{'word ' * 900}'")
        + changed(stream("a", 10), "text='x'", "text=None, input_ids=[1, 2, 3]")
        + answered(10, "/generate") + raised(10, TOO_LONG) + prefill(10, 0, tokens=3) + GOES_ON,
        "a", REFUSED, says="in-flight",
    ),
    "one that asks for few tokens, after one that asks for too many": Case(
        changed(BOTH, "'max_new_tokens': 8}", "'max_new_tokens': 9000}") + came("a", 10, 100)
        + raised(10, TOO_MANY) + prefill(10, 0, tokens=3) + GOES_ON,
        "a", REFUSED, says="in-flight",
    ),
    "one that asks for too many tokens, before one that asks for few": Case(
        changed(BOTH, "'max_new_tokens': 8}", "'max_new_tokens': 9000}") + came("a", 10, 100)
        + raised(10, TOO_MANY) + prefill(10, 0, tokens=3) + GOES_ON,
        "long", says="input-too-long",
    ),
    "a stream beside an exception in another route": Case(
        STREAMS + answered(15, "/v1/score", "500 Internal Server Error") + said(15, TRACEBACK) + GOES_ON,
        "a", REFUSED, says="in-flight",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_error_is_its_own_s(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


CAPACITY = (
    "max_total_num_tokens=20000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, "
    "context_len=4096, available_gpu_mem=1.0 GB"
)


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
    return started() + said(1, CAPACITY) + gone + served + runs + refused + decode([106, 110, 120], 1)


LEFT = REFUSED | {"client-disconnect"}
ANSWERS = {
    f"{what}, {how}": Case(beside(at, path) + end, "n", LEFT, says=says)
    for what, at, path in (
        ("a chat 5 s later", 105, "/v1/chat/completions"),
        ("a chat at once", 101, "/v1/chat/completions"),
        ("an embedding", 105, "/v1/embeddings"),
    )
    for how, end, says in (("and the log ends", [], "in-flight"), ("before a crash", crashed(130), "scheduler-crash"))
}


@pytest.mark.parametrize("name", ANSWERS)
def test_who_runs_on_was_not_refused(name: str, tmp_path: Path) -> None:
    hold(ANSWERS[name], tmp_path)


FAILED = "[http_server] Error: Failed to implicitly load LoRA adapter adapter-x: size mismatch for lora_A"
UNKNOWN = (
    "[http_server] Error: Got LoRA adapter that has never been loaded: adapter-x\nAll loaded adapters: dict_keys([])."
)


def adapted(story: Story, adapter: str) -> Story:
    return changed(story, "stream=", f"lora_path={adapter}, stream=")


def two(error: str, streams: bool) -> Story:
    """One whose adapter is loaded for three seconds in vain, and one without that comes meanwhile and runs on."""
    other = stream("b", 12) + answered(12, "/generate") if streams else used("b", 12, 12)[:1]
    story = adapted(used("a", 10, 10)[:1], "'adapter-x'") + adapted(other, "None") + prefill(12, 0)
    refused = said(13, error) + answered(13, "/generate", "400 Bad Request")
    return started(more=", enable_lora=True") + story + refused + decode([14, 16, 20], 1)


ADAPTERS = {
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


@pytest.mark.parametrize("name", ADAPTERS)
def test_whose_adapter_it_was(name: str, tmp_path: Path) -> None:
    hold(ADAPTERS[name], tmp_path)
