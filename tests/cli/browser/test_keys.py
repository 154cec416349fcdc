"""Every key does what the help says, the mouse too, and the list fills while the logs are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from sglang_lifecycle.cli.browser import app as app_module
from sglang_lifecycle.cli.browser.app import Browser
from sglang_lifecycle.cli.browser.export import ExportDialog
from sglang_lifecycle.cli.browser.facets import Facets
from sglang_lifecycle.cli.browser.grid import Grid
from sglang_lifecycle.cli.browser.help import Help
from sglang_lifecycle.cli.browser.raw import RawPage
from sglang_lifecycle.cli.browser.reading import Scroll
from sglang_lifecycle.cli.browser.request import RequestPage
from sglang_lifecycle.cli.browser.sessions import SessionPage, SessionsPage
from sglang_lifecycle.cli.browser.theme import DARK, LIGHT
from sglang_lifecycle.cli.browser.time import Lanes, TimePage
from sglang_lifecycle.cli.errors import UsageError

ABORTS = "fixtures/0.5.23/s06_abort/logs"
PREFIX = "fixtures/0.5.23/s14_timeout_prefix/logs"
SESSIONS = "fixtures/0.5.10/s02c_session_replace/logs"

Open = Callable[..., Browser]


def under_cursor(app: Browser) -> str:
    row = app.requests.row
    assert row is not None
    return str(app.rows[row]["rid"])


def shown(app: Browser) -> list[str]:
    return [str(app.rows[index]["rid"]) for index in app.requests.view.indices]


def test_keys_move_through_the_list(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        last = len(app.requests.view) - 1
        for keys, line in [
            ("j", 1), ("down", 2), ("k", 1), ("up", 0), ("up", 0), ("G", last), ("j", last), ("g", 0),
            ("end", last), ("home", 0), ("pagedown", last), ("pageup", 0), ("space", last), ("ctrl+b", 0),
            ("ctrl+f", last),
        ]:  # fmt: skip
            await drive.press(pilot, [keys])
            assert app.requests.grid.cursor == line, keys

    drive(browse(ABORTS), script, (80, 24))


def test_the_cursor_is_always_on_the_screen(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["a"])
        for key in ["G", "k", "pageup", "g", "pagedown", "pagedown"]:
            await drive.press(pilot, [key])
            assert [line for line in drive.lines(app) if "▌" in line], key

    drive(browse(ABORTS), script)


def test_columns_can_be_moved_through(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        assert "›" in drive.lines(app)[1]
        assert "session" not in drive.lines(app)[1]
        await drive.press(pilot, ["right"] * 8)
        assert "session" in drive.lines(app)[1]
        assert "‹" in drive.lines(app)[1]
        assert "rid" in drive.lines(app)[1]  # the first two stay
        await drive.press(pilot, ["h"] * 8)
        assert "cause" in drive.lines(app)[1]
        await drive.press(pilot, ["l", "left"])
        assert "‹" not in drive.lines(app)[1]

    drive(browse(SESSIONS), script)


def test_filter_while_typing_then_clear(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["slash"])
        await drive.type(pilot, "cause:abort-all all-r")
        assert shown(app)
        assert all(rid.startswith("all-r") for rid in shown(app))
        await drive.press(pilot, ["enter"])
        assert app.requests.grid.has_focus
        assert "cause:abort-all all-r" in drive.text(app)
        await drive.press(pilot, ["x"])
        assert len(shown(app)) == 16
        await drive.press(pilot, ["slash"])
        await drive.type(pilot, "nothing")
        assert "No request is like that" in drive.text(app)
        await drive.press(pilot, ["escape", "escape"])  # to the list, then without filters
        assert len(shown(app)) == 16

    drive(browse(ABORTS), script)


def test_a_time_that_is_none_is_marked_and_changes_nothing(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["slash"])
        await drive.type(pilot, "since:x")
        assert app.requests.query_one("#filter", Input).has_class("-wrong")
        assert len(shown(app)) == 16

    drive(browse(ABORTS), script)


def test_counts_are_filters(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        assert not app.requests.query_one(Facets).display
        await drive.press(pilot, ["c"])
        assert app.requests.query_one(Facets).has_focus
        await drive.press(pilot, ["j", "space"])
        assert app.requests.asked.chosen == (("cause", "abort-all"),)
        assert len(shown(app)) == 5
        assert "● abort-all" in drive.text(app)
        await drive.press(pilot, ["k", "enter"])
        assert len(shown(app)) == 14
        await drive.press(pilot, ["c", "x"])
        assert len(shown(app)) == 16
        assert not app.requests.query_one(Facets).display

    drive(browse(ABORTS), script)


def test_on_a_wide_screen_the_counts_are_always_there(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        assert "Causes" in drive.text(app)
        await drive.press(pilot, ["c"])
        assert app.requests.query_one(Facets).has_focus
        await drive.press(pilot, ["c"])
        assert app.requests.grid.has_focus
        assert "Causes" in drive.text(app)

    drive(browse(ABORTS), script, (160, 48))


def test_group_fold_and_open(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["b"])
        assert "▾ explicit-abort  9 requests" in drive.text(app)
        await drive.press(pilot, ["g", "enter"])
        assert "▸ explicit-abort  9 requests" in drive.text(app)
        assert len(app.requests.view) == 16 + 3 - 9
        await drive.press(pilot, ["enter", "b"])
        assert len(app.requests.view) == 16

    drive(browse(ABORTS), script)


def test_order(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        first = shown(app)
        await drive.press(pilot, ["O"])
        assert app.requests.order.descending
        assert shown(app) != first
        await drive.press(pilot, ["o"])
        assert shown(app) == sorted(first, reverse=True)
        assert "rid▼" in drive.text(app)

    drive(browse(ABORTS), script)


def test_all_requests(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["a"])
        assert len(shown(app)) == 26
        assert "26 of 26 requests" in drive.text(app)
        await drive.press(pilot, ["a"])
        assert "16 of 25 requests interrupted" in drive.text(app)

    drive(browse(ABORTS), script)


def test_the_cursor_stays_on_its_request(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["j", "j", "j", "j"])
        rid = under_cursor(app)
        for key in ["O", "a", "b", "o"]:
            await drive.press(pilot, [key])
            assert under_cursor(app) == rid, key

    drive(browse(ABORTS), script)


def test_a_request_its_lines_and_the_other_of_its_chain(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["slash"])
        await drive.type(pilot, "job-12")
        await drive.press(pilot, ["enter", "enter"])
        assert isinstance(app.screen, RequestPage)
        assert "Request job-12 was hit by the timeout of another request: proven." in drive.text(app)
        await drive.press(pilot, ["2"])
        assert isinstance(app.screen, RawPage)
        assert [line for line in drive.lines(app) if "▌" in line and "rid='job-1'" in line]
        await drive.press(pilot, ["p"])
        assert "with the payload" in drive.text(app)
        assert "sampling_params" in drive.text(app)
        await drive.press(pilot, ["q", "tab", "j", "j", "k", "j", "enter"])
        assert isinstance(app.screen, RequestPage)
        assert app.screen.verdict.rid == "job-1"
        await drive.press(pilot, ["escape", "escape"])
        assert app.screen is app.requests

    drive(browse(PREFIX), script)


def test_a_verdict_scrolls(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["enter"])
        scroll = app.screen.query_one(Scroll)
        for key, there in [("j", 1), ("k", 0), ("G", scroll.max_scroll_y), ("g", 0)]:
            await drive.press(pilot, [key])
            await pilot.wait_for_animation()
            assert scroll.scroll_y == there, key
        await drive.press(pilot, ["space"])
        await pilot.wait_for_animation()
        assert scroll.scroll_y > 1
        await drive.press(pilot, ["tab", "tab"])
        assert scroll.has_focus

    drive(browse(PREFIX), script)


def test_next_and_previous_request(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        rids = shown(app)
        await drive.press(pilot, ["enter", "n", "n"])
        assert isinstance(app.screen, RequestPage)
        assert app.screen.verdict.rid == rids[2]
        await drive.press(pilot, ["p", "p", "p"])  # there is none before the first
        assert isinstance(app.screen, RequestPage)
        assert app.screen.verdict.rid == rids[0]
        await drive.press(pilot, ["q"])
        assert app.screen is app.requests
        assert under_cursor(app) == rids[0]

    drive(browse(ABORTS), script)


def test_time_moves_and_filters_the_list(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["t"])
        assert isinstance(app.screen, TimePage)
        lanes = app.screen.query_one(Lanes)
        busiest = lanes.cursor
        assert "queue" in drive.text(app)
        for key, place in [
            ("right", busiest + 1), ("h", busiest), ("H", busiest - 10), ("L", busiest), ("home", 0),
            ("G", lanes.bins.number - 1), ("g", 0), ("l", 1), ("left", 0), ("shift+right", 10), ("shift+left", 0),
        ]:  # fmt: skip
            await drive.press(pilot, [key])
            assert lanes.cursor == max(place, 0), key
        await drive.press(pilot, ["space", "end"])
        assert f"{16:,} interrupted" in drive.text(app)
        await drive.press(pilot, ["space"])
        assert len(lanes.chosen) == 1
        lanes.cursor = busiest
        wanted = sum(lanes.bins.total(lanes.chosen).values())
        await drive.press(pilot, ["enter"])
        assert app.screen is app.requests
        assert len(shown(app)) == wanted > 0
        assert "since:" in drive.text(app)

    drive(browse(ABORTS), script)


def test_time_zooms(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["t"])
        lanes = app.screen.query_one(Lanes)
        step = lanes.bins.step
        await drive.press(pilot, ["z"])
        assert lanes.bins.step < step
        await drive.press(pilot, ["Z"])
        assert lanes.bins.step == step

    drive(browse(ABORTS), script)


def test_the_mouse_selects_a_range(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["t"])
        lanes = app.screen.query_one(Lanes)
        await pilot.mouse_down(Lanes, (34, 3))
        await pilot.hover(Lanes, (50, 3))
        await pilot.mouse_up(Lanes, (50, 3))
        assert lanes.chosen == range(34 - 2 - 28, 50 - 2 - 28 + 1)

    drive(browse(ABORTS), script)


def test_the_mouse_in_the_list(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await pilot.click(Grid, offset=(5, 4))
        await drive.settle(pilot)
        assert app.requests.grid.cursor == 3
        await pilot.click(Grid, offset=(14, 0))
        await drive.settle(pilot)
        assert app.requests.order.column == "rid"
        await pilot.click(Grid, offset=(14, 0))
        await drive.settle(pilot)
        assert app.requests.order.descending
        await pilot.click(Grid, offset=(5, 2), times=2)
        await drive.settle(pilot)
        assert isinstance(app.screen, RequestPage)

    drive(browse(ABORTS), script)


def test_sessions_and_the_way_back_to_their_requests(browse: Open, drive: Any, tmp_path: Path) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["s"])
        assert isinstance(app.screen, SessionsPage)
        await drive.press(pilot, ["enter"])
        assert isinstance(app.screen, SessionPage)
        session = app.screen.session
        assert f"Session {session}" in drive.text(app)
        await drive.press(pilot, ["tab", "enter"])
        assert isinstance(app.screen, RequestPage)
        places = app.screen.query_one(OptionList)
        assert any(session in str(option.prompt) for option in places.options)
        await drive.press(pilot, ["q", "f"])
        assert app.screen is app.requests
        assert {app.rows[index]["session"] for index in app.requests.view.indices} == {session}
        await drive.press(pilot, ["s", "j", "k", "f"])
        assert app.screen is app.requests

    drive(browse(SESSIONS), script)


def test_copy_goes_to_the_clipboard_of_the_terminal(browse: Open, drive: Any, monkeypatch: Any) -> None:
    copied: list[str] = []

    async def script(app: Browser, pilot: Pilot[None]) -> None:
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        await drive.press(pilot, ["y", "enter", "y", "q", "s", "y", "enter", "y"])

    app = browse(SESSIONS)
    drive(app, script)
    first, again, session, same = copied
    assert first == again
    assert first in {row["rid"] for row in app.rows.frame.to_dicts()}
    assert session == same


@pytest.mark.parametrize("ending", ["json", "csv", "md"])
def test_export_writes_what_is_shown(ending: str, browse: Open, drive: Any, tmp_path: Path) -> None:
    target = tmp_path / f"out.{ending}"

    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["O", "e"])
        app.screen.query_one(Input).value = str(target)
        await drive.press(pilot, ["enter"])
        assert app.screen is app.requests
        text = target.read_text("utf-8")
        places = [text.index(rid) for rid in shown(app) if len(rid) > 4]
        assert places == sorted(places)
        if ending == "json":
            assert [row["rid"] for row in json.loads(text)] == shown(app)
            assert json.loads(text)[0]["at"].endswith("Z")

    drive(browse(ABORTS), script)


def test_export_of_a_verdict_and_of_sessions(browse: Open, drive: Any, tmp_path: Path) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        for keys, name in [("enter e", "a.json"), ("e", "a.md"), ("q s e", "s.csv")]:
            await drive.press(pilot, keys.split())
            app.screen.query_one(Input).value = str(tmp_path / name)
            await drive.press(pilot, ["enter"])
        assert json.loads((tmp_path / "a.json").read_text("utf-8"))["rid"] == under_cursor(app)
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
            assert under_cursor(app) in drive.text(app)
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
        assert shown(app) == ["first"]
        with log.open("a") as stream:
            stream.write(line.format(2, "second"))
        for _ in range(500):
            await pilot.pause(0.02)
            if len(app.rows) == 2:
                break
        await drive.settle(pilot)
        assert shown(app) == ["first", "second"]

    drive(browse(str(log), follow=True), script)
