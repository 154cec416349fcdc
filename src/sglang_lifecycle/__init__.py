"""What truly ended an SGLang request: who did it, at which stage, and the log lines that prove it."""

__version__ = "0.1.0"
