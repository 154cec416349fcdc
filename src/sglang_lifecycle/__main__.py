"""Entry point of the `lifecycle` command."""

import atexit
import gc
import os
import sys
from contextlib import suppress

# What is imported stays, and what is read is part of no cycle: looking for garbage as often as usual finds none.
gc.set_threshold(100_000, 50, 50)
atexit.register(gc.freeze)  # nor does what goes with the process have to be looked through
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some means reading what is installed

from sglang_lifecycle.cli import app  # noqa: E402
from sglang_lifecycle.cli.errors import ExitCode  # noqa: E402


def main() -> int:
    """Run the command; whoever interrupted it does not wait for what others still read, who notice that it has gone."""
    code = app.main()
    if code == ExitCode.INTERRUPTED:
        from sglang_lifecycle.parsers import spool

        spool.clear()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
