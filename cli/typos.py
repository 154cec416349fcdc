"""What may have been meant by an id that is none: pasted with what stood around it, cut short, or mistyped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from sglang_lifecycle.cli.errors import UsageError

MATCHES = 20
"""So many ids of the same beginning are listed."""

LIKE = 0.75
"""How alike, from 0 to 1, an id and a mistyped one are."""

_MARGIN = 0.05  # what is that much less alike than the likeliest was not meant
_LEAST = 4  # of shorter ids, half is hardly anything
_PASTED = re.compile(r"""\s*(?:['"]?rid['"]?\s*[=:]\s*)?(?P<quote>['"]?)(?P<id>.*?)(?P=quote)[\s,;]*""", re.DOTALL)


def bare(text: str) -> str:
    """An id without what a line has around it: blanks, quotes, `rid=`."""
    match = _PASTED.fullmatch(text)
    return match["id"] or text if match else text


def decoded(id: str) -> str:
    """An id of the command line as text: bytes of it that are none are replaced, as they are in the logs."""
    return id.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def only(matches: Sequence[str], text: str, kind: str) -> str | None:
    """The one of some ids of a kind that begin with a text; None where none does. Raises `UsageError` for several."""
    if len(matches) > 1:
        named = list(matches[:MATCHES])
        if more := len(matches) - len(named):
            named.append(f"and {more} more")
        raise UsageError(f"{text!r} is the beginning of {len(matches):,} {kind} ids; give more of it", named)
    return matches[0] if matches else None


def near(text: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The ids that are nearly the same, the likeliest first; there may be millions.

    One letter too much, too little, another one or two exchanged, in whatever case: the half before that, or the one
    after it, is as it is in the right one.
    """
    wanted = text.casefold()
    half = (len(wanted) - 1) // 2
    if len(wanted) < _LEAST:
        return []
    head, tail = wanted[:half], wanted[-half:]
    found: dict[str, float] = {}
    for each in known:
        if abs(len(each) - len(text)) <= 1 and each not in found:
            folded = each.casefold()
            if folded.startswith(head) or folded.endswith(tail):
                found[each] = SequenceMatcher(None, folded, wanted, autojunk=False).ratio()
    least = max(LIKE, max(found.values(), default=0) - _MARGIN)
    return sorted((each for each in found if found[each] >= least), key=lambda each: (-found[each], each))[:most]
