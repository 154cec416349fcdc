"""`lifecycle watch`: each interruption as it happens."""

from __future__ import annotations

import time
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, LifecycleError, UsageError, error, warning
from sglang_lifecycle.cli.formats import json_of
from sglang_lifecycle.cli.inputs import request
from sglang_lifecycle.cli.options import (
    Color,
    Config,
    DisplayZone,
    Json,
    Quiet,
    RunningTimeout,
    SGLangVersion,
    WaitingTimeout,
    Zone,
)
from sglang_lifecycle.cli.output import write
from sglang_lifecycle.cli.text import clean
from sglang_lifecycle.cli.words import WORDS

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_lifecycle.analyzers.watching import News
    from sglang_lifecycle.cli.times import Clock

EVERY = 1.0
"""Seconds between two looks at what is new."""

IDLE = 4.0
"""How many times as long as a look takes is waited before the next one."""


class WatchFormat(StrEnum):
    """What a change is printed as."""

    TEXT = "text"
    NDJSON = "ndjson"


def command(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH…", help="Log files that grow, or folders of them; - is stdin.")
    ],
    json: Json = False,
    format: Annotated[WatchFormat, typer.Option("--format", help="Lines for people, or JSON.")] = WatchFormat.TEXT,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Print what the files already hold, too; of stdin it always is.")
    ] = False,
    tz: Zone = None,
    display_tz: DisplayZone = None,
    sglang_version: SGLangVersion = None,
    waiting_timeout: WaitingTimeout = None,
    running_timeout: RunningTimeout = None,
    config: Config = None,
    quiet: Quiet = False,
    color: Color = None,
) -> ExitCode:
    """Print each interruption as it happens with its verdict, and again when later lines change it.

    Files are followed when they are rotated (renamed or truncated). Ctrl-C ends it; so does the end of stdin.
    """
    format = WatchFormat.NDJSON if json else format
    question = request(paths, None, None, tz, display_tz, sglang_version)
    files = _files(paths)

    from sglang_lifecycle.analyzers.watching import Watch, kept
    from sglang_lifecycle.parsers import envelopes
    from sglang_lifecycle.parsers.following import Followed
    from sglang_lifecycle.parsers.prefix import zone

    envelopes.tell(question.envelopes)
    watch, followed = Watch(question.incident), Followed(files, zone(question.zone))
    pause, silent = EVERY, not from_start and "-" not in files
    try:
        while not followed.ended:
            came = followed.wait(pause)
            if came or followed.ended or silent:
                began = time.monotonic()
                facts = followed.facts()
                behind = not followed.caught_up
                if not (silent and behind):
                    for news in sorted(watch.news(facts), key=lambda each: _moment(each, question.clock)):
                        if not silent:
                            write(_json(news) if format is WatchFormat.NDJSON else _text(news, question.clock))
                silent = silent and behind
                followed.forget(kept(facts))
                pause = max(EVERY, IDLE * (time.monotonic() - began))
    finally:
        followed.stop()
    for problem in followed.failed:
        error(problem)
    return ExitCode.UNREADABLE if followed.failed else ExitCode.OK


def _files(paths: list[str]) -> list[str]:
    """The files to follow: those of a folder are those that it holds now. Raises `LifecycleError`."""
    from pathlib import Path

    found: list[str] = []
    for name in paths:
        path = Path(name)
        if name == "-":
            found.append(name)
        elif not name:
            raise LifecycleError(ExitCode.UNREADABLE, "'': the path is empty: no such file or folder")
        elif not path.exists():
            raise LifecycleError(ExitCode.UNREADABLE, f"{name}: no such file or folder")
        elif path.is_dir():
            inside = {str(each): _unfit(each) for each in sorted(path.rglob("*")) if each.is_file()}
            found += [file for file, problem in inside.items() if problem is None]
            for file, problem in inside.items():
                if problem is not None:
                    warning(f"{file}: {problem}, skipped")
        elif problem := _unfit(path):
            raise LifecycleError(ExitCode.UNREADABLE, f"{name}: {problem}; lifecycle audit takes what has ended")
        else:
            found.append(name)
    if not found:
        raise UsageError("nothing to watch: the folder holds no file that could be followed")
    return list(dict.fromkeys(found))


def _unfit(path: Path) -> str | None:
    """Why a file can't be followed; None where it can."""
    from sglang_lifecycle.parsers.inputs import unfollowable
    from sglang_lifecycle.parsers.store import is_store

    try:
        return "a store of lifecycle ingest, which doesn't grow" if is_store(str(path)) else unfollowable(path)
    except OSError as problem:
        return f"cannot be read: {problem.strerror or problem}"


def _json(news: News) -> str:
    """One object: `kind` is `request` or `server`; a request's has the verdict's fields, without the lines."""
    if news.verdict is not None:
        data = news.verdict.model_dump(by_alias=True, exclude={"evidence", "steps", "replay"})
        row = {"kind": "request", "update": news.update, **data}
    else:
        assert news.happening is not None
        from sglang_lifecycle.analyzers.explain import timestamp

        one = news.happening
        row = {"kind": "server", "update": False, "cause": one.cause, "at": timestamp(one.at), "summary": one.summary}
    return json_of(row)


def _moment(news: News, clock: Clock) -> float:
    """When it was, in epoch seconds; what has no time comes last."""
    if news.verdict is not None:
        return clock.epoch(news.verdict.times.ended or news.verdict.times.received) or inf
    at = news.happening.at if news.happening else None
    return inf if at is None else at


def _text(news: News, clock: Clock) -> str:
    if news.verdict is None:
        assert news.happening is not None
        return clean(f"{clock.full(news.happening.at)}  server  {news.happening.cause}: {news.happening.summary}")
    verdict = news.verdict
    times = verdict.times
    off = times.ended_error_s if times.ended else times.received_error_s
    at = clock.full(times.ended or times.received, off)
    what = verdict.cause
    if verdict.cause == "not-established":
        what += f" ({' or '.join(c.cause for c in verdict.candidates[:3])})"
    mark = "now  " if news.update else ""
    return clean(f"{at}  {verdict.rid}  {mark}{what}, {WORDS[verdict.confidence]}: {verdict.summary}")
