"""What a platform says of a pod's death: `kubectl describe pod`, `kubectl get events`.

Kernel and systemd lines are in `outside.py`. A describe has the time of a container's end; ages (`5m ago`) give no
time, for nobody knows when they were printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.exhibits import Row, Unreadable

MAX_BYTES = 8 << 20
"""Bytes of a description that is read."""

_KEY = re.compile(r"(?P<indent> *)(?P<key>\w[\w .-]*?):(?:\s+(?P<value>\S.*))?")
_STATES = ("State", "Last State")
_NOTED = re.compile(
    r"\b(?P<reason>OOMKill(?:ed|ing)|Evicted|Killing|Unhealthy|BackOff|NodeNotReady|Preempted|FailedMount|SystemOOM)\b"
)


def rows(path: Path) -> Iterator[Row]:
    """The facts of a description. Raises `Unreadable`, OSError."""
    if path.stat().st_size > MAX_BYTES:
        raise Unreadable(f"a description of more than {MAX_BYTES >> 20} MiB")
    text = path.read_text("utf-8", "replace")
    yield from _pods(text) if text.startswith("Name:") else _events(text)


def _pods(text: str) -> Iterator[Row]:
    """Every ended state of every container, and the events at the end, of one pod after the other."""
    pod = container = ""
    state: dict[str, str] | None = None
    depth = 0
    events = False
    for line in [*text.splitlines(), "Name: "]:
        match = _KEY.match(line)
        if events and line.startswith(" "):
            yield from _noted(line, pod)
            continue
        if match is None:
            continue
        key, value, indent = match["key"], (match["value"] or "").strip(), len(match["indent"])
        if state is not None and indent <= depth:
            yield from _ended(state, pod, container)
            state = None
        if state is not None:
            state[key] = value
        elif key == "Name" and indent == 0:
            pod, container, events = value, "", False
        elif key == "Events" and indent == 0:
            events = True
        elif indent == 2 and not value:
            container = key
        elif key in _STATES and value == "Terminated":
            state, depth = {}, indent


def _ended(state: dict[str, str], pod: str, container: str) -> Iterator[Row]:
    code = state.get("Exit Code", "")
    detail = {"name": f"{pod}/{container}" if container else pod, "reason": state.get("Reason") or "?"}
    row: Row = {"event": Event.PLATFORM_ENDED, "pattern": "kubectl.describe", "detail": detail}
    if code.lstrip("-").isdigit() and len(code) < 10:
        row["detail"] = detail | {"exit_code": int(code)}
    at = _time(state.get("Finished", ""))
    if at is not None:
        row |= {"at": at + 0.5, "at_error": 0.5, "at_from": "meta"}
    yield row


def _time(text: str) -> float | None:
    """A time as `kubectl describe` prints it (`Mon, 06 Apr 2026 12:50:59 +0000`), in epoch seconds."""
    try:
        at = parsedate_to_datetime(text) if "," in text else datetime.fromisoformat(text)
        return at.timestamp() if at.tzinfo is not None else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _events(text: str) -> Iterator[Row]:
    for line in text.splitlines()[1:]:
        yield from _noted(line, "")


def _noted(line: str, pod: str) -> Iterator[Row]:
    match = _NOTED.search(line)
    if match is not None:
        name = pod or next(iter(re.findall(r"\bpod/(\S+)", line)), "")
        detail = {"name": name, "reason": match["reason"], "error": " ".join(line.split())[:400]}
        yield {"event": Event.PLATFORM_NOTED, "pattern": "kubectl.events", "detail": detail}
