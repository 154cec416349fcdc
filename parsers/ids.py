"""The ids of requests and sessions, as they stand in logs."""

from __future__ import annotations


def searchable(text: str) -> bool:
    """Whether an id stands in the logs as it is: quotes, backslashes and the like are written in several ways."""
    return len(text) >= _SHORTEST and text.isascii() and text.isprintable() and not set(text) & set("'\"\\")


_SHORTEST = 6  # characters: the hits of a shorter id would be most of the log
