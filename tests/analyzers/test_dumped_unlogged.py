"""The count of a crash dump, where the request log was switched on while a request ran: the count fits by chance."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, answered, decode, hold, prefill, said, stream
from lines import Story, used

CONFIG = said(60, "Config logging: obj=ConfigureLoggingReq(log_requests=True, log_requests_level=2)")


def quick(number: int, start: int) -> Story:
    lines = used(f"f-{number}", start, start + 2)
    return lines[:1] + prefill(start, 1) + lines[1:] + answered(start + 2, "/generate")


def story(config: Story) -> Story:
    """One that came before runs on, unseen; `a` leaves at 110 s, as the decode lines show."""
    return (
        said(0, "server_args=ServerArgs(model_path='m', port=30000)")
        + said(3, "The server is fired up and ready to roll!") + prefill(10, 0) + decode(range(12, 60, 20), 1)
        + config + answered(60, "/configure_logging") + decode(range(62, 101, 20), 1) + stream("a", 101)
        + answered(101, "/generate") + prefill(101, 1) + decode([106], 2) + decode(range(120, 630, 20), 1)
        + [line for n in range(5) for line in quick(n, 201 + 80 * n)]
        + said(650, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error")
        + said(650, "Dumped 3 finished and 1 unfinished requests before crash to /dumps/host/crash_dump.pkl")
    )  # fmt: skip


@pytest.mark.parametrize("config", [CONFIG, []], ids=["with the line", "the access line alone"])
def test_a_count_that_fits_by_chance_proves_nothing(config: Story, tmp_path: Path) -> None:
    hold(Case(story(config), "a", unproven={"scheduler-crash"}, says="client-disconnect"), tmp_path)
