"""Requests that the scheduler ended: limits, priorities, grammars, memory and the model's output."""

from __future__ import annotations

import renderer
from client_stories import end_the_survivor, with_a_survivor
from renderer import Server
from stories import LIKELY, UNDECIDED, Ending, another, story

WAITED = "Request waiting timeout reached."
RAN = "Request running timeout reached."


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
    s.scheduler(renderer.retraction(s.release))
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
        s.scheduler(renderer.prefill_batch(s.release, 1, 4096, 0, "0.20", 0, 0))
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
    s.scheduler(renderer.retraction(s.release))
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
SCHEMA = '{"type": "object"}'


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
    s.finish("r-1", renderer.stop("NaN happened"), tokens=7)
    return Ending(stage="running")


@story("finished", "0.5.10", "0.5.23")
def stop_string_speaks_of_nan(s: Server) -> Ending:
    s.receive("r-1", sampling_params={"max_new_tokens": 9, "stop": ["NaN happened."]})
    s.wait(1)
    s.finish("r-1", renderer.stop("NaN happened."), tokens=7)
    return Ending(stage="finished")


@story("finished", "0.4.10", "0.5.10", "0.5.23")
def stop_string_is_the_text_of_nan(s: Server) -> Ending:
    """A stop string that the client chose; no line of the scheduler speaks of NaN."""
    s.receive("r-1", sampling_params={"max_new_tokens": 9, "stop": ["NaN happened"]})
    s.wait(1)
    s.finish("r-1", renderer.stop("NaN happened"), tokens=7)
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


# --- disaggregation: the prefill side ---------------------------------------------------------------------------------
def transfer(s: Server, what: str, reason: str | None, rid: str = "r-1", room: int = 77) -> None:
    """A failure of the disaggregated code: every rank's line, then the `Finish`."""
    text = renderer.transfer_error(s.release, what, rid, room, reason)
    s.every_rank(text)
    s.failed(rid, text, 500, tokens=0)


@story("pd-bootstrap-failed", "0.4.7", "0.4.10", "0.5.10", "0.5.13", "0.5.23")
def decode_side_never_called(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(300)
    transfer(s, "Prefill bootstrap", "Request 77 timed out after 300.1s in KVPoll.Bootstrapping")
    return Ending(stage="bootstrap")


@story("pd-bootstrap-failed", "0.4.7", "0.5.2", "0.5.10", "0.5.23")
def prefill_side_could_not_be_asked(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(2)
    transfer(s, "Decode handshake", "Could not fetch prefill parallel info from bootstrap_addr: 10.0.0.1:8998")
    return Ending(stage="bootstrap")


@story("pd-bootstrap-failed", "0.5.17", "0.5.22", "0.5.23")
def prefill_side_could_not_be_told(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(2)
    transfer(s, "Decode handshake", "_register_kv_args to prefill 10.0.0.1:8998 failed")
    return Ending(stage="bootstrap")


@story("pd-bootstrap-failed", "0.4.7", "0.5.0rc2", "0.5.1", "0.5.10", "0.5.23")
def it_came_without_a_room(s: Server) -> Ending:
    s.receive("r-1")
    word = "bootstrap" if s.since("0.5.10") else "boostrap"
    text = f"Invalid request: Disaggregated request received without {word} room id. req.rid='r-1'"
    s.every_rank(text)
    s.failed("r-1", text, 400 if s.since("0.5.1") else None, tokens=0)
    return Ending()


@story("pd-transfer-failed", "0.4.7", "0.5.9", "0.5.10", "0.5.19")
def kv_could_not_be_sent(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    transfer(s, "Prefill transfer", "Failed to send kv chunk of 77 to 10.0.0.2:5000")
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.4.10", "0.5.6", "0.5.13", "0.5.23")
def kv_never_came(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(300)
    transfer(s, "Decode transfer", "Request 77 timed out after 300.2s in KVPoll.WaitingForInput")
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.4.7", "0.5.10", "0.5.19")
def kv_could_not_be_sent_to_the_dead(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    transfer(s, "Prefill transfer", "Decode instance could be dead, remote mooncake session 10.0.0.2:1234 is not alive")
    return Ending(stage="transfer", also=("pd-peer-lost",), confidence=LIKELY)


@story("pd-transfer-failed", "0.5.9", "0.5.10", "0.5.23")
def metadata_were_another_requests(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    s.every_rank("Context corruption detected: Request r-1 (bootstrap_room=77) received metadata from "
                 "bootstrap_room=78. Metadata buffer index: 3.")  # fmt: skip
    s.failed("r-1", "Metadata corruption detected - bootstrap_room mismatch", 500, tokens=0)
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.5.13", "0.5.23")
def metadata_were_not_ready(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    s.failed("r-1", "Metadata unexpectedly not ready after readiness gate (bootstrap_room=0)", 500, tokens=0)
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.5.21", "0.5.23")
def checksum_did_not_match(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    s.failed("r-1", "KV checksum mismatch", 500, tokens=0)
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.5.6", "0.5.12")
def nixl_gives_no_reason(s: Server) -> Ending:
    """Up to 0.5.12 this may also be an abort of the client."""
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    text = "Decode transfer failed for request rank=0 decode_req.req.rid='r-1' decode_req.req.bootstrap_room=77 with "
    s.every_rank(text + "exception NIXL KVReceiver Exception")
    s.failed("r-1", text + "exception NIXL KVReceiver Exception", 500, tokens=0)
    return Ending(stage="transfer", also=("not-established",), confidence=(*LIKELY, *UNDECIDED))


@story("pd-peer-lost", "0.4.7", "0.5.10", "0.5.13")
def prefill_side_was_lost(s: Server) -> Ending:
    for rid, room in (("r-1", 77), ("r-2", 78)):
        s.receive(rid, bootstrap_room=room)
    s.wait(12)
    address = "(bootstrap_addr: 10.0.0.1:8998)"
    s.every_rank(f"Losing connection with prefill instance {address}, affected 2 requests")
    for rid, room in (("r-1", 77), ("r-2", 78)):
        transfer(s, "Decode transfer", f"Losing connection with prefill instance {address}", rid, room)
    return Ending(stage="transfer")


@story("pd-peer-lost", "0.5.14", "0.5.23")
def prefill_side_was_lost_in_the_new_words(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(12)
    address = "(bootstrap_addr: 10.0.0.1:8998)"
    s.every_rank(f"Lost connection with prefill instance {address}, affected 1 requests")
    transfer(s, "Decode transfer", f"Lost connection with prefill instance {address}")
    return Ending(stage="transfer")


@story("pd-peer-lost", "0.5.10", "0.5.23")
def prefill_side_was_known_to_be_down(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(1)
    transfer(s, "Decode handshake", "Prefill server with bootstrap_addr: 10.0.0.1:8998 is healthy before, but now it "
             "is down. Request (bootstrap_room: 77) has been marked as failed.")  # fmt: skip
    return Ending(stage="bootstrap")


@story("not-established", "0.4.10", "0.5.10", "0.5.23")
def another_rank_knows_why(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    transfer(s, "Decode transfer", "Failed due to an unknown reason from another rank")
    return Ending(stage="transfer", confidence=UNDECIDED, among=("pd-transfer-failed", "pd-peer-lost"))


@story("pd-bootstrap-failed", "0.4.10", "0.5.10", "0.5.12", tp=2)
def one_rank_knows_why(s: Server) -> Ending:
    """Of two ranks only one has the reason; the `Finish` is that of the rank which repeats."""
    s.receive("r-1", bootstrap_room=77)
    s.wait(300)
    s.scheduler(renderer.transfer_error(s.release, "Prefill bootstrap", "r-1", 77,
                "Request 77 timed out after 300.1s in KVPoll.Bootstrapping", rank=1), tp=1)  # fmt: skip
    text = renderer.transfer_error(s.release, "Prefill bootstrap", "r-1", 77,
                                   "Failed due to an unknown reason from another rank")  # fmt: skip
    s.scheduler(text)
    s.failed("r-1", text, 500, tokens=0)
    return Ending(stage="bootstrap")


@story("not-established", "0.4.10", "0.5.10", "0.5.23")
def its_transfer_was_aborted(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    transfer(s, "Decode transfer", "Aborted by AbortReq.")
    return Ending(confidence=UNDECIDED, among=("client-disconnect", "explicit-abort"))


@story("explicit-abort", "0.4.10", "0.5.10", "0.5.23")
def its_transfer_was_aborted_by_a_call(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    s.access(200, "/abort_request")
    transfer(s, "Decode transfer", "Aborted by AbortReq.")
    return Ending(also=("not-established",), confidence=(*LIKELY, *UNDECIDED), among=("explicit-abort",))


@story("client-disconnect", "0.4.10", "0.5.10", "0.5.23")
def its_client_left_during_the_transfer(s: Server) -> Ending:
    """The API server's line comes first; the scheduler's failure is what the disconnect's abort did."""
    s.receive("r-1", bootstrap_room=77)
    s.wait(5)
    s.disconnected("r-1")
    s.every_rank(renderer.transfer_error(s.release, "Decode transfer", "r-1", 77, "Aborted by AbortReq."))
    return Ending()


@story("pd-transfer-failed", "0.4.10", "0.5.10", "0.5.19")
def the_other_side_knows_why(s: Server) -> Ending:
    """The decode side only says that prefill failed; the prefill log holds the reason in the same room."""
    other = another(s)
    other.boot(disaggregation_mode="prefill")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1" if side is s else "p-1", bootstrap_room=77)
        side.wait(3)
    transfer(other, "Prefill transfer", "Failed to send kv chunk of 77 to 10.0.0.2:5000", "p-1")
    transfer(s, "Decode transfer", "Failed to get kvcache from prefill instance, it might be dead")
    return Ending(stage="transfer", chain=(("pd-transfer-failed", "p-1"),), others={"prefill/server.log": other})


@story("pd-peer-lost", "0.5.10", "0.5.23")
def the_other_side_crashed(s: Server) -> Ending:
    other = another(s)
    other.boot(disaggregation_mode="prefill")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1" if side is s else "p-1", bootstrap_room=77)
        side.wait(3)
    other.died(exception="torch.OutOfMemoryError: CUDA out of memory.")
    s.wait(12)
    word = "Lost" if s.since("0.5.14") else "Losing"
    address = "(bootstrap_addr: 10.0.0.1:8998)"
    s.every_rank(f"{word} connection with prefill instance {address}, affected 1 requests")
    transfer(s, "Decode transfer", f"{word} connection with prefill instance {address}")
    return Ending(stage="transfer", chain=(("scheduler-crash", None),), others={"prefill/server.log": other})


@story("pd-peer-lost", "0.5.10", "0.5.19")
def the_decode_side_crashed(s: Server) -> Ending:
    """The prefill side guesses that decode could be dead; the decode side's log says that it is."""
    other = another(s)
    other.boot(disaggregation_mode="decode")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1" if side is s else "d-1", bootstrap_room=77)
        side.wait(3)
    other.died(exception="torch.OutOfMemoryError: CUDA out of memory.")
    s.wait(2)
    transfer(s, "Prefill transfer", "Decode instance could be dead, remote mooncake session 10.0.0.2:1234 is not alive")
    return Ending(stage="transfer", chain=(("scheduler-crash", None),), others={"decode/server.log": other})


@story("pd-transfer-failed", "0.4.10", "0.5.10", "0.5.23")
def both_sides_know_it_by_one_rid(s: Server) -> Ending:
    """A router that sends one rid to both: prefill was done with it, decode never got the KV."""
    other = another(s)
    other.boot(disaggregation_mode="prefill")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1", bootstrap_room=77, max_new_tokens=64)
        side.wait(3)
    other.done("r-1", tokens=1)
    s.wait(300)
    transfer(s, "Decode transfer", "Request 77 timed out after 300.2s in KVPoll.WaitingForInput")
    return Ending(stage="transfer", others={"prefill/server.log": other})
