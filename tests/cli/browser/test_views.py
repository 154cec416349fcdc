"""Each view as it looks, at the smallest size and at a large one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from sglang_lifecycle.cli.browser.app import Browser

Compare = Callable[..., bool]

ABORTS = "fixtures/0.5.23/s06_abort/logs"
PREFIX = "fixtures/0.5.23/s14_timeout_prefix/logs"
SESSIONS = "fixtures/0.5.10/s02c_session_replace/logs"

VIEWS = {
    "list": (ABORTS, ""),
    "grouped": (ABORTS, "b down"),
    "request": (PREFIX, "enter"),
    "raw": (PREFIX, "enter 1"),
    "time": (ABORTS, "t"),
    "sessions": (SESSIONS, "s"),
    "session": (SESSIONS, "s enter"),
    "keys": (ABORTS, "question_mark"),
}


@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=["80x24", "160x48"])
@pytest.mark.parametrize("view", VIEWS)
def test_view(
    view: str, size: tuple[int, int], snap_compare: Compare, browse: Callable[..., Browser], press: Any
) -> None:
    path, keys = VIEWS[view]

    async def before(pilot: Pilot[None]) -> None:
        await press(pilot, keys.split())

    assert snap_compare(browse(path), terminal_size=size, run_before=before)


@pytest.mark.parametrize("view", ["list", "request"])
def test_light(view: str, snap_compare: Compare, browse: Callable[..., Browser], press: Any) -> None:
    path, keys = VIEWS[view]

    async def before(pilot: Pilot[None]) -> None:
        await press(pilot, ["D", *keys.split()])

    assert snap_compare(browse(path), terminal_size=(80, 24), run_before=before)


@pytest.mark.parametrize("size", [(79, 24), (80, 23)], ids=["narrow", "short"])
def test_too_small(size: tuple[int, int], browse: Callable[..., Browser], drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        assert "needs 80×24" in drive.text(app)
        assert f"has {size[0]}×{size[1]}" in drive.text(app)
        assert sum(bool(line.strip()) for line in drive.lines(app)) == 2  # nothing else, not even a scrollbar
        await pilot.resize_terminal(80, 24)
        await drive.settle(pilot)
        assert "needs" not in drive.text(app)

    drive(browse(ABORTS), script, size)
