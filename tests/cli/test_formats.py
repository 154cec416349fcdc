"""Every form of an audit, of real logs and of hostile ones: valid by its own rules, and with nothing smuggled in."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from sglang_lifecycle.analyzers.baseline import compare
from sglang_lifecycle.analyzers.listing import Audit, RequestRow, ThresholdResult, Totals
from sglang_lifecycle.analyzers.thresholds import parse, results
from sglang_lifecycle.analyzers.verdict import Times, Verdict
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.document import Code, Document, Grid, Items, Section
from sglang_lifecycle.cli.formats import Format, encode, verdict_markdown
from sglang_lifecycle.cli.markdown import markdown
from sglang_lifecycle.cli.page import page
from sglang_lifecycle.cli.requests_table import COLUMNS, frame
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.parsers import table

Capture = pytest.CaptureFixture[str]
THRESHOLDS = ["interrupted > 0", "watchdog-timeout > 5", "client-disconnect >= 1%"]

EVIL = [
    "=cmd|' /C calc'!A0",
    "+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "a,b",
    'quote"d',
    "two\nlines",
    "<script>alert(1)</script>",
    "]]>&amp;<!--",
    "\x00\x08\x1b[31m\ufffe",
    "`code` ``` fence",
    "a|b\\|c",
    "[text](http://example.test) ![x](y) <http://example.test>",
    "**bold** _it_ ~~no~~ # title",
    "@somebody www.example.test https://example.test",
    "漢字 שלום \u202e evil",
    "\udcff lone",
    '{label="x"} # EOF',
]


@pytest.fixture
def hostile(an_audit: Audit) -> Audit:
    """An audit whose every text from logs is one of the evil ones."""
    for index, text in enumerate(EVIL):
        row = an_audit.requests[0].model_copy(update={"rid": text, "session_id": EVIL[-index]})
        an_audit.requests.append(row)
        an_audit.server_events.append(an_audit.server_events[0].model_copy(update={"summary": text}))
        an_audit.inputs.append(an_audit.inputs[0].model_copy(update={"path": text, "warnings": [text]}))
    number = sum(not row.synthetic for row in an_audit.requests)
    an_audit.totals = Totals(requests=number, interrupted=number - 1, finished=1, synthetic=1)
    an_audit.thresholds = results([parse(text) for text in THRESHOLDS], an_audit)
    return an_audit


def encoded(audit: Audit, format: Format) -> str:
    return encode(audit, format, Clock(), None).decode("utf-8")


def schema(capsys: Capture, name: str) -> dict[str, Any]:
    assert main(["schema", name]) == 0
    found = dict(json.loads(capsys.readouterr().out))
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def valid(instance: Any, rules: dict[str, Any]) -> None:
    jsonschema.validate(instance, rules, format_checker=jsonschema.FormatChecker())


class TestSchemas:
    def test_json_and_ndjson(self, scenario: Any, an_audit: Audit, capsys: Capture) -> None:
        rules, line_rules = schema(capsys, "audit"), schema(capsys, "ndjson")
        audit = scenario.audit.model_copy(deep=True)
        audit.thresholds = results([parse(text) for text in THRESHOLDS], audit)
        audit.comparison = compare(audit, an_audit, "old.json")
        whole = json.loads(encoded(audit, Format.JSON))
        valid(whole, rules)
        lines = [json.loads(line) for line in encoded(audit, Format.NDJSON).splitlines()]
        for line in lines:
            valid(line, line_rules)
        assert lines[-1]["record"] == "totals"
        for kind in ("input", "server_event", "request", "threshold"):
            told = [{k: v for k, v in line.items() if k != "record"} for line in lines if line["record"] == kind]
            assert told == whole[f"{kind}s"]
        assert [line["test"] for line in lines if line["record"] == "comparison"] == [whole["comparison"]["test"]]

    def test_hostile_text_is_data(self, hostile: Audit) -> None:
        rows = json.loads(encoded(hostile, Format.JSON))["requests"]
        assert [row["rid"] for row in rows][-len(EVIL) :] == EVIL
        lines = encoded(hostile, Format.NDJSON).split("\n")
        assert [json.loads(line)["record"] for line in lines[:-1]].count("request") == len(hostile.requests)

    def test_the_schemas_refuse_what_is_not_theirs(self, an_audit: Audit, capsys: Capture) -> None:
        whole = json.loads(encoded(an_audit, Format.JSON))
        whole["requests"][0]["status"] = "fine"
        with pytest.raises(jsonschema.ValidationError):
            valid(whole, schema(capsys, "audit"))
        with pytest.raises(jsonschema.ValidationError):
            valid({"record": "request"}, schema(capsys, "ndjson"))

    def test_explain(self, recorded: Any, capsys: Capture) -> None:
        rules = schema(capsys, "explain")
        scenario = recorded("0.5.23/s14_timeout_prefix")
        for rid in scenario.rows:
            valid(json.loads(scenario.explain(rid).model_dump_json(by_alias=True)), rules)

    def test_requests(self, scenario: Any, capsys: Capture) -> None:
        rules = schema(capsys, "requests")
        rows = pl.read_parquet(encode(scenario.audit, Format.PARQUET, Clock(), None)).to_dicts()
        assert len(rows) == len(scenario.audit.requests)
        for row in rows:
            times = {name: row[name] and row[name].isoformat() for name in ("received", "ended")}
            valid(row | times, rules)

    def test_evidence(self, scenario: Any, capsys: Capture) -> None:
        rules = schema(capsys, "evidence")
        validator = jsonschema.Draft202012Validator(rules)
        for row in table.frame(scenario.evidence.facts).to_dicts():
            validator.validate(row)

    def test_every_column_is_described(self, capsys: Capture) -> None:
        for name in ("evidence", "requests"):
            assert all(column.get("description") for column in schema(capsys, name)["properties"].values())
        assert set(schema(capsys, "evidence")["properties"]) == set(table.COLUMNS)


class TestTables:
    def test_csv_holds_the_frame(self, scenario: Any) -> None:
        rows = list(csv.DictReader(io.StringIO(encoded(scenario.audit, Format.CSV))))
        assert [row["cause"] for row in rows] == frame(scenario.audit)["cause"].to_list()
        assert all(list(row) == list(COLUMNS) for row in rows)

    def test_no_cell_is_a_formula(self, hostile: Audit) -> None:
        rows = list(csv.reader(io.StringIO(encoded(hostile, Format.CSV), newline="")))
        assert len(rows) == 1 + len(hostile.requests)
        cells = [cell for row in rows[1:] for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
        assert "'=cmd|' /C calc'!A0" in cells
        assert 'quote"d' in cells
        assert "two\nlines" in cells

    def test_parquet_keeps_values_as_they_are(self, hostile: Audit) -> None:
        found = pl.read_parquet(encode(hostile, Format.PARQUET, Clock(), None))
        kept = [row.rid.replace("\udcff", "\\udcff") for row in hostile.requests]
        assert found["rid"].to_list() == kept
        assert found.schema["ended"] == pl.Datetime("ms", "UTC")
        assert found.schema["candidates"] == pl.List(pl.String)

    def test_an_empty_audit_has_the_columns(self) -> None:
        assert pl.read_parquet(encode(Audit(), Format.PARQUET, Clock(), None)).columns == list(COLUMNS)
        assert encoded(Audit(), Format.CSV) == ",".join(COLUMNS) + "\n"


ROW: dict[str, Any] = {
    "status": "interrupted",
    "cause": "queue-full",
    "confidence": "proven",
    "layer": "scheduler",
    "stage": "waiting",
    "actor": "scheduler",
    "times": Times(),
}


class Page(html.parser.HTMLParser):
    """Collects tags and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


class TestHtml:
    def test_nothing_is_markup_but_ours(self, hostile: Audit) -> None:
        text = encoded(hostile, Format.HTML)
        found = Page(text)
        assert found.open == []
        ours = set("html head meta title style body h1 h2 p div table tr th td code".split())
        assert found.tags <= ours
        assert found.attributes <= {"lang", "charset", "name", "content", "http-equiv", "class"}
        assert "<script>alert(1)</script>" in "".join(found.text)
        assert not {"\x00", "\x1b", "\u202e"} & set(text)

    def test_it_loads_nothing(self, scenario: Any) -> None:
        text = encoded(scenario.audit, Format.HTML)
        assert "src=" not in text
        assert "href=" not in text
        assert "default-src 'none'" in text


@pytest.mark.parametrize("format", [Format.HTML, Format.MARKDOWN])
def test_a_column_that_nobody_fills_is_left_out(format: Format, an_audit: Audit) -> None:
    assert "session" in encoded(an_audit, format).partition("Interrupted requests")[2]
    for row in an_audit.requests:
        row.session_id = None
    shown = encoded(an_audit, format).partition("Interrupted requests")[2].partition("Inputs")[0]
    assert "session" not in shown
    assert "waited" in shown


class TestMarkdown:
    def test_text_stays_text(self) -> None:
        rendered = MarkdownIt("gfm-like")
        for evil in EVIL:
            document = Document(evil, [evil, Items([evil]), Items([evil], numbered=True)], [Section(evil, [evil])])
            tokens = rendered.parse(markdown(document))
            children = [child.type for token in tokens for child in token.children or ()]
            assert set(children) <= {"text", "text_special"}, evil
            outer = [token.type for token in tokens if token.nesting == 1]
            assert (
                outer
                == (
                    "heading_open paragraph_open bullet_list_open list_item_open paragraph_open"
                    " ordered_list_open list_item_open paragraph_open heading_open paragraph_open"
                ).split()
            ), evil

    def test_cells_stay_cells(self) -> None:
        rendered = MarkdownIt("gfm-like")
        grid = Grid(("a", "b"), [(Code(evil), evil) for evil in EVIL])
        tokens = rendered.parse(markdown(Document("t", [grid])))
        assert sum(token.type == "td_open" for token in tokens) == 2 * len(EVIL)
        assert sum(token.type == "tr_open" for token in tokens) == 1 + len(EVIL)
        kinds = {child.type for token in tokens for child in token.children or ()}
        assert kinds <= {"text", "text_special", "code_inline"}
        shown = [c.content for token in tokens for c in token.children or () if c.type == "code_inline"]
        assert "<script>alert(1)</script>" in shown
        assert "`code` ``` fence" in shown

    @pytest.mark.parametrize("text", ["1. no list", "- no list", "+ no", "=== no", "12) no", "> no quote", "# no"])
    def test_a_paragraph_begins_nothing_else(self, text: str) -> None:
        tokens = MarkdownIt("gfm-like").parse(markdown(Document("t", [text])))
        assert [t.type for t in tokens if t.nesting == 1] == ["heading_open", "paragraph_open"]
        assert tokens[4].children

    def test_mentions_and_links_are_defused(self) -> None:
        text = markdown(Document("t", ["@somebody see https://a.test www.a.test"]))
        assert "@" not in text
        assert "://" not in text
        assert "www." not in text

    def test_a_verdict(self, verdict: Verdict, undecided: Verdict, nasty: str) -> None:
        text = verdict_markdown(verdict, Clock())
        assert text.startswith("# Request wt-7 waited too long in the queue: proven\n")
        assert "| `waiting-timeout` | no slot came free within its limit (3) |" in text
        assert "| 3 | `server.log:58` | 2026-08-02 12:00:21.500 UTC | `request.finished` |" in text
        assert "## Candidates" not in text
        assert "## Candidates" in verdict_markdown(undecided, Clock())


class TestJunit:
    def test_a_case_for_each_threshold(self, hostile: Audit) -> None:
        root = ET.fromstring(encoded(hostile, Format.JUNIT))
        cases = root.findall("testsuite/testcase")
        assert [case.get("name") for case in cases] == THRESHOLDS
        failed = {case.get("name") for case in cases if case.find("failure") is not None}
        assert failed == {"interrupted > 0", "client-disconnect >= 1%"}
        assert root.get("failures") == "2"
        assert "<script>alert(1)</script>" in (cases[0].find("failure").text or "")  # type: ignore[union-attr]

    def test_no_threshold_is_no_case(self, an_audit: Audit) -> None:
        root = ET.fromstring(encoded(an_audit, Format.JUNIT))
        assert (root.get("tests"), root.findall("testsuite/testcase")) == ("0", [])


class TestOpenMetrics:
    def test_it_is_openmetrics(self, hostile: Audit) -> None:
        text = encoded(hostile, Format.OPENMETRICS)
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert text.endswith("\n# EOF\n")
        status = {s.labels["status"]: s.value for s in families["lifecycle_requests"].samples}
        assert status == {"interrupted": len(hostile.requests) - 2, "finished": 1, "in-flight": 0}
        crossed = {s.labels["threshold"]: s.value for s in families["lifecycle_threshold_crossed"].samples}
        assert crossed == {"interrupted > 0": 1, "watchdog-timeout > 5": 0, "client-disconnect >= 1%": 1}

    def test_every_cause_is_there(self, scenario: Any) -> None:
        families = {f.name: f for f in text_string_to_metric_families(encoded(scenario.audit, Format.OPENMETRICS))}
        causes = {s.labels["cause"]: s.value for s in families["lifecycle_interrupted_requests"].samples}
        assert {cause: value for cause, value in causes.items() if value} == scenario.audit.totals.by_cause
        assert {"waiting-timeout", "scheduler-crash"} <= causes.keys()


ANY = st.text(st.characters(codec=None), max_size=40)


@given(ANY)
def test_no_text_breaks_out_of_any_format(text: str) -> None:
    grid = Grid(("a", "b"), [(text, Code(text))])
    document = Document(text, [text, grid])
    tokens = MarkdownIt("gfm-like").parse(markdown(document))
    assert sum(token.type == "td_open" for token in tokens) == 2
    kinds = {child.type for token in tokens for child in token.children or ()}
    assert kinds <= {"text", "text_special", "code_inline"}
    assert Page(page(document)).open == []
    expression = ThresholdResult(expression=text, crossed=True, requests=1, of=1, rids=[text])
    audit = Audit(thresholds=[expression], requests=[RequestRow(rid=text, **ROW)])
    assert len(ET.fromstring(encoded(audit, Format.JUNIT)).findall("testsuite/testcase/failure")) == 1
    assert len(list(text_string_to_metric_families(encoded(audit, Format.OPENMETRICS)))) > 1
    _, row = csv.reader(io.StringIO(encoded(audit, Format.CSV), newline=""))
    shown = text.encode("utf-8", "backslashreplace").decode()
    assert row[0] in (shown, f"'{shown}")
    assert not row[0].startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert json.loads(encoded(audit, Format.JSON))["requests"][0]["rid"] == text
    assert encoded(audit, Format.NDJSON).count("\n") == 3


@pytest.mark.parametrize("format", list(Format))
def test_the_order_of_the_inputs_decides_nothing(
    format: Format, recorded: Callable[[str], Any], tmp_path: Any, capfdbinary: Any
) -> None:
    paths = [str(recorded(name).logs) for name in ("0.5.23/s14_timeout_prefix", "0.5.23/s18_two_lives")]
    outputs = []
    for order in (paths, paths[::-1], [*paths, paths[0]]):
        file = tmp_path / "out"
        main(["audit", *order, "--format", format.value, "-o", str(file), "--fail-on", "interrupted > 0"])
        outputs.append(file.read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]


def test_page_is_one_line_break_at_its_end() -> None:
    assert page(Document("t")).endswith("</html>\n")


@pytest.mark.parametrize(
    "command",
    [
        "explain sA-1", "audit", "find --status finished", "sessions", "sessions --session sess-A", "doctor",
        "replay run",
    ],
)  # fmt: skip
def test_a_path_that_is_no_text_has_an_escape_in_json(
    command: str, recorded: Any, tmp_path: Path, capsys: Capture
) -> None:
    log = tmp_path / os.fsdecode(b"caf\xe9.log")
    log.write_bytes(recorded("0.5.23/s02a_session").server_log.read_bytes())
    assert main([*command.split(), str(log), "--json"]) == 0
    assert "caf\udce9.log" in json.dumps(json.loads(capsys.readouterr().out), ensure_ascii=False)


def test_a_path_that_is_no_text_can_be_stored(recorded: Any, tmp_path: Path, capsys: Capture) -> None:
    log, store = tmp_path / os.fsdecode(b"caf\xe9.log"), tmp_path / "incident.parquet"
    log.write_bytes(recorded("0.5.23/s14_timeout_prefix").server_log.read_bytes())
    assert main(["ingest", str(log), "-o", str(store)]) == 0
    assert main(["explain", "job-12", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["cause"] == "timeout-prefix-collision"
