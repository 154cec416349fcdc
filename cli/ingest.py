"""`lifecycle ingest`: the evidence of logs, written once into a store that every command reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sglang_lifecycle.cli.errors import ExitCode, LifecycleError
from sglang_lifecycle.cli.inputs import request, status
from sglang_lifecycle.cli.options import Cluster, Paths, Zone
from sglang_lifecycle.cli.output import write
from sglang_lifecycle.cli.text import count


def command(
    paths: Paths,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The store to write (Parquet).")],
    tz: Zone = None,
    cluster: Cluster = None,
) -> ExitCode:
    """Write the evidence of logs into one file; give that file to any command instead of the logs."""
    question = request(paths, None, None, tz, None, None)

    from sglang_lifecycle.parsers.store import save

    evidence = question.read(cluster)
    try:
        save(evidence, output)
    except OSError as problem:
        text = f"{output}: the store cannot be written: {problem.strerror or problem}"
        raise LifecycleError(ExitCode.UNREADABLE, text) from problem
    size = Path(output).stat().st_size
    write(f"{output}: {count(len(evidence.facts), 'fact')} of {count(len(evidence.sources), 'input')}, {size:,} bytes")
    return status(evidence)
