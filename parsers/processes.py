"""How other processes are started."""

from __future__ import annotations

import sys
import threading
from multiprocessing import get_context
from multiprocessing.context import BaseContext

_UNFORKED = frozenset({"polars", "distributed"})
"""What has threads of its own, which a process that is forked off would lack."""


def forkable() -> bool:
    """Whether a process can be forked off: nothing runs here besides, and the platform's own libraries bear it."""
    return sys.platform == "linux" and threading.active_count() == 1 and _UNFORKED.isdisjoint(sys.modules)


def context() -> BaseContext:
    """Forks where that can be, as what is imported then is there at once; else starts interpreters of their own."""
    return get_context("fork" if forkable() else "spawn")
