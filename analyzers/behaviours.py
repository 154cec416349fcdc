"""What SGLang does in some of its releases only, as far as a verdict depends on it.

A rule asks for a behaviour by its name and never for a release. Where a release does something for the first time, or
no more, its row here says so. The spans of lines and texts are in `parsers/patterns.toml`, those of fields in
`fingerprints.toml`, and what a scheduler does in the eras of `replay/profiles.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sglang_lifecycle.parsers.versions import RELEASES


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Something that SGLang does from release `since` to release `until`, both included.

    `where` is the file below `python/sglang/srt` in which it was observed, and the function where it is one's.
    """

    where: str
    since: str = RELEASES[0]
    until: str = RELEASES[-1]


# Aborts and timeouts

ABORT_BY_PREFIX = Behaviour("managers/scheduler.py:abort_request", since="0.4.4")
"""An abort hits every rid that begins with the one that it names."""

ABORT_FINISHES = Behaviour("managers/tokenizer_manager.py:abort_request", since="0.4.7")
"""Who is aborted by a call while it runs has a `Finish`; what a session ends has one in any release."""

ABORT_OF_ALL = Behaviour("managers/scheduler.py:abort_request", since="0.4.9")
"""An abort may be of everything in flight; a pause and a weight update ask for one."""

QUEUE_ABORT_HANGS = Behaviour("managers/tokenizer_manager.py:_handle_abort_req", since="0.4.4", until="0.4.8")
"""Who is aborted in the queue gets no answer and no `Finish`, and hangs until its client leaves.

To 0.4.6 the scheduler tells nobody (managers/scheduler.py:abort_request), then the API server does not tell who waits.
A client that waits can be hit from 0.4.4 on, when an abort takes in the rids that begin with its own.
"""

ABORT_MEETS_CHUNKS = Behaviour("managers/scheduler.py:process_pending_chunked_abort", since="0.5.14")
"""An abort ends a prompt that is read in chunks as well; before, it is lost on it."""

GRAMMAR_ABORTS_BY_RID = Behaviour(
    "managers/scheduler_components/batch_result_processor.py:_accept_grammar_tokens", since="0.4.10", until="0.5.15"
)
"""A token that a grammar refuses ends its request by an abort of its rid.

Before 0.5.13 in managers/scheduler_output_processor_mixin.py.
"""

TIMEOUT_BY_RID = Behaviour("managers/scheduler.py:_poll_timeout_aborts", since="0.5.20")
"""A timeout travels as an abort by rid: it hits by prefix, and loses its text on a prompt that is read in chunks."""

STREAM_ABORT_LOST = Behaviour("managers/tokenizer_manager.py:generate_request", since="0.5.18", until="0.5.19")
"""The abort of a stream whose client leaves finds no state and is lost: the engine decodes on for nobody."""

# What the API server remembers, and writes

TWIN_REFUSED = Behaviour("managers/tokenizer_manager.py:_init_req_state", since="0.5.10")
"""A second request with a rid in flight is refused; before, it takes the place of the first without a word."""

PID_BEFORE_RID = Behaviour("managers/multi_tokenizer_mixin.py", since="0.5.2", until="0.5.3.post3")
"""One of several HTTP workers writes its pid before every rid."""

QUEUE_ABORTED_KEPT = Behaviour("managers/tokenizer_manager.py:_handle_abort_req", since="0.4.9", until="0.5.12")
"""The state of a request that was aborted in the queue is never forgotten, and listed as open."""

REFUSED_KEPT = Behaviour("managers/tokenizer_manager.py", since="0.5.10", until="0.5.12")
"""So is the state of a request that the API server refuses."""

DUMP_OF_DISPATCHED = Behaviour("managers/tokenizer_manager.py:dump_requests_before_crash", since="0.4.9", until="0.5.9")
"""A crash dump lists only what was sent to the scheduler."""

NO_REASON = Behaviour("managers/tokenizer_manager.py:_wait_one_response", until="0.5.9")
"""A whole `Finish` may lack a finish reason."""

FAST_HIDDEN = Behaviour("utils/request_logger.py:log_finished_request", since="0.5.7")
"""SGLANG_LOG_REQUEST_EXCEEDED_MS hides the `Finish` of fast requests."""

ONE_LEVEL = Behaviour("managers/tokenizer_manager.py:get_log_request_metadata", until="0.4.3")
"""Every level of the request log prints every field."""

TEXT_BY_LEVEL = Behaviour("managers/tokenizer_manager.py:get_log_request_metadata", since="0.4.4", until="0.4.8")
"""Level 0 of the request log leaves out texts and tokens; later it leaves out sampling parameters, too."""

UNSTAMPED_RECORDS = Behaviour("utils/log_utils.py", since="0.5.8", until="0.5.11")
"""The records of the request log have neither a time nor a prefix."""

# What the scheduler writes

TRANSFERS_UNCOUNTED = Behaviour("managers/scheduler_metrics_mixin.py:log_prefill_stats", until="0.5.2")
"""The batch lines of a disaggregated server do not count who waits for a transfer."""

STATS_UNSTAMPED = Behaviour("metrics/collector.py:TimeStats", until="0.5.2")
"""Nothing stamps what the time stats are made of (there are some from 0.4.7 on)."""

# Sessions

REPLACES = Behaviour("managers/session_controller.py:Session.create_req", since="0.4.2")
"""A turn may replace another, which is aborted."""

PARENT_REFUSED_SILENTLY = Behaviour("managers/session_controller.py:Session.create_req", since="0.4.2", until="0.4.8")
"""A turn whose parent is unknown or unfinished is aborted without a reason, after its prompt was read."""

UNFINISHED_PARENT_TOLD = Behaviour("managers/session_controller.py:Session.create_req", since="0.5.10")
"""The refusal for a parent that had not finished has a text of its own; before, it is that for an unknown one."""

STREAMING_SESSIONS = Behaviour("managers/session_controller.py", since="0.5.10")
"""Sessions may stream."""

TURN_REPLACED_AT_ARRIVAL = Behaviour(
    "managers/session_controller.py:Session.create_req", since="0.5.10", until="0.5.10"
)
"""A turn of a streaming session takes the place of the one before as it comes in, finished or not."""

OPEN_TOLD = Behaviour("session/session_controller.py:SessionController.open", since="0.5.11")
"""A line tells that a session was opened."""

MARK_STAYS = Behaviour("session/session_controller.py:Session", since="0.5.11", until="0.5.21")
"""A turn that is dropped from the queue leaves `Session._inflight` set, and the next one is refused as if it ran."""
