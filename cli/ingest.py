"""`lifecycle ingest`: the evidence of logs, written once into a store that every command but `watch` reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, LifecycleError, UsageError, error
from sglang_lifecycle.cli.inputs import Request, request, status
from sglang_lifecycle.cli.options import Cluster, Config, Paths, Quiet, Zone
from sglang_lifecycle.cli.output import write
from sglang_lifecycle.cli.text import count

if TYPE_CHECKING:
    from sglang_lifecycle.parsers.evidence import Evidence, Fact

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
    config: Config = None,
    quiet: Quiet = False,
) -> ExitCode:
    """Write the evidence of logs into one file; give that file to any command but watch instead of the logs."""
    question = request(paths, None, None, tz, None, None)
    if shard is not None:
        return _share(question, _shard(shard), output)

    evidence, facts = _streamed(question, output, cluster, shards) or _held(question, output, cluster, shards)
    size = Path(output).stat().st_size
    write(f"{output}: {count(facts, 'fact')} of {count(len(evidence.sources), 'input')}, {size:,} bytes")
    return status(evidence)


def _streamed(question: Request, output: str, cluster: str | None, shards: str | None) -> tuple[Evidence, int] | None:
    """Write the store of very large logs while they are read; None where they have to be held."""
    if not question.very_large:
        return None
    from sglang_lifecycle.parsers.store import writing

    with suppress(_Held), _reported(output), writing(output) as store:

        def add(facts: list[Fact]) -> None:
            with _reported(output):  # or a full disk would pass for a log that can't be read
                store.add(facts)

        evidence = question.stream(add, cluster, shards)
        if evidence is None:
            raise _Held
        store.sources += evidence.sources
        return evidence, store.facts
    return None


class _Held(Exception):
    """A log has to be held as a whole."""


def _held(question: Request, output: str, cluster: str | None, shards: str | None) -> tuple[Evidence, int]:
    """Write the store of what was read as a whole."""
    from sglang_lifecycle.parsers.store import save

    evidence = question.read(cluster, shards)
    with _reported(output):
        save(evidence, output)
    return evidence, len(evidence.facts)


@contextmanager
def _reported(output: str) -> Iterator[None]:
    """Raises `LifecycleError` where a store can't be written."""
    try:
        yield
    except OSError as problem:
        text = f"{output}: the store cannot be written: {problem.strerror or problem}"
        raise LifecycleError(ExitCode.UNREADABLE, text) from problem


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
