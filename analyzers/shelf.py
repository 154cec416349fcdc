"""Rows of an audit on disk: of requests that simply finished there are too many to be held, only to be listed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from operator import itemgetter

from sglang_lifecycle.analyzers.audit import order
from sglang_lifecycle.analyzers.listing import RequestRow

_MANY = 10_000  # rows that are written at once
_CACHE = -32_000  # KiB of memory, as SQLite wants it told
_NEWEST = """
    SELECT moment, rid, text FROM shelved WHERE rowid IN (SELECT max(rowid) FROM shelved GROUP BY rid)
    ORDER BY moment, rid
"""


class Shelf:
    """Takes rows as the texts that `text` makes of them, and gives them back in the order of an audit.

    Of rows of one rid the newest counts. They lie in a file of their own in the folder for temporary files, which is
    gone when the shelf is. Its methods raise OSError where there is no room.
    """

    def __init__(self, text: Callable[[RequestRow], str]) -> None:
        self._text = text
        self._rows: list[tuple[str, bytes, bytes]] = []
        with _room():
            self._file = sqlite3.connect("")
            for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size={_CACHE}"):
                self._file.execute(f"PRAGMA {setting}")
            self._file.execute("CREATE TABLE shelved (moment TEXT, rid BLOB, text BLOB)")

    def add(self, row: RequestRow) -> None:
        """Take a row."""
        moment, rid = order(row)
        self._rows.append((moment, _bytes(rid), _bytes(self._text(row))))
        if len(self._rows) >= _MANY:
            self._write()

    def texts(self, others: Iterable[RequestRow]) -> Iterator[str]:
        """The texts of all rows, and of others that were held and are in their order, whose rids count before these."""
        held = list(others)
        shelved = self._sorted({row.rid for row in held})
        beside = ((order(row), self._text(row)) for row in held)
        yield from map(itemgetter(1), merge(beside, shelved, key=itemgetter(0)))

    def _sorted(self, but: Container[str]) -> Iterator[tuple[tuple[str, str], str]]:
        self._write()
        with _room():
            for moment, name, text in self._file.execute(_NEWEST):
                rid = _str(name)
                if rid not in but:
                    yield (moment, rid), _str(text)

    def _write(self) -> None:
        with _room():
            self._file.executemany("INSERT INTO shelved VALUES (?, ?, ?)", self._rows)
        self._rows.clear()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # their order is that of the texts


def _str(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as problem:
        raise OSError(f"rows of the audit can't be kept on disk: {problem}") from problem
