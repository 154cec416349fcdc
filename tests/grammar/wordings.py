"""The wordings of SGLang 0.3.6 to 0.5.23, each as the release writes it: values, reasons, lines without a server."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FIELDS: dict[str, list[str]] = {
    release: names.split()
    for release, names in tomllib.loads((Path(__file__).parent / "fields.toml").read_text("utf-8")).items()
}
RELEASES = list(FIELDS)
START = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC).timestamp()

FALSE = set(
    "return_logprob return_text_in_logprobs stream return_hidden_states background no_logs return_bytes "
    "return_entropy return_routed_experts require_reasoning use_audio_in_video return_indexer_topk "
    "return_prompt_token_ids return_flat_raw_top_logprobs return_flat_raw_top_logprobs_b64 "
    "return_flat_raw_output_top_logprobs return_sampling_mask".split()
)
DEFAULTS = {"logprob_start_len": -1, "top_logprobs_num": 0, "log_metrics": True, "routed_experts_start_len": 0}
PAYLOAD = {"text", "input_ids", "input_embeds", "image_data", "audio_data", "lora_path"}
PHRASES = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 408: "Request Timeout", 422: "Unprocessable Entity",
           500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable"}  # fmt: skip

Reason = dict[str, Any]


def at_least(release: str, first: str) -> bool:
    """Whether a release is `first` or newer."""
    return RELEASES.index(release) >= RELEASES.index(first)


def between(release: str, first: str, last: str) -> bool:
    """Whether a release lies in a range, both ends included."""
    return at_least(release, first) and at_least(last, release)


def eras(*firsts: str, last: str = RELEASES[-1]) -> list[str]:
    """The releases at which a wording begins, with the newest that still has the last of them."""
    return list(dict.fromkeys([*firsts, last]))


# --- values ----------------------------------------------------------------------------------------------------------
def value(item: Any, release: str, limit: int = 1 << 30) -> str:
    """A value as the text request log prints it (`dataclass_to_string_truncated`)."""
    if isinstance(item, str):
        if not at_least(release, "0.4.2"):
            return f'"{item}"' if len(item) <= limit else f'"{item[: limit // 2]}" ... "{item[-(limit // 2) :]}"'
        half = limit // 2
        return repr(item) if len(item) <= limit else f"{item[:half]!r} ... {item[-half:]!r}"
    if isinstance(item, list):
        half = limit // 2
        return str(item) if len(item) <= limit else f"{item[:half]} ... {item[-half:]}"
    if isinstance(item, dict):
        quote = "'" if at_least(release, "0.4.2") else ""
        return "{" + ", ".join(f"{quote}{k}{quote}: {value(v, release, limit)}" for k, v in item.items()) + "}"
    return str(item)


def json_value(item: Any, limit: int = 1 << 30) -> Any:
    """A value as the JSON request log holds it (`_transform_data_for_logging`)."""
    half = limit // 2
    if isinstance(item, str) and len(item) > limit:
        return f"{item[:half]}...{item[-half:]}"
    if isinstance(item, (list, tuple)):
        items = [json_value(one, limit) for one in item]
        return items if len(items) <= limit else [*items[:half], "...", *items[-half:]]
    if isinstance(item, dict):
        return {k: json_value(v, limit) for k, v in item.items()}
    return item


# --- finish reasons --------------------------------------------------------------------------------------------------
def stop(matched: int | str = 2) -> Reason:
    return {"type": "stop", "matched": matched}


def length(tokens: int) -> Reason:
    return {"type": "length", "length": tokens}


def through_scheduler(release: str, message: str, status: int | None = None, kind: str | None = None) -> Reason:
    """`FINISH_ABORT.to_json`: two keys up to 0.4.1, four since."""
    reason: Reason = {"type": "abort", "message": message}
    return reason | {"status_code": status, "err_type": kind} if at_least(release, "0.4.2") else reason


def dropped(message: str, status: int) -> Reason:
    """What an `AbortReq` with a reason carries."""
    return {"type": "abort", "status_code": status, "message": message}


def echo(message: str) -> Reason:
    """What an `AbortReq` without a reason becomes."""
    return {"type": "abort", "message": message}


def plain_text(release: str) -> str:
    """The default message of an abort."""
    return "Aborted" if at_least(release, "0.4.7") else "Unknown error"


def waiting_text(release: str) -> str:
    """The message of an abort in the waiting queue."""
    return "Abort in waiting queue" if at_least(release, "0.5.5") else "Abort before prefill"


# --- single lines ----------------------------------------------------------------------------------------------------
def access(peer: str, method: str, path: str, status: int) -> str:
    return f'INFO:     {peer} - "{method} {path} HTTP/1.1" {status} {PHRASES[status]}'


def pairs(items: Iterable[tuple[str, Any]], comma: bool) -> str:
    return ", ".join(f"{name}: {text}" for name, text in items) + (", " if comma else "")


def prefill_batch(release: str, new: int, tokens: int, cached: int, usage: str, running: int, queued: int,
                  pending: int = 0, throughput: str = "0.00",
                  token: int = 0, graph: str = "cpu graph") -> str:  # fmt: skip
    """A prefill batch of a server that is not disaggregated, without hybrid attention."""
    head = "Prefill batch, " if at_least(release, "0.5.5") else "Prefill batch. "
    if release == "0.5.4":
        head = "Prefill batch [7], "
    items: list[tuple[str, Any]] = [("#new-seq", new), ("#new-token", tokens), ("#cached-token", cached)]
    if not at_least(release, "0.4.4"):
        items.append(("cache hit rate", "0.00%"))
    if release == "0.4.9":
        items.append(("#token", token))
    items += [("token usage", usage), ("#running-req", running), ("#queue-req", queued)]
    if at_least(release, "0.5.11"):
        items.append(("#pending-token", pending))
    if release == "0.5.9":
        items += [("input throughput (token/s)", throughput), (graph, False)]
    elif at_least(release, "0.5.10"):
        items += [(graph, False), ("input throughput (token/s)", throughput)]
    comma = between(release, "0.4.4", "0.4.5") or between(release, "0.4.10", "0.5.8")
    return head + pairs(items, comma)


def decode_batch(release: str, running: int, token: int, usage: str, throughput: str, queued: int,
                 graph: str = "cuda graph") -> str:  # fmt: skip
    """A decode batch of a server that is not disaggregated, without hybrid attention or speculation."""
    head = "Decode batch, " if at_least(release, "0.5.5") else "Decode batch. "
    if release == "0.5.4":
        head = "Decode batch [7], "
    items: list[tuple[str, Any]] = [("#running-req", running), ("#token", token), ("token usage", usage)]
    if at_least(release, "0.4.7"):
        items.append((graph, False))
    items.append(("gen throughput (token/s)", throughput))
    if release == "0.4.4":
        items.append(("largest-len", 100))
    items.append(("#queue-req", queued))
    return head + pairs(items, between(release, "0.4.4", "0.4.5") or between(release, "0.4.10", "0.5.8"))


def time_stats(release: str, rid: str, prompt: int, cached: int, output: int, queue: str, forward: str, entry: str,
               attempts: int = 1, kind: str = "unified") -> str:  # fmt: skip
    """The time stats of a server that is not disaggregated; `queue` and `forward` in milliseconds."""
    if at_least(release, "0.5.12"):
        tries = f"attempts={attempts}, " if at_least(release, "0.5.16") else ""
        sizes = f"input_len={prompt}, cached_input_len={cached}, output_len={output}, {tries}type={kind}"
        head, clock = f"ReqTimeStats(rid={rid}, {sizes})", f"entry_time={entry}"
    else:
        head = f"Req Time Stats(rid={rid}, input len={prompt}, output len={output}, type={kind})"
        clock = f"start_time={entry}"
    if kind == "unknown":
        return f"{head}: Unknown Time Stats"
    return f"{head}: queue_duration={queue}ms, forward_duration={forward}ms, {clock}"


def retraction(release: str, count: int = 1, gained: int = 900) -> str:
    ratio = "#new_token_ratio: 0.7000 -> 0.9000"
    if not at_least(release, "0.4.7"):
        return f"Decode out of memory happened. #retracted_reqs: {count}, {ratio}"
    more = f"#new_tokens_gained: {gained}, " if at_least(release, "0.5.7") else ""
    if between(release, "0.5.3", "0.5.4"):
        more = "#aborted_retracted_reqs: 0, "
    return f"KV cache pool is full. Retract requests. #retracted_reqs: {count}, {more}{ratio}"


def traceback(exception: str, frames: Sequence[str] = ("run_scheduler_process",)) -> str:
    """A Python traceback that ends in `exception`, innermost frame last."""
    lines = [f'  File "/opt/sglang/python/sglang/srt/x.py", line {i + 10}, in {f}\n    step()'
             for i, f in enumerate(frames)]  # fmt: skip
    return "\n".join(["Traceback (most recent call last):", *lines, exception, ""])


def hit_an_exception(who: str, exception: str, frames: Sequence[str] = ("run_scheduler_process",)) -> str:
    return f"{who} hit an exception: {traceback(exception, frames)}"


def transfer_error(release: str, what: str, rid: str, room: int, reason: str | None, rank: int = 0) -> str:
    """A failure of the disaggregated code; `what` begins it (`Prefill bootstrap`, `Decode transfer` …)."""
    name = "decode_req.req" if what.startswith("Decode") else "req"
    tail = f" with exception KVTransferError(bootstrap_room={room}): {reason}" if reason is not None else ""
    return f"{what} failed for request rank={rank} {name}.rid={rid!r} {name}.bootstrap_room={room}{tail}"
