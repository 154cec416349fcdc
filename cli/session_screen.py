"""What `sessions` shows to people: a list, and one session with the tree of its turns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.text import Text

from sglang_lifecycle.analyzers.listing import SessionEvent, SessionRow, Sessions, SessionTree, Turn
from sglang_lifecycle.cli.graph import Beside, Graph
from sglang_lifecycle.cli.layout import FAINT, GAP, INDENT, LABEL, TITLE, TONES, grid, plain, section, title
from sglang_lifecycle.cli.text import clean, count, pad, seconds, shorten
from sglang_lifecycle.cli.text import width as width_of
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.cli.words import VERSION_SOURCES, WORDS

STATES = {
    "open": "was open where the logs end",
    "stuck": "is stuck: its next turn will be refused, though none is active",
    "closing": "was waiting to close where the logs end",
    "closed": "was closed",
    "reaped": "expired",
    "lost": "was open until its server ended",
    "never-opened": "was never opened on this server",
    "unknown": "left no sign of what became of it",
}
"""The state of a session, as a sentence goes on."""

KINDS = {True: "streaming", False: "ordinary", None: "–"}

EVENTS = {
    "opened": "opened",
    "open-refused": "open refused: it was still open",
    "reaped": "expired",
    "close-deferred": "close deferred: a turn was unfinished",
    "close-ready": "deferred close tried again",
    "kv-released": "KV given back",
    "closed": "closed",
    "close-unknown": "close of a session that was not there",
    "server-ended": "ended with its server",
}

GLYPHS = {"finished": "•", "interrupted": "x", "in-flight": "o", "not-found": "o"}

LEGEND = "• finished, x interrupted, o in flight, ·· only tried"

RIDS = 44
"""Columns that a rid may take: what SGLang makes of a UUID is whole, longer ones are shortened in the middle."""

REMARK = 24
"""Columns kept for the remark beside the name of a server."""

LEAST = 34
"""Columns that the text of a turn has at least."""


def table(found: Sessions, clock: Clock, width: int) -> RenderableType:
    """All sessions, by the life of the server that they belong to."""
    rows = found.sessions
    if not rows:
        return Text("No session in these logs.")
    clock = clock.spanning(
        [at for row in rows for at in (row.opened, row.first_turn, _ended(row), row.last_turn) if at]
    )
    zone = clock.name(next((at for row in rows if (at := row.opened or row.first_turn)), None))
    lives = [list(group) for _, group in groupby(rows, key=lambda row: (row.server, row.life))]
    folder = os.path.dirname(rows[0].server) if len({os.path.dirname(row.server) for row in rows}) == 1 else ""
    parts: list[RenderableType] = [_sum(rows)]
    for life in lives:
        name = "Sessions" if len(lives) == 1 else f"Life {life[0].life} of {_server(life[0], folder)}"
        parts.append(section(shorten(clean(name), width - REMARK), _rows(life, clock, width), f"times are {zone}"))
    return Group(*parts)


def _server(row: SessionRow, folder: str) -> str:
    return row.server.removeprefix(folder).lstrip("/") if folder else row.server


def _sum(rows: Sequence[SessionRow]) -> Text:
    turns, cut = sum(row.turns for row in rows), sum(row.interrupted for row in rows)
    line = Text(f"{count(len(rows), 'session')}, {count(turns, 'turn')}: {cut:,} interrupted", style=TITLE)
    if flying := sum(row.in_flight for row in rows):
        line.append(f", {flying:,} in flight where the logs end", style="not bold")
    if lost := sum(row.context_lost for row in rows):
        line.append(f", {lost:,} without {'its' if lost == 1 else 'their'} history", style="not bold")
    return line.append(".", style="not bold")


def _rows(rows: Sequence[SessionRow], clock: Clock, width: int) -> RenderableType:
    ids = [clean(row.id) for row in rows]
    room = max(width - INDENT - 62, RIDS)  # what the other columns leave
    head = ["session", "kind", "opened", "ended", "turns", "cut", "state"]
    lines = [
        [
            shorten(id, room),
            KINDS[row.streaming],
            clock.short(row.opened, whole=True) if row.opened else "–",
            clock.short(ended, whole=True) if (ended := _ended(row)) else "–",
            f"{row.turns:,}",
            f"{row.interrupted:,}",
            _state(row),
        ]
        for id, row in zip(ids, rows, strict=True)
    ]
    right = {4, 5}
    widths = [max(width_of(line[i]) for line in [head, *lines]) for i in range(len(head))]
    return grid(
        [
            Text(cell.rjust(widths[i]) if i in right else cell, style=FAINT if first else LABEL if not i else "")
            for i, cell in enumerate(line)
        ]
        for first, line in zip([True, *[False] * len(lines)], [head, *lines], strict=True)
    )


def _ended(row: SessionRow) -> str | None:
    return row.closed or row.reaped


def _state(row: SessionRow) -> str:
    parts = [row.state.replace("-", " ")]
    if row.in_flight:
        parts.append(f"{row.in_flight:,} in flight")
    if row.replaced:
        parts.append(f"{len(row.replaced):,} replaced")
    if row.context_lost:
        parts.append(f"{row.context_lost:,} without history")
    return ", ".join(parts)


def screen(tree: SessionTree, clock: Clock, width: int) -> RenderableType:
    """One session: its life and its tree."""
    row = tree.session
    clock = clock.spanning([part.at for part in tree.events] + [turn.times.received for turn in tree.turns])
    zone = clock.name(row.opened or row.first_turn)
    return Group(
        _headline(row),
        plain(_life(row, clock)),
        _ids(tree),
        "",
        title("Life and tree", f"oldest first, times are {zone}"),
        Text(" " * INDENT + LEGEND, style=FAINT),
        *_drawn(tree, clock, width),
    )


def _headline(row: SessionRow) -> Text:
    return Text(f"Session {clean(row.id)} {STATES[row.state]}.", style=TITLE)


def _life(row: SessionRow, clock: Clock) -> str:
    turns = f"{count(row.turns, 'turn')}, {row.interrupted:,} of them interrupted"
    if row.in_flight:
        turns += f", {row.in_flight:,} in flight where the logs end"
    if row.context_lost:
        turns += f", {row.context_lost:,} without {'its' if row.context_lost == 1 else 'their'} history"
    kind = {True: "A streaming session", False: "An ordinary session", None: "A session, streaming or not"}[
        row.streaming
    ]
    opened = f", opened at {clock.full(row.opened)}" if row.opened else ""
    return f"{kind}{opened}: {turns}."


def _ids(tree: SessionTree) -> Text:
    version = tree.sglang_version
    parts = [f"state {tree.session.state}", f"life {tree.session.life} of its server"]
    if version.value:
        parts.append(f"SGLang {version.value}, {VERSION_SOURCES[version.source]}")
    return plain(" · ".join(parts), FAINT).append("\n" + clean(tree.session.server))


def _drawn(tree: SessionTree, clock: Clock, width: int) -> Iterator[Text]:
    """The lines of the tree, laid out by hand: there may be very many."""
    graph = Graph([turn.parent for turn in tree.turns])
    parts: list[tuple[int, SessionEvent | int]] = [(event.place, event) for event in tree.events]
    parts += [(turn.place, index) for index, turn in enumerate(tree.turns)]
    parts.sort(key=lambda part: part[0])
    if not any(event.kind == "opened" for event in tree.events):
        graph.begin()
    drawn: list[tuple[str | None, Beside, Turn | SessionEvent]] = []
    for _, part in parts:
        if isinstance(part, SessionEvent):
            beside = graph.event(part.kind == "opened", part.kind in _ends(tree))
            drawn.append((part.at, beside, part))
        else:
            turn = tree.turns[part]
            beside = graph.node(part, GLYPHS[turn.status], turn.accepted)
            drawn.append((turn.times.received or turn.times.ended, beside, turn))
    lanes = max((len(text) for _, beside, _ in drawn for text in (beside.first, beside.rest)), default=0)
    times = max((len(clock.short(at, whole=True)) for at, _, _ in drawn if at), default=1)
    room = width - INDENT - times - lanes - LEAST - 3 * GAP
    rids = min(max((width_of(clean(turn.rid)) for turn in tree.turns), default=0), RIDS)
    rids = rids if rids <= room else 0  # then what became of a turn stands below its rid
    for at, beside, what in drawn:
        when = clock.short(at, whole=True) if at else "–"
        yield from _lines(what, pad(when, times), beside, lanes, rids, width)


def _ends(tree: SessionTree) -> tuple[str, ...]:
    """What ends the trunk: an expiry does where no close follows it (0.5.10)."""
    closes = any(event.kind in ("closed", "close-deferred") for event in tree.events)
    return ("closed", "server-ended") if closes else ("closed", "server-ended", "reaped")


def _lines(what: Turn | SessionEvent, when: str, beside: Beside, lanes: int, rids: int, width: int) -> Iterator[Text]:
    """What happened to a session goes across the column of rids."""
    if isinstance(what, SessionEvent):
        body, name = _happened(what), ""
    else:
        body, name = _fate(what, beside), shorten(clean(what.rid), rids or RIDS)
        name = pad(name, rids) + " " * GAP if rids else name
    room = width - INDENT - len(when) - lanes - 2 * GAP
    below = bool(name) and not rids
    pieces = _wrapped(body, room - GAP if below else room - width_of(name))
    for number, piece in enumerate([Text(), *(Text(" " * GAP) + each for each in pieces)] if below else pieces):
        line = Text(" " * INDENT, no_wrap=True)
        line.append((" " * len(when) if number else when) + " " * GAP, style=FAINT)
        line.append((beside.rest if number else beside.first).ljust(lanes) + " " * GAP)
        line.append(name if not number else "" if below else " " * width_of(name), style=LABEL)
        yield line.append_text(piece)


def _wrapped(body: Text, columns: int) -> Sequence[Text]:
    if width_of(body.plain) <= columns and "\n" not in body.plain:
        return [body]
    return list(body.wrap(_console(), columns))


@cache
def _console() -> Console:
    """What Rich wants for folding text; nothing is written to it."""
    return Console()


def _happened(event: SessionEvent) -> Text:
    text = EVENTS[event.kind]
    if event.tokens is not None:
        text += f": {count(event.tokens, 'token')}"
    if event.told > 1 and event.until and event.until != event.at:
        text += f", {event.told:,} times"
    return Text(text)


def _fate(turn: Turn, beside: Beside) -> Text:
    """What became of a turn, then how it was built and what its session did to it."""
    if turn.status == "interrupted":
        line = plain(turn.cause).append(", ").append(WORDS[turn.confidence], style=TONES[turn.confidence])
        line.append(f", {clean(turn.stage)}")
    else:
        line = Text("finished" if turn.cause == "finished" else clean(turn.cause))
    rest = [*_measures(turn), *_built(turn, beside), *_done_to(turn)]
    line.append("".join(f", {part}" for part in map(clean, rest)), style=FAINT)
    for finding in turn.findings:
        line.append(f"\n{clean(finding.cause)}, ").append(WORDS[finding.confidence], style=TONES[finding.confidence])
        line.append(": ").append(clean(finding.summary), style=FAINT)
    return line


def _measures(turn: Turn) -> Iterator[str]:
    if turn.latency_s and turn.accepted:
        yield seconds(turn.latency_s)
    prompt, completion = turn.times.prompt_tokens, turn.times.completion_tokens
    if turn.status == "interrupted" and prompt == 1:
        return  # the scheduler's stand-in for the prompt of a refused request
    if prompt is not None or completion:
        before, after = ("–" if number is None else f"{number:,}" for number in (prompt, completion))
        yield f"{before}→{after} tokens"


def _built(turn: Turn, beside: Beside) -> Iterator[str]:
    parent = _name(turn.parent_rid)
    if turn.how == "replaces":
        yield f"replaces {parent or 'all'}"
    elif turn.parent is None and parent:
        yield f"names {parent}, which the logs don't have"
    elif beside.edge and parent:
        yield f"after {parent}"
    if turn.offset:
        yield f"offset {turn.offset:,}"
    if turn.drop_previous_output:
        yield "without the answer before it"


def _name(rid: str | None) -> str:
    return shorten(clean(rid or ""), RIDS)


def _done_to(turn: Turn) -> Iterator[str]:
    if turn.replaced_by:
        yield f"replaced by {_name(turn.replaced_by)}"
    if turn.cleared_by:
        yield f"cleared by {_name(turn.cleared_by)}"
    yield from (effect for effect in turn.effects if effect != turn.cause)
