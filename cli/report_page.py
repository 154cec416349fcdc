"""The page of an incident: its texts, its plot and its list, put into the template that escapes them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from sglang_lifecycle import __version__
from sglang_lifecycle.analyzers.catalogue import UnknownCause
from sglang_lifecycle.analyzers.catalogue import cause as known
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import Audit, RequestRow
from sglang_lifecycle.cli.inputs import quoted
from sglang_lifecycle.cli.interrupted import groups, moment, shares
from sglang_lifecycle.cli.page import fragment
from sglang_lifecycle.cli.report_plot import figure
from sglang_lifecycle.cli.report_story import story
from sglang_lifecycle.cli.text import clean, count, seconds
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.cli.verdict_document import document
from sglang_lifecycle.cli.words import WORDS, cause_title

LIMIT = 2000
"""So many interrupted requests are listed."""

_SURE = {confidence: place for place, confidence in enumerate(WORDS)}  # the surest verdict makes the best example


@dataclass(frozen=True, slots=True)
class Kind:
    """One cause, as the page tells it."""

    id: str
    title: str
    meaning: str
    advice: Sequence[str]
    count: int
    confidence: Sequence[int]
    example: Markup


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the list."""

    rid: str
    cause: str
    confidence: str
    at: str
    cells: Sequence[str]


def page(incident: Incident, audit: Audit, clock: Clock) -> str:
    """The whole page."""
    found = groups(audit.requests, clock)
    plot = figure(incident, audit, clock)
    scripts = [Markup(text) for text in ([get_plotlyjs()] if plot else []) + [_resource("report.js")]]
    return _template().render(
        causes=[_kind(incident, cause, rows, clock) for cause, rows in found.items()],
        clock=clock,
        count=count,
        heads=(*WORDS.values(),),
        listed=[_listed(row, clock) for row in _chosen(found, LIMIT)],
        plot=Markup(_inert(plot)) if plot else None,
        policy=_policy(scripts),
        result=audit,
        scripts=scripts,
        story=story(audit, found, clock),
        total=sum(map(len, found.values())),
        version=__version__,
    )


def _template() -> Template:
    environment = Environment(
        autoescape=True,
        finalize=lambda value: clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["prose"] = _prose
    return environment.from_string(_resource("report.html.j2"))


def _prose(text: str) -> Markup:
    """A text of the catalogue, in which backticks mark what is to be typed."""
    parts = (escape(clean(part)) for part in text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """What the page may do: run these very scripts, and nothing else; load nothing."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:;"
        " base-uri 'none'; form-action 'none'"
    )


def _inert(json: str) -> str:
    """JSON that can stand in a page: nothing in it ends the element that holds it."""
    return json.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _kind(incident: Incident, cause: str, rows: Sequence[RequestRow], clock: Clock) -> Kind:
    try:
        entry = known(cause)
        meaning, advice = " ".join(entry.meaning.split()), entry.advice
    except UnknownCause:
        meaning, advice = "", ()
    confidence = [sum(row.confidence == each for row in rows) for each in WORDS]
    return Kind(cause, cause_title(cause), meaning, advice, len(rows), confidence, _example(incident, rows, clock))


def _example(incident: Incident, rows: Sequence[RequestRow], clock: Clock) -> Markup:
    """The verdict on the request that shows the cause best, with its lines."""
    row = min(rows, key=lambda row: (_SURE[row.confidence], -len(row.chain)))
    verdict = explain(incident, row.rid).model_copy(update={"advice": []})  # the page has it once for all
    quoted(verdict.evidence)
    return Markup(fragment(document(verdict, clock), 4))


def _chosen(found: dict[str, list[RequestRow]], limit: int) -> list[RequestRow]:
    """All, or the newest of each cause; in the order of their ends."""
    shown = shares({cause: len(rows) for cause, rows in found.items()}, limit)
    chosen = [row for cause, rows in found.items() for row in rows[len(rows) - shown[cause] :]]
    return sorted(chosen, key=lambda row: (moment(row) or "", row.rid))


def _listed(row: RequestRow, clock: Clock) -> Listed:
    times = row.times
    tokens = ["–" if number is None else f"{number:,}" for number in (times.prompt_tokens, times.completion_tokens)]
    at = clock.full(moment(row)) if moment(row) else "–"
    return Listed(
        row.rid,
        row.cause,
        WORDS[row.confidence],
        at,
        [row.stage, row.actor, seconds(times.waited_s), seconds(times.ran_s), *tokens, row.session_id or ""],
    )
