"""Work that another process does, while this one imports what it needs for the answer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_UNFORKED = frozenset({"polars", "distributed"})
"""What has threads of its own, which a process that is forked off would lack."""

Result = TypeVar("Result")


class Beside(Generic[Result]):
    """A work that begins at once in a process beside this one, where that can be, and gives its result later.

    What is not `small` is not carried from there to here: then, and where the work fails there, it is done here.
    """

    def __init__(self, work: Callable[[], Result], small: Callable[[Result], bool]) -> None:
        self._work, self._connection = work, None
        if sys.platform == "linux" and threading.active_count() == 1 and _UNFORKED.isdisjoint(sys.modules):
            from multiprocessing import get_context

            context = get_context("fork")
            self._connection, other = context.Pipe(duplex=False)
            context.Process(target=_answer, args=(work, small, other), daemon=True).start()
            other.close()

    def result(self) -> Result:
        """What the work gives. Raises what the work raises."""
        if self._connection is not None:
            with suppress(EOFError), self._connection as connection:
                found: Result = connection.recv()
                return found
        return self._work()


def _answer(work: Callable[[], Result], small: Callable[[Result], bool], connection: Connection) -> None:
    with suppress(Exception, KeyboardInterrupt):  # whoever waits finds out why
        found = work()
        if small(found):
            connection.send(found)
