"""What a crash dump of 0.5.10 to 0.5.12 lists as unfinished may have been refused long ago: its state leaked."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, decode, prefill, said, stream, told
from dumps import NAME, pickled
from lines import RECEIVE, Story, clock, used


def chat(rid: str, second: int) -> Story:
    body = "ChatCompletionRequest(messages=[{'role': 'user', 'content': 'x'}], model='m', stream=False)"
    return [*said(second, f"Receive OpenAI: obj={body}"), (second, RECEIVE.format(at=clock(second), rid=rid))]


def served(at: int) -> Story:
    lines = used(f"z-{at}", at, at + 3)
    return lines[:1] + prefill(at, 0) + decode([at + 2], 1) + lines[1:] + answered(at + 3, "/generate")


def story(between: Story, access: bool) -> Story:
    """`p` is too long and gets its 400 at 20 s; ten minutes later others come and go, then the scheduler crashes."""
    lines = (
        said(0, "server_args=ServerArgs(model_path='m', port=30000)")
        + said(3, "The server is fired up and ready to roll!") + served(5) + chat("p", 20) + between
        + answered(20, "/v1/chat/completions", "400 Bad Request")
        + [line for at in range(600, 681, 20) for line in served(at)] + used("v", 700, 700)[:1] + prefill(700, 0)
        + said(705, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error")
        + said(705, f"Dumped 5 finished and 2 unfinished requests before crash to /dumps/host/{NAME}")
    )  # fmt: skip
    return lines if access else [line for line in lines if "HTTP/1.1" not in line[1]]


@pytest.mark.parametrize(
    ("between", "access"), [([], False), (stream("w", 20), True)], ids=["no access log", "a stream beside"]
)
def test_a_leaked_state_is_no_victim(between: Story, access: bool, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(pickled([("p", 20, 705, None), ("v", 700, 705, None)], streams=False))
    verdict = told(Case(story(between, access), "p", version="0.5.10"), tmp_path)
    assert verdict.cause != "scheduler-crash"
    assert {"invalid-request", "input-too-long"} & {verdict.cause, *(each.cause for each in verdict.candidates)}
