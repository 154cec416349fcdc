"""What every view has, and what happens while the logs are read."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from sglang_lifecycle.cli.browser import app as app_module
from sglang_lifecycle.cli.browser import loading
from sglang_lifecycle.cli.browser.app import Browser
from sglang_lifecycle.cli.browser.export import ExportDialog
from sglang_lifecycle.cli.browser.help import Help
from sglang_lifecycle.cli.browser.theme import DARK, LIGHT
from sglang_lifecycle.cli.browser.time import Lanes
from sglang_lifecycle.cli.errors import UsageError
from sglang_lifecycle.parsers import streams

ABORTS = "fixtures/0.5.23/s06_abort/logs"
PREFIX = "fixtures/0.5.23/s14_timeout_prefix/logs"
SESSIONS = "fixtures/0.5.10/s02c_session_replace/logs"

Open = Callable[..., Browser]


@pytest.mark.parametrize("ending", ["json", "csv", "md"])
def test_export_writes_what_is_shown(ending: str, browse: Open, drive: Any, tmp_path: Path) -> None:
    target = tmp_path / f"out.{ending}"

    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["O", "e"])
        app.screen.query_one(Input).value = str(target)
        await drive.press(pilot, ["enter"])
        assert app.screen is app.requests
        text = target.read_text("utf-8")
        places = [text.index(rid) for rid in drive.shown(app) if len(rid) > 4]
        assert places == sorted(places)
        if ending == "json":
            assert [row["rid"] for row in json.loads(text)] == drive.shown(app)
            assert json.loads(text)[0]["at"].endswith("Z")

    drive(browse(ABORTS), script)


def test_export_of_the_other_views(browse: Open, drive: Any, tmp_path: Path) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        for keys, name in [
            ("enter e", "a.json"),
            ("e", "a.md"),
            ("q s e", "s.csv"),
            ("q t e", "t.csv"),
            ("q s enter e", "s.json"),
        ]:
            await drive.press(pilot, keys.split())
            app.screen.query_one(Input).value = str(tmp_path / name)
            await drive.press(pilot, ["enter"])
        assert json.loads((tmp_path / "a.json").read_text("utf-8"))["rid"] == drive.under_cursor(app)
        assert (tmp_path / "a.md").read_text("utf-8").startswith("# Request")
        (tree,) = json.loads((tmp_path / "s.json").read_text("utf-8"))
        assert {turn["rid"] for turn in tree["turns"]} >= set(drive.shown(app))
        bars = pl.read_csv(tmp_path / "t.csv")
        assert bars["session-replaced"].sum() == drive.shown_causes(app)["session-replaced"]
        assert bars["from"][0].endswith("Z")
        assert (tmp_path / "s.csv").read_text("utf-8").startswith("id,server,")

    drive(browse(SESSIONS), script)


def test_export_says_what_is_wrong(browse: Open, drive: Any, tmp_path: Path) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["e"])
        for name, problem in [("x.txt", "must end with one of"), (f"{tmp_path}/no/x.csv", "can't be written")]:
            app.screen.query_one(Input).value = name
            await drive.press(pilot, ["enter"])
            assert isinstance(app.screen, ExportDialog)
            assert problem in " ".join(drive.text(app).replace("│", "").split())
        await drive.press(pilot, ["escape"])
        assert app.screen is app.requests

    drive(browse(ABORTS), script)


def test_help_lists_the_keys_of_the_view(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["question_mark"])
        assert isinstance(app.screen, Help)
        assert "Clear filters" in drive.text(app)
        assert "Focus Next" not in drive.text(app)
        await drive.press(pilot, ["question_mark", "t", "question_mark"])
        assert "Zoom in" in drive.text(app)
        await drive.press(pilot, ["escape", "q"])
        assert app.screen is app.requests

    drive(browse(ABORTS), script, (80, 60))


def test_dark_and_light(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        assert app.theme == DARK.name
        await drive.press(pilot, ["D"])
        assert app.theme == LIGHT.name
        await drive.press(pilot, ["D"])
        assert app.theme == DARK.name

    drive(browse(ABORTS), script)


def test_the_palette_runs_what_keys_do(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        commands = {command.title: command for command in app.get_system_commands(app.screen)}
        await commands["Group by cause, or no longer"].callback()  # type: ignore[misc]
        await drive.settle(pilot)
        assert app.requests.order.grouped
        await drive.press(pilot, ["ctrl+p"])
        assert type(app.screen).__name__ == "CommandPalette"

    drive(browse(ABORTS), script)


@pytest.mark.parametrize(
    ("keys", "key"),
    [([], "q"), ([], "ctrl+q"), ([], "ctrl+c"), (["enter"], "ctrl+q"), (["enter"], "ctrl+c"), (["slash"], "ctrl+c")],
)
def test_quit(keys: list[str], key: str, browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.settle(pilot)
        await drive.press(pilot, keys)
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running or app._exit
        assert isinstance(app.problem, KeyboardInterrupt) is (key == "ctrl+c")

    drive(browse(ABORTS), script)


def test_logs_from_a_pipe_leave_the_terminal_for_the_keys() -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.dup2(os.open(f"{ABORTS}/server.log", os.O_RDONLY), 0)
        environment = os.environ | {"COLUMNS": "120", "LINES": "30", "TERM": "xterm"}
        os.execve(sys.executable, [sys.executable, "-m", "sglang_lifecycle", "browse", "-"], environment)
    shown = b""
    while b"job-10" not in shown:
        shown += os.read(terminal, 65536)
    os.write(terminal, b"q")
    with suppress(OSError):  # the end of a terminal
        while os.read(terminal, 65536):
            pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_a_terminal_there_are_no_keys() -> None:
    command = [sys.executable, "-m", "sglang_lifecycle", "browse", "-"]
    result = subprocess.run(command, input=b"", capture_output=True, start_new_session=True)
    assert result.returncode == 2
    assert result.stderr.startswith(b"lifecycle: error: browse needs a terminal for its keys")


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        await pilot.pause(0.02)
        app = pilot.app
        assert isinstance(app, Browser)
        if condition() and not app.requests.busy:
            break
    await pilot.pause()
    assert condition()


class Held:
    """Holds the thread that reads: each chunk of rows waits to be let through."""

    def __init__(self, monkeypatch: Any, at: Callable[[Any], bool]) -> None:
        self.go = threading.Event()
        held = self

        class Loading(app_module.Loading):
            def __init__(self, question: Any, take: Any, *others: Any) -> None:
                def slowly(step: Any) -> None:
                    take(step)
                    if at(step):
                        assert held.go.wait(20)

                super().__init__(question, slowly, *others)

        monkeypatch.setattr(app_module, "Loading", Loading)


def is_rows(step: Any) -> bool:
    return isinstance(step, pl.DataFrame) and bool(step.height)


def run(app: Browser, script: Callable[[Pilot[None]], Any], size: tuple[int, int] = (80, 24)) -> None:
    async def driven() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            for _ in range(1000):
                await pilot.pause(0.01)
                if len(app.rows) and not app.requests.busy:
                    break
            assert len(app.rows), app.problem
            await pilot.pause()
            await script(pilot)

    asyncio.run(driven())


def test_the_list_fills_while_requests_are_judged(browse: Open, drive: Any, monkeypatch: Any) -> None:
    held = Held(monkeypatch, is_rows)
    monkeypatch.setattr(loading, "EVERY", 0)
    app = browse(ABORTS)

    async def script(pilot: Pilot[None]) -> None:
        assert drive.under_cursor(app) in drive.text(app)
        assert 0 < len(app.rows) < 26
        await pilot.press("a", "j")  # the keyboard is answered meanwhile
        assert "of 1 requests" in drive.text(app)
        held.go.set()
        await drive.settle(pilot)
        assert len(app.rows) == 26

    run(app, script)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-read logs are looked at every few lines."""
    monkeypatch.setattr(streams, "_TICK", 30_000)
    monkeypatch.setattr(loading, "IDLE", 0)


@pytest.mark.usefixtures("eager")
def test_what_was_interrupted_so_far_is_shown_before_the_logs_are_read(
    browse: Open, drive: Any, monkeypatch: Any
) -> None:
    held = Held(monkeypatch, is_rows)
    app = browse(ABORTS)

    async def script(pilot: Pilot[None]) -> None:
        rid = drive.under_cursor(app)
        line = next(line for line in drive.lines(app) if rid in line)
        assert "so far" in line
        assert "proven" not in drive.text(app)
        assert "interrupted so far" in drive.text(app)
        assert "reading" in drive.text(app)
        shown = set(drive.shown(app))
        await pilot.press("s")
        assert app.screen is app.requests  # not yet known
        held.go.set()
        await drive.settle(pilot)
        assert "so far" not in drive.text(app).replace("interrupted so far", "")
        assert not app.rows.provisional
        assert shown < set(drive.shown(app))
        assert len(drive.shown(app)) == 16

    run(app, script)


@pytest.mark.usefixtures("eager")
def test_a_request_opened_meanwhile_is_provisional_until_the_logs_are_read(
    browse: Open, drive: Any, monkeypatch: Any
) -> None:
    answered = threading.Event()

    def at(step: Any) -> bool:
        if isinstance(step, loading.Answer):
            answered.set()
        return (is_rows(step) and not len(opened)) or isinstance(step, loading.Answer)

    opened: list[str] = []
    held = Held(monkeypatch, at)
    app = browse(ABORTS)

    async def script(pilot: Pilot[None]) -> None:
        opened.append(drive.under_cursor(app))
        await pilot.press("enter")
        held.go.set()
        held.go = threading.Event()
        await until(pilot, lambda: answered.is_set())
        assert app.screen is not app.requests
        await until(pilot, lambda: "this may change" in drive.text(app))
        assert f"Request {opened[0]}" in drive.text(app)
        held.go.set()
        await drive.settle(pilot)
        assert f"Request {opened[0]}" in drive.text(app)
        await until(pilot, lambda: "proven." in drive.text(app))
        assert "may change" not in drive.text(app)

    run(app, script)


def test_what_goes_wrong_while_reading_ends_the_browser(browse: Open) -> None:
    app = browse(ABORTS, since="12:00", until="11:00")

    async def run() -> None:
        async with app.run_test() as pilot:
            for _ in range(500):
                await pilot.pause(0.01)
                if app.problem is not None:
                    break

    asyncio.run(run())
    assert isinstance(app.problem, UsageError)


def append(log: Path, *lines: str) -> None:
    with log.open("a") as stream:
        stream.writelines(f"{line}\n" for line in lines)


RECEIVE = "[2026-11-29 19:50:0{}] Receive: obj=GenerateReqInput(rid='{}', stream=True)"
ABORTED = (
    "[2026-11-29 19:50:0{}] Finish: obj=GenerateReqInput(rid='{}', stream=True), out={{'meta_info': {{'id': '{}', "
    "'finish_reason': {{'type': 'abort', 'message': 'Abort in waiting queue'}}, 'e2e_latency': 1.0}}}}"
)


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log with three requests in flight, which is looked at often."""
    monkeypatch.setattr(app_module, "LOOK", 0.05)
    log = tmp_path / "server.log"
    append(log, *(RECEIVE.format(1, rid) for rid in ("first", "second", "third")))
    return log


def test_follow_reads_only_what_was_added(
    followed: Path, browse: Open, drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    real = app_module.Loading.read
    monkeypatch.setattr(app_module.Loading, "read", lambda self: (read.append(self), real(self)))
    app = browse(str(followed), follow=True)

    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["a", "j", "j"])
        assert drive.under_cursor(app) == "third"
        append(followed, RECEIVE.format(2, "fourth"), ABORTED.format(3, "first", "first"))
        await until(pilot, lambda: len(app.rows) == 4)
        assert sorted(drive.shown(app)) == ["first", "fourth", "second", "third"]
        assert drive.under_cursor(app) == "third"  # wherever it stands now
        await drive.press(pilot, ["a"])
        assert drive.shown(app) == ["first"]
        append(followed, ABORTED.format(4, "second", "second"))
        await until(pilot, lambda: drive.shown(app) == ["first", "second"])  # the filter stays
        assert len(read) == 1

    drive(app, script)


def test_follow_renews_the_request_that_is_open(followed: Path, browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["a", "enter"])
        assert "in-flight" in drive.lines(app)[0]
        append(followed, ABORTED.format(3, "first", "first"))
        await until(pilot, lambda: "Aborted on request" in drive.text(app))
        assert "Request first  not-established" in drive.lines(app)[0]

    drive(browse(str(followed), follow=True), script, (80, 40))


def test_follow_draws_what_is_new_over_time(followed: Path, browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["t"])
        assert "No interrupted request" in drive.text(app)
        append(followed, ABORTED.format(3, "first", "first"))
        await until(pilot, lambda: "1 interrupted" in drive.lines(app)[0])
        await drive.press(pilot, ["space", "left"])
        lanes = app.screen.query_one(Lanes)
        cursor, mark = (lanes.bins.at(place) for place in (lanes.cursor, lanes.marked))
        append(followed, ABORTED.format(9, "second", "second"))
        await until(pilot, lambda: "2 interrupted" in drive.lines(app)[0])
        assert abs(lanes.bins.at(lanes.cursor) - cursor) <= lanes.bins.step
        assert abs(lanes.bins.at(lanes.marked) - mark) <= lanes.bins.step

    drive(browse(str(followed), follow=True), script)


TURN = "[2026-11-29 19:50:0{}] Receive: obj=GenerateReqInput(rid='{}', session_params={{'id': 'chat', 'rid': {}}})"


def test_follow_shows_new_turns_of_sessions(followed: Path, browse: Open, drive: Any) -> None:
    append(followed, TURN.format(1, "one", None))

    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["s"])
        await until(pilot, lambda: "1 session, 1 turn" in drive.text(app))
        append(followed, TURN.format(2, "two", "'one'"))
        await until(pilot, lambda: "1 session, 2 turns" in drive.text(app))
        await drive.press(pilot, ["enter"])
        append(followed, TURN.format(3, "three", "'two'"))
        await until(pilot, lambda: "three" in drive.text(app))

    drive(browse(str(followed), follow=True), script)


def test_follow_begins_anew_where_a_log_was_rotated(followed: Path, browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["a"])
        followed.rename(followed.with_name("server.log.1"))
        append(followed, RECEIVE.format(5, "fourth"))
        await until(pilot, lambda: len(app.rows) == 4)
        assert not app.rows.provisional
        followed.with_name("server.log.1").unlink()
        await until(pilot, lambda: len(app.rows) == 1)
        assert drive.shown(app) == ["fourth"]

    drive(browse(str(followed.parent), follow=True), script)
