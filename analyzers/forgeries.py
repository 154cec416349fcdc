"""Lines that a stranger may have written although nothing around them says so.

A session id of `/open_session` or `/close_session` stands in no request log, and the scheduler prints it as it is. One
that holds newlines may imitate whole lines: what stands then between its first line and its last looks genuine. But
one call is answered by one access line, and such an id seems to be several calls'.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sglang_lifecycle.parsers.evidence import Event, Fact

SAID = frozenset({Event.SESSION_OPENED, Event.SESSION_OPEN_REFUSED, Event.SESSION_CLOSE_UNKNOWN})
"""What a scheduler writes of a call that names a session (0.5.10 to 0.5.23); each has an answer."""

_CALLS = ("/open_session", "/close_session")


def suspects(facts: Sequence[Fact]) -> frozenset[int]:
    """The identities of facts that lie between lines of calls of which fewer were answered than were written."""
    called = [(place, fact.event in SAID) for place, fact in enumerate(facts) if fact.event in SAID or _answer(fact)]
    found: set[int] = set()
    said: list[int] = []
    for written, group in groupby(called, key=lambda each: each[1]):
        places = [place for place, _ in group]
        if written:
            said = places
        elif said and len(places) < len(said):
            found.update(id(fact) for fact in facts[said[0] + 1 : said[-1]])
    return frozenset(found)


def _answer(fact: Fact) -> bool:
    return fact.event is Event.HTTP_ACCESS and str(fact.detail.get("path")).startswith(_CALLS)
