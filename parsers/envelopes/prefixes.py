"""What stands in front of each line: of `kubectl logs`, compose, syslog, Kibana, Ray and others, or of a quotation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sglang_lifecycle.parsers.envelopes.stamps import EPOCH, ISO, KIBANA, SYSLOG, stamp
from sglang_lifecycle.parsers.lines import Line

_ISO_T = ISO.replace("[T ]", "T", 1)
_HOST = r"(?P<host>[\w.:-]+)"
_IDENT = r"(?P<unit>[^\s\[\]{}\":]+(?:@[^\s\[\]]+)?)(?:\[\d+\])?: ?"
_NOT_OURS = r"(?!\s*(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\s)"  # the stamp of a program's own record
_OURS = r"\[|Receive|Finish|\{|INFO"
_LEVELS = r"(?:TRACE|DEBUG|INFO|WARN|ERROR)"
_FILE = r"[^\s:\[\]{}\"']+\.(?:log|txt|out|err|jsonl?)(?:\.[\w-]+)?"
_MANY = 4  # lines that have names
_RANKS = r"(?! ?(?:(?:DP|PP|TP|EP|CP|ATTN_CP|MOE_DP)\d+ ?)*\])"  # SGLang's own stamp without its bracket

_BESIDE = r'"[\w.@-]+"=>(?:"[^"]*"|[\w.+-]+|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})'
"""What Fluent Bit prints of a record beside its text, which it does not escape."""


@dataclass(frozen=True)
class Prefix:
    """One shape of prefix. Groups of `pattern`: `stamp`; `pod`, `host`, `unit` and `stream` name the stream.

    What follows the match is the line, unless there is a group `message`.

    `tail` is what follows the text, and has to be found in linear time: a stranger may write blanks or quotes by the
    thousand. `alone`: lines without the prefix are another's, not the continuation of the line before. `least`: the
    part of a file's lines that have the prefix at least.
    """

    name: str
    pattern: re.Pattern[str]
    tail: re.Pattern[str] | None = None
    certain: bool = True
    alone: bool = False
    least: float = 0.5
    by_line = True

    def share(self, sample: Sequence[str]) -> float:
        """The part of the lines that have the prefix; 0 where each has a name of its own, which is a number then."""
        found = [match for text in sample if (match := self.pattern.match(text)) is not None]
        share = len(found) / len(sample)
        numbered = "unit" in self.pattern.groupindex and len(found) >= _MANY
        numbered = numbered and len({match["unit"] for match in found}) == len(found)
        return share if share >= self.least and not numbered else 0.0

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without their prefix."""
        match = self.pattern.match
        groups = self.pattern.groupindex
        of_stamp, of_text = "stamp" in groups, "message" in groups
        of_stream = [name for name in ("pod", "host", "unit", "stream") if name in groups]
        stream = None
        for line in lines:
            found = match(line.text)
            if found is None:
                yield line.inner(line.text, None, None if self.alone else stream)
                continue
            if of_stream:
                stream = "/".join(part for name in of_stream if (part := found[name])) or None
            text = found["message"] or "" if of_text else line.text[found.end() :]
            if self.tail is not None:
                text = self.tail.sub("", text)
            yield line.inner(text, stamp(found["stamp"]) if of_stamp else None, stream)


class Again(Prefix):
    """A stamp of the form of SGLang's own before every line, so that most records have two."""

    def share(self, sample: Sequence[str]) -> float:
        """All, if every line has one, those of tracebacks as well, and a quarter of them have two."""
        found = [match for text in sample if (match := self.pattern.match(text)) is not None]
        twice = sum(self.pattern.match(match.string, match.end()) is not None for match in found)
        return float(len(found) == len(sample) and twice * 4 >= len(sample))


def told(name: str, regex: str) -> Prefix:
    """The rule of a user's own. Groups: `message`, which it needs, `time` and `stream`. Raises `ValueError`."""
    try:
        pattern = re.compile(regex.replace("(?P<time>", "(?P<stamp>"))
    except re.error as problem:
        raise ValueError(f"{regex!r} is no regular expression: {problem}") from None
    if "message" not in pattern.groupindex:
        raise ValueError(f"{regex!r} has no group (?P<message>…)")
    if unknown := pattern.groupindex.keys() - {"message", "stamp", "stream"}:
        raise ValueError(f"{regex!r} has a group {min(unknown)!r}; there are message, time and stream")
    return Prefix(name, pattern, certain=False)


def _rule(name: str, pattern: str, tail: str | None = None, **options: Any) -> Prefix:
    return Prefix(name, re.compile(pattern), re.compile(tail) if tail else None, **options)


ENVELOPES = (
    _rule("kubectl --prefix", r"\[(?P<pod>pod/[^\]\s]+)\] ?"),
    _rule(
        "stern",
        r"(?P<pod>[a-z][a-z0-9.-]*-(?=[a-z0-9]*\d)[a-z0-9]+) (?P<unit>[a-z][a-z0-9-]*)(?: |$)",
        certain=False,
        least=0.9,
    ),
    _rule("compose", r"(?P<unit>[A-Za-z0-9][\w.-]*(?:@[\w.-]+)?)\s+\| ?", least=0.7),
    _rule("pm2", r"(?P<unit>\d+\|[\w.-]+)\s+\| ?", certain=False, least=0.7),
    _rule("srun -l", r" {0,5}(?P<unit>\d{1,6}):(?: |$)", certain=False, least=0.9),
    Again("ts", re.compile(rf"\[(?P<stamp>{ISO})\](?: |$)")),
    _rule("jenkins", rf"\[(?P<stamp>{_ISO_T})\](?: |$)", certain=False),
    _rule(
        "dynamo",
        rf"(?P<stamp>{_ISO_T})\s+{_LEVELS} (?:\w+(?:\.\w+)+|dynamo\w*(?:::\w+)+): (?! )",
        r"(?<!\s)\s+$",
        certain=False,
    ),
    # As deep for all lines: what is quoted deeper in some is the text of a record, perhaps a stranger's.
    *(_rule("quoted", rf"(?:> ?){{{deep}}}", certain=False, least=0.9) for deep in (3, 2, 1)),
    _rule("frame", r"[│┃║] ?", r"(?<!\s)\s*[│┃║]\s*$", certain=False, least=0.9),
    _rule(
        "ray",
        r"\((?P<unit>\w[\w.:<>-]* pid=\d+(?:, ip=[\w.:-]+)?)\) ?",
        r"(?<!\s)\s*\[repeated \d+x across cluster\].*$",
        alone=True,
        least=0.2,
    ),
    _rule("torchrun", r"\[(?P<unit>(?:default|rank)\d+)\]: ?", certain=False, least=0.9),
    _rule("journal", rf"(?:<\d{{1,3}}>)?(?P<stamp>{SYSLOG}) {_HOST} {_IDENT}"),
    _rule("journal (ISO)", rf"(?:[A-Z][a-z]{{2}} )?(?P<stamp>{ISO}) {_HOST} {_IDENT}", least=0.6),
    _rule("journal (epoch)", rf"(?P<stamp>{EPOCH}) {_HOST} {_IDENT}", least=0.6),
    _rule("journal (monotonic)", rf"\[\s*\d+\.\d+\] {_HOST} {_IDENT}"),
    _rule("syslog", rf"<\d+>1 (?P<stamp>{ISO}) {_HOST} (?P<unit>\S+) \S+ \S+ (?:-|\[.*?\])(?: \ufeff?|$)"),
    _rule("logcli", rf"(?P<stamp>{_ISO_T}) \{{(?!\")[^}}]*\}} ?(?:\s+(?={_OURS}))?"),
    _rule("fluentd", rf"(?P<stamp>{ISO})[\t ][\w.*-]+(?:\t|: )(?=\{{)"),
    _rule("fluent-bit", rf"[\w.*-]+: \[(?P<stamp>{EPOCH}), (?=\{{)", r"\]$"),
    _rule(
        "fluent-bit stdout",
        rf'\[\d+\] [^\s"]+: \[{{1,2}}(?P<stamp>{EPOCH})(?:, ?\{{[^{{}}"]*\}}\])?, ?'
        rf'\{{(?:{_BESIDE}, )*"(?:log|message|MESSAGE)"=>"',
        rf'"(?:, {_BESIDE}){{0,8}}\}}\]$',  # of any number a stranger's text could make the search endless
    ),
    _rule("gh run", rf"[^\t]+\t[^\t]+\t\ufeff?(?P<stamp>{_ISO_T}) ?"),
    _rule("aws text", rf"EVENTS\t(?:\d+\t)?(?P<stamp>{EPOCH})\t(?:(?P<unit>[\w./@-]+)\t)?", r"\t\d{13}$"),
    _rule("numbers", r" {0,7}\d{1,9}(?:[:-]|\t| +[│|] |  ?)(?!\d\d-\d\d[T ])", certain=False, least=0.9),
    _rule("grep", rf"(?P<unit>{_FILE})[:-](?:\d{{1,9}}[:-](?!\d\d-\d\d[T ]))?", certain=False, least=0.9),
    _rule("kibana", rf"(?P<stamp>{KIBANA})(?:\t|\s{{1,4}})?", r"(?:\t|\s{4})$"),
    _rule("export", rf"(?:{EPOCH}[\t,])?(?P<stamp>{ISO})[\t,]"),
    _rule("export (epoch)", rf"(?P<stamp>{EPOCH})[\t, ](?!{ISO}[\t,])", certain=False),
    _rule("stamped", rf"(?P<stamp>{ISO})(?![\d,]){_RANKS}(?: |$){_NOT_OURS}", certain=False),
)
