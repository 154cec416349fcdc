"""A request on a prefill and a decode server: what came first, and whose death it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import LENGTH, answered, changed, decode, prefill, said, stream
from lines import Story, used, write

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.log import read

FAILED = "request rank=0 {req}.rid='r-1' {req}.bootstrap_room=77 with exception KVTransferError(bootstrap_room=77): "
BOOTSTRAP = "Prefill bootstrap failed for " + FAILED.format(req="req")
SENDING = "Prefill transfer failed for " + FAILED.format(req="req")
RECEIVING = "Decode transfer failed for " + FAILED.format(req="decode_req.req")
NEVER_MET = f"{BOOTSTRAP}Request 77 timed out after 300.5s in KVPoll.Bootstrapping"
NOT_SENT = f"{SENDING}Failed to send kv chunk of 77 to 10.0.0.2:40001"
CALLED_OFF = f"{SENDING}Aborted by AbortReq."
NOT_COME = f"{RECEIVING}Request 77 timed out after 300.5s in KVPoll.WaitingForInput"
NOT_GOT = f"{RECEIVING}Failed to get kvcache from prefill instance, it might be dead"
POLLED = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='r-1'"


def server(mode: str, second: int = 0) -> Story:
    args = f"server_args=ServerArgs(model_path='m', port=30000, disaggregation_mode='{mode}')"
    return said(second, args) + said(second + 3, "The server is fired up and ready to roll!")


def of_room(story: Story, room: int = 77) -> Story:
    return changed(story, "stream=False", f"stream=False, bootstrap_room={room}")


def came(second: int = 10) -> Story:
    return of_room(used("r-1", second, second)[:1])


def failed(second: int, text: str, since: int = 10) -> Story:
    """The line that a transfer failed, and the request's Finish with it."""
    reason = f"{{'type': 'abort', 'message': \"{text}\", 'status_code': 500, 'err_type': 'InternalServerError'}}"
    finish = of_room(used("r-1", since, second, reason)[1:])
    return said(second, text) + finish + answered(second, "/generate", "500 Internal Server Error")


def killed(second: int) -> Story:
    died = said(second, "Subprocess scheduler_0 (pid=777) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
    return died + said(second, "SIGQUIT received. signum=None, frame=None. It usually means one child failed.")


def serving(room: int, second: int) -> Story:
    return of_room(used(f"q-{room}", second, second + 1, LENGTH), room)


QUEUES = "#prealloc-req: 1, #transfer-req: 0, #retracted-req: 0, "
BUSY = changed(stream("busy", 9), "stream=True", "stream=True, bootstrap_room=70") + answered(9, "/generate")
FULL = {
    "prefill": server("prefill") + came() + failed(311, NEVER_MET),
    "decode": (
        server("decode") + BUSY + came() + decode(range(12, 330, 40), 1, more=QUEUES)
        + said(334, POLLED) + answered(334, "/generate", "400 Bad Request")
    ),
}  # fmt: skip
ABORTED = {
    "prefill": (
        server("prefill") + came() + prefill(11, 0) + answered(14, "/abort_request") + failed(15, CALLED_OFF)
    ),
    "decode": server("decode") + came() + failed(311, NOT_COME),
}  # fmt: skip
DEAD_DECODE = {
    "prefill": server("prefill") + came() + failed(13, NOT_SENT),
    "decode": server("decode") + came() + killed(12),
}
DEAD_BEFORE_THEY_MET = {
    "prefill": server("prefill") + came() + failed(311, NEVER_MET),
    "decode": server("decode") + came() + killed(12),
}
DEAD_STRANGER = {
    "prefill1": (
        server("prefill") + came(60) + failed(64, NOT_SENT, 60) + serving(66, 66) + serving(70, 70)
    ),
    "prefill2": server("prefill") + of_room(used("z", 5, 5)[:1], 5) + killed(20),
    "decode": server("decode") + came(60) + failed(64, NOT_GOT, 60),
}  # fmt: skip
OWN_FORMER_LIFE = {
    "decode": (
        server("decode") + of_room(used("z", 5, 5)[:1], 5) + killed(20) + server("decode", 25) + came(60)
        + failed(64, NOT_GOT, 60)
    ),
}  # fmt: skip
PEER = frozenset({"pd-peer-lost", "process-killed"})
CASES: dict[str, tuple[dict[str, Story], set[str], set[str], frozenset[str]]] = {
    "a decode server that is full, until its client gives up": (
        FULL, set(), {"client-disconnect"}, frozenset({"pd-bootstrap-failed"})
    ),
    "one that is aborted at the prefill server": (
        ABORTED, set(), {"pd-transfer-failed"}, frozenset({"explicit-abort"})
    ),
    "a decode server that dies before the cache is sent": (DEAD_DECODE, set(), {"pd-transfer-failed"}, PEER),
    "a decode server that dies before the two meet": (DEAD_BEFORE_THEY_MET, set(), {"pd-bootstrap-failed"}, PEER),
    "another prefill server that died": (DEAD_STRANGER, set(PEER), set(), frozenset({"pd-transfer-failed"})),
    "a decode server that died in its former life": (
        OWN_FORMER_LIFE, set(PEER), set(), frozenset({"pd-transfer-failed"})
    ),
}  # fmt: skip


def verdicts(logs: dict[str, Story], folder: Path) -> list[Verdict]:
    """What is said of the request, whichever log is named first."""
    paths = [str(write(folder / f"{name}.log", story)) for name, story in logs.items()]
    return [explain(Incident(read(order), "0.5.23"), "r-1") for order in (paths, paths[::-1])]


@pytest.mark.parametrize("name", CASES)
def test_what_came_first_is_the_cause(name: str, tmp_path: Path) -> None:
    logs, never, unproven, says = CASES[name]
    for verdict in verdicts(logs, tmp_path):
        assert verdict.status == "interrupted"
        assert verdict.cause not in never
        assert verdict.confidence != "proven" or verdict.cause not in unproven
        others = {each.cause for each in verdict.candidates} | {link.cause for link in verdict.chain}
        assert says & {verdict.cause, *others}


@pytest.mark.parametrize("name", CASES)
def test_which_log_is_named_first_does_not_matter(name: str, tmp_path: Path) -> None:
    one, other = verdicts(CASES[name][0], tmp_path)
    assert (one.cause, one.confidence) == (other.cause, other.confidence)


HANDED_OVER = of_room(used("r-1", 10, 12, "{'type': 'length', 'length': 0}"))
RAISED = said(14, "Scheduler hit an exception: Traceback (most recent call last):\n\nRuntimeError: CUDA error")
TOO_LONG = "Input length (9000 tokens) exceeds the maximum allowed length (8187 tokens). Use a shorter input"
SENT: dict[str, tuple[dict[str, Story], str, set[str]]] = {
    "alone": ({"prefill": server("prefill") + HANDED_OVER}, "finished", {"running-timeout", "client-disconnect"}),
    "to a server that raises with one request in it": (
        {"prefill": server("prefill") + HANDED_OVER, "decode": server("decode") + decode([13], 1) + RAISED},
        "not-established",
        {"finished", "scheduler-crash"},
    ),
    "to a server that raises with another in it": (
        {
            "prefill": server("prefill")
            + HANDED_OVER
            + of_room(used("r-2", 10, 13, "{'type': 'length', 'length': 0}"), 78),
            "decode": server("decode") + decode([13], 1) + RAISED,
        },
        "finished",
        {"running-timeout"},
    ),
    "what was refused": (
        {"prefill": server("prefill") + HANDED_OVER[:1] + said(10, f"{TOO_LONG}, self.rid='r-1'") + HANDED_OVER[1:]},
        "input-too-long",
        {"finished"},
    ),
    "with the other side's end": (
        {
            "prefill": server("prefill") + HANDED_OVER,
            "decode": server("decode") + of_room(used("r-1", 10, 20, LENGTH)) + answered(20, "/generate"),
        },
        "finished",
        set(),
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_what_a_prefill_server_has_sent_has_not_ended(name: str, tmp_path: Path) -> None:
    logs, cause, candidates = SENT[name]
    for verdict in verdicts(logs, tmp_path):
        assert verdict.cause == cause
        assert (verdict.confidence == "proven") == (not candidates)
        assert candidates <= {each.cause for each in verdict.candidates}


WAS_CUT = {
    "KVTransferE": {"pd-bootstrap-failed", "client-disconnect", "explicit-abort"},
    "KVTransferError(bootstrap_room=77): Abor": {"pd-bootstrap-failed", "client-disconnect", "explicit-abort"},
    "KVTransferError(bootstrap_room=77): Request 77 timed out after 600.0s in KVPo": {
        "pd-bootstrap-failed",
        "waiting-timeout",
    },
}


@pytest.mark.parametrize("reason", WAS_CUT)
def test_a_reason_that_is_cut_proves_nothing(reason: str, tmp_path: Path) -> None:
    line = BOOTSTRAP.replace("KVTransferError(bootstrap_room=77): ", reason)
    verdict = verdicts({"prefill": server("prefill") + came() + said(20, line)}, tmp_path)[0]
    assert verdict.cause == "not-established"
    assert {each.cause for each in verdict.candidates} == WAS_CUT[reason]


def test_ranks_that_say_otherwise_at_once_prove_nothing(tmp_path: Path) -> None:
    both = (
        said(20, f"{RECEIVING}Request 77 timed out after 300.5s in KVPoll.WaitingForInput", " TP0"),
        said(20, f"{RECEIVING}Aborted by AbortReq.", " TP1"),
    )
    for lines in (both[0] + both[1], both[1] + both[0]):
        verdict = verdicts({"decode": server("decode") + came() + lines}, tmp_path)[0]
        assert verdict.confidence != "proven"
        assert {"waiting-timeout", "explicit-abort"} <= {verdict.cause, *(each.cause for each in verdict.candidates)}


def test_a_failure_that_names_the_room_alone_is_the_requests_of_that_room(tmp_path: Path) -> None:
    line = (
        "Unexpected transfer worker error for room 77\nTraceback (most recent call last):\nRuntimeError: no such buffer"
    )
    verdict = verdicts({"prefill": server("prefill") + came() + said(12, line)}, tmp_path)[0]
    assert verdict.cause == "pd-transfer-failed"


@pytest.mark.parametrize(("second", "cause"), [(12, "pd-transfer-failed"), (40, "not-established")])
def test_an_abort_after_the_other_side_had_failed_only_follows_from_it(second: int, cause: str, tmp_path: Path) -> None:
    logs = {
        "prefill": server("prefill") + said(second, NOT_SENT.replace("'r-1' ", "'of-prefill' ")),
        "decode": server("decode") + came() + said(40, f"{RECEIVING}Aborted by AbortReq."),
    }
    for verdict in verdicts(logs, tmp_path):
        assert verdict.cause == cause
        assert {"explicit-abort", "pd-transfer-failed"} <= {verdict.cause, *(c.cause for c in verdict.candidates)}


def test_a_room_that_two_have_is_nobodys_alone(tmp_path: Path) -> None:
    """A client chooses rooms, and may use one again."""
    line = "Unexpected transfer worker error for room 77\nTraceback (most recent call last):\nRuntimeError: no buffer"
    both = came() + changed(came(11), "'r-1'", "'r-2'")
    verdict = verdicts({"prefill": server("prefill") + both + said(12, line)}, tmp_path)[0]
    assert verdict.cause != "pd-transfer-failed"


def test_what_is_cut_is_not_said_to_be_an_abort(tmp_path: Path) -> None:
    logs = {
        "prefill": server("prefill") + said(12, NOT_SENT.replace("'r-1' ", "'of-prefill' ")),
        "decode": server("decode") + came() + said(40, f"{RECEIVING}Request 77 timed ou"),
    }
    for verdict in verdicts(logs, tmp_path):
        assert verdict.cause == "not-established"
        assert "aborted" not in verdict.summary
        assert {"pd-transfer-failed", "waiting-timeout"} <= {each.cause for each in verdict.candidates}
