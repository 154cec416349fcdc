"""Which API error and which HTTP response belong to which attempt, although neither line carries a rid.

Both are written by the API server right after what they answer, so their place among the records of the same life
tells them apart where requests don't overlap. What is matched here is at best `likely` evidence.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.lives import Life
from sglang_lifecycle.parsers.evidence import Event, Fact

_GENERATION = re.compile(r"/(?:generate|v1/(?:chat/)?completions|v1/messages|v1/responses|encode|v1/embeddings)\b")
_BEFORE_RECEIVE = re.compile(
    r"Either text, input_ids|The (?:specified )?rids? |session_id and session_params|Session params must be"
    r"|routed_dp_rank|Duplicate request ID|Text and input_ids|Parallel sampling|The list of"
)
"""Errors of `normalize_batch_and_arguments` and its like: raised before `Receive` is written (all releases)."""
_ERROR_WINDOW = 10.0  # seconds from `Receive` to a validation error, tokenizing included
_STATUS_WINDOW = 40  # facts between an error and the status line of its response
_ECHO_WINDOW = 12  # facts between a `Finish` with status 400 and the line that repeats its text


@dataclass(slots=True)
class Responses:
    """The HTTP responses of a life that no attempt explains: `(place among the facts, line)`."""

    unclaimed: list[tuple[int, Fact]] = field(default_factory=list)


def is_generation(fact: Fact) -> bool:
    """Whether an access line answers a request for text or an embedding."""
    return fact.detail.get("method") == "POST" and bool(_GENERATION.match(str(fact.detail.get("path"))))


def assign(life: Life, attempts: list[Attempt]) -> Responses:
    """Give attempts their API errors and HTTP responses; returns what remains."""
    return _Matcher(life, attempts).run()


class _Matcher:
    def __init__(self, life: Life, attempts: list[Attempt]) -> None:
        self.life = life
        self.at_receive = {id(a.received): a for a in attempts if a.received is not None}
        self.at_finish = {id(a.finish): a for a in attempts if a.finish is not None}
        self.gone = {id(f): a for a in attempts for f in a.of(Event.CLIENT_DISCONNECTED)}
        self.silent: list[Attempt] = []  # received, never finished, not yet explained; newest last
        self.answered: deque[tuple[int, Attempt]] = deque(maxlen=64)  # finished, response line still to come
        self.streams: deque[tuple[int, Attempt]] = deque(maxlen=64)  # received streams, response line still to come
        self.refused: deque[tuple[int, Attempt | None]] = deque(maxlen=16)  # error seen, response line still to come
        self.left = Responses()

    def run(self) -> Responses:
        for order, fact in enumerate(self.life.facts):
            if fact.tainted and not fact.detail.get("raw"):
                continue
            if fact.event is Event.REQUEST_RECEIVED:
                self._receive(order, fact)
            elif fact.event is Event.REQUEST_FINISHED:
                attempt = self.at_finish.get(id(fact))
                if attempt is not None and not attempt.stream:
                    self.answered.append((order, attempt))
            elif fact.event is Event.CLIENT_DISCONNECTED and id(fact) in self.gone:
                self._expect(order, self.gone[id(fact)])
            elif fact.event is Event.REQUEST_ERROR and fact.rid is None:
                self._error(order, fact)
            elif fact.event is Event.HTTP_EXCEPTION:
                self._exception(fact)
            elif fact.event is Event.HTTP_ACCESS and is_generation(fact):
                self._response(order, fact)
        return self.left

    def _receive(self, order: int, fact: Fact) -> None:
        attempt = self.at_receive.get(id(fact))
        if attempt is None:
            return
        if attempt.finish is None and (fact.detail.get("n") or 1) == 1:
            self.silent.append(attempt)
            del self.silent[:-256]
        if attempt.stream:
            self.streams.append((order, attempt))

    def _newest_silent(self, fact: Fact) -> Attempt | None:
        for attempt in reversed(self.silent):
            latest = attempt.latest_arrival
            if latest is not None and fact.at is not None and fact.at - latest > _ERROR_WINDOW:
                return None
            if not attempt.errors and not attempt.of(Event.CLIENT_DISCONNECTED, Event.REQUEST_REJECTED):
                return attempt
        return None

    def _error(self, order: int, fact: Fact) -> None:
        text = fact.finish_message or ""
        for place, attempt in reversed(self.answered):
            if order - place > _ECHO_WINDOW:
                break
            message = attempt.finish.finish_message if attempt.finish is not None else None
            if message is not None and message.split("\n")[0].strip() == text.split("\n")[0].strip():
                attempt.errors.append(fact)
                return
        for attempt in reversed(self.silent):
            rejected = [*attempt.of(Event.REQUEST_REJECTED), *attempt.forged]
            if any((f.finish_message or "").split("\n")[0].strip() == text.split("\n")[0].strip() for f in rejected):
                attempt.errors.append(fact)
                self._expect(order, attempt)
                return
        if _BEFORE_RECEIVE.match(text):
            self.refused.append((order, None))  # a request that was never received: the status that follows is its
            return
        attempt_ = self._newest_silent(fact)
        if attempt_ is not None:
            attempt_.errors.append(fact)
            self._expect(order, attempt_)

    def _expect(self, order: int, attempt: Attempt) -> None:
        """A status of 400 or more follows an error, unless a stream had begun with 200 already."""
        if not attempt.stream:
            self.refused.append((order, attempt))

    def _exception(self, fact: Fact) -> None:
        attempt = self._newest_silent(fact)
        if attempt is not None and "exception" in fact.detail:
            attempt.errors.append(fact)

    @staticmethod
    def _alone(waiting: deque[tuple[int, Attempt]], order: int) -> bool:
        """Whether the oldest that waits for a response is the only one that can, so that the line is its own."""
        return len(waiting) == 1 and order - waiting[0][0] <= _STATUS_WINDOW

    def _response(self, order: int, fact: Fact) -> None:
        status = int(fact.detail["http_status"])
        while self.refused and order - self.refused[0][0] > _STATUS_WINDOW:
            self.refused.popleft()
        if status >= 400 and self.refused:
            refused = self.refused.popleft()[1]
            if refused is not None and refused.access is None:
                refused.access = fact
            return
        wanted = status if status != 200 else None
        for index, (_, attempt) in enumerate(self.answered):
            ended = attempt.finish.status_code if attempt.finish is not None else None
            if (ended if ended in (400, 500, 503) else None) == wanted:
                attempt.access_alone = self._alone(self.answered, order)
                del self.answered[index]
                attempt.access = fact
                return
        if status == 200 and self.streams:
            alone = self._alone(self.streams, order)
            attempt = self.streams.popleft()[1]
            attempt.access, attempt.access_alone = fact, alone
            return
        silent = self._newest_silent(fact) if status >= 400 else None
        native = str(fact.detail["path"]).startswith("/generate")
        if silent is not None and silent.access is None and not (native and silent.openai is not None):
            silent.access = fact
        else:
            self.left.unclaimed.append((order, fact))
