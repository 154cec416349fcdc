"""Which API error and which HTTP response belong to which attempt, although neither line carries a rid.

Both are written by the API server right after what they answer, so their place among the records of the same life
tells them apart where requests don't overlap. What is matched here is at best `likely` evidence.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.lives import Life
from sglang_lifecycle.analyzers.texts import OF_GRAMMARS, REFUSALS
from sglang_lifecycle.parsers.evidence import Event, Fact

_GENERATION = re.compile(
    r"/(?:generate|v1/(?:chat/)?completions|v1/messages|v1/responses|encode|v1/embeddings|v1/score|v1/rerank|classify"
    r"|v1/classify|v1/audio/transcriptions|invocations|vertex_generate|api/chat|api/generate)\b"
)
_BEFORE_RECEIVE = re.compile(
    r"Either text, input_ids|At least one of text|[Tt]ext and input_ids|input_ids cannot be empty"
    r"|The (?:specified )?rids? |session_id and session_params|Session params must be|Duplicate request ID"
    r"|routed_dp_rank|Parallel sampling|The parallel_sample_num|The list of|The length of [a-z_]+ should"
    r"|Cannot use list [a-z_]+ with|Every [a-z_]+ should be|lora_path list length|return_flat_raw_"
    r"|(?:Text|[a-z_]+) should be a (?:list|string|single envelope)|[a-z_]+(?:\[\d+\])? must be a list"
    r"|[a-z_]+(?:\[\d+\] has \d+ entries for| has \d+ entries but the batch)"
    r"|priority must be a signed"
)
"""Errors of `normalize_batch_and_arguments` and its like: raised before `Receive` is written (all releases)."""
_NUMBERS = re.compile(
    r"The input \((?P<input>\d{1,18}) tokens\)"
    r"|.*: (?P<prompt>\d{1,18}) tokens from the input messages and (?P<asked>\d{1,18}) tokens for the completion",
    re.DOTALL,
)
"""What the errors about a length tell of the request (`_validate_one_request` and its like, all releases)."""
_ERROR_WINDOW = 10.0  # seconds from `Receive` to a validation error, tokenizing included
_FURTHER = (Event.CLIENT_DISCONNECTED, Event.REQUEST_REJECTED, Event.REQUEST_STATS)
"""What shows that an attempt ended otherwise than by an error of the API server."""
UNREACHED = frozenset({401, 403, 405, 422})
"""Statuses with which a call is turned away before anything is done about it, and before any `Receive`."""
POLL = 3.0
"""Seconds: no connection is looked at sooner (SGLANG_REQUEST_STATE_WAIT_TIMEOUT, 4 s by default)."""

_RIVAL = 2.0  # seconds from an arrival to an error that may be about it, where another came later
_OTHERS = 3  # errors and statuses that are kept of those that may be another's
_STATUS_WINDOW = 40  # facts between an error and the status line of its response
_ECHO_WINDOW = 12  # facts between a `Finish` with status 400 and the line that repeats its text


@dataclass(slots=True)
class Responses:
    """The HTTP responses of a life that no attempt explains: `(place among the facts, line)`."""

    unclaimed: list[tuple[int, Fact]] = field(default_factory=list)


def is_generation(fact: Fact) -> bool:
    """Whether an access line answers a request for text or an embedding."""
    return fact.detail.get("method") == "POST" and _generates(str(fact.detail.get("path")))


@lru_cache(maxsize=256)
def _generates(path: str) -> bool:
    return _GENERATION.match(path) is not None


def assign(life: Life, attempts: list[Attempt]) -> Responses:
    """Give attempts their API errors and HTTP responses; returns what remains."""
    return _Matcher(life, attempts).run()


class _Answered:
    """Attempts that have finished and whose response is still to come, by the status that tells theirs: the newest."""

    def __init__(self) -> None:
        self._by_status: dict[int | None, deque[tuple[int, Attempt]]] = {}
        self._number = 0

    def add(self, order: int, attempt: Attempt) -> None:
        """Take in one, and let go of the oldest where there are too many."""
        ended = attempt.finish.status_code if attempt.finish is not None else None
        waiting = self._by_status.setdefault(ended if ended in _TOLD else None, deque())
        waiting.append((order, attempt))
        self._number += 1
        if self._number > _WAITING:
            self._leave(min((each for each in self._by_status.values() if each), key=lambda each: each[0][0]))

    def _leave(self, waiting: deque[tuple[int, Attempt]]) -> tuple[int, Attempt]:
        self._number -= 1
        return waiting.popleft()

    def take(self, status: int | None) -> tuple[int, Attempt, bool] | None:
        """The oldest of a status, with its place and whether it was the only one of all."""
        waiting = self._by_status.get(status)
        if not waiting:
            return None
        alone = self._number == 1
        return *self._leave(waiting), alone

    def since(self, order: int) -> list[Attempt]:
        """Those that finished at a place or later, the newest first."""
        late = [each for waiting in self._by_status.values() for each in waiting if each[0] >= order]
        return [attempt for _, attempt in sorted(late, key=lambda each: -each[0])]


_TOLD = (400, 500, 503)
_WAITING = 64


class _Matcher:
    def __init__(self, life: Life, attempts: list[Attempt]) -> None:
        self.life = life
        self.at_receive = {id(a.received): a for a in attempts if a.received is not None}
        self.at_finish = {id(a.finish): a for a in attempts if a.finish is not None}
        self.gone = {id(f): a for a in attempts if a.facts for f in a.of(Event.CLIENT_DISCONNECTED)}
        self.silent: list[Attempt] = []  # received, never finished, not yet explained; newest last
        self.answered = _Answered()
        self.streams: deque[tuple[int, Attempt]] = deque(
            maxlen=_WAITING
        )  # received streams, response line still to come
        self.refused: deque[tuple[int, Attempt | None]] = deque(maxlen=16)  # error seen, response line still to come
        self.open: dict[int, Attempt] = {}  # received and not finished, by identity
        self.sampled = False  # whether one of them asked for several samples, each of which counts
        self.line = -1  # where the last batch line stands
        self.inside = -1  # whoever came before this place had reached the scheduler by now
        self.failed: tuple[int, Attempt, Fact] | None = None  # the newest exception, and whom it was laid to
        self.elsewhere = -_ECHO_WINDOW  # where another route last answered with 500
        self.left = Responses()

    def run(self) -> Responses:
        takes: dict[Event, Callable[[int, Fact], None]] = {
            Event.REQUEST_RECEIVED: self._receive,
            Event.REQUEST_FINISHED: self._finish,
            Event.CLIENT_DISCONNECTED: self._disconnected,
            Event.REQUEST_ERROR: self._error,
            Event.HTTP_EXCEPTION: self._exception,
            Event.HTTP_ACCESS: self._response,
            Event.BATCH_PREFILL: self._batch,
            Event.BATCH_DECODE: self._batch,
        }
        for order, fact in self.life.placed():
            take = takes.get(fact.event)
            if take is not None and (not fact.tainted or fact.detail.get("raw")):
                take(order, fact)
        return self.left

    def _finish(self, order: int, fact: Fact) -> None:
        attempt = self.at_finish.get(id(fact))
        if attempt is not None:
            self.open.pop(id(attempt), None)
            if not attempt.stream:
                self.answered.add(order, attempt)

    def _disconnected(self, order: int, fact: Fact) -> None:
        if id(fact) in self.gone:
            self._expect(order, self.gone[id(fact)])

    def _receive(self, order: int, fact: Fact) -> None:
        attempt = self.at_receive.get(id(fact))
        if attempt is None:
            return
        self.open[id(attempt)] = attempt
        self.sampled = self.sampled or (fact.detail.get("n") or 1) > 1
        if attempt.finish is None and (fact.detail.get("n") or 1) == 1:
            self.silent.append(attempt)
            del self.silent[:-256]
        if attempt.stream:
            self.streams.append((order, attempt))

    def _batch(self, order: int, fact: Fact) -> None:
        """Where a batch line counts as many as are open, all of them have reached the scheduler."""
        if fact.running == fact.queued == 0 and not fact.detail.get("elsewhere"):  # who came before the last has gone
            self.open = {key: attempt for key, attempt in self.open.items() if attempt.order > self.line}
        self.line = order
        counted = (fact.running, fact.queued, fact.detail.get("new_seq", 0))
        if not self.sampled and None not in counted and sum(counted) >= len(self.open):
            self.inside = order

    def _newest_silent(self, order: int, fact: Fact, early: bool = True) -> Attempt | None:
        """The newest request that an error or a status without a rid may be about; `early`: before any scheduler.

        Others that it may be about are told so, and so is that one.
        """
        newest: Attempt | None = None
        for attempt in reversed(self.silent):
            latest = attempt.latest_arrival
            if early and attempt.order < self.inside:
                break
            if latest is not None and fact.at is not None and fact.at - latest > _ERROR_WINDOW:
                break
            if attempt.errors or attempt.of(*_FURTHER) or _contradicts(attempt, fact):
                continue
            if not early and attempt.stream and str(fact.detail.get("path")).startswith("/generate"):
                continue  # its 200 was sent when it began
            if newest is None:
                newest = attempt
            elif latest is not None and fact.at is not None and fact.at - latest <= _RIVAL:
                newest.guessed = True
                newest.rivals = [*newest.rivals[-_OTHERS:], attempt]
                attempt.others = [*attempt.others[-_OTHERS:], fact]
        return newest

    def _error(self, order: int, fact: Fact) -> None:
        if fact.rid is not None:
            return
        text = fact.finish_message or ""
        for attempt in self.answered.since(order - _ECHO_WINDOW):
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
        if text.startswith(GONE):  # a line that is cut before it says who
            newest = self._newest_silent(order, fact, early=False)
            if newest is not None:
                newest.others = [*newest.others[-_OTHERS:], fact]
            return
        if _BEFORE_RECEIVE.match(text):
            self.refused.append((order, None))  # a request that was never received: the status that follows is its
            return
        attempt_ = self._newest_silent(order, fact)
        if attempt_ is not None:
            attempt_.errors.append(fact)
            self._expect(order, attempt_)

    def _expect(self, order: int, attempt: Attempt) -> None:
        """A status of 400 or more follows an error, unless a stream had begun with 200 already."""
        if not attempt.stream:
            self.refused.append((order, attempt))

    def _exception(self, order: int, fact: Fact) -> None:
        attempt = self._newest_silent(order, fact) if order - self.elsewhere > _ECHO_WINDOW else None
        if attempt is not None and "exception" in fact.detail:
            attempt.errors.append(fact)
            self.failed = order, attempt, fact

    def _response(self, order: int, fact: Fact) -> None:
        if not is_generation(fact):
            self._other(order, fact)
            return
        status = int(fact.detail["http_status"])
        if status in UNREACHED:
            return
        while self.refused and order - self.refused[0][0] > _STATUS_WINDOW:
            self.refused.popleft()
        if status >= 400 and self.refused:
            refused = self.refused.popleft()[1]
            if refused is not None and refused.access is None:
                refused.access = fact
            return
        answered = self.answered.take(status if status != 200 else None)
        if answered is None and status == 200 and self.streams:
            answered = *self.streams.popleft(), not self.streams
        if answered is not None:
            place, attempt, alone = answered
            attempt.access, attempt.access_alone = fact, alone and order - place <= _STATUS_WINDOW
            return
        native = str(fact.detail["path"]).startswith("/generate")
        bare = native and status == 400  # of a body that is no request: else an error stood before it
        silent = self._newest_silent(order, fact, early=False) if status >= 400 and not bare else None
        if silent is not None and silent.order < self.inside and _quick(silent, fact):
            silent = None  # nobody looks at the connection of who runs that soon
        if silent is not None and silent.access is None and not (native and silent.openai is not None):
            silent.access = fact
            silent.guessed = silent.guessed or not native  # a body that is no request leaves no more than this
        else:
            self.left.unclaimed.append((order, fact))

    def _other(self, order: int, fact: Fact) -> None:
        """Another route's answer: an exception beside its 500 was its own."""
        if fact.detail.get("http_status") != 500:
            return
        self.elsewhere = order
        if self.failed is not None and order - self.failed[0] <= _ECHO_WINDOW:
            _, attempt, exception = self.failed
            attempt.errors.remove(exception)
            self.failed = None


def _quick(attempt: Attempt, fact: Fact) -> bool:
    """Whether a line follows an arrival sooner than any poll of its connection."""
    latest = attempt.latest_arrival
    return latest is not None and fact.at is not None and fact.at - latest < POLL


GONE = "Request is disconnected from the client side"
_ADAPTER = "LoRA adapter"  # what errors about one say (`_validate_and_resolve_lora` and its like, 0.4.9 on)


def _contradicts(attempt: Attempt, fact: Fact) -> bool:
    """Whether an error is not about a request: its numbers, its adapter, a session or a grammar that it lacks."""
    numbers = _NUMBERS.match(fact.finish_message or "")
    record = attempt.received
    if record is not None and fact.message_id in REFUSALS and "session" not in record.detail:
        return True
    if record is not None and fact.message_id in OF_GRAMMARS and record.detail.get("grammar") is False:
        return True
    if record is not None and _ADAPTER in (fact.finish_message or ""):
        adapter = record.detail.get("lora")
        return adapter is None or str(adapter) not in (fact.finish_message or "")
    if numbers is None or record is None or record.detail.get("media"):  # which become tokens as well
        return False
    most, asked = record.detail.get("prompt_ids"), record.detail.get("max_new_tokens")
    longer = most is not None and int(numbers["input"] or numbers["prompt"]) > most
    return longer or (numbers["asked"] is not None and asked is not None and int(numbers["asked"]) != asked)
