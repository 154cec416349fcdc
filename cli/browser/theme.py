"""The colours: one calm palette for dark terminals, one for light ones."""

from __future__ import annotations

import os

from rich.terminal_theme import TerminalTheme
from textual.color import Color
from textual.theme import Theme


def _scrollbars(thumb: str, track: str) -> dict[str, str]:
    states = ("", "-hover", "-active")
    colours = {f"scrollbar{state}": thumb for state in states}
    return colours | {f"scrollbar-background{state}": track for state in states} | {"scrollbar-corner-color": track}


DARK = Theme(
    name="lifecycle-dark",
    dark=True,
    background="#14171c",
    surface="#232831",
    panel="#1d2129",
    foreground="#d7dae0",
    primary="#7aa2e3",
    secondary="#8b93a7",
    accent="#6fc3bb",
    success="#87c38a",
    warning="#e0b973",
    error="#e3868d",
    variables={
        "block-cursor-background": "#33415c",
        "block-cursor-foreground": "#ffffff",
        **_scrollbars("#3d4658", "#1a1e25"),
    },
)

LIGHT = Theme(
    name="lifecycle-light",
    dark=False,
    background="#fdfdfc",
    surface="#e8ebf0",
    panel="#eff1f4",
    foreground="#23272f",
    primary="#2f66c4",
    secondary="#5b6475",
    accent="#0b7a70",
    success="#2c7a34",
    warning="#a46200",
    error="#bb2d3b",
    variables={
        "block-cursor-background": "#cfdcf3",
        "block-cursor-foreground": "#10141b",
        **_scrollbars("#b9c1ce", "#f1f3f6"),
    },
)


def _terminal(theme: Theme, faint: str) -> TerminalTheme:
    """What the sixteen colours mean that the screens of the other commands are written in."""

    def rgb(colour: str | None) -> tuple[int, int, int]:
        return Color.parse(colour or "#000000").rgb

    plain = [theme.background, theme.error, theme.success, theme.warning, theme.primary, theme.secondary, theme.accent]
    colours = [*map(rgb, plain), rgb(theme.foreground)]
    return TerminalTheme(rgb(theme.background), rgb(theme.foreground), colours, [rgb(faint), *colours[1:]])


ANSI_DARK, ANSI_LIGHT = _terminal(DARK, "#7d8596"), _terminal(LIGHT, "#6a7283")


def preferred() -> str:
    """The palette for this terminal: some tell their background's colour (`COLORFGBG`), others are taken for dark."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if background in ("7", "15") else DARK.name
