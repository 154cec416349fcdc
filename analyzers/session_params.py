"""Step 1 of the debugging order: was the request built by a session, and what did the session do to it?"""

from __future__ import annotations

from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.finding import Cause, Finding
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.parsers.evidence import Fact


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


def ancestors(scene: Scene, attempt: Attempt) -> list[str]:
    """The rids above an attempt in its session's tree, nearest first."""
    turns = {a.rid: a for a in scene.sessions.get(attempt.session_id or "", ())}
    found: list[str] = []
    parent = attempt.parent_rid
    while parent is not None and parent not in found:
        found.append(parent)
        above = turns.get(parent)
        parent = above.parent_rid if above is not None else None
    return found


_APPLIED = 6.0  # seconds within which a running request meets its next result, and with it the abort


def _prompt(newer: Attempt, victim: Attempt) -> bool:
    """Whether the end follows the replace as it must: soon if it ran, at its first token if it waited."""
    if victim.finish is not None and (victim.finish.completion_tokens or 0) <= 1:
        return True
    start, end = newer.received_at, victim.ended_at
    return start is not None and end is not None and end - start <= _APPLIED


def replaced(scene: Scene, attempt: Attempt) -> Finding | None:
    """Cut by a newer request of its session with `replace` (0.4.2 to 0.5.23; session/session_controller.py).

    The one that is named is replaced; what hangs below it is cleared with its branch.
    """
    if attempt.session_id is None or attempt.finish_order is None or attempt.finish is None:
        return None
    above = ancestors(scene, attempt)
    for newer in scene.sessions[attempt.session_id]:
        record = newer.received
        if newer is attempt or record is None or not record.detail.get("replace"):
            continue
        if not attempt.order < newer.order < attempt.finish_order or newer.parent_rid is None:
            continue
        if newer.parent_rid == attempt.rid:
            cause, how = "session-replaced", "replaces it"
        elif newer.parent_rid in above:
            cause, how = "session-branch-cleared", f"replaces {newer.parent_rid!r} above it, which clears its branch"
        else:
            continue
        start, end = newer.received_at, attempt.ended_at
        near = scene.calls_between("abort", (start or 0.0) - 0.5, (end or 0.0) + 1.0) if start and end else []
        finding = Finding(
            cause,
            "likely" if near or not scene.sees_access or not _prompt(newer, attempt) else "proven",
            f"Cut by its own session: {newer.rid!r} {how}.",
            [record, attempt.finish],
        )
        finding.chain.append(Cause(cause, f"{newer.rid!r} arrived with replace", [record], rid=newer.rid))
        if near:
            finding.candidates.append(("explicit-abort", "the caller's log of /abort_request"))
        else:
            finding.ruled_out.append(Cause("explicit-abort", "no abort call stands between the replace and the end"))
        return finding
    return None
