"""Lines that a stranger may have written: texts that clients chose and that SGLang prints as they are.

A session id, a rid, an adapter's name or a schema may hold newlines and whole imitations of log lines. The request log
quotes these texts, so their lines are known; a physical line that is one of them is never evidence, whatever stands
around it. What was read before the quote came is tainted after the fact.

The request log leaves out the middle of a long text, and any number of lines with it. Where the words before such a gap
are seen, everything is theirs until the words after it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from sglang_lifecycle.parsers.envelopes.repairs import plain
from sglang_lifecycle.parsers.evidence import Fact
from sglang_lifecycle.parsers.forms import Row
from sglang_lifecycle.parsers.lines import Line

SHORTEST = 8
"""Characters: no shorter line can imitate a record."""

LONG = 1000
"""Characters from which on, as in one with an escape, a text is looked at as one that may hide their lines."""

_GAP = " ... "
HALF = 1_024
"""Characters on each side of a gap: `dataclass_to_string_truncated` with a `max_length` of 2048."""

_GAPS = 8  # texts with a gap that are remembered, the newest
_HIDDEN = 2_000  # lines that a gap may hide at most
_FIRSTS = 64  # first lines of texts that are remembered, the newest

LINES = 20_000
"""Lines of strangers that are remembered, the newest."""

RECENT = 4_096
"""Facts whose lines are remembered, for texts that are quoted only after they were printed."""


class Strangers:
    """The lines of one source that strangers chose."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, None] = OrderedDict()
        self._plain: OrderedDict[str, None] = (
            OrderedDict()
        )  # those that looks may have been taken off, as they are without
        self._marks: set[bytes] = set()  # how lines of them begin, those in ASCII at least
        self._firsts: OrderedDict[str, None] = OrderedDict()  # first lines of a text, which follow SGLang's own words
        self._beginnings: dict[str, list[str]] = {}  # last lines of a text, which SGLang's own words follow
        self._gaps: OrderedDict[tuple[str, str], None] = OrderedDict()  # the words before gaps, and those after
        self._window = ""  # the newest lines, kept while gaps are known
        self._after: str | None = None  # inside a gap: the words that end it
        self._hidden = 0
        self.recent: deque[tuple[bytes, int, Any]] = deque(maxlen=RECENT)
        """The newest lines of facts, with their numbers and what stands for their facts."""

    @property
    def known(self) -> bool:
        """Whether any lines or gaps are known to be theirs."""
        return bool(self._gaps or self._lines)

    @property
    def gapped(self) -> bool:
        """Whether any gaps are known: what a line means then depends on those before it, even on its like."""
        return bool(self._gaps)

    def wrote(self, line: Line) -> bool:
        """Whether the next physical line of the source is one of theirs."""
        return self.known and (self._in_gap(line.text) or self._has(line.text))

    def unwritten(self, bodies: Sequence[bytes], start: int, end: int) -> int:
        """How far from `start` physical lines, which begin in ASCII, are none of theirs."""
        if self._gaps:
            return start
        marks = self._marks
        if marks:
            for index in range(start, end):
                if bodies[index][:SHORTEST] in marks and self._has(bodies[index].decode("utf-8", "replace")):
                    return index
        return end

    @property
    def hiding(self) -> bool:
        """Whether the source is inside a gap: nothing there ends anything."""
        return self._after is not None

    def told(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """The lines that are known to be theirs, and the words around gaps."""
        return tuple(self._lines), tuple(self._gaps)

    def _has(self, line: str) -> bool:
        if not self._lines:
            return False
        line = line.rstrip()
        return self._is_of(line) or (bool(self._plain) and self._is_of(plain(line)))

    def _is_of(self, line: str) -> bool:
        if line in self._lines or line in self._plain:
            return True
        return any(line.startswith(text) for text in self._beginnings.get(line[:SHORTEST], ()))

    def begun(self, line: str) -> bool:
        """Whether a line ends as one of their texts begins that goes on: how its record ends is still to come."""
        line = line.rstrip()
        return any(line.endswith(first) for first in self._firsts)

    def remember(self, line: Line, fact: Fact | Row) -> None:
        """Keep the line of a fact for a while."""
        self.recent.append((line.body, line.number, fact))

    def quote(self, texts: Iterable[str | None], since: int | None = None) -> list[Any]:
        """Take in texts that clients chose.

        `since` is the line from which on SGLang may have printed them already: the facts of later lines that are among
        theirs come back. What stands before cannot be theirs, though they may have copied it.
        """
        news = False
        for text in texts:
            if text and len(text) > 2 * HALF:
                self._gap(text)
            if text and "\n" in text:
                news = self._take(text) or news
        if not news or since is None:
            return []
        later = ((body, fact) for body, number, fact in self.recent if number > since)
        return [fact for body, fact in later if self._has(body.decode("utf-8", "replace"))]

    def _take(self, text: str) -> bool:
        """Take in one text; its first line follows SGLang's own words. Blanks at the end of a line don't count."""
        first, *pieces = [piece.rstrip() for piece in text.split("\n")]
        pieces = [piece for piece in pieces if len(piece) >= SHORTEST]
        if pieces and len(first) >= SHORTEST:
            self._firsts[first] = None
            if len(self._firsts) > _FIRSTS:
                self._firsts.popitem(last=False)
        fresh = [piece for piece in pieces if piece not in self._lines]
        for piece in fresh:
            self._lines[piece] = None
            self._marks.add(piece[:SHORTEST].encode("utf-8", "replace"))
            if (bare := plain(piece)) != piece:
                self._plain[bare] = None
                if len(self._plain) > LINES:
                    self._plain.popitem(last=False)
            if len(self._lines) > LINES:
                self._lines.popitem(last=False)
        for piece in {pieces[-1], plain(pieces[-1])} if pieces else ():
            known = self._beginnings.setdefault(piece[:SHORTEST], [])
            if piece not in known:
                known.append(piece)
                del known[:-64]
        return bool(fresh)

    def _gap(self, text: str) -> None:
        """Take in the words around the gap of a text that the request log has shortened."""
        if text[HALF:-HALF] == _GAP:
            self._gaps[text[:HALF], text[-HALF:]] = None
            if len(self._gaps) > _GAPS:
                self._gaps.popitem(last=False)

    def _in_gap(self, line: str) -> bool:
        """Whether the line has words that a gap hides."""
        if not self._gaps:
            return False
        self._window = f"{self._window}\n{line}"[-4 * HALF - len(line) :]
        if self._after is not None:
            self._hidden += 1
            if self._after in self._window or self._hidden > _HIDDEN:
                self._after, self._window = None, ""
            return True
        for before, after in self._gaps:
            at = self._window.find(before)
            if at >= 0:
                self._window = self._window[at + HALF :]
                if after not in self._window:
                    self._after, self._hidden = after, 0
                    return True
        return False
