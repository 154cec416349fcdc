"""Requests that were refused, by the API server or by the scheduler."""

from __future__ import annotations

from renderer import Server
from stories import LIKELY, Ending, story

INVALID = {
    "temperature must be non-negative, got -1.0.": ("0.4.2", "0.4.9", "0.5.10"),
    "The input_ids [999999] contains values greater than the vocab size (128256).": ("0.4.9", "0.5.20"),
    "The server is not configured to enable custom logit processor. Please set `--enable-custom-logits-processor` to "
    "enable this feature.": ("0.4.9", "0.5.2"),
    "The following requested LoRA adapters are not loaded: {'x'}\nLoaded adapters: dict_keys([]).": ("0.4.9",),
    "LoRA adapter 'x' was requested, but LoRA is not enabled. Please launch the server with --enable-lora flag and "
    "preload adapters using --lora-paths or /load_lora_adapter endpoint.": ("0.5.9", "0.5.23"),
    "Got LoRA adapter that has never been loaded: x\nAll loaded adapters: dict_keys([]).": ("0.5.7", "0.5.23"),
    "The server is not configured to return the hidden states. Please set `--enable-return-hidden-states` to enable "
    "this feature.": ("0.4.9", "0.5.16"),
    "This model does not appear to be an embedding model by default. Please add `--is-embedding` when launching the "
    "server or try another model.": ("0.4.10", "0.5.23"),
    "Image count 5 exceeds limit 2 per request.": ("0.5.7", "0.5.23"),
    "token_ids_logprob must be a flat list of integers.": ("0.5.14", "0.5.23"),
    "max_thinking_tokens requires the server to be launched with --enable-strict-thinking": ("0.5.17", "0.5.23"),
    "sampling_logprobs_mode can only be set when return_sampling_mask=true.": ("0.5.21", "0.5.23"),
    "beam search is not supported with watermarking": ("0.5.22", "0.5.23"),
}

LONG = "and so on " * 900


def invalid_story(message: str, releases: tuple[str, ...], number: int) -> None:
    def refused_by_the_api_server(s: Server) -> Ending:
        s.receive("r-1", **({"lora_path": "x"} if "LoRA" in message else {}))
        s.invalid("r-1", message)
        return Ending(stage="before-scheduler")

    refused_by_the_api_server.__name__ += f"_{number}"
    story("invalid-request", *releases)(refused_by_the_api_server)


for number, (text, texts_releases) in enumerate(INVALID.items()):
    invalid_story(text, texts_releases, number)

REFUSED = [
    ("req.logprob_start_len=5 is higher than the number of input tokens len(req.origin_input_ids)=1. Please use a "
     "smaller logprob_start_len.", 400, "BadRequestError", ("0.4.7", "0.5.10", "0.5.23")),
    ("recv_req.routed_experts_start_len=-1 is lower than 0. Please use a non-negative routed_experts_start_len.",
     400, "BadRequestError", ("0.5.12", "0.5.23")),
    ("return_sampling_mask is not supported with speculative decoding.", 400, None, ("0.5.16", "0.5.23")),
    ("Prompt input logprobs (logprob_start_len) are not supported on the MLX sampling path; omit logprob_start_len to "
     "get output logprobs.", 400, "BadRequestError", ("0.5.18", "0.5.23")),
    ("DFLASH speculative decoding does not support grammar-constrained decoding yet.", 400, "BadRequestError",
     ("0.5.11", "0.5.23")),
    ("UNO speculative decoding does not support logprobs.", 400, "BadRequestError", ("0.5.20", "0.5.23")),
    ("Beam search does not support streaming.", 400, None, ("0.5.19", "0.5.23")),
]  # fmt: skip


def refused_story(message: str, status: int, kind: str | None, releases: tuple[str, ...], number: int) -> None:
    def refused_by_the_scheduler(s: Server) -> Ending:
        s.receive("r-1")
        s.refused("r-1", message, status, kind, line=kind is not None)
        return Ending(stage="before-scheduler")

    refused_by_the_scheduler.__name__ += f"_{number}"
    story("invalid-request", *releases)(refused_by_the_scheduler)


for number, row in enumerate(REFUSED):
    refused_story(*row, number)


@story("invalid-request", "0.4.4", "0.4.6")
def logprob_start_len_of_old(s: Server) -> Ending:
    s.receive("r-1")
    s.refused("r-1", "logprob_start_len, (9) is higher than the number of input tokens (5). Request with a lower "
              "logprob_start_len.", line=False)  # fmt: skip
    return Ending(stage="before-scheduler")


@story("invalid-request", "0.5.21", "0.5.23")
def diffusion_model_refuses(s: Server) -> Ending:
    s.receive("r-1")
    s.dropped("r-1", "dLLM requests do not support logprobs.", status=400)
    return Ending(stage="before-scheduler")


@story("invalid-request", "0.5.10", "0.5.23")
def a_stream_is_refused(s: Server) -> Ending:
    """From 0.5.6 on a refused stream gets a last chunk; no error line is written."""
    s.receive("r-1", stream=True)
    s.refused("r-1", "req.logprob_start_len=5 is higher than the number of input tokens len(req.origin_input_ids)=1. "
              "Please use a smaller logprob_start_len.")  # fmt: skip
    return Ending(stage="before-scheduler")


@story("invalid-request", "0.5.17", "0.5.23")
def rust_server_cannot_read_it(s: Server) -> Ending:
    s.scheduler("SGLANG_RUST_SERVER enabled, Rust server listen on 0.0.0.0:30000")
    s.wait(3)
    s.scheduler("rust ingress: dropping undecodable request r-1: missing field `text`")
    return Ending(stage="before-scheduler")


@story("invalid-request", "0.5.21", "0.5.23")
def rust_server_rejects_it(s: Server) -> Ending:
    s.scheduler("SGLANG_RUST_SERVER enabled, Rust server listen on 0.0.0.0:30000")
    s.wait(3)
    s.scheduler("rust ingress: rejecting request r-1: ValueError: bad")
    return Ending(stage="before-scheduler")


# --- too long ---------------------------------------------------------------------------------------------------------
@story("input-too-long", "0.4.1", "0.4.2", "0.4.6", "0.4.7", "0.4.9", "0.5.10", "0.5.23")
def longer_than_the_context(s: Server) -> Ending:
    s.receive("r-1", text=LONG)
    if s.since("0.4.2"):
        s.invalid("r-1", "The input (9000 tokens) is longer than the model's context length (8192 tokens).")
    else:
        s.http_error("The input (9000 tokens) is longer than the model's context length (8192 tokens).")
        s.access(200)
    return Ending(stage="before-scheduler")


@story("input-too-long", "0.4.2", "0.4.9", "0.5.10", "0.5.23")
def longer_with_its_answer(s: Server) -> Ending:
    s.receive("r-1", text=LONG, max_new_tokens=4000)
    text = ("Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of "
            "9000 tokens: 5000 tokens from the input messages and 4000 tokens for the completion. Please reduce the "
            "number of tokens in the input messages or the completion to fit within the limit.")  # fmt: skip
    s.invalid("r-1", text)
    return Ending(stage="before-scheduler")


@story("input-too-long", "0.4.2", "0.4.6", "0.4.7", "0.4.9", "0.5.3", "0.5.10", "0.5.23")
def longer_than_the_scheduler_takes(s: Server) -> Ending:
    s.receive("r-1")
    text = ("Input length (9000 tokens) exceeds the maximum allowed length (8185 tokens). Use a shorter input or "
            "enable --allow-auto-truncate.")  # fmt: skip
    s.refused("r-1", text)
    return Ending(stage="before-scheduler")


@story("input-too-long", "0.3.6", "0.4.0", "0.4.1", "0.4.2", "0.4.9", "0.5.23")
def media_longer_than_the_context(s: Server) -> Ending:
    s.receive("r-1", image_data=["x"])
    text = ("Multimodal prompt is too long after expanding multimodal tokens. After expanding "
            "len(req.origin_input_ids_unpadded)=10 => 9000 >= 8185.")  # fmt: skip
    if not s.since("0.4.0"):
        text = ("Image request length is longer than the KV cache pool size or the max context length aborting because "
                "you cannot truncate the image embeds")  # fmt: skip
    elif not s.since("0.4.2"):
        text = "Multimodal prompt is too long. Check server logs for details."
    s.refused("r-1", text)
    return Ending(stage="before-scheduler")


@story("input-too-long", "0.5.21", "0.5.23")
def longer_than_the_memory(s: Server) -> Ending:
    s.receive("r-1")
    s.refused("r-1", "Request prompt exceeds the KV memory budget: input_len=120000.")
    return Ending(stage="before-scheduler")


@story("input-too-long", "0.4.8", "0.5.0rc2", "0.5.1", "0.5.10", "0.5.23")
def longer_than_the_disaggregated_pool(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    text = "Request r-1 exceeds the maximum number of tokens: 90000 > 80000"
    s.every_rank(text)
    s.failed("r-1", text, 400 if s.since("0.5.1") else None)
    return Ending()


# --- rids -------------------------------------------------------------------------------------------------------------
@story("duplicate-rid", "0.5.10", "0.5.11", "0.5.14", "0.5.23")
def its_rid_is_in_flight(s: Server) -> Ending:
    """The `Receive` and the `Finish` of this rid are the first request's."""
    s.receive("r-1", max_new_tokens=400)
    s.wait(2)
    s.http_error("Duplicate request IDs detected: ['r-1']" if s.release == "0.5.10" else "Duplicate request ID "
                 "detected: r-1")  # fmt: skip
    s.access(400)
    s.wait(3)
    s.done("r-1", tokens=400)
    return Ending(stage="before-scheduler")


@story("in-flight", "0.5.11", "0.5.23")
def another_one_was_refused_before_it_was_received(s: Server) -> Ending:
    """The status line after an error that precedes any `Receive` is that error's, not a running request's."""
    s.receive("x-1", max_new_tokens=400)
    s.receive("r-1", max_new_tokens=400)
    s.wait(2)
    s.http_error("Duplicate request ID detected: x-1")
    s.access(400)
    s.wait(1)
    return Ending()


@story("duplicate-rid", "0.5.10", "0.5.23")
def its_batch_names_it_twice(s: Server) -> Ending:
    s.http_error("Duplicate request IDs detected within the request: ['r-1']")
    s.access(400)
    return Ending(stage="before-scheduler")


@story("duplicate-rid", "0.4.1", "0.4.6", "0.4.9", "0.5.3", "0.5.9")
def its_twin_took_its_place(s: Server) -> Ending:
    s.receive("r-1", max_new_tokens=400)
    s.wait(2)
    s.receive("r-1", max_new_tokens=400)
    s.wait(3)
    s.done("r-1", tokens=400)
    return Ending(confidence=LIKELY)


@story("never-received", "0.4.1", "0.5.10", "0.5.23")
def no_line_names_it(s: Server) -> Ending:
    s.receive("r-10", text="about r-1")
    s.wait(1)
    s.done("r-10", text="r-1 is what you asked for")
    return Ending(stage="never-received", confidence=LIKELY)


@story("never-received", "0.3.6", "0.4.0")
def client_left_before_any_line(s: Server) -> Ending:
    """Up to 0.4.0 a request is logged at its end only."""
    s.receive("r-1")
    s.wait(9)
    s.access(200)
    return Ending(stage="never-received", confidence=LIKELY)


# --- media ------------------------------------------------------------------------------------------------------------
@story("multimodal-error", "0.5.19", "0.5.23")
def its_media_are_broken(s: Server) -> Ending:
    s.receive("r-1", image_data=["x"])
    s.refused("r-1", "cannot identify image file <_io.BytesIO object>", 500, "InternalServerError")
    return Ending(stage="before-scheduler")


@story(
    "multimodal-error",
    "0.5.8",
    "0.5.10",
    "0.5.19",
    "0.5.23",
)
def its_encoder_failed(s: Server) -> Ending:
    s.receive("r-1", image_data=["x"])
    s.wait(1)
    s.every_rank("Received error signal from encoder for r-1: boom recv_obj.error_code = 500")
    s.every_rank("Waiting request r-1 failed: boom waiting_req.error_code = 500")
    s.failed("r-1", "boom", 500)
    return Ending(stage="before-scheduler")


@story("multimodal-error", "0.5.9", "0.5.10", "0.5.22", "0.5.23")
def its_encoder_took_too_long(s: Server) -> Ending:
    s.receive("r-1", image_data=["x"])
    s.wait(180)
    s.every_rank("Timed out waiting for image embeddings for request r-1")
    s.failed("r-1", "Timeout waiting for image embedding after 180.0s", 408)
    return Ending(stage="before-scheduler")
