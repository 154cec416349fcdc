"""Draws the README's screenshots from recorded logs: `python docs/screenshots/make.py`."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from sglang_lifecycle.cli.browser.app import Browser
from sglang_lifecycle.cli.inputs import request

HERE = Path(__file__).parent
SIZE = (132, 32)
SHOTS = {"list": "j j j j j j", "request": "slash j o b minus 1 2 enter enter"}
"""What is pressed before each."""


async def shoot(name: str, keys: str) -> None:
    """Draw one."""
    app = Browser(request(["fixtures/0.5.23"], None, None, None, None, None))
    async with app.run_test(size=SIZE) as pilot:
        for key in ["", *keys.split()]:
            if key:
                await pilot.press(key)
            while app.doing or app.requests.busy:
                await pilot.pause(0.02)
        await pilot.pause(0.2)
        picture = app.export_screenshot(title=f"lifecycle browse: {name}")
    # No font is fetched: the one of the reader will do, every piece of text has its length.
    picture = re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    picture = re.sub(r"terminal-\d+", "terminal", picture)
    (HERE / f"{name}.svg").write_text(picture + "\n", "utf-8")


if __name__ == "__main__":
    os.chdir(HERE.parents[1])
    for each, pressed in SHOTS.items():
        asyncio.run(shoot(each, pressed))
