"""What a server was told: the arguments and the environment that the lifecycle depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one server, under SGLang's names. The defaults switch every limit off."""

    waiting_timeout: float | None = None
    """`SGLANG_REQ_WAITING_TIMEOUT`, in seconds."""
    running_timeout: float | None = None
    """`SGLANG_REQ_RUNNING_TIMEOUT`, in seconds."""
    max_queued_requests: int | None = None
    """`--max-queued-requests`."""
    enable_priority_scheduling: bool = False
    """`--enable-priority-scheduling`."""
    schedule_low_priority_values_first: bool = False
    """`--schedule-low-priority-values-first`: a smaller number is the more urgent one."""
    abort_on_priority_when_disabled: bool = False
    """`--abort-on-priority-when-disabled`."""
    max_running: int | None = None
    """`--max-running-requests`."""
