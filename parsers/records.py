"""The records of one stream of lines, turned into facts: what begins, goes on and ends, and what strangers wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from sglang_lifecycle.parsers import clock, facts, lineforms, recordforms, requestfacts, requestlog
from sglang_lifecycle.parsers.blocks import Block
from sglang_lifecycle.parsers.evidence import Event, Fact, Source
from sglang_lifecycle.parsers.forms import AGAIN, Form, Row, Stamp
from sglang_lifecycle.parsers.layouts import Template
from sglang_lifecycle.parsers.lines import Line
from sglang_lifecycle.parsers.outside import Choose
from sglang_lifecycle.parsers.patterns import Pattern, table
from sglang_lifecycle.parsers.prefix import Head, Prefix
from sglang_lifecycle.parsers.strangers import Strangers

_RAW_LINES, _RAW_BYTES = 4096, 1 << 20  # how far a record with raw user text may reach before its end is given up
_TAIL_LINES = 400  # lines of a traceback or dump that are looked at
_OPEN_LINES = 20  # records after an open-ended text that are tainted at most
_UNESCAPED = tuple(
    f'{verb}: obj={kind}ReqInput(text="' for verb in ("Receive", "Finish") for kind in ("Generate", "Embedding")
)
_FENCE = "```"  # what Markdown has around a block
_JSON_HEAD = requestlog.JSON_HEAD.encode()
_JSON_HEADS = ('{"request_parameters"',)
NO_PREFIX = Head(None, 0.0, None, "")
_CRASHED = "{} hit an exception: Traceback (most recent call last):"
STARTS = frozenset({Event.SERVER_ARGS, Event.SERVER_STARTED})
"""After these the names of a record's fields are told anew."""


class RecordReader:
    """Assembles the records of one source and turns them into facts."""

    def __init__(self, source: Source, prefix: Prefix) -> None:
        self.source = source
        self.prefix = prefix
        self.table = table()
        self.facts: list[Any] = []  # those of a range are made later
        self._tail: tuple[Fact, list[str]] | None = None
        self._raw: tuple[Pattern, Head, list[Line]] | None = None
        self._echo = 0  # continuation lines of a multi-line text that is known already and now repeated
        self._texts: deque[str] = deque(maxlen=64)  # multi-line messages seen lately
        self._tainting = 0
        self._fenced = False  # whether a fence has opened a block: the next one ends it, and what stands at its end
        self._raw_ended: dict[Pattern, int] = {}  # where in `facts` each pattern with raw user text last seemed to end
        self._seen_fields: set[tuple[str, ...]] = set()
        self._routine: dict[Template, recordforms.RecordForm | None] = {}  # of records with fields that were seen
        self._strangers = Strangers()
        self._theirs = False  # whether the line at hand is a stranger's
        self._arrivals: dict[str, int] = {}  # the lines on which open requests were received
        self._said: tuple[Line, Fact | Row] | None = None  # the line before and its fact, where it may be said often

    def feed(self, line: Line) -> None:
        """Take the next physical line."""
        if self._said is not None:
            if line.stamp is None and line.body == self._said[0].body and self.again(1, line.number, line.offset):
                return
            self._said = None
        self._theirs = self._strangers.wrote(line)
        if self._raw is not None:
            self._continue_raw(line)
        elif self._echo or self._tainting or self._theirs or not self._usual(line):
            self._begin(line)

    def take(self, block: Block) -> None:
        """Take the next lines, many at once."""
        for line in block.lines():
            self.feed(line)

    def skip(self) -> None:
        """Lines are left out here: nothing goes on after them."""
        if self._raw is not None:
            self._give_up_raw()
        self._close_tail()
        self._echo = 0
        self._said = None

    def turn(self) -> None:
        """The next line is of another file."""
        self._said = None

    def finish(self) -> list[Fact]:
        """The end of the source: what is still open is closed."""
        self.skip()
        clock.settle(self.facts)
        return self.facts

    def twin(self, choose: Choose) -> RecordReader:
        """A reader in the same state with copies of the facts that `choose` picks: finishing it leaves this one be."""
        twin = RecordReader(self.source.copy(), self.prefix)
        chosen = choose(self.facts)
        twin.facts = [fact.copy() for fact in chosen]
        if self._tail is not None and chosen and chosen[-1] is self._tail[0]:
            twin._tail = twin.facts[-1], list(self._tail[1])
        twin._raw = self._raw
        return twin

    def forget(self, keep: frozenset[int]) -> None:
        """Let go of all facts but those whose identity is in `keep`; the newest may still be added to and stays."""
        before = len(self.facts)
        self.facts = [fact for fact in self.facts[:-1] if id(fact) in keep] + self.facts[-1:]
        gone = before - len(self.facts)
        self._raw_ended = {pattern: max(0, index - gone) for pattern, index in self._raw_ended.items()}

    def _begin(self, line: Line, may_open: bool = True, tainted: bool = False) -> None:
        if self._echo:
            self._echo -= 1
            return
        head = self.prefix.split(line.text)
        if head is not None:
            if head.resolution == 1.0:  # of finer stamps hardly one comes twice
                self.prefix.learn(line.body)
            self._record([line], head, tainted, may_open)
        elif not self._bare(line, tainted, may_open):
            self._continuation(line)

    def _bare(self, line: Line, tainted: bool, may_open: bool) -> bool:
        """Read a line without a prefix as a record, where it is one."""
        if not self.table.may_be_bare(line.text):
            return False
        bare = self.prefix.bare(line.text)
        found = self.table.find(bare.message)
        opens = may_open and self._tail is None and self.table.opened_by(bare.message, found[0] if found else None)
        if not opens and (found is None or not found[0].may_be_bare or self._inside_traceback(found[0])):
            return False
        self._record([line], bare, tainted, may_open)
        return True

    def _inside_traceback(self, pattern: Pattern) -> bool:
        """A traceback's own first line is part of the record that announces it, and `--` may be a part of any text."""
        return self._tail is not None and pattern.id in ("traceback", "grep.separator")

    def _record(self, lines: list[Line], head: Head, tainted: bool, may_open: bool) -> None:
        self._close_tail()
        tainted = tainted or self._tainting > 0 or self._theirs
        data = self._json(head)
        if data is not None:
            fact = requestfacts.from_json(data, self._blank(lines, head, tainted), self.prefix.zone)
            if fact is not None:
                self._note(fact)
                return
        if head.message.startswith(requestlog.REQUEST_HEADS):
            record = requestlog.read(head.message)
            if record is not None and record.cut and may_open and head.message.startswith(_UNESCAPED):
                self._raw = (self.table.unescaped, head, lines)
                return
            if record is not None:
                fact = self._blank(lines, head, tainted)
                self._strangers.remember(lines[0], fact)
                self._request(record, fact)
                return
        found = self.table.find(head.message)
        opened = self.table.opened_by(head.message, found[0] if found else None) if may_open else None
        if opened is not None:
            self._raw = (opened, head, lines)
            return
        self._tainting = max(0, self._tainting - 1)
        if found is None:
            self._orphan(head.message)
            self.source.unknown += 1
            return
        tainted = tainted or (found[0].raw and self._strangers.begun(head.message))
        fact = facts.from_pattern(found[0], found[1], self._blank(lines, head, tainted))
        self._strangers.remember(lines[0], fact)
        self._known(found[0], fact)
        self._say(lines[0], fact, fact.detail.get("path"))

    @staticmethod
    def _json(head: Head) -> dict[str, Any] | None:
        """A JSON object that is not the request log's."""
        if not head.message.startswith("{"):
            return None
        if not head.message.startswith(_JSON_HEADS) and '"event": "scheduler.status"' not in head.message[:120]:
            return None
        try:
            data = orjson.loads(head.message)
        except orjson.JSONDecodeError:
            return None
        return data if isinstance(data, dict) else None

    def _note(self, fact: Fact | Row) -> None:
        self.facts.append(fact)
        self.source.recognised += 1

    def _orphan(self, text: str) -> None:
        """The end of a record with raw user text, without its beginning: what looked like its end was part of it.

        Everything since that beginning may be an imitation.
        """
        for pattern, index in self._raw_ended.items():
            if pattern.closes.search(text):
                self._taint(self._since(index))

    def _since(self, index: int) -> Iterable[Any]:
        """The facts from a place on."""
        return self.facts[index:]

    def _taint(self, facts: Iterable[Any]) -> None:
        """Facts turn out to be what a stranger may have written."""
        for fact in facts:
            fact.tainted = True

    def _known(self, pattern: Pattern, fact: Fact) -> None:
        if pattern.raw:
            self._raw_ended[pattern] = len(self.facts)
        self._note(fact)
        text = fact.finish_message
        if text and "\n" in text:
            self._texts.append(text)
        elif text and pattern.event is Event.REQUEST_ERROR:
            self._repeat(text)
        if pattern.open_ended and not self._echo and not self._received(fact.rid):  # else all of it is known
            self._tainting = _OPEN_LINES
        elif pattern.event is Event.HTTP_ACCESS:
            self._tainting = 0
        if pattern.event in STARTS:
            self._seen_fields.clear()
            self._routine.clear()
        if pattern.tail:
            self._tail = (fact, [])

    def _repeat(self, first_line: str) -> None:
        """The API server repeats a text that the scheduler wrote: its further lines are known and no records."""
        for text in reversed(self._texts):
            first, *rest = text.split("\n")
            if first.rstrip("\r") == first_line:
                self._echo = len(rest)
                return

    def _say(self, line: Line, fact: Fact | Row, path: object) -> None:
        """Remember a line that may be said often, word for word: an answer on a path, an output for nobody."""
        if line.stamp is None and not fact.tainted and lineforms.repeats(fact.event, path):
            self._said = line, fact

    def again(self, times: int, number: int, offset: int) -> bool:
        """Count lines that repeat the one before, the last of them at a place; whether they can be just counted."""
        if self._said is None or self._raw is not None or self._echo or self._tainting or self._strangers.gapped:
            return False
        fact = self._said[1]
        if isinstance(fact, Row):
            fact.again = (fact.again[0] if fact.again else 0) + times, number, offset
        else:
            said = fact.detail.get("again", 0) + times, number, offset
            fact.detail.update(zip(AGAIN, said, strict=True))
        self.source.recognised += times
        return True

    def _usual(self, line: Line) -> bool:
        """Take a line that begins as others did, and whatever it says; whether it is such a one."""
        body = line.body
        known = self.prefix.known(body)
        if known is None:
            bare = body[:1] != b"["
            return bare and (self._filled(line, NO_PREFIX, 0) or self._object(line, NO_PREFIX, 0))
        head, start = known
        read = self._object if body[start : start + 1] == b"{" else self._filled
        if not read(line, head, start):
            self._record([line], self.prefix.rest(head, line.text[start:]), False, True)
        return True

    def _filled(self, line: Line, head: Head, start: int) -> bool:
        """Note a line of a form that is known; whether it is such a one."""
        form = lineforms.form(line.body, start)
        if form is not None:
            groups = form.find(line.body, start)
            if groups is None:
                return False
            self._say(line, self._noted(form, groups, line, head), form.path(groups))
            return True
        known = requestlog.find(line.body, start)
        if known is None:
            return False
        template, texts = known
        record = self._form(template)
        if record is None or not record.takes(texts):
            return False
        self._arrival(record.rid(texts), record.event, line.number)
        self._noted(record, texts, line, head)
        return True

    def _form(self, template: Template) -> recordforms.RecordForm | None:
        """The form of a template whose records are routine by now, if there is one."""
        if template not in self._routine:
            if template.names not in self._seen_fields:
                return None
            self._routine[template] = recordforms.form(template)
        return self._routine[template]

    def _noted(self, form: Form, texts: Sequence[Any], line: Line, head: Head) -> Fact | Row:
        """Note a line of a form, by what differs between lines of the form."""
        self._close_tail()
        row = Row(form, line.number, line.offset, line.length, stamped(head, line), texts)
        fact = self._of_row(row)
        self._strangers.remember(line, fact)
        self._note(fact)
        return fact

    def _of_row(self, row: Row) -> Fact | Row:
        """What is noted of a line of a form."""
        return row.form.fact(self.source.path, row)

    def _object(self, line: Line, head: Head, start: int) -> bool:
        """Note the fact of a request's record in JSON, which is read as it lies there; whether it is one."""
        if not line.body.startswith(_JSON_HEAD, start):
            return False
        try:
            data = orjson.loads(line.body[start:])
        except orjson.JSONDecodeError:  # cut, or not UTF-8
            return False
        record = requestlog.of_json(data) if isinstance(data, dict) else None
        if record is None:
            return False
        self._close_tail()
        fact = self._blank([line], head, tainted=False)
        self._strangers.remember(line, fact)
        self._request(record, fact)
        return True

    def _request(self, record: requestlog.RequestRecord, fact: Fact) -> None:
        found = requestfacts.from_request(record, fact, self.prefix.zone)
        for one in found[record.fields not in self._seen_fields :]:  # they are kept once
            del one.detail["fields"]
        self._seen_fields.add(record.fields)
        self._tainting = max(0, self._tainting - 1)
        if not fact.tainted:
            rids = record.rid if isinstance(record.rid, list) else [record.rid or ""]
            ended = fact.event is Event.REQUEST_FINISHED  # a batch ends at once
            lines = [self._arrival(rid, fact.event, fact.line) for rid in (rids[:1] if ended else rids) if rid]
            since = next(iter(lines), None)
            self._taint(self._strangers.quote(record.strangers(), 0 if ended and since is None else since))
        for one in found:
            self._note(one)
            if one.finish_message and "\n" in one.finish_message:
                self._texts.append(one.finish_message)

    def _arrival(self, rid: str, event: Event, line: int) -> int | None:
        """Of a `Finish` the line of its `Receive`: between them its texts may have been printed.

        None where the log lacks it, as one that begins late: then they may stand anywhere before.
        """
        if event is Event.REQUEST_FINISHED:
            return self._arrivals.pop(rid, None)
        self._arrivals[rid] = line
        return None

    def _received(self, rid: str | None) -> bool:
        """Whether the record of an open request has the rid."""
        return rid in self._arrivals

    def _continuation(self, line: Line) -> None:
        if line.text.startswith(_FENCE) and (self._fenced or self._tail is None) and not self._theirs:
            self._fenced = not self._fenced
            self._close_tail()
        if self._tail is not None and len(self._tail[1]) < _TAIL_LINES:
            fact, tail = self._tail
            tail.append(line.text)
            fact.length = line.offset + line.length - fact.offset
        elif self._tail is None and (frame := facts.OUTERMOST.match(line.text)) and not self._theirs:
            self._record([line], self.prefix.bare(_CRASHED.format(facts.FAILED[frame[1]])), False, False)
            self._continuation(line)
        elif line.text:
            self._orphan(line.text)
            self.source.unknown += 1

    def _close_tail(self) -> None:
        if self._tail is not None:
            fact, tail = self._tail
            self._tail = None
            facts.note_tail(fact, tail)

    def _continue_raw(self, line: Line) -> None:
        assert self._raw is not None
        pattern, head, lines = self._raw
        lines.append(line)
        if pattern.closes.search(line.text) and not self._strangers.hiding:
            texts = [head.message, *(held.text for held in lines[1:])]
            message = "".join(a + b.ending for a, b in zip(texts, lines, strict=True)).removesuffix(line.ending)
            found = self.table.find(message)
            if pattern is self.table.unescaped:
                self._raw = None  # a prompt of many lines, unescaped: nothing in it can be told from what it imitates
                self.source.unknown += len(lines)
                return
            if found is not None:
                self._raw = None
                fact = facts.from_pattern(*found, self._blank(lines, head, tainted=True))
                fact.detail["raw"] = True
                self._known(found[0], fact)
                return
        if len(lines) > _RAW_LINES or line.offset - lines[0].offset > _RAW_BYTES:
            self._give_up_raw()

    def _give_up_raw(self) -> None:
        """No end in sight: the line was cut, another process wrote into it, or it only begins like one of these.

        Its followers count, tainted; not after prose, which has no stamp and comes before any record.
        """
        assert self._raw is not None
        _, head, lines = self._raw
        self._raw = None
        prose = head.at is None and not self.source.recognised
        self._record(lines[:1], head, tainted=True, may_open=False)
        for line in lines[1:]:
            self._begin(line, may_open=False, tainted=not prose)

    def _blank(self, lines: list[Line], head: Head, tainted: bool) -> Fact:
        """A fact that knows its place and time; its kind is set by whoever reads the message."""
        first, last = lines[0], lines[-1]
        length = last.offset + last.length - first.offset
        stamp, path = stamped(head, first), self.source.path
        return Fact(Event.UNKNOWN, path, first.number, first.offset, length, path, *stamp, tainted)


def stamped(head: Head, line: Line | None = None) -> Stamp:
    """The rank of a record, its time, half of that time's width, and where it comes from."""
    if head.at is not None:
        half = head.resolution / 2
        return head.rank, head.at + half, half, "own"
    if line is not None and line.stamp is not None:
        at, width, _ = line.stamp
        return head.rank, at + width / 2, width / 2, "wrapper"
    return head.rank, None, None, None
