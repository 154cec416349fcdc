"""How the ids of a verdict read in a sentence. An id that is not here is shown as it is."""

from __future__ import annotations

ACTORS = {
    "client": "its client",
    "operator": "an operator",
    "api-server": "the API server",
    "scheduler": "the scheduler",
    "session": "another request of its session",
    "peer-request": "another request",
    "peer-server": "another server",
    "host": "the host",
    "unknown": "somebody the logs don't name",
}
"""Who ended it: "ended by …"."""

STAGES = {
    "before-scheduler": "before it was queued",
    "grammar-queue": "while its grammar was being compiled",
    "waiting": "while it waited in the queue",
    "running": "while it ran in the batch",
    "bootstrap": "while prefill and decode were meeting",
    "transfer": "while its KV was being transferred",
    "finished": "after it had finished",
    "never-received": "without having been received",
    "unknown": "at a stage the logs don't show",
}
"""Where it stood."""

CONFIDENCE = {
    "proven": "proven",
    "likely": "likely, not proven",
    "not-established": "not established",
}
"""How sure the verdict is."""

STEPS = {
    "session_params": "session params",
    "abort_origin": "abort origin",
    "timeout": "timeout",
    "rid_validity": "rid validity",
    "time_stats": "time stats",
}
"""The steps of the debugging order."""

VERSION_SOURCES = {"fingerprint": "by what the logs show", "told": "as told", "unknown": "version unknown"}
"""Where the SGLang version is known from."""
