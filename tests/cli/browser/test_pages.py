"""Every key of the views behind the list does what the help says, and the mouse too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import OptionList

from sglang_lifecycle.cli.browser.app import Browser
from sglang_lifecycle.cli.browser.grid import Grid
from sglang_lifecycle.cli.browser.raw import RawPage
from sglang_lifecycle.cli.browser.reading import Scroll
from sglang_lifecycle.cli.browser.request import RequestPage
from sglang_lifecycle.cli.browser.sessions import SessionPage, SessionsPage
from sglang_lifecycle.cli.browser.time import Lanes, TimePage

ABORTS = "fixtures/0.5.23/s06_abort/logs"
PREFIX = "fixtures/0.5.23/s14_timeout_prefix/logs"
SESSIONS = "fixtures/0.5.10/s02c_session_replace/logs"

Open = Callable[..., Browser]


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
        rids = drive.shown(app)
        await drive.press(pilot, ["enter", "n", "n"])
        assert isinstance(app.screen, RequestPage)
        assert app.screen.verdict.rid == rids[2]
        await drive.press(pilot, ["p", "p", "p"])  # there is none before the first
        assert isinstance(app.screen, RequestPage)
        assert app.screen.verdict.rid == rids[0]
        await drive.press(pilot, ["q"])
        assert app.screen is app.requests
        assert drive.under_cursor(app) == rids[0]

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
        assert len(drive.shown(app)) == wanted > 0
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
        assert {app.requests.view.row(index)["session"] for index in app.requests.view.indices} == {session}
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
