"""`lifecycle ingest`: the evidence of logs, written once into a store that every command reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, LifecycleError, UsageError, error
from sglang_lifecycle.cli.inputs import Request, request, status
from sglang_lifecycle.cli.options import Cluster, Paths, Zone
from sglang_lifecycle.cli.output import write
from sglang_lifecycle.cli.text import count

_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")


def command(
    paths: Paths,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The store to write; with --shard, a folder.")
    ],
    tz: Zone = None,
    cluster: Cluster = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Read only the I-th of N shares, for an array of jobs.")
    ] = None,
    shards: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Join what such jobs have read; what is missing is read now.")
    ] = None,
) -> ExitCode:
    """Write the evidence of logs into one file; give that file to any command instead of the logs."""
    question = request(paths, None, None, tz, None, None)
    if shard is not None:
        return _share(question, _shard(shard), output)

    from sglang_lifecycle.parsers.store import save

    evidence = question.read(cluster, shards)
    try:
        save(evidence, output)
    except OSError as problem:
        text = f"{output}: the store cannot be written: {problem.strerror or problem}"
        raise LifecycleError(ExitCode.UNREADABLE, text) from problem
    size = Path(output).stat().st_size
    write(f"{output}: {count(len(evidence.facts), 'fact')} of {count(len(evidence.sources), 'input')}, {size:,} bytes")
    return status(evidence)


def _shard(text: str) -> tuple[int, int]:
    match = _SHARD.fullmatch(text)
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= of:
        raise UsageError(f"--shard {text!r} is no share; give one such as 2/8")
    return number, of


def _share(question: Request, share: tuple[int, int], folder: str) -> ExitCode:
    from sglang_lifecycle.parsers import envelopes
    from sglang_lifecycle.parsers.shards import Shard, keep

    envelopes.tell(question.envelopes)
    failed: list[str] = []
    try:
        read, ranges = keep(question.paths, Shard(*share), Path(folder), failed, question.zone)
    except OSError as problem:
        text = f"{folder}: the share cannot be written: {problem.strerror or problem}"
        raise LifecycleError(ExitCode.UNREADABLE, text) from problem
    write(f"{folder}: {count(ranges, 'range')} of share {share[0]} of {share[1]}, {read} of them read now")
    for text in failed:
        error(text)
    return ExitCode.UNREADABLE if failed else ExitCode.OK
