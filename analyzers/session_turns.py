"""The turns of a session, each where it found its place in the session's tree.

After `session/session_controller.py:Session.create_req` (0.4.2 to 0.5.23): an ordinary session keeps every turn that it
took in, by rid; a streaming one (0.5.10 on) keeps one, and whoever comes next appends to it, whatever it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.behaviours import OPEN_TOLD, TURN_REPLACED_AT_ARRIVAL
from sglang_lifecycle.analyzers.finding import Finding
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.analyzers.texts import ECHOES, REFUSALS
from sglang_lifecycle.parsers.evidence import Event, Fact

KEPT = 0.9
"""A turn whose prompt has less than this share of the tokens that its history has, has lost it."""

_BY_PARENT = frozenset({"session_parent_unknown", "session_parent_invalid", "session_parent_unfinished"})
"""Refusals for the rid that a turn named: a streaming session doesn't look at it."""

_OF_STREAMS = frozenset({"session_mode", "session_busy"})
"""Refusals of streaming sessions."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A history that is not in a turn's prompt. Nothing is logged of it: only the size of the prompt shows it."""

    tokens: int
    due: int
    kept_in: Attempt
    """The nearest turn above that has the history."""
    stub: Attempt | None
    """The turn in between that left a stub in its place, where there is one."""


@dataclass(slots=True)
class Node:
    """A turn and its place."""

    attempt: Attempt
    finding: Finding
    incarnation: int = 0
    """How often the session had been opened before."""
    parent: int | None = None
    """The turn that it was attached to or, refused, tried to be attached to."""
    children: list[int] = field(default_factory=list)
    """Those that no replace has cleared."""
    solid: int | None = None
    """The nearest turn from here up that has a history: itself, unless only a stub of it was kept."""
    replaced_by: str | None = None
    cleared_by: str | None = None
    lost: Lost | None = None

    @property
    def record(self) -> Fact:
        """The line that names its session."""
        records = (self.attempt.received, self.attempt.finish)
        return next(f for f in records if f is not None and f.detail.get("session"))

    @property
    def replaces(self) -> bool:
        """Whether it asked to replace the turn that it names."""
        return bool(self.record.detail.get("replace"))

    @property
    def changes_history(self) -> bool:
        """Whether it asked for another history than the whole one of its parent."""
        return bool(self.record.detail.get("offset") or self.record.detail.get("drop_previous_output"))

    @property
    def refused(self) -> bool:
        """Whether the session itself refused it."""
        return self._said(REFUSALS)

    @property
    def accepted(self) -> bool:
        """Whether the session took it in, as far as the logs tell."""
        unseen = self.attempt.finish is None and self.finding.stage in ("before-scheduler", "never-received")
        return not self.refused and not (unseen and self.finding.status == "interrupted")

    @property
    def stub(self) -> bool:
        """Whether it was refused after it had been taken in: then a prompt of one token stands for it (0.4.9 on)."""
        finish = self.attempt.finish
        return finish is not None and finish.status_code is not None and self.accepted and finish.prompt_tokens == 1

    @property
    def dropped(self) -> bool:
        """Whether it was dropped from a queue: no session ever learns that it has ended."""
        finish = self.attempt.finish
        return finish is not None and finish.finish_shape in ECHOES

    @property
    def of_stream(self) -> bool | None:
        """Whether its session streams, where its own end tells."""
        if self._said(_OF_STREAMS):
            return True
        kept = self.accepted and self.finding.status == "finished" and (self.replaces or self.changes_history)
        return False if kept or self._said(_BY_PARENT) else None

    def ended_before(self, order: int) -> bool:
        """Whether it had ended at a place among the facts."""
        return self.attempt.finish_order is not None and self.attempt.finish_order < order

    def _said(self, texts: frozenset[str]) -> bool:
        finish = self.attempt.finish
        said = [*self.attempt.of(Event.REQUEST_REJECTED), *([finish] if finish is not None else [])]
        return any(fact.message_id in texts for fact in said)


def carries_over(nodes: Sequence[Node]) -> bool:
    """Whether a turn that names no parent has the tokens of the one before in its prompt: only streams do that."""
    before: Node | None = None
    for node in nodes:
        finish = node.attempt.finish
        if node.finding.status != "finished" or finish is None or finish.prompt_tokens is None:
            continue
        own = node.record.detail.get("prompt_ids")
        same = before is not None and before.incarnation == node.incarnation
        if same and before is not None and own is not None and node.attempt.parent_rid is None:
            new = finish.prompt_tokens - (_history(before, node.attempt.order) or 0)
            if finish.prompt_tokens > own and 0 <= new <= own:
                return True
        before = node
    return False


def grow(scene: Scene, nodes: Sequence[Node], streaming: bool) -> None:
    """Give every turn its parent, its state in the tree and, where it lost it, the history that it lacks.

    In 0.5.10 alone a streaming turn takes the place of the one before as it comes in, finished or not
    (`managers/session_controller.py:Session.create_req`).
    """
    at_once = scene.release.has(TURN_REPLACED_AT_ARRIVAL)
    held = _Held(nodes, at_once)
    taken: dict[str, int] = {}
    tried: dict[str, int] = {}
    for index, node in enumerate(nodes):
        if index and node.incarnation != nodes[index - 1].incarnation:  # opened again: of the old turns none is left
            tried |= taken
            taken, held = {}, _Held(nodes, at_once)
        named = node.attempt.parent_rid
        if streaming:
            node.parent = held.by(node)
        elif named is not None:
            node.parent = taken.get(named, tried.get(named))
        if node.parent is not None and node.accepted:
            _attach(scene, nodes, index, streaming)
        node.solid = (nodes[node.parent].solid if node.parent is not None else None) if node.stub else index
        held.take(index)
        (taken if node.accepted else tried)[node.attempt.rid] = index


class _Held:
    """The turn that a streaming session holds.

    0.5.10 forgets the one before as soon as it takes in another, later releases when that has ended well.
    """

    def __init__(self, nodes: Sequence[Node], at_once: bool) -> None:
        self._nodes = nodes
        self._at_once = at_once
        self._newest: int | None = None
        self._well: list[int] = []

    def take(self, index: int) -> None:
        """The turn at `index` has come."""
        node = self._nodes[index]
        if node.accepted:
            self._newest = index
            if node.finding.status == "finished":
                self._well.append(index)

    def by(self, node: Node) -> int | None:
        """The turn that one that comes now appends to; a refused one is shown below the one in its way."""
        if node.refused or self._at_once:
            return self._newest
        ended = (i for i in reversed(self._well) if self._nodes[i].ended_before(node.attempt.order))
        return next(ended, None)


def _attach(scene: Scene, nodes: Sequence[Node], index: int, streaming: bool) -> None:
    node = nodes[index]
    assert node.parent is not None
    above = nodes[node.parent]
    if node.replaces and not streaming:
        above.replaced_by = node.attempt.rid
        _clear(nodes, above, node.attempt.rid)
    above.children.append(index)
    if not (streaming and _maybe_opened_between(scene, above, node)):
        node.lost = _lost(nodes, node, node.parent)


def _clear(nodes: Sequence[Node], above: Node, rid: str) -> None:
    """Mark the branch below a replaced turn. Each turn is cleared once, however many replaces follow."""
    waiting, above.children = above.children, []
    while waiting:
        node = nodes[waiting.pop()]
        node.cleared_by = rid
        waiting += node.children
        node.children = []


def _maybe_opened_between(scene: Scene, above: Node, node: Node) -> bool:
    """Whether the session may have been opened anew between two turns: up to 0.5.10 no line names it.

    Later `session/session_controller.py:SessionController.open` does.
    """
    if scene.release.has(OPEN_TOLD):
        return False
    calls = [c for c in scene.calls if c.kind == "open" and above.attempt.order < c.order < node.attempt.order]
    return bool(calls) or not scene.sees_access


def _lost(nodes: Sequence[Node], node: Node, parent: int) -> Lost | None:
    finish, solid = node.attempt.finish, nodes[parent].solid
    if finish is None or finish.prompt_tokens is None or node.stub or node.changes_history or solid is None:
        return None
    due = _history(nodes[solid], node.attempt.order)
    if due is None or finish.prompt_tokens >= KEPT * due:
        return None
    stub = nodes[parent].attempt if solid != parent else None
    return Lost(finish.prompt_tokens, due, nodes[solid].attempt, stub)


def _history(node: Node, order: int) -> int | None:
    """How many tokens a turn's child has before its own: of a turn that still ran at least those of its prompt."""
    finish = node.attempt.finish
    if finish is None or finish.prompt_tokens is None:
        return None
    return finish.prompt_tokens + ((finish.completion_tokens or 0) if node.ended_before(order) else 0)
