"""Thousands at once: what each of them asks of all the others has to be answered once."""

from __future__ import annotations

from pathlib import Path

import pytest
from lines import ABORTED, Story, calls, clock, used, write

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.log import read

MANY = 3_000
REFUSED = (
    "{'type': 'abort', 'message': 'Invalid request: session id gone does not exist', 'status_code': 400, "
    "'err_type': 'BadRequestError'}"
)
OF_SESSION = "stream=False, session_params={'id': 'gone', 'rid': None, 'offset': None, 'replace': False}"


def rids(number: int) -> list[str]:
    """Such as SGLang makes up: none is the beginning of another."""
    return [f"{index * 2654435761 % (1 << 32):032x}"[::-1] for index in range(1, number + 1)]


def came(number: int) -> Story:
    return [line for index, rid in enumerate(rids(number)) for line in used(rid, index // 100, 0)[:1]]


def ended(number: int, since: int, each: int, reason: str) -> Story:
    """So many end in each second."""
    ends = ((since + index // each, index // 100, rid) for index, rid in enumerate(rids(number)))
    return [line for second, begun, rid in ends for line in used(rid, begun, second, reason)[1:]]


def of_session(story: Story) -> Story:
    return [(second, text.replace("stream=False", OF_SESSION)) for second, text in story]


def one_by_one(number: int) -> Story:
    """Each aborted by a call of its own."""
    story: Story = came(number)
    for line in ended(number, 40, 200, ABORTED):
        story += [*calls("/abort_request", line[0]), line]
    return story


def retried(number: int) -> Story:
    """A client that doesn't understand that its session is gone."""
    story: Story = [(0, f"[{clock(0)}] server_args=ServerArgs(model_path='m', tp_size=1)")]
    for index, rid in enumerate(rids(number)):
        story += of_session(used(rid, index, index, REFUSED))
    return story


CROWDS = {
    "an abort of all": (came(MANY) + calls("/abort_request", 40) + ended(MANY, 40, MANY, ABORTED), "abort-all"),
    "a pause": (came(MANY) + ended(MANY, 40, MANY, ABORTED) + calls("/pause_generation", 41), "pause-abort"),
    "calls that abort one after the other": (one_by_one(1_000), "explicit-abort"),
    "a session that is gone, again and again": (retried(MANY), "session-unknown"),
    "a session that is gone, all at once": (
        of_session(came(MANY) + ended(MANY, 40, MANY, REFUSED)),
        "session-unknown",
    ),
}  # fmt: skip


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_crowd_is_judged(crowd: str, tmp_path: Path) -> None:
    story, cause = CROWDS[crowd]
    found = audit(Incident(read([str(write(tmp_path / "server.log", story))])))
    number = sum("Receive: " in text for _, text in story)
    assert found.totals.requests == number
    assert found.totals.by_cause == {cause: number}
