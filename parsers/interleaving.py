"""The facts of several logs in one order of time, as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import itemgetter

from sglang_lifecycle.parsers.evidence import Fact

_Placed = tuple[float, int, Fact]
_PLACE = itemgetter(0, 1)


class _Stream:
    """The facts of one log that were read and wait for those of others; `newest` is the time that it has reached.

    A fact without a time of its own has that of the newest before it.
    """

    def __init__(self, number: int, parts: Iterable[Sequence[Fact]]) -> None:
        self.newest, self.ended = -inf, False
        self._number, self._parts = number, iter(parts)
        self._waiting: deque[_Placed] = deque()

    def read(self) -> None:
        """Read on."""
        part = next(self._parts, None)
        self.ended = part is None
        for fact in part or ():
            self.newest = max(self.newest, fact.at if fact.at is not None else 0.0)
            self._waiting.append((self.newest, self._number, fact))

    def before(self, moment: float) -> Iterator[_Placed]:
        """Those of an earlier time, which wait no longer."""
        while self._waiting and self._waiting[0][0] < moment:
            yield self._waiting.popleft()


def interleaved(logs: Sequence[Iterable[Sequence[Fact]]]) -> Iterator[list[Fact]]:
    """The facts of logs, which give them in parts, in the order of time; each log's own never out of turn.

    Of facts with the same time those of an earlier log come first.
    """
    streams = [_Stream(number, parts) for number, parts in enumerate(logs)]
    while behind := [each for each in streams if not each.ended]:
        min(behind, key=lambda each: each.newest).read()
        reached = min((each.newest for each in streams if not each.ended), default=inf)
        ready = [placed for each in streams for placed in each.before(reached)]
        if ready:
            ready.sort(key=_PLACE)
            yield [fact for *_, fact in ready]
