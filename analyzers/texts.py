"""The ids of SGLang's texts, by what they mean; which release has which text is told in `parsers/patterns.toml`."""

from __future__ import annotations

import re

from sglang_lifecycle.parsers.evidence import Event, Fact

QUEUE_ENDS = {
    "waiting_timeout": "waiting-timeout",
    "queue_full": "queue-full",
    "priority_evicted": "priority-evicted",
    "priority_disabled": "priority-disabled",
    "abort_in_waiting_queue": "explicit-abort",
    "abort_before_prefill": "explicit-abort",
}
"""What ends a request in the waiting queue, or on its way into it, each with its cause: no session sees it finish."""

RUNNING_ABORTS = frozenset({"aborted", "unknown_error"})
"""An abort without a reason of its own, told at a result of a request that ran."""

PLAIN_ABORTS = RUNNING_ABORTS | {"abort_in_waiting_queue", "abort_before_prefill"}
"""An abort without a reason of its own."""

EARLY_ABORTS = frozenset({"aborted_by_abortreq", "aborted_by_user"})
"""The same, told of a request that had not come to the queue: its grammar compiled, or it waited for its media."""

_CALLED_OFF = re.compile(r"(?:^|: )Aborted by AbortReq\.\Z")
"""How the failure of a transfer ends that an abort called off (0.4.10 on, disaggregation/*/conn.py:abort)."""

REFUSALS = frozenset({
    "session_unknown", "session_closing", "session_parent_unknown", "session_parent_invalid",
    "session_parent_unfinished", "session_busy", "session_mode", "session_empty",
})  # fmt: skip
"""What a session refuses a request with (0.3.6 to 0.5.23)."""

OF_GRAMMARS = frozenset({"grammar_failed", "grammar_timeout", "grammar_token_refused"})
"""What only a request with a grammar gets."""

ECHOES = frozenset({"echo-plain", "echo-with-reason"})
"""The shapes of finish reasons of those who left the queue without ever coming back into a batch."""


_TRANSFERS = frozenset({"pd_bootstrap_failed", "pd_transfer_failed"})


def aborted_early(line: Fact) -> bool:
    """Whether a line says that an abort met a request outside the queue and the batches, a transfer's included."""
    if line.message_id in EARLY_ABORTS or line.detail.get("aborted"):
        return True
    if line.event is not Event.PD_FAILED and line.message_id not in _TRANSFERS:
        return False  # a client's own text may end like this where another is quoted
    return _CALLED_OFF.search(str(line.detail.get("reason") or line.finish_message or "")) is not None


def ended_plainly(finish: Fact) -> bool:
    """Whether a finish reason gives no reason: an abort's known text, or one that an abort call brought (0.5.5 on)."""
    if finish.message_id is not None:
        return finish.message_id in PLAIN_ABORTS or aborted_early(finish)
    return finish.finish_type == "abort" and finish.status_code is None
