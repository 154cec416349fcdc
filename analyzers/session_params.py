"""Step 1 of the debugging order: was the request built by a session, and what did the session do to it?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Cause, Finding
from sglang_lifecycle.analyzers.scene import Scene, group, per_scene
from sglang_lifecycle.analyzers.texts import REFUSALS
from sglang_lifecycle.parsers.evidence import Event, Fact


def describe(attempt: Attempt) -> tuple[str, list[Fact]]:
    """The finding of step 1, and its line."""
    fact = attempt.received or attempt.finish
    if fact is None:
        return "no record of how it was built", []
    if attempt.session_id is None:
        return "an ordinary request: no session_params", []
    detail = fact.detail
    how = "replaces" if detail.get("replace") else "appends to" if attempt.parent_rid else "begins a branch of"
    what = f"{attempt.parent_rid!r} in session" if attempt.parent_rid else "session"
    extras = [
        name if detail[name] is True else f"{name}={detail[name]}"
        for name in ("offset", "drop_previous_output")
        if detail.get(name)
    ]
    return f"built by a session: {how} {what} {attempt.session_id!r}{' with ' + ', '.join(extras) if extras else ''}", [
        fact
    ]


def replacers(scene: Scene, attempt: Attempt, end: int) -> Iterator[tuple[str, Attempt]]:
    """The turns that came before a place to replace an attempt, or one above it, each with the rid that it names.

    Those that name the attempt come first, then those that name what is next above it.
    """
    turns = _replacing(scene).get(attempt.session_id or "", [])
    first = bisect_right(turns, attempt.order, key=lambda turn: turn.order)
    between = turns[first : bisect_left(turns, end, key=lambda turn: turn.order)]
    newer = group((turn for turn in between if turn is not attempt), lambda turn: turn.parent_rid)
    above = chain([attempt.rid], _ancestors(scene, attempt))
    while newer and (named := next(above, None)) is not None:
        yield from ((named, turn) for turn in newer.pop(named, ()))


def _ancestors(scene: Scene, attempt: Attempt) -> Iterator[str]:
    """The rids above an attempt in its session's tree, nearest first."""
    turns = _turns(scene)
    seen: set[str] = set()
    parent = attempt.parent_rid
    while parent is not None and parent not in seen:
        seen.add(parent)
        yield parent
        above = turns.get((attempt.session_id, parent))
        parent = above.parent_rid if above is not None else None


@per_scene
def _turns(scene: Scene) -> dict[tuple[str | None, str], Attempt]:
    """The newest attempt of each rid of each session."""
    return {(a.session_id, a.rid): a for turns in scene.sessions.values() for a in turns}


@per_scene
def _replacing(scene: Scene) -> dict[str, list[Attempt]]:
    """The turns of each session that replace the one that they name, in the order of their arrival."""
    return {session: list(filter(_replaces, turns)) for session, turns in scene.sessions.items()}


def _replaces(turn: Attempt) -> bool:
    return turn.parent_rid is not None and turn.received is not None and bool(turn.received.detail.get("replace"))


_APPLIED = 6.0  # seconds within which a running request meets its next result, and with it the abort


def _prompt(newer: Attempt, victim: Attempt) -> bool:
    """Whether the end follows the replace as it must: soon if it ran, at its first token if it waited."""
    if victim.finish is not None and (victim.finish.completion_tokens or 0) <= 1:
        return True
    start, end = newer.received_at, victim.ended_at
    return start is not None and end is not None and end - start <= _APPLIED


def _refused(turn: Attempt) -> bool:
    """Whether a turn never came into its session: what is refused by it, or before, replaces nothing.

    Length, grammar and media are looked at when the session has taken it in (0.4.2 to 0.5.23).
    """
    said = [fact for fact in (turn.finish, *turn.of(Event.REQUEST_REJECTED)) if fact is not None]
    if any(fact.message_id in REFUSALS for fact in said):
        return True
    if any(fact.event is Event.REQUEST_REJECTED or fact.message_id is not None for fact in said):
        return False
    if turn.of(Event.CLIENT_DISCONNECTED):
        return False  # its status only says that its client had gone
    answered = turn.access.detail.get("http_status") if turn.access is not None and turn.finish is None else None
    ended = turn.finish.status_code if turn.finish is not None else answered
    return bool(turn.errors) or ended == 400


def replaced(scene: Scene, attempt: Attempt) -> Finding | None:
    """Cut by a newer request of its session with `replace` (0.4.2 to 0.5.23; session/session_controller.py).

    The one that is named is replaced; what hangs below it is cleared with its branch.
    """
    if attempt.session_id is None or attempt.finish_order is None or attempt.finish is None or _refused(attempt):
        return None
    for named, newer in replacers(scene, attempt, attempt.finish_order):
        if not _refused(newer):
            return _cut_by(scene, attempt, attempt.finish, newer, named)
    return None


def _cut_by(scene: Scene, attempt: Attempt, finish: Fact, newer: Attempt, named: str) -> Finding:
    """The finding that a newer turn, which names `named`, cut an attempt."""
    if named == attempt.rid:
        cause, how = "session-replaced", "replaces it"
    else:
        cause, how = "session-branch-cleared", f"replaces {named!r} above it, which clears its branch"
    records = [newer.received] if newer.received is not None else []
    start, end = newer.received_at, attempt.ended_at
    near = scene.calls_between("abort", (start or 0.0) - 0.5, (end or 0.0) + 1.0) if start and end else []
    finding = Finding(
        cause,
        "likely" if near or not scene.sees_access or not _prompt(newer, attempt) else "proven",
        f"Cut by its own session: {newer.rid!r} {how}.",
        [*records, finish],
    )
    if (finish.completion_tokens or 0) <= 1 and start and end and end - start > _APPLIED:
        finding.stage = "waiting"  # until it was taken in, and met the abort at its first token
    finding.chain.append(Cause(cause, f"{newer.rid!r} arrived with replace", records, rid=newer.rid))
    engine = scene.engine_causes(end) if end is not None else []
    if engine:  # meanwhile the newer one may have been held back in the API server
        finding.soften(*((name, "whether the newer request was in a batch before the end") for name in engine))
    if near:
        finding.candidates.append(("explicit-abort", "the caller's log of /abort_request"))
    else:
        finding.ruled_out.append(Cause("explicit-abort", "no abort call stands between the replace and the end"))
    return finding
