"""Sessions: the life of each, and its tree of requests with what became of every one.

How a turn finds its place follows `session/session_controller.py:Session.create_req` (0.4.2 to 0.5.23): an ordinary
session keeps every turn it took in, by rid; a streaming one (0.5.10 on) keeps one, and a turn that names another
appends to that one all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sglang_lifecycle.analyzers import deaths, time_stats
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.catalogue import cause as catalogue_entry
from sglang_lifecycle.analyzers.explain import evidence_line, judge, timestamp
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.incident import Incident, Scene
from sglang_lifecycle.analyzers.rid_validity import REFUSALS
from sglang_lifecycle.analyzers.session_events import Happening, happenings, opened_as
from sglang_lifecycle.analyzers.verdict import (
    EvidenceLine,
    SessionEvent,
    SessionFinding,
    SessionRow,
    Sessions,
    SessionTree,
    Times,
    Turn,
    Version,
)
from sglang_lifecycle.parsers.evidence import Event, Fact

KEPT = 0.9
"""A turn whose prompt has less than this share of the tokens that its history should have has lost it."""

_GONE = {"session-closed": "closed", "session-reaped": "reaped", "session-unknown": "never-opened"}
"""What a refusal says about a session of which no line tells."""

_UNORDINARY = frozenset({"session_parent_unknown", "session_parent_invalid", "session_parent_unfinished"})


@dataclass(slots=True)
class _Node:
    """A turn as the tree is built of it."""

    attempt: Attempt
    finding: Finding
    parent: int | None = None
    children: list[int] = field(default_factory=list)
    """Those that no replace has cleared."""
    solid: int | None = None
    """The nearest turn from here up that has a history: itself, unless only a stub of it was kept."""
    replaced_by: str | None = None
    cleared_by: str | None = None
    lost: SessionFinding | None = None

    @property
    def record(self) -> Fact:
        record = self.attempt.received or self.attempt.finish
        assert record is not None  # else it would name no session
        return record

    @property
    def refused(self) -> bool:
        """Whether the session itself refused it."""
        return self._said(REFUSALS)

    def _said(self, texts: frozenset[str]) -> bool:
        finish = self.attempt.finish
        said = [*self.attempt.of(Event.REQUEST_REJECTED), *([finish] if finish is not None else [])]
        return any(fact.message_id in texts for fact in said)

    @property
    def refused_as_ordinary(self) -> bool:
        """Whether it was refused for its parent, which a streaming session never does."""
        return self._said(_UNORDINARY)

    @property
    def accepted(self) -> bool:
        """Whether the session took it in, as far as the logs tell."""
        unseen = self.attempt.finish is None and self.finding.stage in ("before-scheduler", "never-received")
        return not self.refused and not (unseen and self.finding.status == "interrupted")

    @property
    def stub(self) -> bool:
        """Whether it was refused after it had been taken in: then a prompt of one token stands for it."""
        finish = self.attempt.finish
        return finish is not None and finish.status_code is not None and self.accepted and finish.prompt_tokens == 1

    def ended_before(self, order: int) -> bool:
        return self.attempt.finish_order is not None and self.attempt.finish_order < order


class _Session:
    """One session in one life of a server."""

    def __init__(self, scene: Scene, session_id: str, facts: Sequence[tuple[int, Fact]], end: int | None) -> None:
        self.scene = scene
        self.id = session_id
        self.nodes = [_Node(a, judge(scene, a)) for a in scene.sessions.get(session_id, ())]
        self.happenings = happenings(facts, end, scene)
        self.streaming = self._streaming(facts)
        self._grow()

    def _streaming(self, facts: Sequence[tuple[int, Fact]]) -> bool | None:
        """Whether it streams: no line says so, but much of what happens happens to one kind only."""
        if self.scene.release.within("0.3.6", "0.5.9") or self.scene.life.args.get("enable_streaming_session") is False:
            return False
        told = opened_as(fact for _, fact in facts)
        if told is not None:
            return told
        for node in self.nodes:
            if node.attempt.finish is not None and node.attempt.finish.message_id in ("session_mode", "session_busy"):
                return True
            changes = any(node.record.detail.get(n) for n in ("replace", "offset", "drop_previous_output"))
            if node.refused_as_ordinary or (changes and node.accepted and node.finding.status == "finished"):
                return False
        return True if self._carries_over() else None

    def _carries_over(self) -> bool:
        """Whether a turn that names no parent has the tokens of the turn before it in its prompt all the same."""
        before: Fact | None = None
        for node in self.nodes:
            finish = node.attempt.finish
            if node.finding.status != "finished" or finish is None or finish.prompt_tokens is None:
                continue
            own = node.record.detail.get("prompt_ids")
            if before is not None and own is not None and node.attempt.parent_rid is None:
                new = finish.prompt_tokens - (before.prompt_tokens or 0) - (before.completion_tokens or 0)
                if finish.prompt_tokens > own and 0 <= new <= own:
                    return True
            before = finish
        return False

    def _grow(self) -> None:
        taken: dict[str, int] = {}
        tried: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            named = node.attempt.parent_rid
            if self.streaming:
                node.parent = self._newest(index)
            elif named is not None:
                node.parent = taken.get(named, tried.get(named))
            if node.parent is not None:
                self._attach(index, node, node.parent)
            node.solid = (self.nodes[node.parent].solid if node.parent is not None else None) if node.stub else index
            (taken if node.accepted else tried)[node.attempt.rid] = index

    def _newest(self, index: int) -> int | None:
        """The turn that a streaming session has when the one at `index` comes.

        0.5.10 forgets the one before as soon as it takes in another; later releases when that has ended well. A
        refused turn is shown where it met the one in its way.
        """
        refused, order = self.nodes[index].refused, self.nodes[index].attempt.order
        for place in range(index - 1, -1, -1):
            node = self.nodes[place]
            ended_well = node.finding.status == "finished" and node.ended_before(order)
            if node.accepted and (refused or ended_well or self.scene.release.within("0.5.10", "0.5.10")):
                return place
        return None

    def _attach(self, index: int, node: _Node, parent: int) -> None:
        above = self.nodes[parent]
        if node.record.detail.get("replace") and node.accepted and not self.streaming:
            above.replaced_by = node.attempt.rid
            self._clear(above, node.attempt.rid)
        if node.accepted:
            above.children.append(index)
            node.lost = self._lost(node, parent)

    def _clear(self, above: _Node, rid: str) -> None:
        """Mark the branch below a replaced turn: each turn is cleared once, however many replaces follow."""
        waiting, above.children = above.children, []
        while waiting:
            node = self.nodes[waiting.pop()]
            node.cleared_by = rid
            waiting += node.children
            node.children = []

    def _lost(self, node: _Node, parent: int) -> SessionFinding | None:
        """Whether a turn ran without its history: nothing is logged, only the size of its prompt shows it."""
        finish, solid = node.attempt.finish, self.nodes[parent].solid
        changes = node.record.detail.get("offset") or node.record.detail.get("drop_previous_output")
        if finish is None or finish.prompt_tokens is None or node.stub or changes or solid is None:
            return None
        above = self.nodes[solid]
        known = above.attempt.finish
        if known is None or known.prompt_tokens is None:
            return None
        due = known.prompt_tokens
        if above.ended_before(node.attempt.order):
            due += known.completion_tokens or 0
        if finish.prompt_tokens >= KEPT * due:
            return None
        text = f"It ran on a prompt of {finish.prompt_tokens:,} tokens, though its history up to {above.attempt.rid!r}"
        text += f" has {due:,}"
        lines = [finish, known]
        if solid == parent:
            return SessionFinding(cause="context-lost", confidence="likely", summary=text + ".", evidence=_lines(lines))
        stub = self.nodes[parent].attempt
        text += f": {stub.rid!r} was refused after the session had taken it in, which leaves a stub without a history."
        return SessionFinding(
            cause="context-lost", confidence="proven", summary=text, evidence=_lines([*lines, stub.finish])
        )

    @cached_property
    def state(self) -> str:
        """What it is at the end of the life."""
        told = next((h.kind for h in reversed(self.happenings) if h.kind in _STATES), None)
        if told == "server-ended":
            return "lost"
        reaped = any(h.kind == "reaped" for h in self.happenings[self._opening :])
        if told == "closed":
            return "reaped" if reaped else "closed"
        if told == "reaped":
            return "closing" if any(h.kind == "close-deferred" for h in self.happenings[self._opening :]) else "reaped"
        if told == "close-deferred":
            return "closing"
        last = self.nodes[-1].finding if self.nodes else None
        if told is None and last is not None and last.cause in _GONE:
            return _GONE[last.cause]
        if last is not None and "session-stuck" in last.effects and last.cause != "session-stuck":
            return "stuck"
        served = any(node.accepted and node.attempt.finish is not None for node in self.nodes)
        return "open" if told == "opened" or served else "unknown"

    @property
    def _opening(self) -> int:
        """Where the newest incarnation begins among the happenings: an id may be opened again."""
        openings = [i for i, h in enumerate(self.happenings) if h.kind == "opened"]
        return openings[-1] if openings else 0

    def row(self) -> SessionRow:
        """Its line in a list."""
        own = self.happenings[self._opening :]
        times = [t for node in self.nodes if (t := node.attempt.received_at or node.attempt.ended_at) is not None]
        return SessionRow(
            id=self.id,
            server=self.scene.life.server,
            life=self.scene.life.number,
            streaming=self.streaming,
            state=self.state,  # type: ignore[arg-type]
            opened=next((timestamp(h.at) for h in self.happenings if h.kind == "opened"), None),
            closed=next((timestamp(h.at) for h in own if h.kind == "closed"), None),
            reaped=next((timestamp(h.at) for h in own if h.kind == "reaped"), None),
            replaced=[
                when
                for node in self.nodes
                if node.record.detail.get("replace") and node.accepted and (when := timestamp(node.attempt.received_at))
            ],
            first_turn=timestamp(min(times, default=None)),
            last_turn=timestamp(max(times, default=None)),
            turns=len(self.nodes),
            interrupted=sum(node.finding.status == "interrupted" for node in self.nodes),
            in_flight=sum(node.finding.status == "in-flight" for node in self.nodes),
            context_lost=sum(node.lost is not None for node in self.nodes),
        )

    def tree(self) -> SessionTree:
        """All of it."""
        release = self.scene.release
        version = Version(value=release.text, source="told" if release.told else "fingerprint")
        return SessionTree(
            session=self.row(),
            sglang_version=version if release.text is not None else Version(),
            events=[_event(happening) for happening in self.happenings],
            turns=[self._turn(node) for node in self.nodes],
        )

    def _turn(self, node: _Node) -> Turn:
        attempt, finding, detail = node.attempt, node.finding, node.record.detail
        offset = detail.get("offset")
        appends = attempt.parent_rid is not None or node.parent is not None
        waited, ran = time_stats.durations(self.scene, attempt)
        return Turn(
            rid=attempt.rid,
            place=attempt.order,
            parent=node.parent,
            parent_rid=attempt.parent_rid,
            how="replaces" if detail.get("replace") else "appends" if appends else "begins",
            offset=offset if isinstance(offset, int) and not isinstance(offset, bool) else None,
            drop_previous_output=bool(detail.get("drop_previous_output")),
            accepted=node.accepted,
            replaced_by=node.replaced_by,
            cleared_by=node.cleared_by,
            status=finding.status,  # type: ignore[arg-type]
            cause=finding.cause,
            confidence=finding.confidence,
            stage=finding.stage,
            actor=finding.actor or catalogue_entry(finding.cause).actor,
            effects=finding.effects,
            summary=finding.summary,
            times=Times(
                received=timestamp(attempt.received_at),
                ended=timestamp(_end(attempt, finding)),
                waited_s=None if waited is None else round(waited, 3),
                ran_s=None if ran is None else round(ran, 3),
                prompt_tokens=attempt.finish.prompt_tokens if attempt.finish is not None else None,
                completion_tokens=attempt.completion_tokens,
            ),
            findings=[node.lost] if node.lost is not None else [],
            evidence=_lines(finding.evidence),
        )


_STATES = frozenset({"opened", "reaped", "close-deferred", "closed", "server-ended"})


def _end(attempt: Attempt, finding: Finding) -> float | None:
    """When it ended: its `Finish`, else the last line that shows its end."""
    if attempt.ended_at is not None or finding.status == "in-flight":
        return attempt.ended_at
    shown = [f.at for f in finding.evidence if f is not attempt.received and f.at is not None]
    return shown[-1] if shown else None


def _lines(facts: Iterable[Fact | None]) -> list[EvidenceLine]:
    return [evidence_line(fact) for fact in facts if fact is not None]


def _event(happening: Happening) -> SessionEvent:
    return SessionEvent(
        kind=happening.kind,  # type: ignore[arg-type]
        place=happening.place,
        at=timestamp(happening.at),
        until=timestamp(happening.until) if happening.told > 1 else None,
        told=happening.told,
        tokens=happening.tokens,
        evidence=_lines(happening.evidence),
    )


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
    found = [s for scene in incident.scenes for s in _sessions(scene) if _inside(s, since, until)]
    return Sessions(sessions=[session.row() for session in found])


def trees(incident: Incident, session_id: str) -> list[SessionTree]:
    """A session in full, once for each life of a server that knew it."""
    return [session.tree() for scene in incident.scenes for session in _sessions(scene, session_id)]


def _facts(scene: Scene) -> dict[str, list[tuple[int, Fact]]]:
    """The lines about each session itself, with their places; forged ones are left out."""
    found: dict[str, list[tuple[int, Fact]]] = {}
    for place, fact in enumerate(scene.life.facts):
        about = fact.session_id is not None and fact.event.startswith("session.")
        if about and (not fact.tainted or fact.detail.get("raw")):
            found.setdefault(fact.session_id or "", []).append((place, fact))
    return found


def _sessions(scene: Scene, only: str | None = None) -> list[_Session]:
    facts = _facts(scene)
    end = deaths.death(scene)
    last = end.order if end is not None else len(scene.life.facts) - 1 if scene.life.restarted else None
    names = dict.fromkeys([*facts, *scene.sessions])
    found = [_Session(scene, id, facts.get(id, ()), last) for id in names if only is None or id == only]
    found.sort(key=lambda s: min([h.place for h in s.happenings] + [n.attempt.order for n in s.nodes], default=0))
    return found


def _inside(session: _Session, since: float | None, until: float | None) -> bool:
    times = [h.at for h in session.happenings if h.kind != "server-ended"]
    times += [t for node in session.nodes for t in (node.attempt.received_at, node.attempt.ended_at)]
    known = [t for t in times if t is not None]
    return not known or not ((since is not None and max(known) < since) or (until is not None and min(known) > until))
