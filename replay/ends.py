"""The ends that the model knows, as the log shows them, and the meaning of the engine's texts.

What SGLang's scheduler says about an end reaches the log in one of three shapes: an answer from the queue without a
reason (`Abort in waiting queue`, up to 0.5.4 `Abort before prefill`), one with a reason, or the finish reason of a
request that was in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from sglang_lifecycle.parsers.patterns import table
from sglang_lifecycle.replay.engine import Outcome

PLAIN_ECHO = "abort_in_waiting_queue"
"""Message id of a queued request's abort without a reason, whatever words the release has for it."""

_SAME = {
    "abort_before_prefill": PLAIN_ECHO,
    "unknown_error": "aborted",
    "session_parent_invalid": "session_parent_unknown",
}


class Shape(StrEnum):
    """Whose form a finish reason has; `parsers.requestfacts` tells it from the order of the keys."""

    PLAIN = "echo-plain"
    ECHO = "echo-with-reason"
    SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True)
class Seen:
    """The end of a request as a record shows it: the id of its text, and its shape where the record has it."""

    message: str
    shape: str | None = None

    def fits(self, end: End) -> bool:
        """Whether this is what `end` looks like."""
        return self.message == end.message and (self.shape is None or self.shape == end.shape)


@dataclass(frozen=True, slots=True, order=True)
class End:
    """An end that the model allows: its cause (an id of the catalogue), the id of its text, and its shape."""

    cause: str
    message: str
    shape: str


def canonical(message: str | None) -> str | None:
    """The id under which texts of the same meaning are compared."""
    return _SAME.get(message, message) if message is not None else None


@cache
def message_id(text: str) -> str | None:
    """The id of one of SGLang's texts; None where no table knows it."""
    found = table().message(text)
    return canonical(found[0].id) if found is not None else None


def answers(outcome: Outcome, rid: str) -> list[tuple[str | None, str]]:
    """What an operation told the client of `rid`: the id of the text, and its shape. Natural ends are left out."""
    found: list[tuple[str | None, str]] = []
    for message in outcome.messages:
        if message.get("rid") != rid:
            continue
        reason: Mapping[str, Any] | None = message["finished_reason"]
        if reason is None:
            found.append((PLAIN_ECHO, Shape.PLAIN.value))
        elif reason["type"] == "abort":
            # The request that memory alone is too small for is answered like a queued one, but with a mark's reason.
            shape = Shape.SCHEDULER if "err_type" in reason else Shape.ECHO
            found.append((message_id(str(reason.get("message"))), shape.value))
    return found
