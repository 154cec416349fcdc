"""Sphinx: the site by `sphinx-build -W docs docs/_build`, the man page with `-b man`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import reference  # noqa: E402

from sglang_lifecycle import __version__  # noqa: E402

reference.write(HERE / "_generated")

project = "lifecycle"
release = version = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["_build", "_generated", "recipes/*"]
html_theme = "furo"
html_title = f"lifecycle {__version__}"
html_copy_source = False
man_pages = [("man", "lifecycle", "say what truly ended an SGLang request", "", 1)]


class Lifecycle(Directive):
    """Runs a command of `lifecycle` in the repository and shows it with its output; `:code:` is how it ends."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"code": int, "lines": int}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """The command and its output."""
        (command,) = self.arguments
        asked = [sys.executable, "-m", "sglang_lifecycle", *shlex.split(command)]
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        result = subprocess.run(asked, cwd=HERE.parent, env=environment, capture_output=True, text=True)
        if result.returncode != self.options.get("code", 0):
            raise self.error(f"lifecycle {command}: ended with {result.returncode}: {result.stderr}")
        lines = (result.stdout + result.stderr).rstrip("\n").split("\n")
        shown = lines[: self.options.get("lines", len(lines))] + ["…"] * ("lines" in self.options)
        text = "\n".join([f"$ lifecycle {command}", *shown])
        block = nodes.literal_block(text, text)
        block["language"] = "text"
        return [block]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("lifecycle", Lifecycle)
    return {"parallel_read_safe": True}
