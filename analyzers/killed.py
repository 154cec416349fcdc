"""Which life of which server a platform's word of a killed process is about.

A kernel's line names a process, an orchestrator's a pod; neither names the log. So it counts only for a life that
stops at that time, and of several only for the one whose pid or pod it names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sglang_lifecycle.analyzers.lives import Life
from sglang_lifecycle.parsers.evidence import Event, Fact

_AFTER = 120.0  # seconds from a life's last line to the word of its end
_LINGERS = 20.0  # seconds that the rest of a server may go on writing once a process of it was killed
_OURS = re.compile(r"python|sglang|ray::", re.IGNORECASE)
_KILLED = frozenset({9, 137})


def assign(outside: Sequence[Fact], lives: Sequence[Life]) -> None:
    """Give each word of a killed process to the one life it can be about, where there is just one."""
    for fact in outside:
        if fact.event is Event.PLATFORM_ENDED and fact.at is not None and _kill(fact):
            fitting = [life for life in lives if _stops(life, fact)]
            named = [life for life in fitting if _names(fact, life)]
            if len(named or fitting) == 1:
                (named or fitting)[0].killed.append(fact)


def _kill(fact: Fact) -> bool:
    """Whether it is about a kill of something that may be SGLang's."""
    code, name = fact.detail.get("exit_code"), str(fact.detail.get("name", ""))
    if code is not None:
        return code in _KILLED or fact.detail.get("reason") == "OOMKilled"
    return bool(_OURS.search(name))


def _stops(life: Life, fact: Fact) -> bool:
    end = life.end
    if end is None or fact.at is None or not life.facts:
        return False
    margin = fact.at_error or 0.0
    return end - _LINGERS - margin <= fact.at <= end + _AFTER + margin


def _names(fact: Fact, life: Life) -> bool:
    """Whether it names a process or a pod of the life."""
    pid = fact.detail.get("pid")
    if pid is not None and any(f.detail.get("pid") == pid for f in life.of(Event.SERVER_STARTED, Event.PROCESS_EXITED)):
        return True
    pod = str(fact.detail.get("name", "")).partition("/")[0]
    return len(pod) > 3 and any(pod in log for log in {life.server, *(f.process for f in life.facts)})


def named(life: Life) -> bool:
    """Whether any word of the kill names the life."""
    return any(_names(fact, life) for fact in life.killed)


def summary(life: Life) -> str:
    """What the first word of the kill says."""
    detail = life.killed[0].detail
    name, reason = detail.get("name") or "a process", str(detail.get("reason"))
    if "memory" in reason.lower() or "oom" in reason.lower():
        return f"the host's memory ran out and {name} was killed ({reason})"
    return f"{name} was killed ({reason})"
