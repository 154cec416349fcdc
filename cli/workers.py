"""Who reads large logs: processes of this machine, or a Dask cluster that sees the same files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sglang_lifecycle.cli.errors import ExitCode, LifecycleError, UsageError

if TYPE_CHECKING:
    from concurrent.futures import Executor

_WAIT = 10
"""Seconds that a scheduler has to answer in."""
_RETRIES = 3
"""So often is a range read again whose worker died."""


@contextmanager
def workers(address: str | None) -> Iterator[Executor | None]:
    """The workers of the Dask scheduler at an address; None for this machine's own.

    Raises `UsageError` where Dask is not installed, `LifecycleError` where nobody answers.
    """
    if address is None:
        yield None
        return
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
