"""Requests of disaggregated servers, whose transfer failed."""

from __future__ import annotations

import wordings
from renderer import Server
from stories import LIKELY, UNDECIDED, Ending, another, story


# --- disaggregation: the prefill side ---------------------------------------------------------------------------------
def transfer(s: Server, what: str, reason: str | None, rid: str = "r-1", room: int = 77) -> None:
    """A failure of the disaggregated code: every rank's line, then the `Finish`."""
    text = wordings.transfer_error(s.release, what, rid, room, reason)
    s.every_rank(text)
    s.failed(rid, text, 500, tokens=0)


@story("pd-bootstrap-failed", "0.4.7", "0.4.10", "0.5.10", "0.5.13", "0.5.23")
def decode_side_never_called(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(300)
    transfer(s, "Prefill bootstrap", "Request 77 timed out after 300.1s in KVPoll.Bootstrapping")
    return Ending(stage="bootstrap")


@story("pd-bootstrap-failed", "0.4.7", "0.5.2", "0.5.10", "0.5.23")
def prefill_side_could_not_be_asked(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(2)
    transfer(s, "Decode handshake", "Could not fetch prefill parallel info from bootstrap_addr: 10.0.0.1:8998")
    return Ending(stage="bootstrap")


@story("pd-bootstrap-failed", "0.5.17", "0.5.22", "0.5.23")
def prefill_side_could_not_be_told(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(2)
    transfer(s, "Decode handshake", "_register_kv_args to prefill 10.0.0.1:8998 failed")
    return Ending(stage="bootstrap")


@story("pd-bootstrap-failed", "0.4.7", "0.5.0rc2", "0.5.1", "0.5.10", "0.5.23")
def it_came_without_a_room(s: Server) -> Ending:
    s.receive("r-1")
    word = "bootstrap" if s.since("0.5.10") else "boostrap"
    text = f"Invalid request: Disaggregated request received without {word} room id. req.rid='r-1'"
    s.every_rank(text)
    s.failed("r-1", text, 400 if s.since("0.5.1") else None, tokens=0)
    return Ending()


@story("pd-transfer-failed", "0.4.7", "0.5.9", "0.5.10", "0.5.19")
def kv_could_not_be_sent(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    transfer(s, "Prefill transfer", "Failed to send kv chunk of 77 to 10.0.0.2:5000")
    return Ending(stage="transfer")


@story("waiting-timeout", "0.4.10", "0.5.6", "0.5.13", "0.5.23")
def kv_never_came(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(300)
    transfer(s, "Decode transfer", "Request 77 timed out after 300.2s in KVPoll.WaitingForInput")
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.4.7", "0.5.10", "0.5.19")
def kv_could_not_be_sent_to_the_dead(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    transfer(s, "Prefill transfer", "Decode instance could be dead, remote mooncake session 10.0.0.2:1234 is not alive")
    return Ending(stage="transfer", also=("pd-peer-lost",), confidence=LIKELY)


@story("pd-transfer-failed", "0.5.9", "0.5.10", "0.5.23")
def metadata_were_another_requests(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    s.every_rank("Context corruption detected: Request r-1 (bootstrap_room=77) received metadata from "
                 "bootstrap_room=78. Metadata buffer index: 3.")  # fmt: skip
    s.failed("r-1", "Metadata corruption detected - bootstrap_room mismatch", 500, tokens=0)
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.5.13", "0.5.23")
def metadata_were_not_ready(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    s.failed("r-1", "Metadata unexpectedly not ready after readiness gate (bootstrap_room=0)", 500, tokens=0)
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.5.21", "0.5.23")
def checksum_did_not_match(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    s.failed("r-1", "KV checksum mismatch", 500, tokens=0)
    return Ending(stage="transfer")


@story("pd-transfer-failed", "0.5.6", "0.5.12")
def nixl_gives_no_reason(s: Server) -> Ending:
    """Up to 0.5.12 this may also be an abort of the client."""
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    text = "Decode transfer failed for request rank=0 decode_req.req.rid='r-1' decode_req.req.bootstrap_room=77 with "
    s.every_rank(text + "exception NIXL KVReceiver Exception")
    s.failed("r-1", text + "exception NIXL KVReceiver Exception", 500, tokens=0)
    return Ending(stage="transfer", also=("not-established",), confidence=(*LIKELY, *UNDECIDED))


@story("pd-peer-lost", "0.4.7", "0.5.10", "0.5.13")
def prefill_side_was_lost(s: Server) -> Ending:
    for rid, room in (("r-1", 77), ("r-2", 78)):
        s.receive(rid, bootstrap_room=room)
    s.wait(12)
    address = "(bootstrap_addr: 10.0.0.1:8998)"
    s.every_rank(f"Losing connection with prefill instance {address}, affected 2 requests")
    for rid, room in (("r-1", 77), ("r-2", 78)):
        transfer(s, "Decode transfer", f"Losing connection with prefill instance {address}", rid, room)
    return Ending(stage="transfer")


@story("pd-peer-lost", "0.5.14", "0.5.23")
def prefill_side_was_lost_in_the_new_words(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(12)
    address = "(bootstrap_addr: 10.0.0.1:8998)"
    s.every_rank(f"Lost connection with prefill instance {address}, affected 1 requests")
    transfer(s, "Decode transfer", f"Lost connection with prefill instance {address}")
    return Ending(stage="transfer")


@story("pd-peer-lost", "0.5.10", "0.5.23")
def prefill_side_was_known_to_be_down(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(1)
    transfer(s, "Decode handshake", "Prefill server with bootstrap_addr: 10.0.0.1:8998 is healthy before, but now it "
             "is down. Request (bootstrap_room: 77) has been marked as failed.")  # fmt: skip
    return Ending(stage="bootstrap")


@story("not-established", "0.4.10", "0.5.10", "0.5.23")
def another_rank_knows_why(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    transfer(s, "Decode transfer", "Failed due to an unknown reason from another rank")
    return Ending(stage="transfer", confidence=UNDECIDED, among=("pd-transfer-failed", "pd-peer-lost"))


@story("pd-bootstrap-failed", "0.4.10", "0.5.10", "0.5.12", tp=2)
def one_rank_knows_why(s: Server) -> Ending:
    """Of two ranks only one has the reason; the `Finish` is that of the rank which repeats."""
    s.receive("r-1", bootstrap_room=77)
    s.wait(300)
    s.scheduler(wordings.transfer_error(s.release, "Prefill bootstrap", "r-1", 77,
                "Request 77 timed out after 300.1s in KVPoll.Bootstrapping", rank=1), tp=1)  # fmt: skip
    text = wordings.transfer_error(s.release, "Prefill bootstrap", "r-1", 77,
                                   "Failed due to an unknown reason from another rank")  # fmt: skip
    s.scheduler(text)
    s.failed("r-1", text, 500, tokens=0)
    return Ending(stage="bootstrap")


@story("not-established", "0.4.10", "0.5.10", "0.5.23")
def its_transfer_was_aborted(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    transfer(s, "Decode transfer", "Aborted by AbortReq.")
    return Ending(confidence=UNDECIDED, among=("client-disconnect", "explicit-abort"))


@story("explicit-abort", "0.4.10", "0.5.10", "0.5.23")
def its_transfer_was_aborted_by_a_call(s: Server) -> Ending:
    s.receive("r-1", bootstrap_room=77)
    s.wait(3)
    s.access(200, "/abort_request")
    transfer(s, "Decode transfer", "Aborted by AbortReq.")
    return Ending(stage="transfer", confidence=LIKELY)


@story("abort-prefix-collision", "0.4.10", "0.5.10", "0.5.23")
def its_prefix_was_left_during_the_transfer(s: Server) -> Ending:
    """The abort of one that transfers its KV meets whoever transfers and begins alike."""
    s.receive("job-1", bootstrap_room=7)
    s.receive("job-10", bootstrap_room=77)
    s.wait(5)
    s.disconnected("job-1")
    s.every_rank(wordings.transfer_error(s.release, "Decode transfer", "job-1", 7, "Aborted by AbortReq."))
    transfer(s, "Decode transfer", "Aborted by AbortReq.", "job-10")
    return Ending(rid="job-10", stage="transfer", confidence=LIKELY, chain=(("client-disconnect", "job-1"),))


@story("timeout-prefix-collision", "0.5.20", "0.5.23")
def its_prefix_waited_too_long_during_the_transfer(s: Server) -> Ending:
    s.receive("job-1", bootstrap_room=7)
    s.wait(20)
    s.receive("job-10", bootstrap_room=77)
    s.wait(10)
    s.dropped("job-1", "Request waiting timeout reached.")
    transfer(s, "Decode transfer", "Aborted by AbortReq.", "job-10")
    return Ending(rid="job-10", stage="transfer", confidence=LIKELY, chain=(("waiting-timeout", "job-1"),))


@story("client-disconnect", "0.5.10", "0.5.23")
def its_client_left_the_other_side(s: Server) -> Ending:
    """The decode side tells the prefill side to abort; its log shows why, in the same room."""
    other = another(s)
    other.boot(disaggregation_mode="decode")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1" if side is s else "d-1", bootstrap_room=77)
        side.wait(6)
    other.disconnected("d-1")
    other.every_rank(wordings.transfer_error(s.release, "Decode transfer", "d-1", 77, "Aborted by AbortReq."))
    transfer(s, "Prefill transfer", "Aborted by decode-side abort notification.")
    return Ending(stage="transfer", confidence=LIKELY, chain=(("client-disconnect", "d-1"),),
                  others={"decode/server.log": other})  # fmt: skip


@story("client-disconnect", "0.4.10", "0.5.10", "0.5.23")
def its_client_left_during_the_transfer(s: Server) -> Ending:
    """The API server's line comes first; the scheduler's failure is what the disconnect's abort did."""
    s.receive("r-1", bootstrap_room=77)
    s.wait(5)
    s.disconnected("r-1")
    s.every_rank(wordings.transfer_error(s.release, "Decode transfer", "r-1", 77, "Aborted by AbortReq."))
    return Ending()


@story("pd-transfer-failed", "0.4.10", "0.5.10", "0.5.19")
def the_other_side_knows_why(s: Server) -> Ending:
    """The decode side only says that prefill failed; the prefill log holds the reason in the same room."""
    other = another(s)
    other.boot(disaggregation_mode="prefill")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1" if side is s else "p-1", bootstrap_room=77)
        side.wait(3)
    transfer(other, "Prefill transfer", "Failed to send kv chunk of 77 to 10.0.0.2:5000", "p-1")
    transfer(s, "Decode transfer", "Failed to get kvcache from prefill instance, it might be dead")
    return Ending(stage="transfer", chain=(("pd-transfer-failed", "p-1"),), others={"prefill/server.log": other})


@story("pd-peer-lost", "0.5.10", "0.5.23")
def the_other_side_crashed(s: Server) -> Ending:
    other = another(s)
    other.boot(disaggregation_mode="prefill")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1" if side is s else "p-1", bootstrap_room=77)
        side.wait(3)
    other.died(exception="torch.OutOfMemoryError: CUDA out of memory.")
    s.wait(12)
    word = "Lost" if s.since("0.5.14") else "Losing"
    address = "(bootstrap_addr: 10.0.0.1:8998)"
    s.every_rank(f"{word} connection with prefill instance {address}, affected 1 requests")
    transfer(s, "Decode transfer", f"{word} connection with prefill instance {address}")
    return Ending(stage="transfer", chain=(("scheduler-crash", None),), others={"prefill/server.log": other})


@story("pd-peer-lost", "0.5.10", "0.5.19")
def the_decode_side_crashed(s: Server) -> Ending:
    """The prefill side guesses that decode could be dead; the decode side's log says that it is."""
    other = another(s)
    other.boot(disaggregation_mode="decode")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1" if side is s else "d-1", bootstrap_room=77)
        side.wait(3)
    other.died(exception="torch.OutOfMemoryError: CUDA out of memory.")
    s.wait(2)
    transfer(s, "Prefill transfer", "Decode instance could be dead, remote mooncake session 10.0.0.2:1234 is not alive")
    return Ending(stage="transfer", chain=(("scheduler-crash", None),), others={"decode/server.log": other})


@story("waiting-timeout", "0.4.10", "0.5.10", "0.5.23")
def both_sides_know_it_by_one_rid(s: Server) -> Ending:
    """A router that sends one rid to both: prefill was done with it, decode never got the KV."""
    other = another(s)
    other.boot(disaggregation_mode="prefill")
    other.now = s.now
    for side in (s, other):
        side.receive("r-1", bootstrap_room=77, max_new_tokens=64)
        side.wait(3)
    other.done("r-1", tokens=1)
    s.wait(300)
    transfer(s, "Decode transfer", "Request 77 timed out after 300.2s in KVPoll.WaitingForInput")
    return Ending(stage="transfer", others={"prefill/server.log": other})
