"""The table of SGLang's messages (`patterns.toml`) and the lookup in it.

A message is looked up by its first characters, then held whole against one regular expression; a message that nothing
knows costs one dictionary look-up and a few substring tests.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.prefix import BLANKS
from sglang_lifecycle.parsers.versions import RELEASES

_KEY = 4
"""How many characters of a message choose the patterns that are tried; no head is shorter."""

_BLANKS = tuple(BLANKS)


@dataclass(frozen=True, eq=False)
class Pattern:
    """One message of SGLang; the fields are those of `patterns.toml`."""

    id: str
    event: Event
    regex: str
    since: str
    means: str
    until: str = RELEASES[-1]
    head: str = ""
    within: str = ""
    raw: bool = False
    closer: str = ""
    openers: tuple[str, ...] = ()
    open_ended: bool = False
    bare: bool | None = None
    tail: bool = False
    detail: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The whole-message expression."""
        return re.compile(self.regex, re.DOTALL)

    @property
    def may_be_bare(self) -> bool:
        """Whether a line without prefix is read as this."""
        return bool(self.head) if self.bare is None else self.bare

    @cached_property
    def closes(self) -> re.Pattern[str]:
        """What the last line of a record with raw user text ends with."""
        return re.compile(self.closer)


@dataclass(frozen=True, eq=False)
class Message:
    """One text of a finish reason or an API error."""

    id: str
    regex: str
    since: str
    until: str = RELEASES[-1]

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The whole-text expression."""
        return re.compile(self.regex, re.DOTALL)


class Table:
    """All patterns, ready to be looked up."""

    unescaped = Pattern(
        "reqlog.unescaped",
        Event.UNKNOWN,
        "",
        "0.4.1",
        "a request-log record of 0.4.1, which prints prompts as they are",
        until="0.4.1",
        raw=True,
        closer=r", session=(?:None|\(.*\))\)(?:, out=\{.*\})?$",
    )

    def __init__(self, lines: list[Pattern], messages: list[Message]) -> None:
        self.lines = lines
        self.messages = messages
        self._by_key: dict[str, list[Pattern]] = {}
        self._within = [p for p in lines if p.within]
        self._openers: dict[str, list[tuple[str, Pattern]]] = {}
        for pattern in lines:
            if pattern.head:
                self._by_key.setdefault(pattern.head[:_KEY], []).append(pattern)
            if pattern.raw:
                for opener in pattern.openers or (pattern.head,):
                    self._openers.setdefault(opener[:_KEY], []).append((opener, pattern))
        self._bare = tuple(p.within for p in lines if p.bare and p.within)

    def find(self, message: str) -> tuple[Pattern, re.Match[str]] | None:
        """The pattern that the whole of `message` fits, with its match.

        Blanks at its end may be a terminal's; where it fits with them, they are those of a rid or of a session's id.
        """
        return self._find(message) or (self._find(message.rstrip(BLANKS)) if message.endswith(_BLANKS) else None)

    def _find(self, message: str) -> tuple[Pattern, re.Match[str]] | None:
        for pattern in self._by_key.get(message[:_KEY], ()):
            if message.startswith(pattern.head) and (match := pattern.compiled.fullmatch(message)):
                return pattern, match
        for pattern in self._within:
            if pattern.within in message and (match := pattern.compiled.fullmatch(message)):
                return pattern, match
        return None

    def opened_by(self, message: str, found: Pattern | None) -> Pattern | None:
        """The pattern that `message` begins without ending, because raw user text in it holds a newline.

        `found` is what the message fits as it stands; a pattern with a longer beginning goes before it.
        """
        if found is not None and found.raw:
            return None
        best, length = None, len(found.head) if found else 0
        for opener, pattern in self._openers.get(message[:_KEY], ()):
            if len(opener) > length and message.startswith(opener) and not pattern.closes.search(message):
                best, length = pattern, len(opener)
        return best

    def may_be_bare(self, line: str) -> bool:
        """Whether a line without any prefix can be a record of its own: a first, cheap look."""
        key = line[:_KEY]
        return key in self._by_key or key in self._openers or any(text in line for text in self._bare)

    def message(self, text: str) -> tuple[Message, re.Match[str]] | None:
        """The known text of a finish reason or an API error that `text` is."""
        for message in self.messages:
            if match := message.compiled.fullmatch(text):
                return message, match
        return None


@cache
def table() -> Table:
    """The packaged table."""
    data = tomllib.loads((files(__package__) / "patterns.toml").read_text("utf-8"))
    lines = [
        Pattern(**{**row, "event": Event(row["event"]), "openers": tuple(row.get("openers", ()))})
        for row in data["line"]
    ]
    return Table(lines, [Message(**row) for row in data["message"]])
