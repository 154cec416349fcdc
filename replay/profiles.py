"""What differs between SGLang releases: one profile per era, every field a rule.

The engine asks these fields and never a version number. A field's comment names where the rule lives in SGLang and
since when it holds. `recorded` names the releases whose own behaviour a profile was compared with; the other releases
of its era are taken to behave alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from sglang_lifecycle.parsers.versions import RELEASES, key
from sglang_lifecycle.replay.journal import SCHEDULER

OLD_SESSION_LOGGER = "sglang.srt.managers.session_controller"


class LastRequest(Enum):
    """What becomes of the only request left when even that one does not fit into memory."""

    KEPT = "kept"
    CRASHES = "crashes"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Profile:
    """The rules of one era. The defaults are those of the oldest recorded release, 0.4.9."""

    era: str
    """The first release of the era."""
    recorded: tuple[str, ...]
    """Releases whose recorded behaviour this profile reproduces."""

    session_logger: str = SCHEDULER
    """Logger of the session lines: the scheduler up to 0.5.9, `managers/session_controller.py` in 0.5.10, then
    `session/session_controller.py`."""
    session_request_crash: str | None = None
    """Text of the AttributeError that any request to an existing session dies of (`Session.create_req`, 0.5.3)."""
    unfinished_parent_warning: str = "The request in a session is appending to a request that hasn't finished."
    """Warning on an append to a node that has not finished (`Session.create_req`); new words from 0.5.10 on."""
    unfinished_parent_error: str = "Invalid request session id"
    """Reason of the request refused for it; a text of its own from 0.5.10 on."""
    empty_append_crashes: bool = True
    """An append without input tokens dies on `req.input_ids[0]` (`Session.create_req`, up to 0.5.9)."""
    turns_carry_priority: bool = False
    """A session's turn keeps the priority that it arrived with (`Session.create_req`, 0.5.10+)."""
    stubs_carry_priority: bool = True
    """So does the stub of a request whose session is unknown or closing (`Scheduler.handle_generate_request`, up to
    0.5.9)."""
    refuses_empty_turn: bool = False
    """A turn that is empty with its history is refused (`Session.create_req`, 0.5.20+)."""
    has_reaper: bool = False
    """Sessions can stream and time out; the reaper runs before the inbox is read
    (`SessionController.maybe_reap`, called by `Scheduler.process_input_requests`, 0.5.10+)."""
    refused_turn_counts_as_activity: bool = False
    """A refused turn refreshes `last_active_time` (`Session.create_req`, 0.5.10 to 0.5.19)."""
    logs_session_life: bool = False
    """`Session opened` and `Session closed` (`SessionController`, 0.5.11+)."""
    tracks_inflight: bool = False
    """A streaming session takes one turn at a time, and a turn becomes its node when it has ended well
    (`Session._inflight`, `Session.finish_req`, 0.5.11+). In 0.5.10 the node is replaced at arrival, unasked. Closing
    such a session while a turn is under way is put off (`SessionController._close`)."""
    shares_token_arrays: bool = False
    """A streaming turn grows the token array of the turn before in place (`Session._share_token_arrays`, 0.5.14+)."""
    logs_kv_release_on_abort: bool = False
    """`Session KV released` when a turn is aborted (`StreamingSession.try_cache_finished_req`, 0.5.11 to 0.5.21)."""
    session_owns_kv_from_admission: bool = False
    """A session's slot exists from the admission of its first turn on, not only from its end
    (`StreamingSession.take`, called by `alloc_for_extend`, 0.5.22+)."""
    drops_clear_inflight: bool = False
    """A turn that is aborted, evicted or refused at the queue clears its session's in-flight flag
    (`Scheduler._release_aborted_request`, 0.5.22+). Before, the flag stays set and the next turn is refused as busy."""

    aborts_by_prefix: bool = True
    """An abort hits every rid that starts with the one it names (`Scheduler.abort_request`, 0.4.4+)."""
    echoes_queue_aborts: bool = True
    """The scheduler says that it aborted a request in its queue (`Scheduler.abort_request`, 0.4.7+). Its client is told
    from 0.4.9 on: before, `TokenizerManager._handle_abort_req` forgets the request and wakes nobody."""
    marks_are_flags: bool = True
    """Running requests are marked by `to_abort` and `to_abort_message` (`Req`, up to 0.5.4), not by a reason."""

    always_refuses_priority: bool = False
    """Where priorities are off, a request with one is refused whatever the server's arguments say
    (`Scheduler._set_or_validate_priority`, 0.5.3). Later `--abort-on-priority-when-disabled` decides."""
    refused_priority_still_queues: bool = False
    """A request refused for its priority is told so and then queued all the same
    (`Scheduler._set_or_validate_priority`, 0.5.3 and 0.5.4)."""

    waiting_timeout_text: str | None = None
    """Message of the waiting timeout; None where there is none. `Scheduler._abort_on_queued_timeout` in 0.5.8,
    `_abort_on_waiting_timeout` from 0.5.9 on."""
    has_running_timeout: bool = False
    """`Scheduler._abort_on_running_timeout`, 0.5.9+."""
    timeouts_are_aborts: bool = False
    """Timeouts travel as aborts by rid through the inbox, and so hit by prefix and wherever a request stands
    (`Scheduler._poll_timeout_aborts`, 0.5.20+)."""
    running_timeout_skips_marked: bool = False
    """A request that is marked already is not asked how long it has run, so its reason stays
    (`Scheduler._poll_timeout_aborts`, 0.5.22+). Before, the timeout replaces the reason."""

    sorts_without_room: bool = False
    """The waiting queue is put in order of priority even where nobody can be admitted
    (`Scheduler._get_new_batch_prefill_raw`, 0.5.9 and 0.5.10)."""
    drops_finished_before_admission: bool = False
    """Finished requests leave the running batch before a step admits others (`Scheduler.get_next_batch_to_run`,
    0.5.23). Before, they leave at the next decode step and take up room until then."""
    rechecks_memory: bool = True
    """`ScheduleBatch.retract_decode` asks `check_decode_mem` again after every retraction (0.5.0+). Before, its loop
    counts the free tokens itself, so where only that check says that memory is full, one request is retracted."""
    last_request: LastRequest = LastRequest.KEPT
    """`ScheduleBatch.retract_decode`: kept up to 0.5.6, a ValueError from 0.5.7 to 0.5.9, then aborted."""
    retract_level: str = "INFO"
    """Log level of `KV cache pool is full` (`Scheduler.update_running_batch`); a warning from 0.5.7 on."""
    eos_before_length: bool = False
    """A token that is both EOS and the last one allowed ends the request as `stop`, not as `length`
    (`Req.update_finish_state`, 0.5.18+)."""


_V0_4_9 = Profile(era="0.4.9", recorded=("0.4.9",), rechecks_memory=False)

_V0_4_7 = replace(_V0_4_9, era="0.4.7", recorded=())
_V0_4_4 = replace(_V0_4_9, era="0.4.4", recorded=(), echoes_queue_aborts=False)
_V0_3_6 = replace(_V0_4_4, era="0.3.6", aborts_by_prefix=False)

_V0_5_0 = replace(
    _V0_4_9,
    era="0.5.0rc2",
    recorded=(),
    rechecks_memory=True,
    session_request_crash="'TokenizedGenerateReqInput' object has no attribute 'lora_path'",
)
_V0_5_3 = replace(
    _V0_5_0,
    era="0.5.3",
    recorded=("0.5.3",),
    session_request_crash="'SessionParams' object has no attribute 'rid'",
    always_refuses_priority=True,
    refused_priority_still_queues=True,
)
_V0_5_4 = replace(_V0_5_0, era="0.5.4", refused_priority_still_queues=True)
_V0_5_8 = replace(
    _V0_4_9,
    era="0.5.8",
    recorded=("0.5.8",),
    marks_are_flags=False,
    rechecks_memory=True,
    waiting_timeout_text="Request queue timeout reached.",
    last_request=LastRequest.CRASHES,
    retract_level="WARNING",
)
_V0_5_7 = replace(_V0_5_8, era="0.5.7", recorded=(), waiting_timeout_text=None)
_V0_5_5 = replace(_V0_5_7, era="0.5.5", last_request=LastRequest.KEPT, retract_level="INFO")
_V0_5_9 = replace(
    _V0_5_8,
    era="0.5.9",
    recorded=("0.5.9",),
    waiting_timeout_text="Request waiting timeout reached.",
    has_running_timeout=True,
    sorts_without_room=True,
)
_V0_5_10 = replace(
    _V0_5_9,
    era="0.5.10",
    recorded=("0.5.10",),
    session_logger=OLD_SESSION_LOGGER,
    unfinished_parent_warning="Session request is appending to a request that hasn't finished.",
    unfinished_parent_error="Session request is appending to a request that hasn't finished.",
    empty_append_crashes=False,
    turns_carry_priority=True,
    stubs_carry_priority=False,
    has_reaper=True,
    refused_turn_counts_as_activity=True,
    last_request=LastRequest.ABORTED,
)
_V0_5_11 = replace(
    _V0_5_10,
    era="0.5.11",
    recorded=("0.5.12",),
    session_logger="sglang.srt.session.session_controller",
    sorts_without_room=False,
    logs_session_life=True,
    tracks_inflight=True,
    logs_kv_release_on_abort=True,
)
_V0_5_14 = replace(_V0_5_11, era="0.5.14", recorded=("0.5.14",), shares_token_arrays=True)
_V0_5_18 = replace(_V0_5_14, era="0.5.18", recorded=("0.5.18",), eos_before_length=True)
_V0_5_20 = replace(
    _V0_5_18,
    era="0.5.20",
    recorded=("0.5.20", "0.5.21"),
    refuses_empty_turn=True,
    refused_turn_counts_as_activity=False,
    timeouts_are_aborts=True,
)
_V0_5_22 = replace(
    _V0_5_20,
    era="0.5.22",
    recorded=("0.5.22",),
    logs_kv_release_on_abort=False,
    session_owns_kv_from_admission=True,
    drops_clear_inflight=True,
    running_timeout_skips_marked=True,
)
_V0_5_23 = replace(
    _V0_5_22,
    era="0.5.23",
    recorded=("0.5.23",),
    drops_finished_before_admission=True,
)

PROFILES: tuple[Profile, ...] = (
    _V0_3_6,
    _V0_4_4,
    _V0_4_7,
    _V0_4_9,
    _V0_5_0,
    _V0_5_3,
    _V0_5_4,
    _V0_5_5,
    _V0_5_7,
    _V0_5_8,
    _V0_5_9,
    _V0_5_10,
    _V0_5_11,
    _V0_5_14,
    _V0_5_18,
    _V0_5_20,
    _V0_5_22,
    _V0_5_23,
)
"""All eras, oldest first."""


def profile_for(version: str) -> Profile:
    """Return the profile of the era that an SGLang release belongs to; the last era is that of all later releases.

    Raises ValueError where `version` is not a version, is older than the first known release, or newer than the last
    one and the builds made from it (`0.5.23.post1`).
    """
    wanted, newest = key(version), key(RELEASES[-1])
    if wanted < key(RELEASES[0]) or (wanted > newest and wanted[0] != newest[0]):
        raise ValueError(f"SGLang {version} is not known: give a release from {RELEASES[0]} to {RELEASES[-1]}")
    return [profile for profile in PROFILES if key(profile.era) <= wanted][-1]
