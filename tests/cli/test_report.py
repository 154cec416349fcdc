"""The page of an incident: complete, escaped, written whole, and alive in a browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import RequestRow
from sglang_lifecycle.cli import report_page
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.interrupted import groups
from sglang_lifecycle.cli.times import Clock, zone
from sglang_lifecycle.parsers.log import read

ROOT = Path(__file__).resolve().parents[2]
ABORTS = ROOT / "fixtures/0.5.23/s06_abort/logs"
CRASH = ROOT / "fixtures/0.5.10/s02e_session_clear_tree/logs"

ATTACK = (
    "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">' \u202e\x1b[31m"
)
LINE = "[2026-11-29 19:50:{:02}] {}: obj=GenerateReqInput(rid={!r}, session_params={!r}, stream=True){}\n"
OUT = (
    ", out={{'meta_info': {{'id': {!r}, 'finish_reason': {{'type': 'abort', 'message': 'Abort in waiting queue'}},"
    " 'prompt_tokens': 3, 'completion_tokens': 0, 'e2e_latency': 2.0}}}}"
)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    log = tmp_path / f"{ATTACK.replace('/', '')}.log"
    with log.open("w", encoding="utf-8") as stream:
        for number, rid in enumerate([ATTACK, "plain-1", "plain-2"]):
            session = {"id": ATTACK, "rid": ATTACK}
            stream.write(LINE.format(number, "Receive", rid, session, ""))
            stream.write(LINE.format(number + 5, "Finish", rid, session, OUT.format(rid)))
    return log


def written(path: Path, tmp_path: Path, *options: str) -> str:
    target = tmp_path / "incident.html"
    assert main(["report", str(path), "-o", str(target), *options]) == 0
    return target.read_text("utf-8")


def test_it_heeds_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "other.toml"
    settings.write_text('ignore = ["aw-*"]\nwaiting_timeout = 3\n')
    assert "aw-ns" in written(ABORTS, tmp_path)
    assert "aw-ns" not in written(ABORTS, tmp_path, "--config", str(settings))
    capsys.readouterr()
    (tmp_path / "empty.log").touch()
    assert main(["report", str(ABORTS), str(tmp_path / "empty.log"), "-o", str(tmp_path / "x.html"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["report", str(ABORTS), str(tmp_path / "empty.log"), "-o", str(tmp_path / "x.html")]) == 0
    assert "empty.log" in capsys.readouterr().err


def scripts(page: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def policy(page: str) -> str:
    (found,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    return html.unescape(found)


def test_the_page_tells_all_of_the_incident(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = written(ABORTS, tmp_path)
    shown = html.unescape(re.sub(r"<[^>]+>", "", page.replace("<code>", "").replace("</code>", "")))
    assert "16 interrupted requests" in shown
    assert "16 of 25 requests were interrupted between 2026-11-29 18:31:37 and" in shown
    result = audit(Incident(read([str(ABORTS)])))
    for row in result.requests:
        assert (f"<code>{row.rid}</code>" in page) == (row.status == "interrupted" and not row.synthetic)
    for cause in result.totals.by_cause:
        assert f'<section id="{cause}">' in page
    assert page.count("One of them, explained") == 3
    assert page.count("<h5>Evidence</h5>") == 3
    assert "incident.html: 16 interrupted requests" in capsys.readouterr().out


def test_what_happened_to_the_server_is_in_the_paragraph(tmp_path: Path) -> None:
    (lead,) = re.findall(r'<p class="lead">(.*?)</p>', written(CRASH, tmp_path))
    assert "The cause: scheduler-crash (4: the request was lost when the server crashed)." in lead
    assert "What happened to the server: at" in lead
    assert "dictionary changed size during iteration" in lead


def test_the_page_needs_no_network_and_runs_its_own_scripts_only(tmp_path: Path) -> None:
    page = written(ABORTS, tmp_path)
    allowed = policy(page)
    assert allowed.startswith("default-src 'none';")
    assert "http" not in allowed
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts(page)]
    assert re.findall(r"'sha256-([^']+)'", allowed) == hashes
    assert len(hashes) == 2
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"\bsrc=|<link|@import|url\(", outside)


def test_text_of_strangers_is_text(hostile: Path, tmp_path: Path) -> None:
    page = written(hostile, tmp_path)
    assert len(scripts(page)) == 2
    assert "<img" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "\u202e" not in page
    assert "\x1b" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "&lt;/script&gt;&lt;script&gt;" in page
    (figure,) = re.findall(r'<script type="application/json" id="figure">(.*?)</script>', page, re.DOTALL)
    assert {trace["type"] for trace in json.loads(figure)["data"]} >= {"bar"}


def test_no_text_in_the_data_of_the_plot_ends_the_element_that_holds_it() -> None:
    data = {"name": "</script><!--&"}
    inert = report_page._inert(json.dumps(data))
    assert not set("<>&") & set(inert)
    assert json.loads(inert) == data


def test_times_are_in_the_zone_asked_for(tmp_path: Path) -> None:
    page = written(ABORTS, tmp_path, "--display-tz", "+05:30")
    assert "between 2026-11-30 00:01:37 and" in page
    assert "UTC+05:30" in page


def test_logs_without_an_interruption_make_a_page(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-11-29 19:50:05] Receive: obj=GenerateReqInput(rid='job-12', stream=True)\n")
    page = written(log, tmp_path)
    assert "None of 1 request was interrupted." in page
    assert "id=&quot;plot" not in page
    assert 'id="plot"' not in page
    assert len(scripts(page)) == 1  # Plotly is not carried along for nothing


def row(cause: str, number: int) -> RequestRow:
    known: dict[str, Any] = {"status": "interrupted", "confidence": "proven", "layer": "scheduler"}
    times = {"ended": f"2026-08-02T12:{number // 60:02}:{number % 60:02}Z"}
    return RequestRow(rid=f"{cause}-{number}", cause=cause, stage="waiting", actor="scheduler", times=times, **known)


def test_of_too_many_requests_the_newest_of_each_cause_are_listed() -> None:
    rows = [row("queue-full", number) for number in range(50)] + [row("abort-all", number) for number in range(3)]
    chosen = [each.rid for each in report_page._chosen(groups(rows, Clock()), 10)]
    assert sorted(chosen) == sorted([f"queue-full-{n}" for n in range(43, 50)] + [f"abort-all-{n}" for n in range(3)])


def test_the_list_says_that_it_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert '<p class="faint">All 16.</p>' in written(ABORTS, tmp_path)
    monkeypatch.setattr(report_page, "LIMIT", 5)
    page = written(ABORTS, tmp_path)
    assert "The newest 5 of 16, of each cause some" in page
    assert page.count("<tr><td><code>", page.index('id="requests"'), page.index("What was read")) == 5


def test_a_page_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "none" / "incident.html"
    assert main(["report", str(ABORTS), "-o", str(target)]) == 4
    assert list(tmp_path.iterdir()) == []


def test_the_example_is_the_surest(tmp_path: Path) -> None:
    result = audit(Incident(read([str(ROOT / "fixtures/0.5.23/s14_timeout_prefix/logs")])))
    incident = Incident(read([str(ROOT / "fixtures/0.5.23/s14_timeout_prefix/logs")]))
    for rows in groups(result.requests, Clock(zone(None))).values():
        example = report_page._example(incident, rows, Clock())
        if any(each.confidence == "proven" for each in rows):
            assert ": proven</h4>" in example


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found is not None, "this test needs Chromium"
    return found


def dom(chromium: str, page: Path, profile: Path, fragment: str = "") -> str:
    """The page as it is once its scripts have run."""
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--virtual-time-budget=10000", "--dump-dom", page.as_uri() + fragment]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.browser
def test_in_a_browser_it_plots_and_runs_no_script_of_strangers(hostile: Path, chromium: str, tmp_path: Path) -> None:
    written(hostile, tmp_path)
    shown = dom(chromium, tmp_path / "incident.html", tmp_path / "profile")
    assert "<title>Incident: 3 interrupted requests</title>" in shown
    assert 'class="main-svg"' in shown
    assert shown.count('<g class="point">') > 0


@pytest.mark.browser
def test_in_a_browser_the_list_can_be_searched(hostile: Path, chromium: str, tmp_path: Path) -> None:
    written(hostile, tmp_path)
    shown = dom(chromium, tmp_path / "incident.html", tmp_path / "profile", "#q=plain-2")
    rows = re.findall(r"<tr( hidden=\"\")?><td><code>(.*?)</code>", shown[shown.index('id="requests"') :])
    assert [bool(hidden) for hidden, rid in rows if rid == "plain-2"] == [False]
    assert [bool(hidden) for hidden, rid in rows if rid == "plain-1"] == [True]
    assert '<span id="shown" class="faint">1 of 3</span>' in shown
