"""What SGLang 0.3.6 to 0.5.23 writes about its requests, rendered for one release.

`Server` is a server with a clock that writes its own log: the prefix of the era, the request log in text or JSON at a
level, the scheduler's lines, the API server's errors and uvicorn's access lines, in the order in which the release
writes them. `test_renderer.py` holds every shape against recorded lines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from wordings import (
    DEFAULTS,
    FALSE,
    FIELDS,
    PAYLOAD,
    START,
    Reason,
    access,
    at_least,
    between,
    decode_batch,
    dropped,
    echo,
    hit_an_exception,
    json_value,
    length,
    plain_text,
    prefill_batch,
    through_scheduler,
    value,
    waiting_text,
)


class Server:
    """One server of a release, which writes its log line after line on its own clock."""

    def __init__(
        self,
        release: str,
        *,
        level: int | None = None,
        as_json: bool = False,
        milliseconds: bool = False,
        tp: int = 1,
        dp: int = 1,
        ep: int = 1,
        pp: int = 1,
        workers: int = 1,
        pool: int = 20000,
        args: dict[str, Any] | None = None,
        start: float = START,
    ) -> None:
        self.release, self.level, self.as_json, self.milliseconds = release, level, as_json, milliseconds
        self.tp, self.dp, self.ep, self.pp, self.workers = tp, dp, ep, pp, workers
        self.pool, self.args = pool, args or {}
        self.now = start
        self.lines: list[str] = []
        self.objects: dict[str, dict[str, Any]] = {}
        self.received: dict[str, float] = {}
        self.routes: dict[str, str] = {}
        self._port = 40000

    def since(self, first: str) -> bool:
        return at_least(self.release, first)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines)

    # --- prefixes ---
    def stamp(self) -> str:
        text = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return text + f".{int(self.now % 1 * 1000):03d}" if self.milliseconds else text

    def ranks(self, tp: int = 0, dp: int | None = None, ep: int = 0, pp: int = 0) -> str:
        """The scheduler's part of the prefix."""
        dp_part = f" DP{dp}" if dp is not None else ""
        if not self.since("0.4.0"):
            return (dp_part or " DP-1") + f" TP{tp}"
        if not self.since("0.4.7"):
            return dp_part + f" TP{tp}"
        tp_part = f" TP{tp}" if self.tp > 1 else ""
        ep_part = f" EP{ep}" if self.ep > 1 and self.since("0.4.10") else ""
        pp_part = f" PP{pp}" if self.pp > 1 else ""
        if self.since("0.5.6"):
            return dp_part + pp_part + tp_part + ep_part
        return dp_part + tp_part + ep_part + pp_part

    def log(self, message: str, ranks: str = "") -> None:
        """A record of the main process, the tokenizer manager or the detokenizer."""
        self.lines += f"[{self.stamp()}{ranks}] {message}".split("\n")

    def scheduler(self, message: str, dp: int | None = None, tp: int = 0) -> None:
        """A record that only one rank writes."""
        self.log(message, self.ranks(tp=tp, dp=dp))

    def every_rank(self, message: str, dp: int | None = None) -> None:
        """A record that every TP rank of one DP rank writes."""
        for tp in range(self.tp):
            self.log(message, self.ranks(tp=tp, dp=dp, ep=tp))

    def access(self, status: int = 200, path: str = "/generate", method: str = "POST") -> None:
        self._port += 2
        self.log(access(f"127.0.0.1:{self._port}", method, path, status))

    # --- start ---
    def boot(self, **args: Any) -> None:
        known = {"model_path": "/models/m", "tp_size": self.tp, "dp_size": self.dp} | self.args | args
        known |= {"tokenizer_worker_num": self.workers} if self.since("0.5.2") else {}
        if self.since("0.5.19"):
            self.log(f"server_args={known!r}")
        else:
            self.log(f"server_args=ServerArgs({', '.join(f'{k}={v!r}' for k, v in known.items())})")
        self.wait(20)
        chunk = "chunked_prefill_size=4096, " if self.since("0.4.0") else ""
        memory = ", available_gpu_mem=9.52 GB" if self.since("0.4.6") else ""
        limits = f"{chunk}max_prefill_tokens=16384, max_running_requests=64, context_len=8192{memory}"
        self.scheduler(f"max_total_num_tokens={self.pool}, {limits}")
        self.log("The server is fired up and ready to roll!")
        self.wait(5)

    # --- the request log ---
    def fields(self, rid: Any, **given: Any) -> dict[str, Any]:
        """The object of a request, fields in the release's order."""
        unknown = set(given) - set(FIELDS[self.release])
        assert not unknown, f"{self.release} has no {unknown}"
        found = {name: False if name in FALSE else DEFAULTS.get(name) for name in FIELDS[self.release]}
        if self.workers > 1 and "http_worker_ipc" in found:
            found["http_worker_ipc"] = "ipc:///tmp/a"
        return found | {"rid": rid, "text": "The quick brown fox", "sampling_params": {"max_new_tokens": 64}} | given

    def session(self, session_id: str, parent: str | None = None, **more: Any) -> dict[str, Any]:
        """The fields by which a request names its session, in the form of the release."""
        if not self.since("0.4.0"):
            return {"session_id": session_id, "session_rid": parent}
        if not self.since("0.4.2"):
            return {"session": (session_id, parent)}
        return {"session_params": {"id": session_id} | ({"rid": parent} if parent is not None else {}) | more}

    @property
    def default_level(self) -> int:
        return 2 if self.since("0.4.4") else 0

    def _limits(self) -> tuple[set[str], set[str], int]:
        """The fields of the object and of the output that the level leaves out, and the longest value."""
        level = self.default_level if self.level is None else self.level
        if not self.since("0.4.1"):
            return set(), set(), 1 << 30
        if not self.since("0.4.4"):
            return set(), set(), 2048 if level == 0 or self.release == "0.4.1" else 1 << 30
        if self.since("0.4.9"):
            skipped = PAYLOAD | ({"video_data"} if self.since("0.5.12") else set())
            skipped |= {"mm_data_mooncake"} if between(self.release, "0.5.13", "0.5.18") else set()
            hidden = {0: skipped | {"sampling_params"}, 1: skipped}.get(level, set())
            return hidden, {"text", "output_ids", "embedding"} if level < 2 else set(), 2048 if level < 3 else 1 << 30
        return (
            PAYLOAD if level == 0 else set(),
            {"text", "output_ids"} if level == 0 else set(),
            (2048 if level < 2 else 1 << 30),
        )

    def record(self, event: str, obj: dict[str, Any], out: dict[str, Any] | None = None,
               headers: dict[str, str] | None = None, kind: str = "GenerateReqInput") -> str:  # fmt: skip
        """The message of a request-log record (0.4.1 on)."""
        hidden, hidden_out, limit = self._limits()
        obj = {k: v for k, v in obj.items() if k not in hidden}
        out = {k: v for k, v in out.items() if k not in hidden_out} if out is not None else None
        if self.as_json:
            stamp = datetime.fromtimestamp(self.now, UTC).replace(tzinfo=None).isoformat()
            name = {"Receive": "request.received", "Finish": "request.finished"}[event]
            data: dict[str, Any] = {"timestamp": stamp, "event": name, "rid": obj["rid"], "obj": json_value(obj, limit)}
            data |= {"headers": headers} if headers else {}
            data |= {"out": json_value(out, limit)} if out is not None else {}
            return json.dumps(data, ensure_ascii=False)
        inside = ", ".join(f"{k}={value(v, self.release, limit)}" for k, v in obj.items())
        tail = f", headers={value(headers, self.release)}" if headers else ""
        tail += f", out={value(out, self.release, limit)}" if out is not None else ""
        return f"{event}: obj={kind}({inside}){tail}"

    def _request_log(self, message: str) -> None:
        bare = between(self.release, "0.5.8", "0.5.11") or (self.as_json and self.release == "0.5.7")
        self.lines += (message if bare else f"[{self.stamp()}] {message}").split("\n")

    def receive(self, rid: Any, *, path: str = "/generate", openai: dict[str, Any] | None = None,
                headers: dict[str, str] | None = None, max_new_tokens: int = 64, grammar: str | None = None,
                **given: Any) -> None:  # fmt: skip
        """A request arrives. A stream's access line comes first, since its response begins at once."""
        sampling = {"max_new_tokens": max_new_tokens} | ({"json_schema": grammar} if grammar is not None else {})
        obj = self.fields(rid, **{"sampling_params": sampling} | given)
        for one in rid if isinstance(rid, list) else [rid]:
            self.objects[one], self.received[one], self.routes[one] = obj, self.now, path
        if obj["stream"] and path == "/generate":
            self.access(200, path)
        if openai is not None and self.since("0.5.10"):
            self._request_log(f"Receive OpenAI: obj={value(openai, self.release, 2048)}")
        if self.since("0.4.1"):
            self._request_log(self.record("Receive", obj, headers=headers))

    def finish(self, rid: str, reason: Reason, *, tokens: int = 8, prompt: int = 5, text: str = " and so on",
               answered: bool = True, **meta: Any) -> None:  # fmt: skip
        """`Finish` and what the API server answers then."""
        obj = {k: v[0] if isinstance(v, list) and k == "rid" else v for k, v in self.objects[rid].items()}
        obj["rid"] = rid
        out = self.output(rid, reason, tokens, prompt, text) if self.since("0.4.2") else None
        if out is None:
            info = {"prompt_tokens": prompt, "completion_tokens": tokens}
            info |= {} if self.since("0.4.1") else {"completion_tokens_wo_jump_forward": tokens}
            out = {"text": text, "meta_info": info | {"cached_tokens": 0, "finish_reason": reason, "id": rid}}
        out["meta_info"] |= meta
        if self.since("0.4.1"):
            self._request_log(self.record("Finish", obj, out))
        else:
            inside = ", ".join(f"{k}={v!r}" for k, v in obj.items())
            self.log(f"in=GenerateReqInput({inside}), out={out!r}")
        if answered:
            self.answer(rid, reason)

    def output(self, rid: str, reason: Reason, tokens: int, prompt: int, text: str) -> dict[str, Any]:
        """`out` (0.4.2 on): an echo of an `AbortReq` has other keys than an output of the scheduler."""
        latency = round(self.now - self.received[rid], 3)
        stamps = (
            {} if self.objects[rid]["stream"] or not self.since("0.5.6") else {"response_sent_to_client_ts": self.now}
        )
        ids = {"output_ids": [7] * tokens} if self.since("0.5.0rc2") else {}
        versions = [{"version": "default", "start": 0, "end": tokens}]
        if reason["type"] == "abort" and ("err_type" not in reason or "Aborting the last request" in reason["message"]):
            if not self.since("0.5.5"):
                if "status_code" in reason:
                    return {"meta_info": {"id": rid, "finish_reason": reason}}
                return {"text": "", "meta_info": {"id": rid, "finish_reason": reason, "prompt_tokens": 0,
                                                  "completion_tokens": 0}}  # fmt: skip
            meta = {"id": rid, "finish_reason": reason}
            meta |= {"weight_version": "default", "e2e_latency": latency} if self.since("0.5.9") else {}
            meta |= {"weight_versions": versions} if self.since("0.5.19") else {}
            return {"text": text if tokens else "", **ids, "meta_info": meta | {"completion_tokens": tokens, **stamps}}
        meta = {"id": rid, "finish_reason": reason, "prompt_tokens": prompt}
        meta |= {"weight_version": "default"} if self.since("0.5.0rc2") else {}
        if self.since("0.5.5"):
            meta |= {"num_retractions" if self.since("0.5.12") else "total_retractions": 0}
        meta |= {"reasoning_tokens": 0} if self.since("0.5.10") else {}
        meta |= {"completion_tokens": tokens, "cached_tokens": 0}
        meta |= {"weight_versions": versions} if self.since("0.5.19") else {}
        meta |= {"cached_tokens_details": None} if self.since("0.5.9") else {}
        meta |= {"dp_rank": None} if self.since("0.5.10") else {}
        meta |= {"e2e_latency": latency} if self.since("0.4.4") else {}
        return {"text": text, **ids, "meta_info": meta | stamps}

    def status(self, reason: Reason) -> int:
        """The HTTP status of a whole answer with this reason."""
        code = reason.get("status_code")
        if code == 400:
            return 400 if self.since("0.4.2") else 200
        if code in (500, 503):
            return code if self.since("0.5.1") or (code == 503 and self.since("0.4.10")) else 200
        return code if code and self.release == "0.5.23" else 200

    def answer(self, rid: str, reason: Reason) -> None:
        """The error line and the access line of a request that is not a stream."""
        if self.objects[rid]["stream"]:
            return
        status, path = self.status(reason), self.routes[rid]
        if status == 400 and path == "/generate":
            self.http_error(reason["message"])
        self.access(status, path)

    def http_error(self, message: str) -> None:
        """What `/generate` logs of a ValueError (0.4.2 on)."""
        self.log(f"[http_server] Error: {message}" if self.since("0.4.7") else f"Error: {message}")

    # --- ways to end ---
    def done(self, rid: str, tokens: int = 64, **more: Any) -> None:
        self.finish(rid, length(tokens), tokens=tokens, **more)

    def aborted_running(self, rid: str, tokens: int = 9, **more: Any) -> None:
        self.finish(rid, through_scheduler(self.release, plain_text(self.release)), tokens=tokens, **more)

    def aborted_waiting(self, rid: str, tokens: int = 0, **more: Any) -> None:
        self.finish(rid, echo(waiting_text(self.release)), tokens=tokens, **more)

    def dropped(self, rid: str, message: str, status: int = 503, tokens: int = 0, **more: Any) -> None:
        """Taken from the waiting queue, or never put there, with a reason."""
        self.finish(rid, dropped(message, status), tokens=tokens, **more)

    def failed(self, rid: str, message: str, status: int | None, kind: str | None = None, **more: Any) -> None:
        """Ended by the scheduler with a reason."""
        self.finish(rid, through_scheduler(self.release, message, status, kind), **more)

    def refused_line(self, rid: str, message: str, dp: int | None = None) -> None:
        """The scheduler's line of a refusal (0.4.7 on; a session that is not there, 0.4.9 on)."""
        self.scheduler(f"{message}, self.rid={rid!r}", dp=dp)

    def refused(self, rid: str, message: str, status: int | None = 400, kind: str | None = "BadRequestError",
                line: bool = True, dp: int | None = None, **more: Any) -> None:  # fmt: skip
        """Refused by the scheduler: its line, a stub of one token, and the answer."""
        if line and self.since("0.4.7"):
            self.refused_line(rid, message, dp)
        self.failed(rid, message, status, kind, **{"tokens": 1, "prompt": 1, "text": "x"} | more)

    def invalid(self, rid: str, message: str, status: int = 400) -> None:
        """Refused by the tokenizer manager after `Receive`: no `Finish`."""
        if self.routes[rid] == "/generate":
            self.http_error(message)
        self.access(status, self.routes[rid])

    def disconnected(self, rid: str, kind: int = 1) -> None:
        """The API server finds the connection of a request that is not a stream closed."""
        if self.since("0.4.7"):
            self.http_error(
                f"Request is disconnected from the client side (type {kind}). Abort request obj.rid={rid!r}"
            )
        elif self.since("0.4.4"):
            self.http_error(f"Request is disconnected from the client side. Abort request {rid}")
        elif self.since("0.4.1"):
            self.http_error(f"Abort request {rid}")
        self.access(400 if self.since("0.4.2") else 200, self.routes[rid])

    def prefill(self, new: int = 1, running: int = 0, queued: int = 0, dp: int | None = None) -> None:
        self.scheduler(prefill_batch(self.release, new, 12 * new, 0, "0.01", running, queued), dp=dp)

    def decode(self, running: int = 1, queued: int = 0, usage: str = "0.01", dp: int | None = None) -> None:
        self.scheduler(decode_batch(self.release, running, 52, usage, "55.10", queued), dp=dp)

    def died(
        self, who: str = "Scheduler", exception: str = "ValueError: boom", frames: Sequence[str] = ("step",)
    ) -> None:
        """A process raises and takes the server down."""
        self.every_rank(hit_an_exception(who, exception, frames))
        self.sigquit()

    def sigquit(self) -> None:
        if self.since("0.5.3"):
            self.log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        elif self.since("0.4.4"):
            self.log("Received sigquit from a child process. It usually means the child failed.")

    def draining(self, *rids: str) -> None:
        if self.since("0.5.3"):
            left = f"Remaining number of requests {len(rids)}. Remaining requests remaining_rids={list(rids)!r}."
        else:
            left = f"remaining number of requests {len(rids)}"
        self.log(f"Gracefully exiting... {left}")

    def sigterm(self) -> None:
        self.log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
