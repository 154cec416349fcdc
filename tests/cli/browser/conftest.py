"""The browser on recorded and on made-up logs, and a hand to drive it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from sglang_lifecycle.cli.browser.app import Browser
from sglang_lifecycle.cli.inputs import request

ROOT = Path(__file__).resolve().parents[3]

Script = Callable[[Browser, Pilot[None]], Awaitable[None]]


class Driver:
    """Runs a browser without a terminal."""

    def __call__(self, app: Browser, script: Script, size: tuple[int, int] = (80, 24)) -> None:
        async def run() -> None:
            async with app.run_test(size=size, notifications=True) as pilot:
                await self.settle(pilot)
                await script(app, pilot)

        asyncio.run(run())

    async def settle(self, pilot: Pilot[None]) -> None:
        """Wait until the logs are read, everything is judged and every view is up to date."""
        app = pilot.app
        assert isinstance(app, Browser)
        for _ in range(6000):
            await pilot.pause()
            if app.doing in ("", "following") and not app.requests.busy and not getattr(app.screen, "busy", False):
                break
            await asyncio.sleep(0.005)
        else:
            raise AssertionError(f"still {app.doing}")
        await pilot.pause()

    async def press(self, pilot: Pilot[None], keys: Iterable[str]) -> None:
        await self.settle(pilot)
        for key in keys:
            await pilot.press(key)
            await self.settle(pilot)

    async def type(self, pilot: Pilot[None], text: str) -> None:
        names = {" ": "space", ":": "colon", "-": "minus", ".": "full_stop"}
        await self.press(pilot, [names.get(character, character) for character in text])

    def lines(self, app: Browser) -> list[str]:
        """What is on the screen, as text."""
        strips = app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    def text(self, app: Browser) -> str:
        return "\n".join(self.lines(app))

    def shown(self, app: Browser) -> list[str]:
        """The requests of the list."""
        return [str(app.requests.view.row(index)["rid"]) for index in app.requests.view.indices]

    def shown_causes(self, app: Browser) -> Counter[str]:
        """How many requests of the list have each cause."""
        return Counter(app.requests.view.row(index)["cause"] for index in app.requests.view.indices)

    def under_cursor(self, app: Browser) -> str:
        """The request under the cursor of the list."""
        assert app.requests.rid is not None
        return app.requests.rid


@pytest.fixture
def drive() -> Driver:
    return Driver()


@pytest.fixture
def press(drive: Driver) -> Callable[[Pilot[None], Iterable[str]], Awaitable[None]]:
    return drive.press


@pytest.fixture(autouse=True)
def _the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are shown as they are given, so they are relative; the colours are not those of this terminal."""
    monkeypatch.chdir(ROOT)
    for name in ("COLORFGBG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def browse() -> Callable[..., Browser]:
    """The browser on some paths."""

    def opened(*paths: str, follow: bool = False, since: str | None = None, until: str | None = None) -> Browser:
        return Browser(request(paths, since, until, None, None, None), follow)

    return opened
