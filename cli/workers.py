"""Who reads large logs: processes of this machine, or a Dask cluster that sees the same files."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_lifecycle.cli.errors import ExitCode, LifecycleError, UsageError
from sglang_lifecycle.cli.files import files

if TYPE_CHECKING:
    from concurrent.futures import Executor

_WAIT = 10
"""Seconds that a scheduler has to answer in."""
_RETRIES = 3
"""So often is a range read again whose worker died."""


_LARGE = 96 << 20
"""Bytes of logs from which on processes are started for them."""


@contextmanager
def workers(paths: Sequence[str], address: str | None = None, shards: str | None = None) -> Iterator[Executor | None]:
    """The workers of the Dask scheduler at an address; else processes of this machine where the logs are large.

    What is kept in the folder `shards` is not done again.

    Raises `UsageError` where Dask is not installed, `LifecycleError` where nobody answers.
    """
    if shards is not None:
        from sglang_lifecycle.parsers.shards import Kept

        with workers(paths, address) as others:
            yield Kept(Path(shards), others)
    elif address is not None:
        with _cluster(address) as pool:
            yield pool
    elif (cpu_count() or 1) > 1 and size(paths) > _LARGE:
        from concurrent.futures import ProcessPoolExecutor

        from sglang_lifecycle.parsers.processes import context

        # Whoever forks them off may have stopped looking for garbage, for as long as they live.
        with ProcessPoolExecutor(mp_context=context(), initializer=gc.enable) as own:
            own.submit(os.getpid)  # they are there before anything else runs here
            yield own
    else:
        yield None


def size(paths: Sequence[str]) -> int:
    """The bytes of files, and of those in folders, as they lie there."""
    return sum(bytes for _, bytes in files(paths).values())


def memory() -> int:
    """The bytes of this machine's memory; a lot where that can't be told."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 60


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as problem:
        raise UsageError("--cluster needs Dask: pip install 'sglang-lifecycle[cluster]'") from problem
    try:
        client = Client(address, timeout=_WAIT, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as problem:
        reason = str(problem).split("\n")[0]
        raise LifecycleError(ExitCode.UNREADABLE, f"{address}: no Dask scheduler answers: {reason}") from problem
    with client:
        pool: Executor = client.get_executor(retries=_RETRIES)  # type: ignore[no-untyped-call]
        yield pool
