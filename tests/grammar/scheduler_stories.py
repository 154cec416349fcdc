"""Requests that the scheduler ended: limits, priorities, grammars, memory and the model's output."""

from __future__ import annotations

import wordings
from client_stories import end_the_survivor, with_a_survivor
from renderer import Server
from stories import LIKELY, UNDECIDED, Ending, story

WAITED = "Request waiting timeout reached."
RAN = "Request running timeout reached."
SCHEMA = '{"type": "object"}'


# --- timeouts ---------------------------------------------------------------------------------------------------------
@story("waiting-timeout", "0.5.8", "0.5.9", "0.5.10", "0.5.14", "0.5.19")
def waited_too_long(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1")
    s.wait(30)
    s.dropped("r-1", "Request queue timeout reached." if s.release == "0.5.8" else WAITED)
    end_the_survivor(s)
    return Ending(stage="waiting")


@story("waiting-timeout", "0.5.20", "0.5.23")
def waited_too_long_where_prefixes_match(s: Server) -> Ending:
    """The limit is in no log: another rid's timeout could have hit it."""
    with_a_survivor(s)
    s.receive("r-1")
    s.wait(30)
    s.dropped("r-1", WAITED)
    end_the_survivor(s)
    return Ending(stage="waiting", confidence=LIKELY)


@story("waiting-timeout", "0.5.20", "0.5.23")
def waited_as_long_as_another(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1")
    s.wait(30)
    s.dropped("r-1", WAITED)
    s.wait(5)
    s.receive("other-1")
    s.wait(30)
    s.dropped("other-1", WAITED)
    end_the_survivor(s)
    return Ending(stage="waiting")


@story("waiting-timeout", "0.5.9", "0.5.23")
def a_stream_waited_too_long(s: Server) -> Ending:
    s.receive("r-1", stream=True)
    s.wait(30)
    s.dropped("r-1", WAITED)
    return Ending(stage="waiting")


@story("waiting-timeout", "0.5.9", "0.5.12", as_json=True)
def waited_too_long_logged_as_json(s: Server) -> Ending:
    return waited_too_long(s)


@story("waiting-timeout", "0.5.10", "0.5.23")
def waited_too_long_after_a_retraction(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", max_new_tokens=400)
    s.prefill(running=1)
    s.wait(2)
    s.scheduler(wordings.retraction(s.release))
    s.wait(30)
    s.dropped("r-1", WAITED, tokens=17)
    end_the_survivor(s)
    return Ending(stage="waiting", effects=("retracted",), confidence=LIKELY)


@story("waiting-timeout", "0.5.18", "0.5.19")
def waited_behind_a_zombie(s: Server) -> Ending:
    s.receive("z-1", stream=True, max_new_tokens=4000)
    s.prefill()
    s.wait(2)
    s.receive("r-1")
    for _ in range(30):
        s.wait(1)
        s.log("Received output for rid='z-1' but the state was deleted in TokenizerManager.")
    s.dropped("r-1", WAITED)
    s.wait(1)
    s.log("Received output for rid='z-1' but the state was deleted in TokenizerManager.")
    return Ending(stage="waiting", chain=(("client-disconnect", "z-1"),))


@story("running-timeout", "0.5.9", "0.5.10", "0.5.19")
def ran_too_long(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", max_new_tokens=4000)
    s.prefill(running=1)
    s.wait(60)
    s.failed("r-1", RAN, 503, tokens=900)
    end_the_survivor(s)
    return Ending(stage="running")


@story("running-timeout", "0.5.20", "0.5.23")
def ran_too_long_where_prefixes_match(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", max_new_tokens=4000)
    s.prefill(running=1)
    s.wait(60)
    s.failed("r-1", RAN, 503, tokens=900)
    end_the_survivor(s)
    return Ending(stage="running", confidence=LIKELY)


@story("running-timeout", "0.5.20", "0.5.23")
def ran_too_long_in_a_chunked_prefill(s: Server) -> Ending:
    """The timeout of a request in chunked prefill is carried out as an abort without a reason."""
    s.receive("r-1", input_ids=[3] * 9000, text=None)
    for _ in range(2):
        s.wait(30)
        s.scheduler(wordings.prefill_batch(s.release, 1, 4096, 0, "0.20", 0, 0))
    s.aborted_waiting("r-1")
    return Ending(also=("not-established",), confidence=(*LIKELY, *UNDECIDED))


@story("timeout-prefix-collision", "0.5.20", "0.5.21", "0.5.23")
def a_prefix_of_it_waited_too_long(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("job-1")
    s.wait(20)
    s.receive("job-10")
    s.wait(10)
    s.dropped("job-10", WAITED)
    s.dropped("job-1", WAITED)
    end_the_survivor(s)
    return Ending(rid="job-10", stage="waiting", chain=(("waiting-timeout", "job-1"),))


@story("timeout-prefix-collision", "0.5.20", "0.5.23")
def a_prefix_of_it_waited_too_long_while_it_ran(s: Server) -> Ending:
    s.receive("job-10", max_new_tokens=4000)
    s.prefill()
    s.wait(1)
    s.receive("job-1")
    s.wait(30)
    s.failed("job-10", WAITED, 503, tokens=300)
    s.dropped("job-1", WAITED)
    return Ending(rid="job-10", stage="running", chain=(("waiting-timeout", "job-1"),))


@story("timeout-prefix-collision", "0.5.20", "0.5.23")
def a_prefix_of_it_ran_too_long_while_it_waited(s: Server) -> Ending:
    s.receive("job-1", max_new_tokens=4000)
    s.prefill()
    s.wait(50)
    s.receive("job-10")
    s.wait(10)
    s.dropped("job-10", RAN)
    s.failed("job-1", RAN, 503, tokens=900)
    return Ending(rid="job-10", stage="waiting", chain=(("running-timeout", "job-1"),))


@story("timeout-prefix-collision", "0.5.20", "0.5.23")
def a_prefix_of_it_timed_out_while_its_grammar_compiled(s: Server) -> Ending:
    """A timeout is an abort by rid: whom it meets before the queue gets an abort's text."""
    with_a_survivor(s)
    s.receive("job-1")
    s.wait(20)
    s.receive("job-10", grammar=SCHEMA)
    s.wait(10)
    s.dropped("job-1", WAITED)
    s.refused("job-10", "Aborted by AbortReq.")
    end_the_survivor(s)
    return Ending(rid="job-10", stage="grammar-queue", confidence=LIKELY, chain=(("waiting-timeout", "job-1"),))


@story("timeout-prefix-collision", "0.5.20", "0.5.23")  # fmt: skip
def a_rid_that_no_log_names_timed_out(s: Server) -> Ending:
    """A running request that a waiting timeout ended: it must have been another rid's."""
    s.receive("job-10", max_new_tokens=4000)
    s.prefill()
    s.wait(30)
    s.failed("job-10", WAITED, 503, tokens=300)
    return Ending(rid="job-10", stage="running", confidence=LIKELY)


@story("waiting-timeout", "0.5.10", "0.5.19")
def a_prefix_of_it_waited_as_long(s: Server) -> Ending:
    """Up to 0.5.19 a timeout ends the request that it is about and no other."""
    s.receive("job-1")
    s.receive("job-10")
    s.wait(30)
    s.dropped("job-10", WAITED)
    s.dropped("job-1", WAITED)
    return Ending(rid="job-10", stage="waiting")


LIMIT = {"max_queued_requests": 1}
PRIORITIES = {"max_queued_requests": 1, "enable_priority_scheduling": True}
NO_PRIORITIES = {"enable_priority_scheduling": False, "abort_on_priority_when_disabled": True}


# --- queue ------------------------------------------------------------------------------------------------------------
@story("queue-full", "0.4.10", "0.5.0rc2", "0.5.2", "0.5.3", "0.5.9", "0.5.10", "0.5.23", args=LIMIT)
def queue_was_full(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("w-1")
    s.receive("r-1")
    s.dropped("r-1", "The request queue is full.")
    end_the_survivor(s)
    s.wait(1)
    s.done("w-1")
    return Ending(stage="waiting")


@story("queue-full", "0.5.5", "0.5.10", "0.5.23", args=LIMIT)
def queue_was_full_when_it_came_back(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", max_new_tokens=400)
    s.prefill(running=1)
    s.wait(2)
    s.receive("w-1")
    s.wait(1)
    s.scheduler(wordings.retraction(s.release))
    s.dropped("r-1", "The request queue is full.", tokens=17)
    end_the_survivor(s)
    s.wait(1)
    s.done("w-1")
    return Ending(stage="waiting", effects=("retracted",))


@story("priority-evicted", "0.5.3", "0.5.10", "0.5.23", args=PRIORITIES)
def a_higher_priority_came(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", priority=1)
    s.wait(2)
    s.receive("high-1", priority=9)
    s.dropped("r-1", "The request is aborted by a higher priority request.")
    end_the_survivor(s)
    return Ending(stage="waiting")


@story("priority-disabled", "0.5.3", "0.5.4", "0.5.5", "0.5.10", "0.5.23", args=NO_PRIORITIES)
def priorities_are_off(s: Server) -> Ending:
    s.receive("r-1", priority=1)
    s.dropped("r-1", "Using priority is disabled for this server. Please send a new request without a priority.")
    return Ending()


# --- grammars ---------------------------------------------------------------------------------------------------------
@story("grammar-failed", "0.4.7", "0.5.4", "0.5.9")
def grammar_was_invalid(s: Server) -> Ending:
    s.receive("r-1", grammar=SCHEMA)
    s.refused("r-1", f"Invalid grammar request: req.grammar_key=('json', {SCHEMA!r})")
    return Ending(stage="grammar-queue")


@story("grammar-failed", "0.4.9", "0.5.9")
def grammar_was_known_as_invalid(s: Server) -> Ending:
    s.receive("r-1", grammar=SCHEMA)
    s.refused("r-1", f"Invalid grammar request with cache hit: key=('json', {SCHEMA!r})")
    return Ending(stage="grammar-queue")


@story("grammar-failed", "0.5.10", "0.5.14", "0.5.23")
def grammar_did_not_compile(s: Server) -> Ending:
    s.receive("r-1", grammar=SCHEMA)
    s.refused("r-1", "Failed to compile json grammar: unsupported type")
    return Ending(stage="grammar-queue")


@story("grammar-failed", "0.5.10", "0.5.23")
def grammar_did_not_compile_in_many_lines(s: Server) -> Ending:
    """The compiler's text holds newlines: the rid stands at the end of the last one."""
    s.receive("r-1", sampling_params={"max_new_tokens": 9, "regex": "["})
    s.refused("r-1", "Failed to compile regex grammar: [10:00:00] /project/cpp/regex.cc:12: Regex parsing error at "
              "position 2: Unclosed '['\n")  # fmt: skip
    return Ending(stage="grammar-queue")


@story("grammar-failed", "0.5.12", "0.5.23")
def grammar_compiler_raised(s: Server) -> Ending:
    s.receive("r-1", grammar=SCHEMA)
    s.wait(1)
    s.scheduler(f"Grammar compilation raised an exception: boom, grammar_key=('json', {SCHEMA!r})")
    s.refused("r-1", "Failed to compile json grammar: Grammar compilation failed: boom")
    return Ending(stage="grammar-queue")


@story("grammar-failed", "0.5.3.post3", "0.5.10", "0.5.23")
def grammar_backend_is_none(s: Server) -> Ending:
    s.receive("r-1", grammar=SCHEMA)
    s.refused("r-1", "Grammar-based generation (json_schema, regex, ebnf, structural_tag) is not supported when the "
              "server is launched with --grammar-backend none")  # fmt: skip
    return Ending()


@story("grammar-failed", "0.4.10", "0.5.10", "0.5.15", "0.5.16", "0.5.22", tp=2)
def grammar_refused_a_token(s: Server) -> Ending:
    with_a_survivor(s)
    s.receive("r-1", grammar=SCHEMA)
    s.prefill(running=1)
    s.wait(1)
    s.every_rank("Grammar accept_token failed for req r-1 with token 13: token rejected")
    s.aborted_running("r-1")
    end_the_survivor(s)
    return Ending(stage="running")


@story("grammar-failed", "0.5.23")
def grammar_refused_a_token_and_the_reason_says_so(s: Server) -> Ending:
    s.receive("r-1", grammar=SCHEMA)
    s.prefill()
    s.wait(1)
    s.every_rank("Grammar accept_token failed for req r-1 with token 13: token rejected")
    s.failed("r-1", "Grammar accept_token failed: token rejected", 500, "InternalServerError")
    return Ending(stage="running")


@story("grammar-failed", "0.4.10", "0.5.10", "0.5.23")
def grammar_refused_a_token_of_a_prefill_server(s: Server) -> Ending:
    s.receive("r-1", grammar=SCHEMA, bootstrap_room=77)
    s.wait(1)
    s.every_rank("Grammar accept_token failed for req r-1 with token 13: token rejected")
    s.failed("r-1", "Grammar accept_token failed for req r-1 with token 13: token rejected", 500)
    return Ending()


@story("grammar-timeout", "0.4.7", "0.5.7", "0.5.8", "0.5.10", "0.5.23")
def grammar_took_too_long(s: Server) -> Ending:
    s.receive("r-1", grammar=SCHEMA)
    s.wait(300)
    between = ": " if s.since("0.5.8") else " for "
    s.refused("r-1", f"Grammar preprocessing timed out{between}req.grammar_key=('json', {SCHEMA!r})")
    return Ending(stage="grammar-queue")


# --- memory -----------------------------------------------------------------------------------------------------------
LAST = "Out of memory even after retracting all other requests in the decode batch. Aborting the last request."


@story("kv-out-of-memory", "0.5.10", "0.5.18", "0.5.23", tp=2, pool=120)  # fmt: skip
def last_request_did_not_fit(s: Server) -> Ending:
    s.receive("r-1", max_new_tokens=4000)
    s.prefill()
    s.wait(5)
    s.every_rank("retract_decode: aborted last request r-1 due to OOM")
    s.failed("r-1", LAST, 500, tokens=120)
    return Ending(stage="running", confidence=("proven",))


@story("kv-out-of-memory", "0.5.10", "0.5.23", pool=120)
def last_request_did_not_fit_and_its_finish_is_hidden(s: Server) -> Ending:
    s.receive("r-1", max_new_tokens=4000)
    s.prefill()
    s.wait(5)
    s.every_rank("retract_decode: aborted last request r-1 due to OOM")
    s.access(500)
    return Ending(stage="running")


@story("kv-out-of-memory", "0.5.10", "0.5.23", pool=120, workers=2)
def last_request_did_not_fit_and_its_client_left_later(s: Server) -> Ending:
    """The scheduler had ended it, as its own line tells; the reply got lost, and the client gave up."""
    s.receive("r-1", max_new_tokens=4000)
    s.prefill()
    s.wait(5)
    s.every_rank("retract_decode: aborted last request r-1 due to OOM")
    s.wait(60)
    s.disconnected("r-1")
    return Ending(stage="running", effects=("reply-lost",))


@story("kv-out-of-memory", "0.5.19", "0.5.20", "0.5.23")
def host_pool_was_exhausted(s: Server) -> Ending:
    s.receive("r-1", max_new_tokens=4000)
    s.prefill()
    s.wait(5)
    text = "Retraction host KV pool exhausted. Aborting the request."
    if s.since("0.5.21"):
        s.every_rank(f"retract_decode: aborted request r-1: {text}")
    else:
        s.every_rank("retract_decode: aborted request r-1, retraction host pool exhausted")
    s.failed("r-1", text, 500, tokens=120)
    return Ending(stage="running")


@story("kv-out-of-memory", "0.5.21", "0.5.23")
def retracted_without_a_backup(s: Server) -> Ending:
    s.receive("r-1", max_new_tokens=4000)
    s.prefill()
    s.wait(5)
    text = "Retracted under decode memory pressure without a KV backup. Retry later."
    s.every_rank(f"retract_decode: aborted request r-1: {text}")
    s.failed("r-1", text, 503, tokens=120)
    return Ending(stage="running")


@story("kv-out-of-memory", "0.5.19", "0.5.23")
def beam_group_did_not_fit(s: Server) -> Ending:
    s.receive("r-1", max_new_tokens=4000)
    s.wait(5)
    s.failed("r-1", "Beam search group aborted: KV cache pool is full. Beam groups cannot be retracted, so they are "
             "aborted instead of being requeued.", 500)  # fmt: skip
    return Ending(stage="running")


# --- output -----------------------------------------------------------------------------------------------------------
@story("model-output-error", "0.4.10", "0.5.3", "0.5.10", "0.5.23")
def model_produced_nan(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(1)
    s.scheduler("Detected errors during sampling! NaN in the logits.")
    s.finish("r-1", wordings.stop("NaN happened"), tokens=7)
    return Ending(stage="running")


@story("finished", "0.5.10", "0.5.23")
def stop_string_speaks_of_nan(s: Server) -> Ending:
    s.receive("r-1", sampling_params={"max_new_tokens": 9, "stop": ["NaN happened."]})
    s.wait(1)
    s.finish("r-1", wordings.stop("NaN happened."), tokens=7)
    return Ending(stage="finished")


@story("finished", "0.4.10", "0.5.10", "0.5.23")
def stop_string_is_the_text_of_nan(s: Server) -> Ending:
    """A stop string that the client chose; no line of the scheduler speaks of NaN."""
    s.receive("r-1", sampling_params={"max_new_tokens": 9, "stop": ["NaN happened"]})
    s.wait(1)
    s.finish("r-1", wordings.stop("NaN happened"), tokens=7)
    return Ending(also=("model-output-error", "not-established"), confidence=(*LIKELY, *UNDECIDED))


@story("model-output-error", "0.5.20", "0.5.23")
def sampling_was_not_captured(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(1)
    s.failed("r-1", "The sampling backend did not return captured sampling support.", 500, "InternalServerError")
    return Ending(stage="running")


@story("model-output-error", "0.5.20", "0.5.23")
def sampling_support_was_too_large(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(1)
    s.failed("r-1", "Sampling support exceeds --sampling-mask-max-tokens=128, commonly because of cutoff ties. Lower "
             "top_k to leave more headroom or increase the server limit.", 400, "BadRequestError")  # fmt: skip
    return Ending(stage="running")


@story("model-output-error", "0.5.22", "0.5.23")
def external_kv_did_not_load(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(1)
    s.failed("r-1", "External KV cache load failed", 503, tokens=0)
    return Ending(stage="running")


@story("model-output-error", "0.5.19", "0.5.23")
def another_beam_was_aborted(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(1)
    s.failed("r-1", "Beam group aborted.", None)
    return Ending(stage="running")


@story("model-output-error", "0.5.17", "0.5.23")
def stop_regex_was_invalid(s: Server) -> Ending:
    s.receive("r-1")
    s.wait(1)
    s.scheduler("req r-1: invalid stop_regex '['")
    s.failed("r-1", "invalid stop_regex '[': unterminated character set at position 0", 400, "BadRequestError")
    return Ending(stage="running")
