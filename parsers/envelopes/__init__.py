"""What log collectors wrap around lines: recognised by looking at a file's first lines, taken off layer by layer.

An envelope is a reader of one shape. Those of the entry-point group `sglang_lifecycle.envelopes` are known, the
built-in ones among them; each entry names a sequence of envelopes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Protocol

from sglang_lifecycle.parsers.envelopes.learned import learn
from sglang_lifecycle.parsers.lines import Line

GROUP = "sglang_lifecycle.envelopes"
DEPTH = 6
"""How many layers are taken off at most."""


class Envelope(Protocol):
    """A reader of one shape that collectors wrap lines in. It keeps no state: what it remembers lives in `open`."""

    @property
    def name(self) -> str:
        """What it is called, for people."""

    @property
    def certain(self) -> bool:
        """Whether the shape alone tells. If not, it is taken off only where SGLang's lines come to light."""

    @property
    def by_line(self) -> bool:
        """Whether each line has it or not, whatever the others have: then it may stand amid an issue's prose."""

    def share(self, sample: Sequence[str]) -> float:
        """The part (0 to 1) of the lines of a file's beginning that have this shape; 0 where it should not be opened.

        The sample has at least one line and no empty ones.
        """

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines that are in the wrapped ones; made by `Line.inner`, so that they keep their place."""


@cache
def registered() -> tuple[Envelope, ...]:
    """Every known envelope, those of one entry in their order."""
    from importlib.metadata import entry_points  # reads mail headers, for which it imports a lot

    found: list[Envelope] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        found.extend(entry.load())
    return tuple(found)


_told: tuple[Envelope, ...] = ()


def tell(found: Sequence[Envelope]) -> None:
    """What the user's own envelopes are from now on; they stand beside those that are registered."""
    global _told
    _told = tuple(found)


def _known() -> tuple[Envelope, ...]:
    return (*registered(), *_told)


def recognise(
    sample: Sequence[str], speaks: Callable[[str], bool], begins: Callable[[str], bool] | None = None
) -> tuple[Envelope, ...]:
    """The layers around the lines of a file, outermost first; none where they are bare.

    `sample` are its first lines, `speaks` tells whether a bare line is one of SGLang's. Where there may be prose around
    a log, `begins` tells whether a line begins as SGLang's records do and nothing else.
    """
    texts = [text for text in sample if text.strip()]
    layers = _around(texts, speaks)
    within = _texts(texts, layers)
    if begins is None or (layers and any(map(speaks, within))):
        return layers
    return layers + _amid(within, speaks, begins)


def _around(texts: list[str], speaks: Callable[[str], bool]) -> tuple[Envelope, ...]:
    """The layers that most lines have, and a prefix that no rule knows where SGLang's lines stand behind it.

    They have to be most of what begins a line: another program may print now and then what a client has imitated.
    """
    layers = _known_around(texts, speaks)
    within = _texts(texts, layers)
    if len(layers) == DEPTH or (prefix := learn(within)) is None:
        return layers
    more = (prefix, *_known_around(_texts(within, (prefix,)), speaks))
    texts = _texts(within, more)
    spoken, beginnings = sum(map(speaks, texts)), sum(text[0] not in _DEEPER for text in texts)
    return (*layers, *more) if spoken * 2 >= beginnings and spoken > sum(map(speaks, within)) else layers


_DEEPER = " \t|"  # how the lines of tracebacks begin


def _texts(texts: Sequence[str], layers: Sequence[Envelope]) -> list[str]:
    return [line.text for line in texts_within(texts, layers) if line.text.strip()]


def _known_around(texts: list[str], speaks: Callable[[str], bool]) -> tuple[Envelope, ...]:
    layers: list[Envelope] = []
    keep = 0
    while texts and len(layers) < DEPTH:
        best = _best(texts, layers)
        if best is None:
            break
        envelope, texts = best
        layers.append(envelope)
        if envelope.certain and all(layer.certain for layer in layers[keep:]):
            keep = len(layers)
    if keep < len(layers) and any(speaks(text) for text in texts):
        keep = len(layers)
    return tuple(layers[:keep])


def _amid(texts: list[str], speaks: Callable[[str], bool], begins: Callable[[str], bool]) -> tuple[Envelope, ...]:
    """The layers around those lines that speak, where others are prose.

    None where any line begins a bare record: what is wrapped beside it may be the text of a stranger.
    """
    if any(map(begins, texts)):
        return ()
    most = sum(map(speaks, texts))
    layers: tuple[Envelope, ...] = ()
    for envelope in _known():
        wrapped = [text for text in texts if envelope.share([text])] if envelope.by_line else []
        found = _known_around(wrapped, speaks)
        spoken = sum(speaks(line.text) for line in texts_within(wrapped, found))
        if spoken > most:
            most, layers = spoken, found
    return layers


def unwrap(lines: Iterable[Line], layers: Sequence[Envelope]) -> Iterator[Line]:
    """The lines within all layers."""
    for envelope in layers:
        lines = envelope.open(lines)
    return iter(lines)


def texts_within(texts: Sequence[str], layers: Sequence[Envelope]) -> list[Line]:
    """The lines within some texts, for a look at them."""
    return list(unwrap((_line(number, text) for number, text in enumerate(texts, 1)), layers))


def _line(number: int, text: str) -> Line:
    line = Line(number, 0, b"")
    line.text = text
    return line


def _best(texts: list[str], layers: Sequence[Envelope]) -> tuple[Envelope, list[str]] | None:
    """The envelope that has the most lines, among equals the one that takes off the most; with what is within."""
    found: list[tuple[tuple[float, int, float], Envelope, list[str]]] = []
    for envelope in _known():
        share = envelope.share(texts) if envelope not in layers else 0.0
        if share > 0:
            inner = _texts(texts, (envelope,))
            found.append(((round(share, 1), -sum(map(len, inner)), share), envelope, inner))
    if not found:
        return None
    _, envelope, inner = max(found, key=lambda each: each[0])
    return envelope, inner
