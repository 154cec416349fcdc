"""A container that is killed twice within two minutes: the second word is about the second life."""

from __future__ import annotations

from pathlib import Path

from cases import Case, decode, hold, prefill, said
from lines import Story, used


def started(second: int) -> Story:
    """In a container the pid is always 1, and the kernel's is another."""
    return (
        said(second, "server_args=ServerArgs(model_path='m', port=30000)")
        + said(second + 2, "INFO:     Started server process [1]")
        + said(second + 3, "The server is fired up and ready to roll!")
    )


def oom(at: str, pid: int) -> tuple[int, str]:
    return (
        0,
        f"2026-11-29T10:{at}+00:00 node kernel: Memory cgroup out of memory: Killed process {pid} (sglang::schedul)",
    )


STORY = (
    started(0) + used("a", 10, 10)[:1] + prefill(10, 0) + decode([12, 16, 20], 1)
    + started(40) + used("b", 60, 60)[:1] + prefill(60, 0) + decode(range(62, 100, 4), 1)
)  # fmt: skip


def test_a_word_of_a_kill_is_not_of_a_life_that_another_had_followed(tmp_path: Path) -> None:
    kern = [oom("00:21", 3001), oom("01:41", 3107)]
    hold(Case(STORY, "b", status="in-flight", says="process-killed", beside={"kern": kern}), tmp_path)
