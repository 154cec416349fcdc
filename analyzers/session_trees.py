"""Sessions: the life of each, and its tree of requests with what became of every one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from sglang_lifecycle.analyzers import deaths
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import MARK_STAYS, STREAMING_SESSIONS
from sglang_lifecycle.analyzers.catalogue import cause as catalogue_entry
from sglang_lifecycle.analyzers.explain import evidence_line, judge, rounded, times, timestamp, version
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import (
    SessionEvent,
    SessionFinding,
    SessionRow,
    Sessions,
    SessionState,
    SessionTree,
    Turn,
)
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.session_events import Happening, happenings, server_end, streams
from sglang_lifecycle.analyzers.session_turns import Lost, Node, carries_over, grow
from sglang_lifecycle.analyzers.spans import overlaps
from sglang_lifecycle.analyzers.verdict import EvidenceLine
from sglang_lifecycle.parsers.evidence import Fact

Lines = Sequence[tuple[int, Fact]]
"""Facts with their places in the life."""

_GONE: dict[str, SessionState] = {
    "session-closed": "closed",
    "session-reaped": "reaped",
    "session-unknown": "never-opened",
}
"""What a refusal says about a session of which no line tells."""

_TELLING = frozenset({"opened", "reaped", "close-deferred", "closed", "server-ended"})


def ids(incident: Incident) -> list[str]:
    """The ids of all sessions that the logs name, in the order in which they appear."""
    found: dict[str, None] = {}
    for scene in incident.scenes:
        found |= dict.fromkeys([*_facts(scene), *scene.sessions])
    return list(found)


def matches(incident: Incident, text: str) -> list[str]:
    """The session ids that a text names: itself, or all that begin with it."""
    known = ids(incident)
    return [text] if text in known else sorted(id for id in known if text and id.startswith(text))


def sessions(incident: Incident, since: float | None = None, until: float | None = None) -> Sessions:
    """All sessions, those that lived inside `since` to `until` (UTC epoch seconds) where given."""
    found = [s for scene in incident.scenes for s in _sessions(scene) if s.inside(since, until)]
    return Sessions(sessions=[session.row() for session in found])


def trees(incident: Incident, session_id: str) -> list[SessionTree]:
    """A session in full, once for each life of a server that knew it."""
    return [session.tree() for scene in incident.scenes for session in _sessions(scene, session_id)]


def _facts(scene: Scene) -> dict[str, list[tuple[int, Fact]]]:
    """The lines about each session itself; those that may be forged are left out."""
    found: dict[str, list[tuple[int, Fact]]] = {}
    for place, fact in enumerate(scene.life.facts):
        genuine = not fact.tainted or fact.detail.get("raw")
        if genuine and fact.session_id is not None and fact.event.startswith("session."):
            found.setdefault(fact.session_id, []).append((place, fact))
    return found


def _sessions(scene: Scene, only: str | None = None) -> list[_Session]:
    facts = _facts(scene)
    death = deaths.death(scene)
    end = death.order if death is not None else scene.life.size - 1 if scene.life.restarted else None
    names = dict.fromkeys([*facts, *scene.sessions])
    found = [_Session(scene, id, facts.get(id, ()), end) for id in names if only is None or id == only]
    return sorted(found, key=lambda session: session.place)


class _Session:
    """One session in one life of a server."""

    def __init__(self, scene: Scene, session_id: str, facts: Lines, end: int | None) -> None:
        self.scene = scene
        self.id = session_id
        self.happenings = happenings(facts)
        openings = [h.place for h in self.happenings if h.kind == "opened"]
        self.nodes = [
            Node(attempt, judge(scene, attempt), bisect_left(openings, attempt.order))
            for attempt in scene.sessions.get(session_id, ())
        ]
        self.streaming = _streaming(scene, facts, self.nodes)
        grow(scene, self.nodes, bool(self.streaming))
        if end is not None and self.state in ("open", "stuck", "closing"):
            self.happenings.append(server_end(scene, max(end, self.happenings[-1].place if self.happenings else 0)))

    @property
    def newest(self) -> list[Happening]:
        """What happened since it was opened for the last time."""
        newest = [i for i, h in enumerate(self.happenings) if h.kind == "opened"]
        return self.happenings[newest[-1] if newest else 0 :]

    @property
    def place(self) -> int:
        """Where it appears among the facts of the life."""
        return min([h.place for h in self.happenings] + [n.attempt.order for n in self.nodes])

    def inside(self, since: float | None, until: float | None) -> bool:
        """Whether it lived in a window of UTC epoch seconds."""
        times = [h.at for h in self.happenings if h.kind != "server-ended"]
        times += [t for node in self.nodes for t in (node.attempt.received_at, node.attempt.ended_at)]
        known = [t for t in times if t is not None]
        return overlaps(min(known, default=None), max(known, default=None), since, until)

    @property
    def state(self) -> SessionState:
        """What it is where the logs end."""
        kinds = [h.kind for h in self.newest if h.kind in _TELLING]
        if not kinds:
            return self._untold()
        if kinds[-1] == "server-ended":
            return "lost"
        if kinds[-1] == "opened":
            return "stuck" if self._stuck() else "open"
        if kinds[-1] == "closed":
            return "reaped" if "reaped" in kinds else "closed"
        return "closing" if "close-deferred" in kinds else "reaped"

    def _untold(self) -> SessionState:
        """The state of a session of which no line tells (0.3.6 to 0.5.10): what its turns show."""
        if not self.nodes:
            return "unknown"
        last = self.nodes[-1].finding
        if last.cause in _GONE:
            return _GONE[last.cause]
        return "open" if any(node.accepted and node.attempt.finish is not None for node in self.nodes) else "unknown"

    def _stuck(self) -> bool:
        """Whether its next turn will be refused: the last one was dropped from the queue and left its mark.

        `Session._inflight`, which a drop does not clear from 0.5.11 to 0.5.21 (`session/session_controller.py`).
        """
        if not self.nodes or not self.streaming or not self.scene.release.has(MARK_STAYS):
            return False
        return self.nodes[-1].dropped and self.nodes[-1].accepted

    def row(self) -> SessionRow:
        """Its line in a list."""
        times = [t for node in self.nodes if (t := node.attempt.received_at or node.attempt.ended_at) is not None]
        replaced = [node.attempt.received_at for node in self.nodes if node.replaces and node.accepted]
        status = [node.finding.status for node in self.nodes]
        return SessionRow(
            id=self.id,
            server=self.scene.life.server,
            life=self.scene.life.number,
            streaming=self.streaming,
            state=self.state,
            opened=_first(self.happenings, "opened"),
            closed=_first(self.newest, "closed"),
            reaped=_first(self.newest, "reaped"),
            replaced=[when for at in replaced if (when := timestamp(at)) is not None],
            first_turn=timestamp(min(times, default=None)),
            last_turn=timestamp(max(times, default=None)),
            turns=len(self.nodes),
            interrupted=status.count("interrupted"),
            in_flight=status.count("in-flight"),
            context_lost=sum(node.lost is not None for node in self.nodes),
        )

    def tree(self) -> SessionTree:
        """All of it."""
        return SessionTree(
            session=self.row(),
            sglang_version=version(self.scene),
            events=[_event(happening) for happening in self.happenings],
            turns=[_turn(self.scene, node) for node in self.nodes],
        )


def _streaming(scene: Scene, facts: Lines, nodes: Sequence[Node]) -> bool | None:
    """Whether a session streams. No line says so, but much happens to one kind only.

    None streams before 0.5.10 (`managers/session_controller.py`), or without `--enable-streaming-session`.
    """
    if not scene.release.may_have(STREAMING_SESSIONS) or scene.life.args.get("enable_streaming_session") is False:
        return False
    if streams(fact for _, fact in facts):
        return True
    told = next((told for node in nodes if (told := node.of_stream) is not None), None)
    return True if told is None and carries_over(nodes) else told


def _first(happenings: Iterable[Happening], kind: str) -> str | None:
    return next((timestamp(h.at) for h in happenings if h.kind == kind), None)


def _event(happening: Happening) -> SessionEvent:
    return SessionEvent(
        kind=happening.kind,
        place=happening.place,
        at=timestamp(happening.at),
        until=timestamp(happening.until) if happening.told > 1 else None,
        told=happening.told,
        tokens=happening.tokens,
        evidence=_lines(happening.evidence),
    )


def _turn(scene: Scene, node: Node) -> Turn:
    attempt, finding, detail = node.attempt, node.finding, node.record.detail
    offset = detail.get("offset")
    appends = attempt.parent_rid is not None or node.parent is not None
    return Turn(
        rid=attempt.rid,
        place=attempt.order,
        parent=node.parent,
        parent_rid=attempt.parent_rid,
        how="replaces" if node.replaces else "appends" if appends else "begins",
        offset=offset if isinstance(offset, int) and not isinstance(offset, bool) else None,
        drop_previous_output=bool(detail.get("drop_previous_output")),
        accepted=node.accepted,
        replaced_by=node.replaced_by,
        cleared_by=node.cleared_by,
        status=finding.status,
        cause=finding.cause,
        confidence=finding.confidence,
        stage=finding.stage,
        actor=finding.actor or catalogue_entry(finding.cause).actor,
        effects=finding.effects,
        summary=finding.summary,
        latency_s=rounded(attempt.latency),
        times=times(scene, attempt, finding),
        findings=[_finding(attempt, node.lost)] if node.lost is not None else [],
        evidence=_lines(finding.evidence),
    )


def _finding(attempt: Attempt, lost: Lost) -> SessionFinding:
    """What became of a history: proven where a stub is seen to have taken its place."""
    text = f"Its prompt has {lost.tokens:,} tokens, its history up to {lost.kept_in.rid!r} {lost.due:,}"
    lines = [attempt.finish, lost.kept_in.finish]
    if lost.stub is None:
        return SessionFinding(cause="context-lost", confidence="likely", summary=f"{text}.", evidence=_lines(lines))
    text += f": {lost.stub.rid!r}, refused after the session had taken it in, left a stub in its place."
    lines.append(lost.stub.finish)
    return SessionFinding(cause="context-lost", confidence="proven", summary=text, evidence=_lines(lines))


def _lines(facts: Iterable[Fact | None]) -> list[EvidenceLine]:
    return [evidence_line(fact) for fact in facts if fact is not None]
