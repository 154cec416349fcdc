"""The terminal browser: an incident as lists, verdicts, time and sessions. Textual is imported nowhere else."""
