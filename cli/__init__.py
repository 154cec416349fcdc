"""The command line: Typer commands, rendering, exit codes."""
