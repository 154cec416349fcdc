"""What one operation lets the outside see: messages to the tokenizer manager, log lines, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sglang_lifecycle.replay.requests import FinishReason, Request

SCHEDULER = "sglang.srt.managers.scheduler"
SCHEDULE_BATCH = "sglang.srt.managers.schedule_batch"
ROOT = "root"

ABORT_RUNNING = "Abort running request. "

LogLine = tuple[str, str, str]
"""Logger, level, text."""


class SchedulerCrash(Exception):
    """An exception left SGLang's own code here: the scheduler process dies.

    `kind` and `text` are the class name and the text of that exception.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


@dataclass(slots=True)
class Journal:
    """Collects the messages and log lines of one operation, in order."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)

    def log(self, logger: str, level: str, text: str) -> None:
        """Note a log line."""
        self.logs.append((logger, level, text))

    def opened(self, session: str, success: bool) -> None:
        """Note the answer to an `open_session`."""
        self.messages.append({"kind": "open", "session": session, "success": success})

    def echo(self, request: Request, reason: dict[str, Any] | None) -> None:
        """Note an `AbortReq` sent back: the request ended without ever reaching the detokenizer."""
        self.messages.append({"kind": "abort", "rid": request.rid, "finished_reason": reason})

    def finish(self, request: Request) -> None:
        """Note the finished entry that goes to the detokenizer."""
        reason: FinishReason | None = request.finished
        self.messages.append(
            {
                "kind": "finish",
                "rid": request.rid,
                "finished_reason": None if reason is None else reason.as_dict(),
                "prompt_tokens": request.prompt.length,
                "completion_tokens": request.output,
            }
        )

    def ordered_logs(self) -> list[LogLine]:
        """Return the lines, each run of `Abort running request.` sorted.

        Recent releases walk a set there, so the order within a run is not a fact.
        """
        ordered: list[LogLine] = []
        run: list[LogLine] = []
        for line in self.logs:
            if line[2].startswith(ABORT_RUNNING):
                run.append(line)
                continue
            ordered += [*sorted(run), line]
            run = []
        return ordered + sorted(run)
