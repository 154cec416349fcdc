"""Sessions: what a session id says that is no line of the log, and what ended a turn besides its session."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, Case, answered, decode, hold, prefill, refused, said, turn
from lines import ABORTED, Story, clock, used, write

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

LEFT = frozenset({"client-disconnect"})
REAPED = frozenset({"session-reaped"})
REPLACED = frozenset({"session-replaced"})
AT = f"[{clock(25)}] "
GONE = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='r'"
FULL = "{'type': 'abort', 'status_code': 503, 'message': 'The request queue is full.'}"
UNKNOWN = "session id {session} does not exist"
IN_QUEUE = "{'type': 'abort', 'message': 'Abort in waiting queue'}"
BUSY = "Streaming session already has an active request."


def raw(second: int, path: str, *lines: str) -> Story:
    """What a call with a session id of several lines leaves: the scheduler writes it as it is."""
    return said(second, f"\n[{clock(second)}] ".join(lines)) + answered(second, path)


def runs(story: Story, end: int | None = None) -> Story:
    """A request during whose run a stranger calls, and its end if it has one."""
    lines = used("r", 12, 12 if end is None else end, LENGTH)
    return (
        lines[:1] + prefill(12, 0) + decode([20], 1) + story + decode([26, 32], 1) + (lines[1:] if end else [])
    )  # fmt: skip


CLOSE = UNKNOWN + ", cannot delete."
CLOSING = runs(raw(25, "/close_session", CLOSE.format(session="a"), GONE, CLOSE.format(session="b")))
OPENING = runs(raw(25, "/open_session", "Session opened: a (active=1)", GONE, "Session opened: b (active=1)"))
FINISHING = runs(
    raw(25, "/close_session", CLOSE.format(session="a"), used("r", 12, 25, FULL)[1][1].removeprefix(AT),
        CLOSE.format(session="b")),
    40,
)  # fmt: skip

INNER = (
    f"x does not exist, self.rid='h-0'\n{AT}Session V timed out, closing.\n{AT}Session closed: V (active=0)\n"
    f"{AT}Invalid request: session id y"
)
NO_V = refused("Invalid request: session id V does not exist")
V_BEFORE, V_AFTER = turn("v-1", 10, 11, LENGTH, "{'id': 'V'}"), turn("v-2", 29, 29, NO_V, "{'id': 'V'}")
STRANGER = turn("h-1", 25, 25, refused(f"Invalid request: session id {INNER} does not exist".replace("\n", "\\n")),
                f"{{'id': {INNER!r}}}")  # fmt: skip


def imitated(request_log: bool) -> Story:
    """A session that is closed, and a stranger's session id that imitates its expiry."""
    heard = [V_BEFORE, STRANGER[:1], STRANGER[1:], V_AFTER[:1], V_AFTER[1:]]
    before, received, finished, came, ended = heard if request_log else [[] for _ in heard]
    return (
        said(1, "Session opened: V (active=1)") + answered(1, "/open_session") + before + prefill(10, 0)
        + answered(11, "/generate") + answered(20, "/close_session") + said(20, "Session closed: V (active=0)")
        + received + said(25, f"Invalid request: session id {INNER} does not exist, self.rid='h-1'") + finished
        + said(25, f"[http_server] Error: Invalid request: session id {INNER} does not exist")
        + answered(25, "/generate", "400 Bad Request") + came
        + said(29, "Invalid request: session id V does not exist, self.rid='v-2'") + ended
        + said(29, "[http_server] Error: Invalid request: session id V does not exist")
        + answered(29, "/generate", "400 Bad Request")
    )  # fmt: skip


REPLACER = turn("s-2", 5, 44, LENGTH, "{'id': 'S', 'rid': 's-1', 'replace': True}")
REPLACED_TURN = turn("s-1", 0, 5, ABORTED)
CUT_TURN = REPLACED_TURN[:1] + prefill(0, 0) + decode([2], 1)
SERVED_LATE = prefill(40, 0) + REPLACER[1:] + answered(44, "/generate")
PAUSED = (
    CUT_TURN + REPLACER[:1] + REPLACED_TURN[1:] + answered(5, "/generate") + answered(6, "/pause_generation")
    + answered(40, "/continue_generation") + SERVED_LATE
)  # fmt: skip
UPDATED = (
    CUT_TURN + said(5, "Start update_weights. Load format=auto") + REPLACER[:1] + REPLACED_TURN[1:]
    + answered(5, "/generate") + answered(40, "/update_weights_from_disk") + SERVED_LATE
)  # fmt: skip
DROPPED, HELD = turn("q-1", 10, 30, IN_QUEUE), turn("q-2", 15, 48, refused(BUSY))
STUCK = (
    said(0, "Session opened: S (active=1)") + answered(0, "/open_session") + turn("q-0", 2, 3, LENGTH)
    + used("bg", 7, 7)[:1] + prefill(7, 0) + DROPPED[:1] + decode([11], 1, 1) + answered(12, "/pause_generation")
    + HELD[:1] + answered(30, "/abort_request") + DROPPED[1:] + answered(30, "/generate")
    + answered(40, "/continue_generation") + said(40, f"{BUSY}, self.rid='q-2'") + decode([41], 1, 1)
    + used("bg", 7, 48, LENGTH)[1:] + HELD[1:] + turn("q-3", 50, 51, LENGTH)
)  # fmt: skip
LATER = turn("c-2", 145, 145, refused("Invalid request: session id S does not exist"))
REOPENED = (
    answered(0, "/open_session") + turn("c-1", 5, 6, LENGTH) + said(67, "Session S timed out, closing.")
    + answered(105, "/open_session") + answered(135, "/close_session") + LATER[:1]
    + said(145, "Invalid request: session id S does not exist, self.rid='c-2'") + LATER[1:]
)  # fmt: skip
HELD = (  # `v` waits, is replaced, and is let in 89 seconds later; its Finish is not written
    used("run", 0, 100, LENGTH) + prefill(0, 0) + turn("v", 10, 10)[:1]
    + turn("n", 12, 108, of="{'id': 'S', 'rid': 'v', 'replace': True}") + decode(range(14, 100, 8), 1, 2)
    + prefill(101, 0, 1) + prefill(101, 1) + decode([104], 1)
)  # fmt: skip
REPLACER_LEFT = (
    CUT_TURN + REPLACER[:1] + REPLACED_TURN[1:] + answered(5, "/generate") + decode([8], 1)
    + said(12, GONE.replace("'r'", "'s-2'")) + answered(12, "/generate", "400 Bad Request")
)  # fmt: skip
ALL_AT_ONCE = (
    CUT_TURN + used("x", 1, 6, ABORTED)[:1] + prefill(1, 1) + decode([3], 2) + answered(4, "/abort_request")
    + REPLACER[:1] + REPLACED_TURN[1:] + used("x", 1, 5, ABORTED)[1:] + answered(5, "/generate")
    + answered(5, "/generate") + SERVED_LATE
)  # fmt: skip
LATE_START = (  # `late` was refused a minute ago, before the log begins; `q-5` came only then
    turn("q-5", 70, 80, LENGTH)[:1] + turn("late", 10, 71, refused(BUSY))[1:]
    + answered(71, "/generate", "400 Bad Request") + turn("q-5", 70, 80, LENGTH)[1:] + answered(80, "/generate")
)  # fmt: skip
NEVER_IN_IT = (  # `r-2` was refused, so that no replace reaches it; the line of the call that ended it is lost
    turn("r-1", 0, 9, LENGTH) + prefill(0, 0) + turn("r-2", 2, 2, of="{'id': 'S', 'rid': 'r-1'}")[:1]
    + said(2, "Invalid request session id, self.rid='r-2'")
    + turn("r-3", 3, 12, LENGTH, "{'id': 'S', 'rid': 'r-1', 'replace': True}")
    + turn("r-2", 2, 5, IN_QUEUE, "{'id': 'S', 'rid': 'r-1'}")[1:] + answered(5, "/generate")
)  # fmt: skip
USED_TWICE = (  # the end of `q-1`, and the record of its next use, are lost
    turn("q-0", 0, 1, LENGTH) + turn("q-1", 2, 60, LENGTH)[:1] + prefill(2, 0)
    + turn("q-2", 20, 21, refused(BUSY)) + said(20, f"{BUSY}, self.rid='q-2'") + answered(21, "/generate")
    + turn("q-1", 55, 60, LENGTH)[1:] + answered(60, "/generate")
)  # fmt: skip
CASES = {
    "a turn that was refused between two uses of a rid of which half is lost": Case(
        USED_TWICE, "q-2", unproven={"session-busy"}, says="session-stuck", version="0.5.18"
    ),
    "a turn whose replacement's client left": Case(
        REPLACER_LEFT, "s-1", {"explicit-abort", "not-established"}, says="session-replaced"
    ),
    "a turn that was replaced while all was aborted": Case(ALL_AT_ONCE, "s-1", says="abort-all"),
    "a turn that was refused before the log begins": Case(
        LATE_START, "late", unproven={"session-busy"}, says="session-stuck", version="0.5.18"
    ),
    "a turn that its session had refused before a replace": Case(
        NEVER_IN_IT, "r-2", {"session-branch-cleared", "session-replaced"}, says="explicit-abort", version="0.5.8"
    ),
    "one that waited long after it was replaced": Case(HELD, "v", unproven=LEFT, says="session-replaced"),
    "a call that closes a session whose id looks like a disconnect": Case(
        CLOSING, "r", unproven=LEFT, says="in-flight"
    ),
    "the same in an earlier release": Case(CLOSING, "r", unproven=LEFT, says="in-flight", version="0.5.10"),
    "a call that opens a session whose id looks like a disconnect": Case(
        OPENING, "r", unproven=LEFT, says="in-flight"
    ),
    "a call that closes a session whose id looks like a Finish": Case(
        FINISHING, "r", {"queue-full"}, says="finished"
    ),
    "a session id that looks like another session's expiry": Case(
        imitated(True), "v-2", REAPED, says="session-closed"
    ),
    "a session id that looks like another's expiry, without the request log": Case(
        imitated(False), "v-2", unproven=REAPED, says="session-closed"
    ),
    "a turn whose replacement came while the server was paused": Case(
        PAUSED, "s-1", unproven=REPLACED, says="pause-abort"
    ),
    "a turn whose replacement waits until the weights are updated": Case(
        UPDATED, "s-1", unproven=REPLACED, says="weight-update-abort"
    ),
    "a turn that is refused long after the one before was dropped": Case(
        STUCK, "q-2", unproven={"session-busy"}, says="session-stuck", version="0.5.18"
    ),
    "a session that expired, was opened again and closed without a turn": Case(
        REOPENED, "c-2", unproven=REAPED, says="session-closed", version="0.5.10"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_so_is_not_said(name: str, tmp_path: Path) -> None:
    hold(CASES[name], tmp_path)


def test_a_request_that_only_a_session_id_names_is_none(tmp_path: Path) -> None:
    log = write(tmp_path / "server.log", imitated(True))
    rids = {row.rid for row in audit(Incident(read([str(log)]), "0.5.23")).requests}
    assert "h-0" not in rids
