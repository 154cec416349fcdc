"""containerd's and CRI-O's files; and the pieces of 16 KiB that container engines cut long lines into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sglang_lifecycle.parsers.envelopes.stamps import ISO, stamp
from sglang_lifecycle.parsers.lines import CAP, Line

_CRI = re.compile(rf"(?P<stamp>{ISO}) (?P<stream>stdout|stderr) (?P<tag>[FP](?::\S*)?) ?")


class Pieces:
    """Joins the pieces of lines, those of each stream (`stdout`, `stderr`) on their own."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Line, list[str], int]] = {}

    def add(self, stream: str, line: Line, partial: bool) -> Line | None:
        """Take a piece; the whole line with its last one."""
        held = self._open.pop(stream, None)
        if held is None and not partial:
            return line
        first, texts, size = held or (line, [], 0)
        if size < CAP:
            texts.append(line.text)
        if partial:
            self._open[stream] = first, texts, size + len(line.text)
            first.joined(line)
            return None
        first.text = "".join(texts)
        return first.joined(line)

    def rest(self) -> Iterator[Line]:
        """Lines whose last piece never came."""
        for first, texts, _ in self._open.values():
            first.text = "".join(texts)
            yield first


class CRI:
    """`TIME stdout|stderr F|P text`: the files below /var/log/pods."""

    name = "cri"
    certain = True
    by_line = True

    def share(self, sample: Sequence[str]) -> float:
        """The part of the lines that have the shape."""
        share = sum(_CRI.match(text) is not None for text in sample) / len(sample)
        return share if share >= 0.5 else 0.0

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines, pieces joined."""
        pieces = Pieces()
        for line in lines:
            match = _CRI.match(line.text)
            if match is None:
                yield line
                continue
            inner = line.inner(line.text[match.end() :], stamp(match["stamp"]))
            whole = pieces.add(f"{match['stream']}{line.stream}", inner, match["tag"].startswith("P"))
            if whole is not None:
                yield whole
        yield from pieces.rest()


ENVELOPES = (CRI(),)
