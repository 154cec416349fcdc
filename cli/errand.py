"""An errand: work that another process is sent on, while this one imports what it needs for the answer."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING, Generic, TypeVar

from sglang_lifecycle.parsers.processes import forkable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Result = TypeVar("Result")


class Errand(Generic[Result]):
    """Work that begins at once in another process, where that can be.

    Where it can't, or the work fails or ends `there` for any reason, it is done `here` when its result is asked for.
    """

    def __init__(self, there: Callable[[], Result], here: Callable[[], Result]) -> None:
        self._here = here
        self._connection: Connection | None = None
        if not forkable():
            return
        forks = get_context("fork")
        mine, other = forks.Pipe(duplex=False)
        self._process = forks.Process(target=_answer, args=(there, other), daemon=True)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupted is who waits for it
        with suppress(OSError):  # no more processes are allowed here
            self._process.start()
            self._connection = mine
        signal.signal(signal.SIGINT, before)
        other.close()

    def result(self) -> Result:
        """What the work gives, each time anew once it was brought. Raises what the work raises `here`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(EOFError, OSError), connection:  # OSError: it ended in the middle of its answer
                found: Result = connection.recv()
                self._process.join()
                return found
        return self._here()


def _answer(work: Callable[[], Result], connection: Connection) -> None:
    with suppress(Exception):  # whoever waits finds out why
        connection.send(work())
