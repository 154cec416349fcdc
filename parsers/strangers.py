"""Lines that a stranger may have written: texts that clients chose and that SGLang prints as they are.

A session id, a rid, an adapter's name or a schema may hold newlines and whole imitations of log lines. The request log
quotes these texts, so their lines are known; a physical line that is one of them is never evidence, whatever stands
around it. What was read before the quote came is tainted after the fact.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from sglang_lifecycle.parsers.evidence import Fact

_SHORTEST = 8  # characters: nothing shorter can imitate a record
_LINES = 20_000  # lines of strangers that are remembered, the newest
_RECENT = 4_096  # facts whose lines are remembered, for texts that are quoted only after they were printed


class Strangers:
    """The lines of one source that strangers chose."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, None] = OrderedDict()
        self._beginnings: dict[str, list[str]] = {}  # last lines of a text, which SGLang's own words follow
        self._recent: OrderedDict[int, tuple[str, Fact]] = OrderedDict()

    def wrote(self, line: str) -> bool:
        """Whether a physical line is one of theirs."""
        if not self._lines:
            return False
        return line in self._lines or any(line.startswith(text) for text in self._beginnings.get(line[:_SHORTEST], ()))

    def remember(self, line: str, fact: Fact) -> None:
        """Keep the line of a fact for a while."""
        self._recent[id(fact)] = (line, fact)
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def quote(self, texts: Iterable[str | None], since: int | None = None) -> None:
        """Take in texts that clients chose.

        `since` is the line from which on SGLang may have printed them already: facts of later lines that are among
        theirs are tainted now. What stands before cannot be theirs, though they may have copied it.
        """
        news = False
        for text in texts:
            if text and "\n" in text:
                news = self._take(text) or news
        if news and since is not None:
            for line, fact in self._recent.values():
                fact.tainted = fact.tainted or (fact.line > since and self.wrote(line))

    def _take(self, text: str) -> bool:
        """Take in one text; its first line follows SGLang's own words and needs no mark."""
        pieces = [piece.removesuffix("\r") for piece in text.split("\n")[1:]]
        pieces = [piece for piece in pieces if len(piece) >= _SHORTEST]
        fresh = [piece for piece in pieces if piece not in self._lines]
        for piece in fresh:
            self._lines[piece] = None
            if len(self._lines) > _LINES:
                self._lines.popitem(last=False)
        if pieces:
            known = self._beginnings.setdefault(pieces[-1][:_SHORTEST], [])
            if pieces[-1] not in known:
                known.append(pieces[-1])
                del known[:-64]
        return bool(fresh)
