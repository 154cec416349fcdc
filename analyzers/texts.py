"""The ids of SGLang's texts, by what they mean; which release has which text is told in `parsers/patterns.toml`."""

from __future__ import annotations

QUEUE_ENDS = {
    "waiting_timeout": "waiting-timeout",
    "queue_full": "queue-full",
    "priority_evicted": "priority-evicted",
    "abort_in_waiting_queue": "explicit-abort",
    "abort_before_prefill": "explicit-abort",
}
"""What ends a request in the waiting queue, each with its cause."""
