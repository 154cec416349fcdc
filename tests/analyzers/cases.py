"""What a story must not be taken for, and the lines that such stories share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lines import STOP, Story, clock, used, write

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.verdict import Verdict
from sglang_lifecycle.parsers.log import read

LENGTH = "{'type': 'length', 'length': 8}"
WAITED = "{'type': 'abort', 'status_code': 503, 'message': 'Request waiting timeout reached.'}"


class Case(NamedTuple):
    """A log, whom it is about, and what may not be told of it.

    `never`: causes that may not be named; `unproven`: causes that may not be called proven; `status`: one that it does
    not have; `says`: the true cause, which is the answer or among the candidates (`hold` asks for it: where nothing is
    read, nothing wrong is told either); `beside`: logs of other servers.
    """

    story: Story
    rid: str
    never: Iterable[str] = ()
    unproven: Iterable[str] = ()
    status: str | None = None
    says: str | None = None
    version: str | None = "0.5.23"
    limits: dict[str, float] | None = None
    beside: dict[str, Story] = {}  # noqa: RUF012  # a NamedTuple's defaults are shared, and nobody changes this one
    name: str = "server"


def told(case: Case, folder: Path) -> Verdict:
    """What is said of a case."""
    for name, story in {case.name: case.story, **case.beside}.items():
        path = folder / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        write(path, story)
    verdict = explain(Incident(read([str(folder)]), case.version, case.limits), case.rid)
    assert verdict.status != "not-found"
    return verdict


def hold(case: Case, folder: Path) -> None:
    """Nothing is told of a case that is not so."""
    verdict = told(case, folder)
    assert verdict.cause not in case.never
    assert verdict.confidence != "proven" or verdict.cause not in case.unproven
    assert verdict.status != case.status
    assert case.says in {verdict.cause, *(each.cause for each in verdict.candidates)}


def said(second: int, text: str, rank: str = "") -> Story:
    return [(second, f"[{clock(second)}{rank}] {text}")]


def started(second: int = 0, pid: int | None = None, more: str = "") -> Story:
    """A server's start. `more`: arguments that it has besides."""
    arguments = said(second, f"server_args=ServerArgs(model_path='m', port=30000{more})")
    process = said(second + 2, f"INFO:     Started server process [{pid}]") if pid is not None else []
    return arguments + process + said(second + 3, "The server is fired up and ready to roll!")


def crashed(second: int) -> Story:
    """A scheduler's exception, with nothing after it."""
    return said(second, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error")


def answered(second: int, path: str, status: str = "200 OK", method: str = "POST") -> Story:
    return said(second, f'INFO:     127.0.0.1:1 - "{method} {path} HTTP/1.1" {status}')


def stream(rid: str, start: int, end: int | None = None, reason: str = STOP, more: str = "") -> Story:
    """A stream from its Receive to its Finish; without an end, its Receive. `more`: fields that it has besides."""
    lines = used(rid, start, start if end is None else end, reason)[: 1 if end is None else 2]
    return changed(lines, "stream=False", f"stream=True{more}")


def turn(rid: str, start: int, end: int, reason: str = STOP, of: str = "{'id': 'S', 'rid': None}") -> Story:
    """A request of a session."""
    return changed(used(rid, start, end, reason), "stream=False", f"stream=False, session_params={of}")


def refused(message: str) -> str:
    return f"{{'type': 'abort', 'message': '{message}', 'status_code': 400, 'err_type': 'BadRequestError'}}"


def changed(story: Story, old: str, new: str) -> Story:
    """The story in other words."""
    return [(at, text.replace(old, new)) for at, text in story]


def prefill(second: int, running: int, queued: int = 0, rank: str = "", new: int = 1, tokens: int = 2) -> Story:
    text = f"Prefill batch, #new-seq: {new}, #new-token: {tokens}, #cached-token: 0, token usage: 0.00, "
    return said(second, f"{text}#running-req: {running}, #queue-req: {queued}", rank)


def decode(seconds: Iterable[int], running: int, queued: int = 0, rank: str = "", more: str = "") -> Story:
    text = f"Decode batch, #running-req: {running}, #token: 65, token usage: 0.00, {more}#queue-req: {queued}"
    return [line for second in seconds for line in said(second, text, rank)]
