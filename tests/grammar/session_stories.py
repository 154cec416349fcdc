"""Requests that were refused for what their session was."""

from __future__ import annotations

import wordings
from renderer import Server
from stories import ANY, LIKELY, UNDECIDED, Ending, story


# --- sessions ---------------------------------------------------------------------------------------------------------
def turn(
    s: Server, rid: str, parent: str | None = None, tokens: int = 8, session: str = "sess", **more: object
) -> None:
    """A turn of a session that runs to its end."""
    s.receive(rid, **s.session(session, parent, **more))
    s.wait(1)
    s.done(rid, tokens=tokens)
    s.wait(1)


def opened(s: Server, session: str = "sess") -> None:
    if s.since("0.5.11"):
        s.scheduler(f"Session opened: {session} (active=1)")
    s.access(200, "/open_session")
    s.wait(1)


def refuse(s: Server, rid: str, text: str) -> None:
    """A refusal of the session controller, in the form of the release."""
    if s.since("0.4.9"):
        s.refused(rid, text)
    else:
        s.refused(rid, text, None, None, line=False, tokens=1, prompt=9)


@story("session-unknown", "0.3.6", "0.4.0", "0.4.1", "0.4.2", "0.4.6", "0.4.8", "0.4.9", "0.5.3", "0.5.9", "0.5.10",
       "0.5.11", "0.5.23")  # fmt: skip
def session_was_never_opened(s: Server) -> Ending:
    s.receive("r-1", **s.session("ghost"))
    refuse(s, "r-1", "Invalid request: session id ghost does not exist")
    return Ending(stage="before-scheduler")


@story("session-closed", "0.5.11", "0.5.14", "0.5.20", "0.5.23")
def session_was_closed(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    s.scheduler("Session closed: sess (active=0)")
    s.access(200, "/close_session")
    s.wait(2)
    s.receive("r-1", **s.session("sess", "t-1"))
    refuse(s, "r-1", "Invalid request: session id sess does not exist")
    return Ending(stage="before-scheduler")


@story("session-closed", "0.4.2", "0.4.9", "0.5.9", "0.5.10")
def session_was_closed_without_a_line(s: Server) -> Ending:
    """Up to 0.5.10 no line of the scheduler tells a close; the access log shows one for some session."""
    opened(s)
    turn(s, "t-1")
    s.access(200, "/close_session")
    s.wait(2)
    s.receive("r-1", **s.session("sess", "t-1"))
    refuse(s, "r-1", "Invalid request: session id sess does not exist")
    return Ending(stage="before-scheduler", confidence=LIKELY)


@story("session-closed", "0.5.11", "0.5.23")
def session_is_closing(s: Server) -> Ending:
    opened(s)
    s.receive("t-1", stream=True, max_new_tokens=400, **s.session("sess"))
    s.wait(1)
    s.every_rank("Deferring session close for sess (unfinished request)")
    s.access(200, "/close_session")
    s.wait(1)
    s.receive("r-1", **s.session("sess"))
    refuse(s, "r-1", "Invalid request: close was requested for session sess")
    s.wait(2)
    s.done("t-1", tokens=400)
    return Ending(stage="before-scheduler")


@story("session-reaped", "0.5.10", "0.5.11", "0.5.20", "0.5.23")
def session_expired(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    s.wait(30)
    s.every_rank("Session sess timed out, closing.")
    if s.since("0.5.11"):
        s.every_rank("Session KV released: sess (35 tokens freed)")
        s.scheduler("Session closed: sess (active=0)")
    s.wait(2)
    s.receive("r-1", **s.session("sess", "t-1"))
    refuse(s, "r-1", "Invalid request: session id sess does not exist")
    return Ending(stage="before-scheduler")


@story("session-reaped", "0.5.11", "0.5.23")
def session_expired_in_flight(s: Server) -> Ending:
    opened(s)
    s.receive("t-1", stream=True, max_new_tokens=4000, **s.session("sess"))
    s.wait(20)
    s.every_rank("Session sess timed out, closing.")
    s.every_rank("Deferring session close for sess (unfinished request)")
    s.wait(1)
    s.receive("r-1", **s.session("sess"))
    refuse(s, "r-1", "Invalid request: close was requested for session sess")
    s.wait(2)
    s.done("t-1", tokens=4000)
    return Ending(stage="before-scheduler")


@story("session-misrouted", "0.5.10", "0.5.11", "0.5.23", dp=2)
def session_lives_on_another_rank(s: Server) -> Ending:
    opened(s)
    s.receive("t-1", **s.session("sess"))
    s.wait(1)
    s.done("t-1", dp_rank=0)
    s.wait(1)
    s.receive("r-1", **s.session("sess", "t-1"))
    s.refused("r-1", "Invalid request session id", dp=1, dp_rank=1)
    return Ending(stage="before-scheduler", confidence=LIKELY)


@story("session-misrouted", "0.5.11", "0.5.23", dp=2)
def session_is_open_on_another_rank(s: Server) -> Ending:
    s.scheduler("Session opened: sess (active=1)", dp=0)
    s.access(200, "/open_session")
    s.wait(1)
    s.receive("t-1", **s.session("sess"))
    s.wait(1)
    s.done("t-1", dp_rank=0)
    s.wait(1)
    s.receive("r-1", **s.session("sess", "t-1"))
    s.refused("r-1", "Invalid request: session id sess does not exist", dp=1, dp_rank=1)
    return Ending(stage="before-scheduler", confidence=LIKELY)


@story("session-parent-unknown", "0.3.6", "0.4.0", "0.4.1", "0.4.9", "0.5.3", "0.5.9", "0.5.10", "0.5.11", "0.5.23")
def its_parent_never_was(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    s.receive("r-1", **s.session("sess", "t-9"))
    if not s.since("0.4.2"):
        refuse(s, "r-1", "Invalid request: requested session rid t-9 does not exist in the session history")
    else:
        refuse(s, "r-1", "Invalid request session id")
    return Ending(stage="before-scheduler")


@story(
    "session-parent-unknown",
    "0.4.2",
    "0.4.4",
    "0.4.6",
    "0.4.7",
    "0.4.8",
)
def its_parent_never_was_and_no_text_says_so(s: Server) -> Ending:
    """0.4.2 to 0.4.8: the whole prompt runs, and the reason is that of any abort."""
    opened(s)
    turn(s, "t-1")
    s.receive("r-1", **s.session("sess", "t-9"))
    s.wait(1)
    s.failed("r-1", wordings.plain_text(s.release), None, tokens=1, prompt=9)
    return Ending(also=("not-established",), confidence=(*LIKELY, *UNDECIDED), among=("session-parent-unknown",))


@story("session-parent-unknown", "0.5.10", "0.5.23")
def its_parent_had_been_refused(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    s.receive("t-2", **s.session("sess", "t-9"))
    refuse(s, "t-2", "Invalid request session id")
    s.wait(1)
    s.receive("r-1", **s.session("sess", "t-2"))
    refuse(s, "r-1", "Invalid request session id")
    return Ending(stage="before-scheduler", chain=(("session-parent-unknown", "t-2"),))


OLD_WARNING = "The request in a session is appending to a request that hasn't finished."
NEW_WARNING = "Session request is appending to a request that hasn't finished."


def unfinished(s: Server, rid: str = "r-1") -> None:
    """The refusal of an append to a request that has not finished."""
    if s.since("0.5.10"):
        s.every_rank(NEW_WARNING)
        s.refused(rid, NEW_WARNING)
    elif s.since("0.4.9"):
        s.every_rank(OLD_WARNING)
        s.refused(rid, "Invalid request session id")
    else:
        s.every_rank(OLD_WARNING)
        s.wait(1)
        s.failed(rid, wordings.plain_text(s.release), None, tokens=1, prompt=9)


@story("session-parent-unfinished", "0.4.9", "0.5.3", "0.5.9", "0.5.10", "0.5.23", tp=2)
def its_parent_still_runs(s: Server) -> Ending:
    opened(s)
    s.receive("t-1", max_new_tokens=400, **s.session("sess"))
    s.prefill()
    s.wait(2)
    s.receive("r-1", **s.session("sess", "t-1"))
    unfinished(s)
    s.wait(5)
    s.done("t-1", tokens=400)
    return Ending(stage="before-scheduler", chain=(("session-parent-unfinished", "t-1"),))


@story(
    "session-parent-unfinished",
    "0.4.2",
    "0.4.3",
    "0.4.4",
)
def its_parent_still_runs_and_only_a_warning_says_so(s: Server) -> Ending:
    """0.4.2 to 0.4.4 (0.4.5 to 0.4.8 crash on such an append): the warning names no rid, the reason is any abort's."""
    its_parent_still_runs(s)
    return Ending(confidence=LIKELY, chain=(("session-parent-unfinished", "t-1"),))


@story("session-parent-unfinished", "0.4.9", "0.5.9", "0.5.10", "0.5.20", "0.5.23")
def its_parent_was_dropped_from_the_queue(s: Server) -> Ending:
    """A request aborted in the queue never counts as finished."""
    opened(s)
    s.receive("t-1", **s.session("sess"))
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_waiting("t-1")
    s.wait(20)
    s.receive("r-1", **s.session("sess", "t-1"))
    unfinished(s)
    return Ending(stage="before-scheduler", chain=(("explicit-abort", "t-1"),))


@story("session-parent-unfinished", "0.5.9", "0.5.10", "0.5.23")
def its_parent_timed_out_in_the_queue(s: Server) -> Ending:
    opened(s)
    s.receive("t-1", **s.session("sess"))
    s.wait(30)
    s.dropped("t-1", "Request waiting timeout reached.")
    s.wait(20)
    s.receive("r-1", **s.session("sess", "t-1"))
    unfinished(s)
    return Ending(stage="before-scheduler", chain=(("waiting-timeout", "t-1"),))


@story("session-parent-unfinished", "0.5.9", "0.5.10", "0.5.23")
def its_parent_was_refused_for_its_priority(s: Server) -> Ending:
    opened(s)
    s.receive("t-1", priority=3, **s.session("sess"))
    s.dropped("t-1", "Using priority is disabled for this server. Please send a new request without a priority.")
    s.wait(20)
    s.receive("r-1", **s.session("sess", "t-1"))
    unfinished(s)
    return Ending(stage="before-scheduler", confidence=("proven",), chain=(("priority-disabled", "t-1"),))


@story("session-mode-unsupported", "0.5.10", "0.5.11", "0.5.20", "0.5.23")
def its_session_streams(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    s.receive("r-1", **s.session("sess", "t-1", replace=True))
    refuse(s, "r-1", "Streaming sessions do not support replace.")
    return Ending(stage="before-scheduler")


@story("session-busy", "0.5.11", "0.5.18", "0.5.21", "0.5.22", "0.5.23")
def its_session_has_an_active_turn(s: Server) -> Ending:
    opened(s)
    s.receive("t-1", max_new_tokens=400, **s.session("sess"))
    s.prefill()
    s.wait(1)
    s.receive("r-1", **s.session("sess"))
    refuse(s, "r-1", "Streaming session already has an active request.")
    s.wait(6)
    s.done("t-1", tokens=400)
    return Ending(stage="before-scheduler", chain=(("session-busy", "t-1"),))


@story("session-stuck", "0.5.11", "0.5.14", "0.5.18", "0.5.20", "0.5.21")
def its_session_kept_the_mark_of_an_aborted_turn(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    s.receive("t-2", **s.session("sess"))
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_waiting("t-2")
    s.wait(5)
    s.receive("r-1", **s.session("sess"))
    refuse(s, "r-1", "Streaming session already has an active request.")
    return Ending(stage="before-scheduler", effects=("session-stuck",), chain=(("explicit-abort", "t-2"),))


@story("session-stuck", "0.5.11", "0.5.20", "0.5.21")
def its_session_kept_the_mark_of_a_timed_out_turn(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    s.receive("t-2", **s.session("sess"))
    s.wait(30)
    s.dropped("t-2", "Request waiting timeout reached.")
    s.wait(5)
    s.receive("r-1", **s.session("sess"))
    refuse(s, "r-1", "Streaming session already has an active request.")
    return Ending(stage="before-scheduler", effects=("session-stuck",), chain=(("waiting-timeout", "t-2"),))


@story("session-stuck", "0.5.12", "0.5.18", "0.5.21")
def its_session_kept_the_mark_of_a_turn_with_a_priority(s: Server) -> Ending:
    """The turn that is refused for its priority never reached the queue, but the session had taken it in."""
    opened(s)
    turn(s, "t-1")
    s.receive("t-2", priority=3, **s.session("sess"))
    s.dropped("t-2", "Using priority is disabled for this server. Please send a new request without a priority.")
    s.wait(5)
    s.receive("r-1", **s.session("sess"))
    refuse(s, "r-1", "Streaming session already has an active request.")
    return Ending(stage="before-scheduler", effects=("session-stuck",), chain=(("priority-disabled", "t-2"),))


@story("session-busy", "0.5.23")
def its_session_was_released_and_is_busy_again(s: Server) -> Ending:
    """From 0.5.22 on a dropped turn clears the mark: a later refusal needs another turn, which these logs lack."""
    opened(s)
    turn(s, "t-1")
    s.receive("t-2", **s.session("sess"))
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_waiting("t-2")
    s.wait(5)
    s.receive("r-1", **s.session("sess"))
    refuse(s, "r-1", "Streaming session already has an active request.")
    return Ending(stage="before-scheduler", also=("not-established",), confidence=(*LIKELY, *UNDECIDED))


@story("session-empty-input", "0.5.20", "0.5.23")
def nothing_to_generate_from(s: Server) -> Ending:
    opened(s)
    s.receive("r-1", input_ids=[], text=None, **s.session("sess"))
    refuse(s, "r-1", "A session request must contain input tokens after restoring history.")
    return Ending(stage="before-scheduler")


@story("session-replaced", "0.4.9", "0.5.8", "0.5.10", "0.5.23")
def a_newer_turn_replaced_it(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    s.receive("r-1", max_new_tokens=400, **s.session("sess", "t-1"))
    s.prefill()
    s.wait(2)
    s.receive("t-3", **s.session("sess", "r-1", replace=True))
    s.aborted_running("r-1")
    s.wait(1)
    s.done("t-3")
    return Ending(stage="running", chain=())


@story("session-replaced", "0.4.2", "0.4.3", "0.4.4", "0.4.6")
def a_newer_turn_replaced_it_in_the_old_words(s: Server) -> Ending:
    return a_newer_turn_replaced_it(s)


@story("session-branch-cleared", "0.4.3", "0.4.9", "0.5.10", "0.5.23")
def a_replace_higher_up_cleared_its_branch(s: Server) -> Ending:
    opened(s)
    turn(s, "t-1")
    turn(s, "t-2", "t-1")
    s.receive("r-1", max_new_tokens=400, **s.session("sess", "t-2"))
    s.prefill()
    s.wait(2)
    s.receive("t-3", **s.session("sess", "t-1", replace=True))
    s.aborted_running("r-1")
    s.wait(1)
    s.done("t-3")
    return Ending(stage="running")


@story("waiting-timeout", "0.5.10", "0.5.18", "0.5.23")
def its_refusal_waited_too_long(s: Server) -> Ending:
    """A refused request waits as a stub; its timeout hides the refusal, which the scheduler's line keeps."""
    opened(s)
    s.receive("r-1", **s.session("ghost"))
    s.refused_line("r-1", "Invalid request: session id ghost does not exist")
    s.wait(30)
    s.dropped("r-1", "Request waiting timeout reached.")
    return Ending(chain=(("session-unknown", None),))


@story("session-parent-unknown", "0.4.9", "0.5.10", "0.5.23")
def refused_twice(s: Server) -> Ending:
    """A refused turn's stub prompt is shorter than its logprob_start_len: the first of both lines is the cause."""
    opened(s)
    turn(s, "t-1")
    s.receive("r-1", logprob_start_len=5, **s.session("sess", "t-9"))
    s.refused_line("r-1", "Invalid request session id")
    s.refused("r-1", "req.logprob_start_len=5 is higher than the number of input tokens len(req.origin_input_ids)=1. "
              "Please use a smaller logprob_start_len.")  # fmt: skip
    return Ending(stage="before-scheduler", confidence=ANY)
