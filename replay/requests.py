"""Requests as the scheduler sees them: a prompt's length, the tokens produced so far, and what will end them.

Only lengths matter to the lifecycle, so a token array is a counter. It is an object rather than a number because
SGLang lets two requests share one array, and then the growth of one is seen by the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

UNAVAILABLE = 503
"""HTTP status of what limits and timeouts cut off."""

BAD_REQUEST = "BadRequestError"
"""`err_type` of a request that the scheduler refuses with status 400."""

EOS_TOKEN_ID = 2
"""Token id that a `stop` reports as matched where nothing better is known."""


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why a request ended or will end, as SGLang's `BaseFinishReason` classes tell it.

    `kind` is `stop`, `length` or `abort`; `status` is an HTTP status. `length` and `matched` belong to the first two.
    """

    kind: str
    message: str | None = None
    status: int | None = None
    error_type: str | None = None
    length: int | None = None
    matched: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the reason in the shape and key order of SGLang's `to_json`."""
        if self.kind == "stop":
            return {"type": "stop", "matched": self.matched}
        if self.kind == "length":
            return {"type": "length", "length": self.length}
        return {"type": "abort", "message": self.message, "status_code": self.status, "err_type": self.error_type}


ABORTED = FinishReason("abort", "Aborted")
"""What an abort of unknown origin leaves: no status, and `Aborted` whoever asked for it."""


def refusal(message: str) -> FinishReason:
    """Return the reason of a request that was wrong from the start (status 400)."""
    return FinishReason("abort", message, 400, BAD_REQUEST)


@dataclass(slots=True, eq=False)
class Tokens:
    """A token array of which only the length is kept. Identity matters: requests may share one."""

    length: int


@dataclass(frozen=True, slots=True)
class SessionParams:
    """The `session_params` of an arriving request.

    `rid` names the node to continue or to replace; `offset` cuts the history (in tokens, negative from its end).
    """

    id: str
    rid: str | None = None
    replace: bool = False
    offset: int | None = None
    drop_previous_output: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A tokenized request on its way into the scheduler.

    `length` counts the new input tokens; `bos` says that the first one is the tokenizer's BOS.
    """

    rid: str
    length: int
    max_new_tokens: int
    bos: bool = False
    priority: int | None = None
    session: SessionParams | None = None


class Membership(Protocol):
    """The session that a request belongs to, as far as its requests have to do with it."""

    id: str
    streaming: bool
    inflight: bool

    def confirm(self, request: Request) -> None:
        """A turn of it is over."""


@dataclass(slots=True, eq=False)
class Request:
    """A request inside the scheduler (SGLang's `Req`)."""

    rid: str
    prompt: Tokens
    max_new_tokens: int
    priority: int | None = None
    session: Membership | None = None
    output: int = 0
    """Tokens produced so far; a retraction keeps them."""
    mark: FinishReason | None = None
    """The end that the next processed token will bring (`to_finish`, or `to_abort` in older releases)."""
    finished: FinishReason | None = None
    retracted: bool = False
    queued_at: float = 0.0
    """Clock when it last entered the waiting queue, in seconds."""
    started_at: float | None = None
    """Clock of its first admission, in seconds. A retraction does not reset it."""

    def refuse(self, message: str) -> None:
        """Turn into a stub: a one-token prompt that ends with `message` once it has been prefilled."""
        self.prompt = Tokens(1)
        self.mark = refusal(message)

    def take_token(self, eos: bool, eos_before_length: bool) -> bool:
        """Append one token and decide whether the request ends with it.

        A mark beats everything. Returns whether the request has finished.
        """
        self.output += 1
        self.finished = self.mark or self._natural_end(eos, eos_before_length)
        if self.finished is not None:
            self.mark = None
        return self.finished is not None

    def _natural_end(self, eos: bool, eos_before_length: bool) -> FinishReason | None:
        stop = FinishReason("stop", matched=EOS_TOKEN_ID) if eos else None
        full = self.output >= self.max_new_tokens
        length = FinishReason("length", length=self.max_new_tokens) if full else None
        return (stop or length) if eos_before_length else (length or stop)
