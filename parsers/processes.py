"""How other processes are started."""

from __future__ import annotations

import os
import sys
from multiprocessing import get_context
from multiprocessing.context import BaseContext

_THREADS = "/proc/self/task"


def forkable() -> bool:
    """Whether a process can be forked off: a thread that runs here besides, of a library's too, would be lost in it."""
    return sys.platform == "linux" and os.path.isdir(_THREADS) and len(os.listdir(_THREADS)) == 1


def context() -> BaseContext:
    """Forks where that can be, as what is imported then is there at once; else starts interpreters of their own."""
    return get_context("fork" if forkable() else "spawn")
