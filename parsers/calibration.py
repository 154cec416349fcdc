"""Two clocks of one log: SGLang's stamps, which have no zone, and a collector's, which come later.

Where both stand on lines, their difference is the zone (whole quarters of an hour) and the collector's delay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple

from sglang_lifecycle.parsers.lines import Line, Stamp

_QUARTER = 900
_FARTHEST = 15 * 3600  # no zone is farther from UTC
_AGREEING = 0.8  # the part of the lines that must agree on a zone
_EXACT = 0.05  # seconds that a collector's stamp may be off at the least: it has the line after it was written


class Pair(NamedTuple):
    """A line with both stamps. `own` is SGLang's, read as UTC."""

    own: float
    resolution: float
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the stamps of a source are to be read: SGLang's in `zone`, the collector's moved by `shift` seconds.

    `delay` is how far a collector's stamp may be off, in seconds. `derived` says that the zone comes from the stamps.
    """

    zone: tzinfo
    shift: float = 0.0
    delay: float = _EXACT
    usable: bool = True
    derived: bool = False
    warning: str | None = None

    def apply(self, line: Line) -> None:
        """Make a line's stamp the interval in which it was written; none where the collector's can't be trusted."""
        stamp = line.stamp
        if stamp is not None:
            at, width = stamp.at + self.shift, stamp.resolution
            off = max(self.delay, width / 2)
            line.stamp = Stamp(at + width / 2 - off, 2 * off, True) if self.usable else None


def calibrate(pairs: Sequence[Pair], tz: tzinfo | None, zoned: bool) -> Calibration:
    """How to read the stamps of a source.

    `tz` is the zone that the user gave. `zoned` says whether the collector's stamps know theirs: if not, they follow
    SGLang's.
    """
    zone = tz or UTC
    if not pairs:
        return Calibration(zone, 0.0 if zoned else -_offset(zone, 0.0))
    quarters = Counter(round((pair.own - pair.stamp.at) / _QUARTER) for pair in pairs)
    (most, count), *_ = quarters.most_common(1)
    offset = float(most * _QUARTER)
    if count < _AGREEING * len(pairs) or (zoned and abs(offset) > _FARTHEST):
        unfit = "the collector's times don't fit the log's own; they are not used"
        return Calibration(zone, usable=False, warning=unfit)
    delay = max(_EXACT, *(_distance(pair, offset) for pair in pairs))
    if not zoned:
        return Calibration(zone, offset - _offset(zone, pairs[0].own), delay)
    if tz is None:
        derived = timezone(timedelta(seconds=offset)) if offset else UTC
        return Calibration(derived, 0.0, delay, derived=bool(offset))
    shift = offset - _offset(tz, pairs[0].own)
    warning = f"by the collector's times the zone is {name(offset)}, not the one given" if shift else None
    return Calibration(tz, shift, delay, warning=warning)


def _distance(pair: Pair, offset: float) -> float:
    """Seconds between the intervals that the two stamps of a line stand for; 0 where they meet."""
    own = pair.own - offset
    if abs(own - pair.stamp.at) > _QUARTER / 2:
        return 0.0  # an outlier, which was out-voted
    return max(0.0, pair.stamp.at - own - pair.resolution, own - pair.stamp.at - pair.stamp.resolution)


def _offset(zone: tzinfo, local: float) -> float:
    """Seconds that a zone is ahead of UTC at a local time, given as an epoch read as UTC."""
    offset = datetime.fromtimestamp(local, UTC).replace(tzinfo=zone).utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def name(offset: float) -> str:
    """A zone, as `UTC+05:30`."""
    minutes = int(abs(offset)) // 60
    return f"UTC{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
