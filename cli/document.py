"""An answer as a document: titles, paragraphs, tables and lists. Markdown, HTML and a screen show it, each its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class Code(str):
    """Text that is shown verbatim: an id, a place, a line of a log. In a document it may stand for any text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Items:
    """A list, numbered or not."""

    texts: Sequence[str]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. The columns whose names are in `numbers` are aligned to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[str] = frozenset()


Block = str | Items | Grid


@dataclass(frozen=True, slots=True)
class Section:
    """A title and what stands below it."""

    title: str
    body: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Document:
    """The whole: what it is about, and its sections; those without a body are left out."""

    title: str
    lead: Sequence[Block] = ()
    sections: Sequence[Section] = field(default=())

    @property
    def shown(self) -> list[Section]:
        """The sections that say something."""
        return [section for section in self.sections if section.body]
