"""Every key of the list does what the help says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from sglang_lifecycle.cli.browser.app import Browser
from sglang_lifecycle.cli.browser.facets import Facets

ABORTS = "fixtures/0.5.23/s06_abort/logs"
PREFIX = "fixtures/0.5.23/s14_timeout_prefix/logs"
STRICT = "fixtures/0.5.10/s02b_session_streaming_strict/logs"
SESSIONS = "fixtures/0.5.10/s02c_session_replace/logs"

Open = Callable[..., Browser]


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
        assert drive.shown(app)
        assert all(rid.startswith("all-r") for rid in drive.shown(app))
        await drive.press(pilot, ["enter"])
        assert app.requests.grid.has_focus
        assert "cause:abort-all all-r" in drive.text(app)
        await drive.press(pilot, ["x"])
        assert len(drive.shown(app)) == 16
        await drive.press(pilot, ["slash"])
        await drive.type(pilot, "nothing")
        assert "No request is like that" in drive.text(app)
        await drive.press(pilot, ["escape", "escape"])  # to the list, then without filters
        assert len(drive.shown(app)) == 16

    drive(browse(ABORTS), script)


def test_a_time_that_is_none_is_marked_and_changes_nothing(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["slash"])
        await drive.type(pilot, "since:x")
        assert app.requests.query_one("#filter", Input).has_class("-wrong")
        assert len(drive.shown(app)) == 16

    drive(browse(ABORTS), script)


def test_counts_are_filters(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        assert not app.requests.query_one(Facets).display
        await drive.press(pilot, ["c"])
        assert app.requests.query_one(Facets).has_focus
        await drive.press(pilot, ["j", "space"])
        assert app.requests.asked.chosen == (("cause", "abort-all"),)
        assert len(drive.shown(app)) == 5
        assert "● abort-all" in drive.text(app)
        await drive.press(pilot, ["k", "enter"])
        assert len(drive.shown(app)) == 14
        await drive.press(pilot, ["c", "x"])
        assert len(drive.shown(app)) == 16
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
        first = drive.shown(app)
        await drive.press(pilot, ["O"])
        assert app.requests.order.descending
        assert drive.shown(app) != first
        await drive.press(pilot, ["o"])
        assert drive.shown(app) == sorted(first, reverse=True)
        assert "rid▼" in drive.text(app)

    drive(browse(ABORTS), script)


def test_all_requests(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["a"])
        assert len(drive.shown(app)) == 26
        assert "26 of 26 requests" in drive.text(app)
        await drive.press(pilot, ["a"])
        assert "16 of 25 requests interrupted" in drive.text(app)

    drive(browse(ABORTS), script)


def test_the_cursor_stays_on_its_request(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, ["j", "j", "j", "j"])
        rid = drive.under_cursor(app)
        for key in ["O", "a", "b", "o"]:
            await drive.press(pilot, [key])
            assert drive.under_cursor(app) == rid, key

    drive(browse(ABORTS), script)


def test_the_cause_is_cut_rather_than_left_out_beside_the_counts(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        assert "session-mode-unsupported" in drive.text(app)
        await drive.press(pilot, ["c"])
        listed = [line.partition("│")[2] for line in drive.lines(app)]
        assert "cause" in listed[1]
        assert any("session-mode-un…pported" in line for line in listed)
        assert not any("session-mode-unsupported" in line for line in listed)

    drive(browse(STRICT), script)


def test_the_mark_of_the_order_covers_no_letter(browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        heads = set(drive.lines(app)[1].replace("▲", "").split())
        for _ in range(11):
            await drive.press(pilot, ["o"])
            assert set(drive.lines(app)[1].replace("▲", "").split()) == heads
            assert drive.lines(app)[1].count("▲") == 1

    drive(browse(SESSIONS), script, (200, 24))
