"""A tree drawn beside the lines that tell of it, as `git log --graph` does: oldest first, roots at the top.

The first lane is the trunk, on which things happen that are no nodes of the tree; the roots branch off it. A child
goes on in the lane of its parent if it is the last one, else it branches off to the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LANES = 12
"""So many lanes are drawn; what lies farther to the right is shown at the edge."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside a line, and beside the lines that go on with its text."""

    first: str
    rest: str
    edge: bool = False
    """Whether it lies too far to the right to show where it branches off."""


class Graph:
    """Draws the nodes of a tree one after the other, each after its parent."""

    def __init__(self, parents: Sequence[int | None]) -> None:
        self._parents = parents
        self._left = [0] * len(parents)
        """How many children of each node are still to come."""
        for parent in parents:
            if parent is not None:
                self._left[parent] += 1
        self._lanes: list[int | None] = []
        self._lane_of: dict[int, int] = {}
        self._trunk = False

    def begin(self) -> None:
        """The trunk is there from the beginning, though nothing on it says so."""
        self._trunk = True

    def event(self, begins: bool = False, ends: bool = False) -> Beside:
        """Something on the trunk."""
        joint = ("└─" if ends else "├─") if self._trunk or begins else "· "
        self._trunk = (self._trunk or begins) and not ends
        return Beside((joint + self._passing()[2:]).rstrip(), self._passing())

    def node(self, index: int, glyph: str, firm: bool = True) -> Beside:
        """The node at `index`. One that is not firm only tried to branch off."""
        parent = self._parents[index]
        if parent is None:
            lane, joint = self._free(0), (-1 if self._trunk else None)
            before = self._passing()
        else:
            joint = self._lane_of[parent]
            self._left[parent] -= 1
            before = self._passing()
            last = not self._left[parent]
            lane = joint if last and firm else self._free(joint + 1)
            if last:
                self._leave(joint)
            joint = None if lane == joint else joint
            before = before if joint is None or not last else _put(before, _column(joint), "└")
        first = self._drawn(before, lane, joint, glyph, firm)
        if self._left[index]:
            self._stay(index, lane)
        return Beside(first, self._passing(), edge=lane >= LANES)

    def _drawn(self, before: str, lane: int, joint: int | None, glyph: str, firm: bool) -> str:
        column = _column(min(lane, LANES))
        if joint is None:
            return _put(before, column, glyph)
        start = _column(min(joint, LANES))
        drawn = _put(before, start, "├") if before[start : start + 1] != "└" else before
        for place in range(start + 1, column):
            if drawn[place : place + 1] in ("", " "):
                drawn = _put(drawn, place, "─" if firm else "·")
        return _put(drawn, column, glyph)

    def _passing(self) -> str:
        lanes = ["│" if lane is not None else " " for lane in self._lanes[:LANES]]
        return " ".join(["│" if self._trunk else " ", *lanes]).rstrip()

    def _free(self, least: int) -> int:
        """The first free lane from `least` on."""
        return next((i for i in range(least, len(self._lanes)) if self._lanes[i] is None), max(least, len(self._lanes)))

    def _stay(self, index: int, lane: int) -> None:
        self._lanes += [None] * (lane + 1 - len(self._lanes))
        self._lanes[lane] = index
        self._lane_of[index] = lane

    def _leave(self, lane: int) -> None:
        self._lanes[lane] = None
        while self._lanes and self._lanes[-1] is None:
            self._lanes.pop()


def _column(lane: int) -> int:
    """Where a lane is drawn; lane -1 is the trunk."""
    return 2 * (lane + 1)


def _put(text: str, column: int, glyph: str) -> str:
    text = text.ljust(column)
    return text[:column] + glyph + text[column + 1 :]
