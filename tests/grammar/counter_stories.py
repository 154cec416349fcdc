"""Stories that look like another: the truth is the answer or among the candidates, and nothing else is proven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wordings
from renderer import Server
from session_stories import opened, refuse, turn

Build = Callable[[Server], str]
COUNTERS: list[tuple[str, str, Build, dict[str, Any]]] = []


def counter(truth: str, *releases: str, **options: Any) -> Callable[[Build], Build]:
    """Register a story for some releases: it returns the rid that is asked about, whose cause is `truth`."""

    def register(build: Build) -> Build:
        COUNTERS.extend((truth, release, build, options) for release in releases)
        return build

    return register


def called(s: Server, path: str = "/abort_request") -> None:
    s.access(200, path)


# --- clients and rids -------------------------------------------------------------------------------------------------
@counter("duplicate-rid", "0.4.7", "0.4.9", "0.5.5", "0.5.9")
def the_first_of_two_hangs_until_it_gives_up(s: Server) -> str:
    s.receive("r-1")
    s.prefill()
    s.wait(2)
    s.receive("r-1")
    s.prefill(running=1)
    s.wait(6)
    s.done("r-1")
    s.wait(300)
    s.disconnected("r-1")
    return "r-1"


@counter("duplicate-rid", "0.4.9", "0.5.6", "0.5.9")
def ended_by_the_disconnect_of_its_twin(s: Server) -> str:
    s.receive("b-1", max_new_tokens=400)
    s.receive("r-1")
    s.prefill(new=2)
    s.wait(5)
    s.receive("r-1")
    s.prefill(running=2)
    s.wait(2)
    s.http_error("Request is disconnected from the client side (type 1). Abort request obj.rid='r-1'")
    s.access(400)
    s.aborted_running("r-1")
    s.wait(5)
    s.done("b-1", tokens=400)
    return "r-1"


@counter("abort-prefix-collision", "0.4.4", "0.4.6", "0.4.8")
def dropped_from_the_queue_by_a_stream_that_left(s: Server) -> str:
    s.receive("a-1", stream=True)
    s.prefill()
    s.wait(2)
    s.receive("a-10")
    s.decode(running=1, queued=1)
    s.wait(10)
    s.receive("b-1")
    s.prefill()
    s.wait(300)
    s.disconnected("a-10")
    return "a-10"


@counter("abort-prefix-collision", "0.5.8", "0.5.10", "0.5.13")
def its_prefix_left_and_then_somebody_paused(s: Server) -> str:
    s.receive("a-1")
    s.receive("a-10")
    s.prefill(new=2)
    s.wait(8)
    s.disconnected("a-1")
    s.aborted_running("a-10")
    s.wait(3)
    called(s, "/pause_generation")
    return "a-10"


@counter("abort-prefix-collision", "0.5.8", "0.5.10", "0.5.13")
def the_grammar_of_its_prefix_refused_a_token(s: Server) -> str:
    s.receive("b-1", max_new_tokens=400)
    s.receive("a-1", grammar='{"type": "object"}')
    s.receive("a-10")
    s.prefill(new=3)
    s.wait(8)
    s.scheduler("Grammar accept_token failed for req a-1 with token 42: no such transition")
    s.aborted_running("a-1")
    s.aborted_running("a-10")
    s.wait(8)
    s.done("b-1", tokens=400)
    return "a-10"


# --- strokes ----------------------------------------------------------------------------------------------------------
def stroke(s: Server) -> None:
    """Two run; an abort call without effect comes, and a newcomer just before both are cut."""
    s.receive("r-1", max_new_tokens=400)
    s.receive("b-1", max_new_tokens=400)
    s.prefill(new=2)
    s.wait(6)
    called(s)
    s.wait(3)
    s.receive("d-1")


@counter("pause-abort", "0.5.2", "0.5.10", "0.5.23")
def a_pause_and_a_newcomer_that_it_held_back(s: Server) -> str:
    stroke(s)
    s.aborted_running("r-1")
    s.aborted_running("b-1")
    s.wait(1)
    called(s, "/pause_generation")
    s.wait(9)
    called(s, "/continue_generation")
    s.prefill()
    s.wait(3)
    s.done("d-1")
    return "r-1"


@counter("abort-all", "0.4.9", "0.5.6", "0.5.13")
def an_abort_of_all_beside_a_prompt_that_is_read_in_chunks(s: Server) -> str:
    s.receive("r-1", max_new_tokens=400)
    s.prefill()
    s.receive("l-1", text="sea " * 9000)
    for _ in range(4):
        s.prefill(running=1)
        s.wait(1)
    called(s)
    s.aborted_running("r-1")
    s.wait(6)
    s.done("l-1", prompt=40_000)
    return "r-1"


@counter("abort-all", "0.4.9", "0.5.8", "0.5.23")
def an_abort_of_all_beside_one_whose_grammar_compiles(s: Server) -> str:
    s.receive("a-1", max_new_tokens=400)
    s.receive("b-1", max_new_tokens=400)
    s.prefill(new=2)
    s.wait(4)
    s.receive("g-1", grammar='{"type": "object"}')
    s.wait(3)
    called(s)
    s.aborted_running("a-1")
    s.aborted_running("b-1")
    s.failed("g-1", "Aborted by AbortReq.", 400, "BadRequestError", tokens=1, prompt=1)
    return "g-1"


@counter("running-timeout", "0.5.20", "0.5.23")
def a_running_timeout_of_a_prompt_that_is_read_in_chunks(s: Server) -> str:
    s.receive("q-1")
    s.prefill()
    s.receive("l-1", text="sea " * 9000)
    for _ in range(8):
        s.prefill(running=1)
        s.wait(1)
    called(s)
    s.wait(2)
    s.aborted_waiting("l-1")
    s.wait(6)
    s.done("q-1")
    return "l-1"


# --- timeouts ---------------------------------------------------------------------------------------------------------
@counter("waiting-timeout", "0.5.20", "0.5.23")
def both_were_held_by_a_pause_and_waited_as_long(s: Server) -> str:
    s.receive("z-1", max_new_tokens=4000)
    s.prefill()
    s.wait(2)
    called(s, "/pause_generation")
    s.receive("c-1")
    s.wait(12)
    s.receive("c-10")
    s.wait(5)
    called(s, "/continue_generation")
    s.decode(running=1, queued=2)
    s.wait(10)
    s.dropped("c-1", "Request waiting timeout reached.")
    s.dropped("c-10", "Request waiting timeout reached.")
    return "c-10"


@counter("timeout-prefix-collision", "0.5.20", "0.5.23")
def its_root_was_still_read_in_chunks(s: Server) -> str:
    s.receive("z-1", max_new_tokens=4000)
    s.prefill()
    s.wait(10)
    s.failed("z-1", "Request running timeout reached.", 503, None, tokens=900)
    s.wait(5)
    s.receive("a-1", text="sea " * 9000)
    s.wait(0.7)
    s.receive("a-10", max_new_tokens=4000)
    for _ in range(9):
        s.prefill(running=1)
        s.wait(1)
    s.wait(0.4)
    s.aborted_waiting("a-1")
    s.failed("a-10", "Request running timeout reached.", 503, None, tokens=700)
    return "a-10"


# --- sessions ---------------------------------------------------------------------------------------------------------
@counter("session-parent-unknown", "0.4.9", "0.5.9")
def the_warning_is_of_another_refusal(s: Server) -> str:
    opened(s, "one")
    opened(s, "two")
    s.receive("p-1", **s.session("one"))
    s.prefill()
    s.wait(4)
    s.receive("u-1", **s.session("one", "p-1"))
    s.receive("k-1", **s.session("two", "gone-1"))
    s.scheduler("The request in a session is appending to a request that hasn't finished.")
    refuse(s, "u-1", "Invalid request session id")
    refuse(s, "k-1", "Invalid request session id")
    return "k-1"


def waits_for_a_turn(s: Server, expired: bool) -> None:
    if expired:
        s.scheduler("Session sess timed out, closing.")
    s.scheduler("Deferring session close for sess (unfinished request)")
    s.wait(2)
    s.scheduler("Deferred close ready for session sess, releasing.")


@counter("session-closed", "0.5.11", "0.5.16", "0.5.23")
def closed_and_then_expired_as_well(s: Server) -> str:
    opened(s)
    s.receive("p-1", max_new_tokens=4000, **s.session("sess"))
    s.prefill()
    s.wait(9)
    called(s, "/close_session")
    for _ in range(10):
        waits_for_a_turn(s, expired=False)
    for _ in range(2):
        waits_for_a_turn(s, expired=True)
    s.receive("p-3", **s.session("sess"))
    refuse(s, "p-3", "Invalid request: close was requested for session sess")
    return "p-3"


@counter("session-reaped", "0.5.11", "0.5.16", "0.5.23")
def expired_while_a_turn_ran(s: Server) -> str:
    opened(s)
    s.receive("p-1", max_new_tokens=4000, **s.session("sess"))
    s.prefill()
    s.wait(9)
    for _ in range(5):
        waits_for_a_turn(s, expired=True)
    s.done("p-1")
    s.scheduler("Deferred close ready for session sess, releasing.")
    s.scheduler("Session closed: sess (active=0)")
    s.wait(8)
    s.receive("p-2", **s.session("sess"))
    refuse(s, "p-2", "Invalid request: session id sess does not exist")
    return "p-2"


@counter("session-reaped", "0.5.11", "0.5.16", "0.5.23", dp=2)
def expired_on_every_rank(s: Server) -> str:
    for rank in (0, 1):
        s.scheduler("Session opened: sess (active=1)", dp=rank)
    s.access(200, "/open_session")
    s.receive("p-1", **s.session("sess"))
    s.wait(1)
    s.done("p-1", dp_rank=0)
    s.wait(90)
    for rank in (0, 1):
        s.scheduler("Session sess timed out, closing.", dp=rank)
        s.scheduler("Session closed: sess (active=0)", dp=rank)
    s.wait(60)
    s.receive("r-1", **s.session("sess"))
    s.refused("r-1", "Invalid request: session id sess does not exist", dp=1, dp_rank=1)
    return "r-1"


@counter("session-replaced", "0.4.9", "0.5.8", "0.5.23")
def replaced_by_a_turn_that_was_too_long(s: Server) -> str:
    opened(s)
    s.receive("b-1", max_new_tokens=400)
    s.receive("p-1", max_new_tokens=400, **s.session("sess"))
    s.prefill(new=2)
    s.wait(3)
    called(s)
    s.wait(1)
    s.receive("p-2", **s.session("sess", "p-1", replace=True))
    s.refused_line("p-2", "Input length (9000 tokens) exceeds the maximum allowed length (8186 tokens).")
    s.aborted_running("p-1")
    s.wait(6)
    s.done("b-1", tokens=400)
    return "p-1"


@counter("explicit-abort", "0.4.9", "0.5.10", "0.5.23")
def aborted_just_before_it_was_replaced(s: Server) -> str:
    opened(s)
    s.receive("p-1", max_new_tokens=400, **s.session("sess"))
    s.prefill()
    s.wait(3)
    s.receive("b-1", max_new_tokens=400)
    called(s)
    s.prefill(running=1)
    s.wait(1.5)
    s.receive("p-2", **s.session("sess", "p-1", replace=True))
    s.wait(0.5)
    s.aborted_running("p-1")
    s.wait(2)
    s.done("p-2")
    s.done("b-1", tokens=400)
    return "p-1"


@counter("session-stuck", "0.5.13", "0.5.20")
def dropped_and_sent_again_at_once(s: Server) -> str:
    opened(s)
    turn(s, "p-0")
    s.receive("b-1", max_new_tokens=400)
    s.prefill()
    s.receive("p-1", **s.session("sess"))
    s.wait(8)
    called(s)
    s.receive("p-2", **s.session("sess"))
    s.refused_line("p-2", "Streaming session already has an active request.")
    s.aborted_waiting("p-1")
    s.wait(9)
    s.done("b-1", tokens=400)
    s.failed("p-2", "Streaming session already has an active request.", 400, "BadRequestError", tokens=1, prompt=1)
    return "p-2"


@counter("client-disconnect", "0.4.9", "0.5.10", "0.5.23")
def refused_and_gone_before_the_refusal_was_told(s: Server) -> str:
    s.receive("b-1", max_new_tokens=4000)
    s.prefill()
    s.receive("r-1", **s.session("ghost"))
    s.refused_line("r-1", "Invalid request: session id ghost does not exist")
    for _ in range(5):
        s.decode(running=1, queued=1)
        s.wait(6)
    s.disconnected("r-1")
    s.decode(running=1)
    return "r-1"


@counter("session-unknown", "0.4.9", "0.5.10", "0.5.23")
def refused_just_before_its_client_was_found_gone(s: Server) -> str:
    s.receive("b-1", max_new_tokens=4000)
    s.prefill()
    s.receive("r-1", **s.session("ghost"))
    s.wait(4)
    s.refused_line("r-1", "Invalid request: session id ghost does not exist")
    s.disconnected("r-1")
    s.decode(running=1)
    return "r-1"


# --- servers ----------------------------------------------------------------------------------------------------------
@counter("server-shutdown", "0.4.7", "0.5.2", "0.5.12")
def the_log_ends_while_the_server_drains(s: Server) -> str:
    s.receive("r-1", max_new_tokens=4000)
    s.prefill()
    s.wait(5)
    s.sigterm()
    for _ in range(6):
        s.wait(5)
        s.draining("r-1")
        s.decode(running=1)
    return "r-1"


@counter("scheduler-crash", "0.4.9", "0.5.10", "0.5.16")
def the_error_is_of_who_came_with_it(s: Server) -> str:
    s.receive("q-1", max_new_tokens=400)
    s.prefill()
    s.wait(5)
    s.receive("r-1", return_hidden_states=True)
    s.receive("r-2")
    s.invalid("r-1", "The server is not configured to return the hidden states.")
    s.prefill(running=1)
    s.wait(2)
    s.decode(running=2)
    s.died()
    return "r-2"


@counter("scheduler-crash", "0.5.9", "0.5.10", "0.5.23")
def a_strangers_body_was_malformed(s: Server) -> str:
    s.receive("r-1", path="/v1/chat/completions", openai={"model": "m", "messages": []})
    s.prefill()
    s.wait(8)
    s.access(400, "/v1/chat/completions")
    s.wait(1)
    s.died()
    return "r-1"


@counter("scheduler-crash", "0.4.9", "0.5.9", "0.5.23")
def one_of_two_samples_had_ended(s: Server) -> str:
    s.receive(["n-1_0", "n-1_1"], sampling_params={"max_new_tokens": 64, "n": 2})
    s.prefill(new=2)
    s.wait(2)
    s.objects["x" * 32] = s.objects["n-1_0"] | {"rid": "x" * 32}
    s.received["x" * 32], s.routes["x" * 32] = s.now - 2, "/generate"
    s.finish("x" * 32, wordings.length(64), tokens=64, answered=False)
    s.decode(running=1)
    s.wait(2)
    s.died()
    return "n-1_1"


@counter("finished-undelivered", "0.4.9", "0.5.9", "0.5.23")
def another_member_of_its_batch_was_refused(s: Server) -> str:
    s.receive(["b_0", "b_1"])
    s.prefill(new=2)
    s.wait(3)
    s.finish("b_0", wordings.length(64), tokens=64, answered=False)
    s.failed("b_1", "Input length (9000 tokens) exceeds the maximum allowed length (8186 tokens).", 400,
             "BadRequestError", tokens=1, prompt=1)  # fmt: skip
    return "b_0"
