"""Requests that ran to their end, and those that a client or an operator ended."""

from __future__ import annotations

import wordings
from renderer import Server
from stories import ANY, LIKELY, UNDECIDED, Ending, story

FORMS = ("0.3.6", "0.4.0", "0.4.1", "0.4.2", "0.4.4", "0.4.6", "0.4.9", "0.5.3", "0.5.5", "0.5.8", "0.5.10", "0.5.12",
         "0.5.18", "0.5.20", "0.5.23")  # fmt: skip


# --- not interrupted --------------------------------------------------------------------------------------------------
@story("finished", *FORMS)
@story("finished", "0.4.4", "0.4.9", "0.5.10", "0.5.23", level=0)
def ran_to_its_length(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(2)
    s.done("r-1")
    return Ending(stage="finished")


@story("finished", *FORMS)
def stopped_at_a_token(s: Server) -> Ending:
    s.receive("r-1", stream=True, text='It\'s "so"')
    s.wait(2)
    s.finish("r-1", wordings.stop(), tokens=12)
    return Ending(stage="finished")


@story("finished", "0.5.7", "0.5.9", "0.5.11", "0.5.12", "0.5.23", as_json=True)
def logged_as_json(s: Server) -> Ending:
    s.receive("r-1", text="one\u2028two\u0085three")
    s.wait(2)
    s.finish("r-1", wordings.stop("END"), tokens=12)
    return Ending(stage="finished")


@story("finished", "0.5.6", "0.5.23", milliseconds=True, tp=2)
def logged_with_milliseconds_by_many_ranks(s: Server) -> Ending:
    s.receive("r-1")
    s.prefill()
    s.wait(2.25)
    s.done("r-1")
    return Ending(stage="finished")


@story("finished", "0.5.5", "0.5.11", "0.5.12", "0.5.23")
def retracted_and_finished(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(1)
    s.scheduler(wordings.retraction(s.release))
    s.wait(4)
    s.done("r-1", **{"num_retractions" if s.since("0.5.12") else "total_retractions": 1})
    return Ending(stage="finished", effects=("retracted",))


@story("finished", "0.4.9", "0.5.10", "0.5.23")
def sampled_under_other_rids(s: Server) -> Ending:
    sampling = {"max_new_tokens": 64, "n": 2}
    s.receive(["r-1", "r-2"], sampling_params=[sampling, sampling])
    for rid in ("ab" * 16, "cd" * 16):
        s.objects[rid], s.received[rid], s.routes[rid] = s.fields(rid, sampling_params=sampling), s.now, "/generate"
    s.wait(2)
    s.done("ab" * 16, answered=False)
    s.done("cd" * 16)
    return Ending(also=("not-established",), among=("finished",), confidence=(*LIKELY, *UNDECIDED))


@story("finished", "0.5.14", "0.5.23")
def finished_while_an_abort_was_on_its_way(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(2)
    s.access(200, "/abort_request")
    s.done("r-1")
    s.log("Abort request for rid=r-1 not found in rid_to_state; likely already finished/removed.")
    return Ending(also=("finished-undelivered",), stage="finished")


@story("finished-undelivered", "0.5.10", "0.5.23")
def stream_ran_to_its_length_unread(s: Server) -> Ending:
    s.receive("r-1", stream=True)
    s.wait(4)
    s.scheduler(wordings.time_stats(s.release, "r-1", 5, 0, 64, "0.40", "4000.00", f"{s.now - 4:.3f}"))
    s.wait(20)
    return Ending(stage="finished", confidence=LIKELY)


@story("in-flight", "0.4.1", "0.4.9", "0.5.10", "0.5.23")
def log_ends_first(s: Server) -> Ending:
    s.receive("r-1")
    s.prefill()
    s.wait(2)
    s.decode(running=1)
    return Ending()


@story("in-flight", "0.5.10", "0.5.23")
def engine_is_paused(s: Server) -> Ending:
    s.access(200, "/pause_generation")
    s.wait(2)
    s.receive("r-1")
    s.wait(20)
    return Ending(confidence=LIKELY)


# --- the client leaves ------------------------------------------------------------------------------------------------
@story("client-disconnect", "0.4.1", "0.4.4", "0.4.6", "0.4.7", "0.4.9", "0.5.10", "0.5.20", "0.5.23")
def found_at_a_poll(s: Server) -> Ending:
    s.receive("r-1")
    s.prefill()
    s.wait(7)
    s.disconnected("r-1")
    return Ending()


@story("client-disconnect", "0.4.7", "0.5.3", "0.5.10", "0.5.11")
def found_at_an_output(s: Server) -> Ending:
    s.receive("r-1")
    s.prefill()
    s.wait(2)
    s.disconnected("r-1", kind=3)
    return Ending(stage="running")


@story("client-disconnect", "0.5.14", "0.5.18", "0.5.19")
def found_at_a_poll_while_waiting(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(5)
    s.disconnected("r-1")
    s.log("Abort request for rid=r-1 not found in rid_to_state; likely already finished/removed.")
    return Ending(stage="waiting")


@story("client-disconnect", "0.5.13", "0.5.23")
def labelled_as_a_disconnect(s: Server) -> Ending:
    s.receive("r-1", stream=True)
    s.wait(5)
    s.log("[http_server] Client disconnected: Request is disconnected from the client side (type 1). "
          "Abort request obj.rid='r-1'")  # fmt: skip
    return Ending()


@story("client-disconnect", "0.4.7", "0.5.10", "0.5.16", "0.5.23")
def stream_left_the_engine(s: Server) -> Ending:
    """No line says that a stream's client went; a later batch has no room for it."""
    s.receive("r-1", stream=True, max_new_tokens=4000)
    s.prefill()
    s.wait(10)
    s.receive("a-1")
    s.prefill()
    s.wait(2)
    s.decode(running=1)
    s.wait(2)
    s.done("a-1")
    return Ending(confidence=LIKELY)


@story("client-disconnect", "0.5.18", "0.5.19")
def zombie(s: Server) -> Ending:
    s.receive("r-1", stream=True)
    s.prefill()
    s.wait(2)
    for _ in range(20):
        s.wait(0.25)
        s.log("Received output for rid='r-1' but the state was deleted in TokenizerManager.")
    s.scheduler(wordings.time_stats(s.release, "r-1", 5, 0, 64, "0.40", "4000.00", f"{s.now - 4:.3f}"))
    return Ending(stage="running", effects=("zombie",), confidence=LIKELY)


@story("client-disconnect", "0.5.18")
def one_late_output_is_no_zombie(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(6)
    s.disconnected("r-1")
    s.log("Received output for rid='r-1' but the state was deleted in TokenizerManager.")
    return Ending(stage="running")


@story("client-disconnect", "0.5.10", "0.5.23")
def left_by_the_openai_route(s: Server) -> Ending:
    """The OpenAI routes write no line; the status that nobody reads stands seconds after the `Receive`."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    s.receive("r-1", path="/v1/chat/completions", openai=body)
    s.prefill()
    s.wait(9)
    s.access(400, "/v1/chat/completions")
    return Ending(confidence=LIKELY)


@story("client-disconnect", "0.5.10", "0.5.23")
def left_with_its_batch(s: Server) -> Ending:
    """The line names the first member only."""
    s.receive(["r-0", "r-1"])
    s.wait(6)
    s.disconnected("r-0")
    return Ending()


@story("client-disconnect", "0.5.10", "0.5.23")
def cut_by_a_proxy(s: Server) -> Ending:
    for index in range(4):
        s.receive(f"r-{index}", max_new_tokens=8000)
        s.wait(60)
        s.disconnected(f"r-{index}")
        s.wait(3)
    return Ending()


# --- aborts -----------------------------------------------------------------------------------------------------------
def with_a_survivor(s: Server) -> None:
    s.receive("live-1", max_new_tokens=400)
    s.prefill()
    s.wait(1)


def end_the_survivor(s: Server) -> None:
    s.wait(6)
    s.done("live-1", tokens=400)


@story("explicit-abort", "0.4.7", "0.4.9", "0.5.3", "0.5.10", "0.5.16", "0.5.23")
def aborted_while_running(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", max_new_tokens=400)
    s.prefill(running=1)
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_running("r-1")
    end_the_survivor(s)
    return Ending(stage="running", confidence=LIKELY)


@story("explicit-abort", "0.4.9", "0.5.3", "0.5.4", "0.5.5", "0.5.8", "0.5.9", "0.5.13", "0.5.23")
def aborted_while_waiting(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1")
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_waiting("r-1")
    end_the_survivor(s)
    return Ending(stage="waiting", confidence=LIKELY)


@story("explicit-abort", "0.5.9", "0.5.23", as_json=True)
def aborted_while_waiting_logged_as_json(s: Server) -> Ending:
    return aborted_while_waiting(s)


@story("explicit-abort", "0.4.9", "0.5.10", "0.5.23")
def aborted_while_waiting_with_debug_lines(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1")
    s.wait(2)
    s.access(200, "/abort_request")
    s.every_rank("Abort queued request. req.rid='r-1'")
    s.aborted_waiting("r-1")
    end_the_survivor(s)
    return Ending(stage="waiting", confidence=LIKELY)


@story("explicit-abort", "0.5.5", "0.5.10", "0.5.23")
def aborted_after_a_retraction(s: Server) -> Ending:
    """It had produced text, went back to the queue and was aborted there."""
    with_a_survivor(s)
    s.receive("r-1", max_new_tokens=400)
    s.prefill(running=1)
    s.wait(2)
    s.scheduler(wordings.retraction(s.release))
    s.wait(1)
    s.access(200, "/abort_request")
    s.aborted_waiting("r-1", tokens=17)
    end_the_survivor(s)
    return Ending(stage="waiting", effects=("retracted",), confidence=LIKELY)


@story("explicit-abort", "0.4.7", "0.5.4", "0.5.8", "0.5.10", "0.5.23")
def aborted_in_the_grammar_queue(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", grammar='{"type": "object"}')
    s.wait(2)
    s.access(200, "/abort_request")
    s.refused("r-1", "Aborted by AbortReq.")
    end_the_survivor(s)
    return Ending(stage="grammar-queue", confidence=LIKELY)


@story("client-disconnect", "0.4.9", "0.5.10", "0.5.23")
def stream_left_while_its_grammar_compiled(s: Server) -> Ending:
    """The scheduler's line shows that an abort met it; nobody waits for the stub that it leaves."""
    with_a_survivor(s)
    s.receive("r-1", stream=True, grammar='{"type": "object"}')
    s.wait(4)
    s.refused_line("r-1", "Aborted by AbortReq.")
    end_the_survivor(s)
    return Ending(stage="grammar-queue", confidence=LIKELY)


@story("explicit-abort", "0.5.14", "0.5.23")
def aborted_in_a_chunked_prefill(s: Server) -> Ending:
    """The text names the waiting queue, the batch lines show that its prefill had begun."""
    with_a_survivor(s)
    s.receive("r-1", input_ids=[3] * 9000, text=None)
    for _ in range(2):
        s.wait(1)
        s.scheduler(wordings.prefill_batch(s.release, 1, 4096, 0, "0.20", 1, 0))
    s.access(200, "/abort_request")
    s.aborted_waiting("r-1")
    end_the_survivor(s)
    return Ending(confidence=LIKELY)


@story("explicit-abort", "0.5.19", "0.5.23")
def aborted_while_it_waited_for_its_encoder(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", image_data=["x"])
    s.wait(2)
    s.access(200, "/abort_request")
    s.every_rank("Abort waiting mm request. rid=r-1")
    s.failed("r-1", "Aborted by user", 400)
    end_the_survivor(s)
    return Ending(stage="before-scheduler", confidence=LIKELY)


@story("explicit-abort", "0.5.17")
def aborted_before_dispatch(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1")
    s.wait(2)
    s.access(200, "/abort_request")
    s.invalid("r-1", "Request r-1 was aborted")
    end_the_survivor(s)
    return Ending(stage="before-scheduler")


@story("not-established", "0.4.9", "0.5.10", "0.5.23")
def aborted_without_an_access_log(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(2)
    s.aborted_running("r-1", answered=False)
    s.lines = [line for line in s.lines if "HTTP/1.1" not in line]
    return Ending(confidence=UNDECIDED, among=("explicit-abort", "abort-all", "pause-abort"))


@story("not-established", "0.4.2", "0.5.10", "0.5.23")
def ended_with_a_text_that_nobody_knows(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(2)
    s.failed("r-1", "A text that no release is known to write", None)
    return Ending(confidence=UNDECIDED)


@story("abort-prefix-collision", "0.4.9", "0.5.3", "0.5.10", "0.5.23")
def its_rid_begins_with_the_aborted_one(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("job-1", max_new_tokens=400)
    s.receive("job-10", max_new_tokens=400)
    s.prefill(new=2, running=1)
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_running("job-1")
    s.aborted_running("job-10")
    end_the_survivor(s)
    return Ending(rid="job-10", stage="running", confidence=LIKELY, chain=(("explicit-abort", "job-1"),))


@story("abort-prefix-collision", "0.5.10", "0.5.23")
def its_rid_begins_with_the_aborted_one_elsewhere(s: Server) -> Ending:
    """One call, two places: the rid that it named ran, the other one waited."""
    with_a_survivor(s)
    s.receive("job-1", max_new_tokens=400)
    s.prefill(running=1)
    s.receive("job-10", max_new_tokens=400)
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_waiting("job-10")
    s.aborted_running("job-1")
    end_the_survivor(s)
    return Ending(rid="job-10", stage="waiting", confidence=LIKELY, chain=(("explicit-abort", "job-1"),))


GRAMMAR = '{"type": "object"}'
EARLY = "Aborted by AbortReq."


@story("abort-prefix-collision", "0.4.9", "0.5.4", "0.5.10", "0.5.23")
def its_rid_begins_with_the_aborted_one_whose_grammar_compiled(s: Server) -> Ending:
    """One call, two places: the rid that it named had not come to the queue, the other one ran."""
    with_a_survivor(s)
    s.receive("job-1", grammar=GRAMMAR)
    s.receive("job-10", max_new_tokens=400)
    s.prefill(running=1)
    s.wait(2)
    s.access(200, "/abort_request")
    s.refused("job-1", EARLY)
    s.aborted_running("job-10")
    end_the_survivor(s)
    return Ending(rid="job-10", stage="running", confidence=LIKELY, chain=(("explicit-abort", "job-1"),))


@story("abort-prefix-collision", "0.4.9", "0.5.10", "0.5.23")
def its_grammar_compiled_when_its_prefix_was_left(s: Server) -> Ending:
    """Its stub ends when it gets a place; the scheduler's line stands where the abort met it."""
    with_a_survivor(s)
    s.receive("job-1", max_new_tokens=400)
    s.prefill(running=1)
    s.receive("job-10", grammar=GRAMMAR)
    s.wait(6)
    s.disconnected("job-1")
    s.refused_line("job-10", EARLY)
    s.wait(9)
    s.refused("job-10", EARLY, line=False)
    end_the_survivor(s)
    return Ending(rid="job-10", stage="grammar-queue", confidence=LIKELY, chain=(("client-disconnect", "job-1"),))


@story("abort-prefix-collision", "0.5.9", "0.5.10", "0.5.11")
def its_record_has_no_time_and_an_update_follows(s: Server) -> Ending:
    """A stream's record tells how long it took: it ended with the call, not in the long time until the next line."""
    s.receive("job-1", max_new_tokens=400)
    s.prefill()
    s.receive("job-10", stream=True, max_new_tokens=400)
    s.prefill(running=1)
    s.wait(2)
    s.access(200, "/abort_request")
    s.aborted_running("job-1")
    s.aborted_running("job-10")
    s.wait(14)
    s.log("Start update_weights. Load format=auto")
    s.wait(3)
    s.access(200, "/update_weights_from_disk")
    return Ending(rid="job-10", stage="running", confidence=LIKELY)


@story("explicit-abort", "0.4.9", "0.5.10", "0.5.23")
def a_prefix_of_it_was_aborted_by_a_call_of_its_own(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("job-1", max_new_tokens=400)
    s.receive("job-10", max_new_tokens=400)
    s.wait(2)
    s.access(200, "/abort_request")
    s.access(200, "/abort_request")
    s.aborted_running("job-1")
    s.aborted_running("job-10")
    end_the_survivor(s)
    return Ending(rid="job-10", stage="running", confidence=LIKELY)


def crowd(s: Server) -> None:
    for rid in ("r-1", "x-2", "y-3"):
        s.receive(rid, max_new_tokens=400)
    s.prefill(new=2, queued=1)
    s.wait(3)


def crowd_ends(s: Server) -> None:
    s.aborted_waiting("y-3")
    s.aborted_running("r-1")
    s.aborted_running("x-2")


@story("abort-all", "0.4.9", "0.5.3", "0.5.10", "0.5.23")
def all_aborted(s: Server) -> Ending:
    crowd(s)
    s.access(200, "/abort_request")
    crowd_ends(s)
    return Ending(stage="running", confidence=LIKELY)


@story("pause-abort", "0.4.9", "0.5.6", "0.5.10", "0.5.23")
def all_aborted_by_a_pause(s: Server) -> Ending:
    crowd(s)
    crowd_ends(s)
    s.access(200, "/pause_generation")
    s.wait(5)
    s.access(200, "/continue_generation")
    return Ending(stage="running", confidence=LIKELY)


@story("weight-update-abort", "0.4.9", "0.5.10", "0.5.23")
def all_aborted_by_an_update_from_disk(s: Server) -> Ending:
    crowd(s)
    s.log("Start update_weights. Load format=auto")
    crowd_ends(s)
    s.wait(4)
    s.access(200, "/update_weights_from_disk")
    return Ending(stage="running", confidence=LIKELY)


@story("weight-update-abort", "0.5.10", "0.5.23")
def all_aborted_by_an_update_from_tensors(s: Server) -> Ending:
    crowd(s)
    crowd_ends(s)
    s.wait(4)
    s.access(200, "/update_weights_from_tensor")
    return Ending(stage="running", confidence=LIKELY)


__all__ = ["ANY", "crowd", "crowd_ends", "end_the_survivor", "with_a_survivor"]
