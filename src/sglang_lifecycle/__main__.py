"""Entry point of the `lifecycle` command."""

import atexit
import gc
import os
import sys

# What is imported stays, and what is read is part of no cycle: looking for garbage as often as usual finds none.
gc.set_threshold(100_000, 50, 50)
atexit.register(gc.freeze)  # nor does what goes with the process have to be looked through
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some means reading what is installed

from sglang_lifecycle.cli.app import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
