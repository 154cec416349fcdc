"""What every view has, and what happens while the logs are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from sglang_lifecycle.cli.browser import app as app_module
from sglang_lifecycle.cli.browser.app import Browser
from sglang_lifecycle.cli.browser.export import ExportDialog
from sglang_lifecycle.cli.browser.help import Help
from sglang_lifecycle.cli.browser.theme import DARK, LIGHT
from sglang_lifecycle.cli.errors import UsageError

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


def test_export_of_a_verdict_and_of_sessions(browse: Open, drive: Any, tmp_path: Path) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        for keys, name in [("enter e", "a.json"), ("e", "a.md"), ("q s e", "s.csv")]:
            await drive.press(pilot, keys.split())
            app.screen.query_one(Input).value = str(tmp_path / name)
            await drive.press(pilot, ["enter"])
        assert json.loads((tmp_path / "a.json").read_text("utf-8"))["rid"] == drive.under_cursor(app)
        assert (tmp_path / "a.md").read_text("utf-8").startswith("# Request")
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
        await commands["By cause"].callback()  # type: ignore[misc]
        await drive.settle(pilot)
        assert app.requests.order.grouped
        await drive.press(pilot, ["ctrl+p"])
        assert type(app.screen).__name__ == "CommandPalette"

    drive(browse(ABORTS), script)


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
def test_quit(key: str, browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running or app._exit

    drive(browse(ABORTS), script)


def test_the_list_fills_while_requests_are_judged(browse: Open, drive: Any, monkeypatch: Any) -> None:
    """Half of the work is held back until the first half was seen on the screen."""
    import threading

    seen = threading.Event()
    real = app_module.steps

    def slow(*arguments: Any) -> Any:
        done = list(real(*arguments))
        chunks = [step for step in done if hasattr(step, "columns")]
        yield from (step for step in done[:2])
        yield chunks[0].vstack(pl.concat(chunks[1:]))[:10]
        assert seen.wait(20)
        yield chunks[0].vstack(pl.concat(chunks[1:]))[10:]

    monkeypatch.setattr(app_module, "steps", slow)

    async def run() -> None:
        app = browse(ABORTS)
        async with app.run_test(size=(80, 24)) as pilot:
            while not len(app.rows) or app.requests.busy:
                await pilot.pause(0.01)
            await pilot.pause()
            assert drive.under_cursor(app) in drive.text(app)
            assert "reading" in drive.text(app)
            assert 0 < len(app.rows) < 26
            await pilot.press("j")  # the keyboard is answered meanwhile
            assert app.requests.grid.cursor == 1
            seen.set()
            await drive.settle(pilot)
            assert len(app.rows) == 26

    asyncio.run(run())


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


def test_follow_reads_what_was_added(browse: Open, drive: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(app_module, "LOOK", 0.05)
    log = tmp_path / "server.log"
    line = "[2026-11-29 19:50:0{}] Receive: obj=GenerateReqInput(rid='{}', stream=True)\n"
    log.write_text(line.format(1, "first"))

    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["a"])
        assert drive.shown(app) == ["first"]
        with log.open("a") as stream:
            stream.write(line.format(2, "second"))
        for _ in range(500):
            await pilot.pause(0.02)
            if len(app.rows) == 2:
                break
        await drive.settle(pilot)
        assert drive.shown(app) == ["first", "second"]

    drive(browse(str(log), follow=True), script)
