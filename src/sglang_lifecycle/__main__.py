"""Entry point of the `lifecycle` command."""

import sys

from sglang_lifecycle.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
