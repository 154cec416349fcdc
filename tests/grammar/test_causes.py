"""Every cause, in every wording that a release gives it: the request of each story is asked about."""

from __future__ import annotations

from collections.abc import Callable

import client_stories
import pytest
import refusal_stories
import scheduler_stories
import server_stories
import session_stories
import transfer_stories
from renderer import Server
from stories import MAIN, STORIES, Story, incident_of, judge, problems

from sglang_lifecycle.analyzers.audit import audit

STORYTELLERS = (  # importing them registers stories
    client_stories,
    refusal_stories,
    scheduler_stories,
    server_stories,
    session_stories,
    transfer_stories,
)

WHO = {
    "finished": ("scheduler", "scheduler"),
    "finished-undelivered": ("client", "client"),
    "in-flight": ("unknown", "unknown"),
    "client-disconnect": ("client", "client"),
    "explicit-abort": ("client", "client"),
    "abort-prefix-collision": ("peer-request", "scheduler"),
    "abort-all": ("operator", "api-server"),
    "pause-abort": ("operator", "api-server"),
    "weight-update-abort": ("operator", "api-server"),
    "invalid-request": ("api-server", "tokenizer"),
    "input-too-long": ("api-server", "tokenizer"),
    "duplicate-rid": ("peer-request", "tokenizer"),
    "multimodal-error": ("scheduler", "disaggregation"),
    "never-received": ("unknown", "unknown"),
    "session-unknown": ("scheduler", "session"),
    "session-closed": ("scheduler", "session"),
    "session-reaped": ("scheduler", "session"),
    "session-misrouted": ("scheduler", "session"),
    "session-parent-unknown": ("scheduler", "session"),
    "session-parent-unfinished": ("scheduler", "session"),
    "session-mode-unsupported": ("scheduler", "session"),
    "session-busy": ("session", "session"),
    "session-stuck": ("session", "session"),
    "session-empty-input": ("scheduler", "session"),
    "session-replaced": ("session", "session"),
    "session-branch-cleared": ("session", "session"),
    "waiting-timeout": ("scheduler", "scheduler"),
    "running-timeout": ("scheduler", "scheduler"),
    "timeout-prefix-collision": ("peer-request", "scheduler"),
    "queue-full": ("scheduler", "scheduler"),
    "priority-evicted": ("peer-request", "scheduler"),
    "priority-disabled": ("scheduler", "scheduler"),
    "grammar-failed": ("scheduler", "grammar"),
    "grammar-timeout": ("scheduler", "grammar"),
    "kv-out-of-memory": ("scheduler", "memory"),
    "model-output-error": ("scheduler", "scheduler"),
    "pd-bootstrap-failed": ("peer-server", "disaggregation"),
    "pd-transfer-failed": ("peer-server", "disaggregation"),
    "pd-peer-lost": ("peer-server", "disaggregation"),
    "scheduler-crash": ("scheduler", "process"),
    "process-killed": ("host", "process"),
    "watchdog-timeout": ("scheduler", "process"),
    "server-shutdown": ("operator", "process"),
    "output-lost": ("api-server", "api-server"),
    "not-established": ("unknown", "unknown"),
}
"""Every cause that ends a request, with who ended it and in which layer."""


def test_every_cause_has_a_story() -> None:
    told = {story.cause for story in STORIES}
    assert [cause for cause in WHO if cause not in told] == []
    assert told <= WHO.keys()


def test_stories_differ() -> None:
    assert len({story.id for story in STORIES}) == len(STORIES)


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(s, id=s.id, marks=[pytest.mark.xfail(reason=s.wrong, strict=True)] if s.wrong else [])
        for s in STORIES
    ],
)
def test_the_verdict_tells_the_story(story: Story) -> None:
    telling = story.tell()
    verdict = telling.verdict()
    assert list(problems(verdict, telling.ending)) == []
    assert (verdict.actor, verdict.layer) == WHO[verdict.cause]
    assert verdict.steps or verdict.status == "not-found"
    assert verdict.evidence or verdict.status == "not-found"


# --- what happens to a server -----------------------------------------------------------------------------------------
def paused(s: Server) -> None:
    s.access(200, "/pause_generation")


def updated(s: Server) -> None:
    s.log("Start update_weights. Load format=auto")
    s.wait(3)
    s.access(200, "/update_weights_from_disk")


def restarted(s: Server) -> None:
    s.died()
    s.wait(30)
    s.boot()


def unhealthy(s: Server) -> None:
    s.log("Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: "
          "10:00:00. last_heartbeat time: 09:59:10")  # fmt: skip


def crashed(s: Server) -> None:
    s.died()


def killed(s: Server) -> None:
    s.log("Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
    s.sigquit()


def stuck(s: Server) -> None:
    if s.since("0.5.7"):
        s.scheduler("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)")
    else:
        s.scheduler("Watchdog timeout (self.watchdog_timeout=300)")


def stopped(s: Server) -> None:
    s.sigterm()
    s.draining()


HAPPENINGS: list[tuple[str, Callable[[Server], None], tuple[str, ...]]] = [
    ("engine-paused", paused, ("0.4.9", "0.5.10", "0.5.23")),
    ("weights-updated", updated, ("0.4.9", "0.5.10", "0.5.23")),
    ("server-restarted", restarted, ("0.4.1", "0.5.10", "0.5.23")),
    ("health-check-failed", unhealthy, ("0.4.4", "0.5.10", "0.5.23")),
    ("scheduler-crash", crashed, ("0.4.0", "0.5.10", "0.5.23")),
    ("process-killed", killed, ("0.5.10", "0.5.23")),
    ("watchdog-timeout", stuck, ("0.3.6", "0.5.6", "0.5.7", "0.5.23")),
    ("server-shutdown", stopped, ("0.4.9", "0.5.10", "0.5.23")),
]


@pytest.mark.parametrize(
    ("cause", "happen", "release"),
    [(c, h, r) for c, h, rs in HAPPENINGS for r in rs],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_happening_is_reported(cause: str, happen: Callable[[Server], None], release: str) -> None:
    server = Server(release)
    server.boot()
    server.receive("r-1")
    server.wait(1)
    server.done("r-1")
    server.wait(2)
    happen(server)
    report = audit(incident_of({MAIN: server.text()}))
    assert cause in [event.cause for event in report.server_events]
    assert judge({MAIN: server.text()}, "r-1").cause == "finished"
