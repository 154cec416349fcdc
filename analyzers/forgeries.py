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


def out_of_form(facts: Sequence[Fact]) -> frozenset[int]:
    """The identities of request-log records that this log's request log does not write.

    Where records have no stamp (0.5.8 to 0.5.11), one with a stamp and with only some of the fields is a text that
    imitates one, of a record whose beginning the log lacks.
    """
    told = [fact for fact in facts if fact.event in _RECORDS and fact.pattern == "reqlog.text" and not fact.tainted]
    bare = [set(fact.detail["fields"]) for fact in told if _bare(fact) and "fields" in fact.detail]
    stamped = [fact for fact in told if fact.at_from == "own"] if bare else []
    kinds = [set(fact.detail["fields"]) for fact in stamped if "fields" in fact.detail]
    odd = bool(kinds) and all(any(kind < whole for whole in bare) for kind in kinds)
    return frozenset(map(id, stamped)) if odd else frozenset()


_RECORDS = frozenset({Event.REQUEST_RECEIVED, Event.REQUEST_FINISHED})


def _bare(fact: Fact) -> bool:
    return fact.event is Event.REQUEST_RECEIVED and fact.at_from in (None, "neighbours")


def _answers(fact: Fact) -> bool:
    return fact.event is Event.HTTP_ACCESS and str(fact.detail.get("path")).startswith(_CALLS)
