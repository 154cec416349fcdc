"""Which life of which server a platform's word of a killed process is about.

A kernel's line names a process, an orchestrator's a pod; neither names the log. So it counts only for a life that
stops at that time, and of several only for the one whose pid or pod it names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sglang_lifecycle.analyzers.lives import Life
from sglang_lifecycle.parsers.evidence import BATCHES, Event, Fact

_AFTER = 120.0  # seconds from a life's last line to the word of its end
_LINGERS = 20.0  # seconds that the rest of a server may go on writing once a process of it was killed
_OURS = re.compile(r"python|sglang|ray::|\bpt_\w", re.IGNORECASE)
"""What its processes are called: torch names the main thread of every process `pt_main_thread`."""

_CHILD = re.compile(r"sglang::(sched|detok)", re.IGNORECASE)
"""A process whose death the API server does not notice up to 0.5.9: it goes on writing."""

_KILLED = frozenset({9, 137})


def assign(outside: Sequence[Fact], lives: Sequence[Life]) -> None:
    """Give each word of a killed process to the one life it can be about, where there is just one."""
    for fact in outside:
        if fact.event is Event.PLATFORM_ENDED and fact.at is not None:
            fitting = _newest([life for life in lives if _kill(fact, life) and _stops(life, fact)])
            named = [life for life in fitting if _names(fact, life)]
            if len(named or fitting) == 1:
                (named or fitting)[0].killed.append(fact)


def _newest(lives: Sequence[Life]) -> list[Life]:
    """Of several lives of a server the last: the one before had ended when it began."""
    return list({life.server: life for life in sorted(lives, key=lambda life: life.number)}.values())


def _kill(fact: Fact, life: Life) -> bool:
    """Whether it is about a kill of something that may be a process of the life."""
    code, name = fact.detail.get("exit_code"), str(fact.detail.get("name", ""))
    if _pid(fact, life):
        return True
    if code is None:
        return bool(_OURS.search(name))
    return (code in _KILLED or fact.detail.get("reason") == "OOMKilled") and _alike(name, life)


def _alike(name: str, life: Life) -> bool:
    """Whether a unit or a container may be SGLang's: by its own name, or where the log is called after it."""
    container = name.rpartition("/")[2].removesuffix(".service")
    logs = {life.server, *(fact.process for fact in life.told)}
    return bool(_OURS.search(container)) or (len(container) > 3 and any(container in log for log in logs))


def _stops(life: Life, fact: Fact) -> bool:
    """Whether a life's lines stop at the time of a word; of a child's, its batch lines."""
    end = life.end
    if end is None or fact.at is None or not life.facts:
        return False
    margin = fact.at_error or 0.0
    if end - _LINGERS - margin <= fact.at <= end + _AFTER + margin:
        return True
    child = _CHILD.search(str(fact.detail.get("name", "")))
    return child is not None and _falls_silent(life, fact.at, child[1].lower())


def _falls_silent(life: Life, at: float, child: str) -> bool:
    """Whether what a child works for came before a time, and none after it, though lines go on.

    Without a scheduler no batch is formed; without a detokenizer nothing that was is answered.
    """
    works = life.of(*(BATCHES if child == "sched" else ()), Event.REQUEST_FINISHED)
    times = [fact.at for fact in works if fact.at is not None]
    return bool(times) and at - _AFTER <= max(times) <= at + 1.0 and bool(life.of(Event.SERVER_HEALTH_FAILED))


def _pid(fact: Fact, life: Life) -> bool:
    """Whether it names a process of the life by its number."""
    pid = fact.detail.get("pid")
    return pid is not None and any(
        f.detail.get("pid") == pid for f in life.of(Event.SERVER_STARTED, Event.PROCESS_EXITED)
    )


def _names(fact: Fact, life: Life) -> bool:
    """Whether it names a process or a pod of the life."""
    pod = str(fact.detail.get("name", "")).partition("/")[0]
    return _pid(fact, life) or (
        len(pod) > 3 and any(pod in log for log in {life.server, *(f.process for f in life.told)})
    )


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
