"""Short logs of requests that come and go, second by second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sglang_lifecycle.analyzers import fingerprint
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers.evidence import Evidence

FIELDS = "rid='{rid}', text='x', sampling_params={{'max_new_tokens': 8}}, stream=False"
RECEIVE = "[{at}] Receive: obj=GenerateReqInput(" + FIELDS + ")"
FINISH = (
    "[{at}] Finish: obj=GenerateReqInput(" + FIELDS + "), out={{'text': 'y', 'meta_info': {{'id': '{rid}', "
    "'finish_reason': {reason}, 'e2e_latency': {lasted}}}}}"
)
STOP = "{'type': 'stop', 'matched': 2}"
ABORTED = "{'type': 'abort', 'message': 'Aborted', 'status_code': None, 'err_type': None}"
TIMEOUT = (
    "{'type': 'abort', 'message': 'Request running timeout reached.', 'status_code': 503, "
    "'err_type': 'ServiceUnavailable'}"
)
CALL = '[{at}] INFO:     127.0.0.1:1 - "POST {path} HTTP/1.1" 200 OK'
Story = list[tuple[int, str]]


def clock(second: int) -> str:
    return f"2026-11-29 {10 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def used(rid: str, start: int, end: int, reason: str = STOP) -> Story:
    """A request from its Receive to its Finish."""
    finish = FINISH.format(at=clock(end), rid=rid, reason=reason, lasted=float(end - start))
    return [(start, RECEIVE.format(at=clock(start), rid=rid)), (end, finish)]


def traffic(start: int, end: int) -> Story:
    """Other requests, one a second."""
    return [line for second in range(start, end) for line in used(f"other-{second:06}", second, second + 1)]


def calls(path: str, second: int) -> Story:
    return [(second, CALL.format(at=clock(second), path=path))]


def batch(rid: str, start: int, end: int) -> Story:
    rids = f"['{rid}_0', '{rid}_1']"
    line = RECEIVE.format(at=clock(start), rid="?").replace("rid='?'", f"rid={rids}")
    ends = [line for index in (0, 1) for line in used(f"{rid}_{index}", start, end)[1:]]
    return [(start, line), *ends]


def write(path: Path, story: Story) -> Path:
    """The lines in the order of their seconds."""
    path.write_text("".join(f"{text}\n" for _, text in sorted(story, key=lambda line: line[0])), encoding="utf-8")
    return path


def as_of(evidence: Evidence, version: str | None, limits: Mapping[str, float] | None = None) -> Incident:
    """An incident that is judged by the rules of a release, whichever wrote its logs."""
    incident = Incident(evidence, None, limits)
    if version is not None:
        for scene in incident.scenes:
            scene.release = fingerprint.told(version)
    return incident
