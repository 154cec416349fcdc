"""Lines that a stranger may have written although nothing around them says so.

A session id of `/open_session` or `/close_session` stands in no request log, and the scheduler prints it as it is. One
that holds newlines may imitate whole lines: what stands then between its first line and its last looks genuine. But a
call has one answer, and such an id looks like several calls, of which fewer are answered than were made.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_lifecycle.parsers.evidence import Event, Fact

SAID = frozenset({Event.SESSION_OPENED, Event.SESSION_OPEN_REFUSED, Event.SESSION_CLOSE_UNKNOWN})
"""What a scheduler, or each of several, writes of a call that names a session (0.4.2 to 0.5.23)."""

_CALLS = ("/open_session", "/close_session")


def suspects(facts: Sequence[Fact]) -> frozenset[int]:
    """The identities of facts that lie between lines of two calls, of which at least one is never answered.

    Calls that overlap are answered later, several ranks say the same of one, and where no answers are logged none is
    missed: nothing of that is suspicious.
    """
    if not any(map(_answers, facts)):
        return frozenset()
    open_ = 0  # calls without an answer
    ids: set[str | None] = set()  # the sessions that they name
    last: int | None = None  # where the newest of them stands, if no answer came since
    found: set[int] = set()
    for place, fact in enumerate(facts):
        if fact.event in SAID and fact.session_id not in ids:
            if open_ and last is not None:
                found.update(id(between) for between in facts[last + 1 : place])
            open_, last = open_ + 1, place
            ids.add(fact.session_id)
        elif _answers(fact):
            open_, last = max(0, open_ - 1), None
            if not open_:
                ids.clear()
                found.clear()
    return frozenset(found)


def _answers(fact: Fact) -> bool:
    return fact.event is Event.HTTP_ACCESS and str(fact.detail.get("path")).startswith(_CALLS)
