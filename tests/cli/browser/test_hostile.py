"""Text that strangers chose can't break the layout of any view, nor speak to the terminal or to the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from sglang_lifecycle.cli.browser.app import Browser

Open = Callable[..., Browser]

LINE = "[2026-11-29 19:50:{:02}] {}: obj=GenerateReqInput(rid={!r}, text={!r}, session_params={!r}, stream=True){}\n"
OUT = (
    ", out={{'meta_info': {{'id': {!r}, 'finish_reason': {{'type': 'abort', 'message': 'Abort in waiting queue'}},"
    " 'prompt_tokens': 3, 'completion_tokens': 0, 'e2e_latency': 2.0}}}}"
)


@pytest.fixture
def log(tmp_path: Path, nasty: str) -> Path:
    path = tmp_path / "server.log"
    rids = [nasty, "[bold]b[/bold]", "$(x) [@click=app.quit]c[/]", "漢字" * 30, "e\u0301" * 50, "\u202e" + "אבג" * 9]
    with path.open("w", encoding="utf-8") as stream:
        for number, rid in enumerate(rids):
            session = {"id": nasty, "rid": rid}
            stream.write(LINE.format(number, "Receive", rid, nasty, session, ""))
            stream.write(LINE.format(number + 10, "Finish", rid, nasty, session, OUT.format(rid)))
    return path


@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=["80x24", "160x48"])
@pytest.mark.parametrize("keys", ["", "b c", "enter", "enter 1", "enter 1 p", "t", "s", "s enter", "y", "e"])
def test_no_line_is_broken(keys: str, size: tuple[int, int], log: Path, browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        await drive.press(pilot, keys.split())
        for row in range(min(len(app.requests.view), 6)):
            for line in drive.lines(app):
                assert line.isprintable(), row
                assert cell_len(line) == size[0]
            await drive.press(pilot, ["down"])

    drive(browse(str(log)), script, size)


def test_markup_is_text(log: Path, browse: Open, drive: Any) -> None:
    async def script(app: Browser, pilot: Pilot[None]) -> None:
        assert len(app.requests.view) == 6
        assert "[bold]b[/bold]" in drive.text(app)
        assert "\\u202e" in drive.text(app)
        await drive.press(pilot, ["j", "enter"])
        assert "Request [bold]b[/bold]" in drive.text(app)

    drive(browse(str(log)), script, (160, 48))


def test_hostile_text_as_it_looks(log: Path, browse: Open, press: Any, snap_compare: Any) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await press(pilot, ["c"])

    assert snap_compare(browse(str(log)), terminal_size=(120, 24), run_before=before)
