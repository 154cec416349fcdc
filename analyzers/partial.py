"""Whether a few lines of large logs are enough to judge a request, and what else has to be looked for.

A verdict that rests on lines that name the request stands, whatever else the logs hold: all calls, crashes and
sessions are read in any case. One that rests on the place of a line needs those around it, one that rests on the
absence of lines needs them all.
"""

from __future__ import annotations

from collections.abc import Iterable

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.identities import identify
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.strokes import OF_ALL
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.ids import searchable

_ENDS = (
    Event.CLIENT_DISCONNECTED, Event.REQUEST_REJECTED, Event.KV_ABORTED, Event.PD_FAILED, Event.EPD_FAILED,
)  # fmt: skip

_OF_ABSENCE = OF_ALL | {"not-established", "timeout-prefix-collision"}
"""Causes that rest on what is not there: a request that outlived the stroke or was not counted, a line that decides."""

_OF_STROKES = frozenset({"abort-prefix-collision", "explicit-abort"})
"""Causes that rest on who else was hit."""


def related(incident: Incident, texts: Iterable[str]) -> set[str]:
    """The sessions and the other requests on which the fate of those that were asked about may rest."""
    found: set[str | None] = set()
    for rid in _rids(incident, texts):
        if not any(text in rid for text in texts):
            found.add(rid)  # what was asked about is a gateway's id
        for _, attempt in incident.peers(rid):
            found |= {attempt.session_id, attempt.parent_rid}
    return {each for each in found if each and searchable(each)} - set(texts)


def _rids(incident: Incident, texts: Iterable[str]) -> set[str]:
    """The requests that ids stand for: their own, those of which they are the beginning, a gateway's."""
    found: set[str] = set()
    for text in texts:
        other = identify(incident, text)
        found.update(other.rids if other is not None else incident.matches(text))
    return found


def enough(incident: Incident, texts: Iterable[str]) -> bool:
    """Whether every attempt of the requests has an end that a line names, and nothing read speaks against it."""
    rids = _rids(incident, texts)
    told = _told_around if incident.evidence.wide else _named
    if not all(map(searchable, rids)) or not all(told(attempt) for rid in rids for _, attempt in incident.peers(rid)):
        return False
    unsure = _OF_ABSENCE | _OF_STROKES if incident.evidence.narrow else _OF_ABSENCE
    verdicts = [explain(incident, rid) for rid in rids]
    return not any(verdict.contradictions or verdict.cause in unsure for verdict in verdicts)


def cautious(verdict: Verdict) -> Verdict:
    """A verdict for which everything should have been read, and only a part was."""
    missing = [*verdict.missing, "the rest of the logs: they are too large to be held, and only a part was read"]
    sure = "likely" if verdict.confidence == "proven" else verdict.confidence
    return verdict.model_copy(update={"missing": missing, "confidence": sure})


def _named(attempt: Attempt) -> bool:
    return attempt.finish is not None or bool(attempt.of(*_ENDS))


def _told_around(attempt: Attempt) -> bool:
    """Whether a line tells its end, be it by its place."""
    return _named(attempt) or bool(attempt.errors)
