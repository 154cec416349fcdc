"""Where output goes: data on stdout, plain or styled, and the progress of long work on stderr."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from sglang_lifecycle.cli.errors import ClosedPipe, ExitCode, LifecycleError, silenced

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_WIDTH = 100
"""Width of what isn't written to a terminal, unless COLUMNS says another."""

WIDTHS = (60, 160)
"""The narrowest and the widest that a screen is laid out for."""

PATIENCE = 0.5
"""Seconds of work before a progress bar appears."""

_ASCII = str.maketrans("…·–─│├┤└▏█▒±→•‹›—µ", "~.--|||`|#=~>*<>-u")  # each glyph of the screens, at its own width


def write(text: str) -> None:
    """Write data to stdout, at once."""
    stream = sys.stdout
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        raise ClosedPipe from None
    except OSError as problem:
        discard_stdout()
        raise LifecycleError(ExitCode.INTERNAL, f"the answer can't be written to stdout: {problem.strerror}") from None


def write_bytes(data: bytes) -> None:
    """Write data to stdout as it is, whatever the terminal's encoding."""
    stream = sys.stdout
    try:
        if buffer := getattr(stream, "buffer", None):
            stream.flush()
            buffer.write(data)
            buffer.flush()
        elif stream is not None:
            stream.write(data.decode("utf-8", "replace"))
    except BrokenPipeError:
        raise ClosedPipe from None
    except OSError as problem:
        discard_stdout()
        raise LifecycleError(ExitCode.INTERNAL, f"the answer can't be written to stdout: {problem.strerror}") from None


def save(path: str, pieces: Iterable[bytes]) -> None:
    """Write data, in pieces, to a file, which appears whole or not at all.

    What is no regular file, such as a pipe, is written to. Raises `LifecycleError` where it can't be written.
    """
    try:
        target = Path(path).resolve()  # a link stays a link
        if target.exists() and not target.is_file():
            with target.open("wb", buffering=0) as stream:
                stream.writelines(pieces)
        else:
            from sglang_lifecycle.parsers.replacing import replacing

            with replacing(target) as temporary, temporary.open("wb") as stream:
                stream.writelines(pieces)
    except OSError as problem:
        text = f"{path}: the answer can't be written there: {problem.strerror or problem}"
        raise LifecycleError(ExitCode.UNREADABLE, text) from None


def discard_stdout() -> None:
    """Point stdout to nowhere, so that the interpreter's last flush doesn't complain about what can't be written."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass


def show(screen: Callable[[int], RenderableType], color: bool | None) -> None:
    """Write the screen for a width to stdout: as wide as the terminal, and plain where there is none."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    width = columns(terminal)
    text = render(screen(width), width, colored(terminal, color))
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    write(text if encoding.startswith("utf") else text.translate(_ASCII))


def columns(terminal: bool) -> int:
    """The width of the screen: what COLUMNS says, else the terminal's, where there is one."""
    told = os.environ.get("COLUMNS", "")
    number = int(told) if told.isdecimal() else 0
    if not number:
        number = shutil.get_terminal_size((PLAIN_WIDTH, 40)).columns if terminal else PLAIN_WIDTH
    narrowest, widest = WIDTHS
    return min(max(number, narrowest), widest)


def colored(terminal: bool, color: bool | None) -> bool:
    """Whether to colour: as told, else on a terminal unless NO_COLOR is set."""
    if color is not None:
        return color
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def render(screen: RenderableType, columns: int, color: bool) -> str:
    """The screen as text, without trailing space."""
    from rich.console import Console

    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=columns,
        force_terminal=color,
        force_jupyter=False,
        force_interactive=False,
        color_system="standard" if color else None,  # the terminal's own sixteen colours suit its background
        no_color=not color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    console.print(screen, crop=False)  # an id may run over, but is never cut
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().split("\n"))


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function to report (done, total) bytes to; nothing where nobody watches stderr."""
    if silenced() or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(label)
    try:
        yield bar.report
    finally:
        bar.stop()


class _Bar:
    """A progress bar that isn't there before the work proves to be long."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = monotonic()
        self._stop: Callable[[], None] | None = None
        self._update: Callable[[int, int], None] | None = None

    def report(self, done: int, total: int) -> None:
        if self._update is None:
            if monotonic() - self._began < PATIENCE:
                return
            self._update = self._start()
        self._update(done, total)

    def stop(self) -> None:
        if self._stop:
            self._stop()

    def _start(self) -> Callable[[int, int], None]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr, no_color=not colored(True, None)),
            transient=True,
        )
        task = bar.add_task(self._label, total=None)
        bar.start()
        self._stop = bar.stop

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None)

        return update
