"""Clocks of two hosts that stand apart, told by the requests that both sides of a disaggregated service received."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sglang_lifecycle.analyzers.coverage import coverage
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.skew import Skew, skew
from sglang_lifecycle.parsers.log import read

NOON = 1793448000
LOST = "Losing connection with prefill instance (bootstrap_addr: 10.0.0.1:8998)"
FAILED = (
    f"Decode transfer failed for request rank=0 decode_req.req.rid='d-0' decode_req.req.bootstrap_room=70 "
    f"with exception KVTransferError(bootstrap_room=70): {LOST}"
)


def line(second: int, text: str) -> str:
    return f"[{datetime.fromtimestamp(NOON + second, UTC):%Y-%m-%d %H:%M:%S}] {text}\n"


def received(second: int, rid: str, room: int) -> str:
    return line(second, f"Receive: obj=GenerateReqInput(rid={rid!r}, text='x', stream=False, bootstrap_room={room})")


def incident(tmp_path: Path, shifts: list[int], died: int) -> Incident:
    """Requests on both sides, decode's clock ahead by `shifts`; prefill dies, decode sees it at second 20."""
    args = "server_args=ServerArgs(model_path='m', disaggregation_mode='{}', tp_size=1)"
    ready = "The server is fired up and ready to roll!"
    prefill, decode = (line(0, args.format(mode)) + line(0, ready) for mode in ("prefill", "decode"))
    for number, shift in enumerate(shifts):
        prefill += received(number, f"p-{number}", 70 + number)
        decode += received(number + shift, f"d-{number}", 70 + number)
    prefill += line(died, "Scheduler hit an exception: Traceback (most recent call last):")
    prefill += '  File "scheduler.py", line 1, in run\n    go()\ntorch.OutOfMemoryError: CUDA out of memory.\n'
    reason = f"{{'type': 'abort', 'message': {FAILED!r}, 'status_code': 500, 'err_type': None}}"
    decode += line(20, FAILED).replace("] ", " TP0] ", 1)
    decode += line(
        20,
        "Finish: obj=GenerateReqInput(rid='d-0', text='x', stream=False, bootstrap_room=70), "
        f"out={{'meta_info': {{'id': 'd-0', 'finish_reason': {reason}, 'prompt_tokens': 1, 'completion_tokens': 0}}}}",
    )
    for name, text in (("prefill", prefill), ("decode", decode)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_text(text)
    return Incident(read([str(tmp_path)]))


def between(found: Incident) -> Skew:
    by_name = {Path(scene.life.server).parent.name: scene for scene in found.scenes}
    return skew(by_name["prefill"], by_name["decode"])


@pytest.mark.parametrize(
    ("shifts", "seconds", "error"),
    [
        ([7, 7, 7], 7.0, 0.0),
        ([-7, -7, -6, -7], -7.0, 1.0),
        ([7, 7, 7, 7, 90], 7.0, 0.0),  # one that was resent
        ([7, 7], 0.0, 0.0),  # too few
        ([7, 30, 55], 0.0, 0.0),  # no two agree
        ([7, 7, 7, 40, 41], 0.0, 0.0),  # too many disagree
    ],
)
def test_only_what_several_agree_on_is_a_skew(tmp_path: Path, shifts: list[int], seconds: float, error: float) -> None:
    assert between(incident(tmp_path, shifts, 18)) == Skew(seconds, error)


def test_doctor_tells_the_offset(tmp_path: Path) -> None:
    (offset,) = coverage(incident(tmp_path, [7, 7, 7], 18)).offsets
    assert (abs(offset.seconds), offset.requests) == (7.0, 3)


@pytest.mark.parametrize(
    ("shift", "died", "blamed"),
    [
        (0, 18, True),
        (0, 25, False),  # it was lost before it died
        (-7, 25, True),  # by decode's clock it died at 18
        (7, 12, True),  # by decode's clock at 19
        (7, 15, False),  # by decode's clock at 22
    ],
)
def test_a_peer_is_blamed_by_one_clock(tmp_path: Path, shift: int, died: int, blamed: bool) -> None:
    verdict = explain(incident(tmp_path, [shift] * 4, died), "d-0")
    assert verdict.cause == "pd-peer-lost"
    assert ("scheduler-crash" in [link.cause for link in verdict.chain]) is blamed
