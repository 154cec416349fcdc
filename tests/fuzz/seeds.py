"""What the fuzzers share: where they start from, and the limits that one input has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=0", "-verbosity=0"]
"""Seconds and memory of one input, and its longest length; options of the command line override them."""


def fuzz(argv: Sequence[str], seeds: Iterable[bytes], check: Callable[[bytes], None]) -> None:
    """Fuzz a function from seeds on, as the options of libFuzzer in `argv` say; ends the process.

    What is found stays in `build/fuzz/`: inputs that reach new code in a folder, those that fail beside it.
    """
    folder = ROOT / "build" / "fuzz" / Path(argv[0]).stem
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    atheris.Setup([argv[0], *LIMITS, f"-artifact_prefix={folder}-", *argv[1:], str(folder)], check)
    atheris.Fuzz()
