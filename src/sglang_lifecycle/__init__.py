"""What truly ended an SGLang request: who did it, at which stage, and the log lines that prove it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_lifecycle.cli.library import Audit, Logs, Verdict, audit, explain, read

__all__ = ["Audit", "Logs", "Verdict", "__version__", "audit", "explain", "read"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the library when it is first asked for: the command line needs only the version."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sglang_lifecycle.cli import library

    return getattr(library, name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
