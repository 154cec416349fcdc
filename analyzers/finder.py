"""Requests found without an id: by time, peer, session, status, or what their prompt says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.explain import dated, explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.spans import span
from sglang_lifecycle.analyzers.verdict import Confidence
from sglang_lifecycle.parsers.evidence import Fact

Prompts = Callable[[Fact], Iterable[str]]
"""Reads the texts of a request's prompt."""

SHORTEST_HASH = 8
"""Characters of a hash that say enough."""

_HASHES = ("sha256", "sha1", "md5")


@dataclass(frozen=True, slots=True)
class Query:
    """What is known of the request. Times in UTC epoch seconds; what is None is not asked."""

    at: float | None = None
    within: float = 5.0
    since: float | None = None
    until: float | None = None
    peer: str | None = None
    session: str | None = None
    status: str | None = None
    text: str | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that fits.

    `distance` is how far it is from the time asked about, in seconds: 0 where it was in flight then, negative where it
    had ended before, positive where it came after.
    """

    rid: str
    received: str | None
    received_error_s: float | None
    ended: str | None
    ended_error_s: float | None
    peer: str | None
    session_id: str | None
    server: str
    http_status: int | None
    status: str
    cause: str
    confidence: Confidence
    distance: float | None


def find(incident: Incident, query: Query, prompts: Prompts) -> list[Candidate]:
    """The requests that fit a query: the nearest to its time first, else in the order of their arrival.

    The cheap questions come first: the prompt is read and the verdict asked only of what is left.
    """
    found = []
    for scene in incident.scenes:
        for attempt in scene.attempts:
            if not attempt.synthetic and _fits(scene, attempt, query) and _says(attempt, query, prompts):
                candidate = _candidate(incident, scene, attempt, query)
                if _ended_as(candidate, query.status):
                    found.append(candidate)
    return sorted(found, key=lambda c: (abs(c.distance or 0.0), c.received or c.ended or "", c.rid))


def _span(scene: Scene, attempt: Attempt) -> tuple[float | None, float | None]:
    """From its arrival to its end, or to the end of the log where it has none."""
    start = attempt.received_at if attempt.received_at is not None else attempt.ended_at
    return start, attempt.ended_at if attempt.ended_at is not None else scene.life.end


def _fits(scene: Scene, attempt: Attempt, query: Query) -> bool:
    start, end = _span(scene, attempt)
    bounds = [(query.since, query.until)]
    if query.at is not None:
        bounds.append((query.at - query.within, query.at + query.within))
    for since, until in bounds:
        if (since is not None and (end is None or end < since)) or (
            until is not None and (start is None or start > until)
        ):
            return False
    if query.session is not None and attempt.session_id != query.session:
        return False
    return query.peer is None or _is_of(attempt, query.peer)


def _is_of(attempt: Attempt, peer: str) -> bool:
    """Whether its response went to an address, with or without its port."""
    found = str(attempt.access.detail.get("peer", "")) if attempt.access is not None else ""
    return found == peer or found.rpartition(":")[0].strip("[]") == peer.strip("[]")


def _says(attempt: Attempt, query: Query, prompts: Prompts) -> bool:
    if query.text is None and query.hash is None:
        return True
    texts = _prompts(attempt, prompts)
    if query.hash is None:
        return any(query.text in text for text in texts if query.text is not None)
    wanted = query.hash.lower()
    return any(_hashed(text, wanted) and (query.text is None or query.text in text) for text in texts)


def _prompts(attempt: Attempt, prompts: Prompts) -> Iterator[str]:
    for fact in (attempt.received, attempt.openai, attempt.finish if attempt.received is None else None):
        if fact is not None:
            yield from prompts(fact)


def _hashed(text: str, wanted: str) -> bool:
    data = text.encode("utf-8", "surrogatepass")
    return any(hashlib.new(name, data, usedforsecurity=False).hexdigest().startswith(wanted) for name in _HASHES)


def _distance(scene: Scene, attempt: Attempt, at: float | None) -> float | None:
    start, end = _span(scene, attempt)
    if at is None or start is None or end is None:
        return None
    return round(start - at if at < start else min(end - at, 0.0), 3)


def _candidate(incident: Incident, scene: Scene, attempt: Attempt, query: Query) -> Candidate:
    received, ended = map(dated, span(attempt))
    verdict = explain(incident, attempt.rid, attempt.received_at, attempt.received_at)
    status = attempt.access.detail.get("http_status") if attempt.access is not None else None
    return Candidate(
        rid=attempt.rid,
        received=received[0],
        received_error_s=received[1],
        ended=ended[0],
        ended_error_s=ended[1],
        peer=attempt.access.detail.get("peer") if attempt.access is not None else None,
        session_id=attempt.session_id,
        server=scene.life.server,
        http_status=status if status is not None else verdict.client.http_status,
        status=verdict.status,
        cause=verdict.cause,
        confidence=verdict.confidence,
        distance=_distance(scene, attempt, query.at),
    )


def _ended_as(candidate: Candidate, status: str | None) -> bool:
    """Whether an HTTP status, a verdict's status or a cause is its own."""
    return status is None or status in (str(candidate.http_status), candidate.status, candidate.cause)
