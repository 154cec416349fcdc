"""Work that another process does, while this one imports what it needs for the answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING, Generic, TypeVar

from sglang_lifecycle.parsers.processes import forkable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Result = TypeVar("Result")


class Beside(Generic[Result]):
    """A work that begins at once in a process beside this one, where that can be, and gives its result later.

    What is not `small` is not carried from there to here: then, and where the work fails there, it is done here.
    """

    def __init__(self, work: Callable[[], Result], small: Callable[[Result], bool]) -> None:
        self._work, self._connection = work, None
        if forkable():
            forks = get_context("fork")
            self._connection, other = forks.Pipe(duplex=False)
            forks.Process(target=_answer, args=(work, small, other), daemon=True).start()
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
