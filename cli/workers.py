"""Who reads large logs: processes of this machine, or a Dask cluster that sees the same files."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
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


_GLANCE = 1.0
"""Seconds after which a worker looks whether its parent is still there."""

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

        own = ProcessPoolExecutor(mp_context=context(), initializer=_attend, initargs=(os.getpid(),))
        own.submit(os.getpid)  # they are there before anything else runs here
        try:
            yield own
        except BaseException:  # they end with what they read: for one killed amid its answer Python waits for ever
            own.shutdown(wait=False, cancel_futures=True)
            raise
        own.shutdown(cancel_futures=True)
    else:
        yield None


def _attend(parent: int) -> None:
    """Begin as a worker: it ends with its parent, however that ends, and is not who an interruption is meant for.

    Whoever forked it off may have stopped looking for garbage.
    """
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_GLANCE)
    os._exit(1)


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
