"""Whose timeout it was: its own, where the log shows the limit, a retraction, or that the other ran elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, WAITED, Case, answered, changed, decode, hold, prefill, said, stream
from lines import TIMEOUT, Story, used

COLLIDED = frozenset({"timeout-prefix-collision"})
RAN = "{'type': 'abort', 'status_code': 503, 'message': 'Request running timeout reached.'}"
IN_QUEUE = "{'type': 'abort', 'message': 'Abort in waiting queue'}"
RETRACTED = (
    "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 900, "
    "#new_token_ratio: 0.4000 -> 0.9000"
)


def lasting(start: int, end: int, rid: str, reason: str, lasted: float, more: str = "") -> Story:
    """A request whose end was finely measured."""
    return changed(
        used(rid, start, end, reason), f"'e2e_latency': {float(end - start)}", f"'e2e_latency': {lasted}{more}"
    )


def sent(start: int, rid: str, lasted: float, at: float) -> Story:
    """A request that a waiting timeout ended, with the second at which its client was told."""
    more = f", 'completion_tokens': 0, 'response_sent_to_client_ts': {1795946400 + at:.3f}"
    return lasting(start, int(at), rid, WAITED, lasted, more)


def warm(start: int) -> Story:
    """One that waits its limit out."""
    return lasting(start, start + 3, f"warm-{start}", WAITED, 3.03)


BACKLOG_1, BACKLOG_12 = lasting(40, 48, "job-1", WAITED, 8.1), lasting(45, 48, "job-12", WAITED, 3.2)
BACKLOG = (
    stream("hold", 5) + prefill(5, 0) + stream("hold2", 5) + prefill(5, 1) + decode([6, 8], 2)
    + warm(10) + decode([12, 14], 2, 1) + warm(20) + decode(range(24, 38, 2), 2) + stream("hold2", 5, 39, LENGTH)[1:]
    + stream("big", 40) + prefill(40, 1, tokens=4096) + BACKLOG_1[:1] + BACKLOG_12[:1] + prefill(45, 1, 2, tokens=4096)
    + BACKLOG_12[1:] + BACKLOG_1[1:] + prefill(48, 1, tokens=4096) + decode(range(52, 60, 2), 2)
    + stream("big", 40, 60, LENGTH)[1:] + stream("hold", 5, 70, LENGTH)[1:]
)  # fmt: skip
RANK_0 = lasting(1, 22, "run-1", TIMEOUT, 21.0, ", 'completion_tokens': 900, 'dp_rank': 0")
RANK_1 = lasting(12, 22, "run-10", TIMEOUT, 10.1, ", 'completion_tokens': 600, 'dp_rank': 1")
RANKS = (
    used("w", 0, 11)[:1] + prefill(0, 0, rank=" DP0 TP0") + RANK_0[:1] + decode(range(2, 11, 2), 1, 1, " DP0 TP0")
    + used("w", 0, 11, LENGTH)[1:] + prefill(11, 0, rank=" DP0 TP0") + RANK_1[:1] + prefill(12, 0, rank=" DP1 TP1")
    + [line for at in range(13, 22, 2) for rank in (" DP0 TP0", " DP1 TP1") for line in decode([at], 1, rank=rank)]
    + RANK_0[1:] + RANK_1[1:]
)  # fmt: skip
REQUEUED, LATE = sent(0, "job-1", 33.103, 33.104), sent(29, "job-10", 3.003, 32.504)
RETRACTED_ROOT = (
    REQUEUED[:1] + prefill(0, 0) + used("big", 0, 0)[:1] + prefill(0, 1) + decode(range(5, 29, 5), 2) + LATE[:1]
    + said(30, RETRACTED) + decode([31], 1, 2) + LATE[1:] + REQUEUED[1:] + decode([36], 1)
    + used("big", 0, 40, LENGTH)[1:]
)  # fmt: skip
RETRACTED_SELF = (
    used("4b1d0e5c", 0, 0)[:1] + prefill(0, 0) + used("9f1d0e5c", 3, 3)[:1] + prefill(3, 1) + decode([5, 10, 15], 2)
    + said(19, RETRACTED) + lasting(0, 20, "4b1d0e5c", RAN, 20.003)[1:] + decode([21], 1)
    + used("9f1d0e5c", 3, 22, LENGTH)[1:]
)  # fmt: skip
CHUNKED = (
    changed(used("big", 0, 0)[:1], "text='x', ", "")
    + [line for at in range(0, 20, 2) for line in prefill(at, 0, tokens=2048)]
    + lasting(0, 20, "big", IN_QUEUE, 20.003)[1:] + answered(20, "/generate")
)  # fmt: skip
CASES = {
    "one that came after its prefix had lain in the backlog": Case(
        BACKLOG, "job-12", unproven=COLLIDED, says="waiting-timeout"
    ),
    "one that ran on another rank than its prefix": Case(RANKS, "run-10", COLLIDED, says="running-timeout"),
    "one that waited before its prefix, which was retracted, did so again": Case(
        RETRACTED_ROOT, "job-10", unproven=COLLIDED, says="waiting-timeout"
    ),
    "one that was retracted just before its time was up": Case(
        RETRACTED_SELF, "4b1d0e5c", COLLIDED, says="running-timeout", limits={"running_timeout": 20.0}
    ),
    "one that was retracted, and no limit is told": Case(RETRACTED_SELF, "4b1d0e5c", says="running-timeout"),
    "a long prompt that ran out of time in chunked prefill": Case(
        CHUNKED, "big", says="running-timeout", limits={"running_timeout": 20.0}
    ),
    "a long prompt in chunked prefill, and no limit is told": Case(CHUNKED, "big", says="running-timeout"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_own_timeout_is_not_another_s(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)
