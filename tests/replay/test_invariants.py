"""What must hold in every era, whatever happens in whatever order."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.digest import outcome_digest, state_digest
from sglang_lifecycle.replay.engine import Engine
from sglang_lifecycle.replay.profiles import PROFILES, Profile
from sglang_lifecycle.replay.queue import PRIORITY_DISABLED
from sglang_lifecycle.replay.requests import FinishReason, Request
from sglang_lifecycle.replay.transcripts import apply

SESSIONS = ("s1", "s2")
STEMS = ("a", "a1", "ba")
WAITING = 1.0
RUNNING = 2.0

configs = st.builds(
    Config,
    waiting_timeout=st.sampled_from([None, WAITING]),
    running_timeout=st.sampled_from([None, RUNNING]),
    max_queued_requests=st.sampled_from([None, 2, 4]),
    enable_priority_scheduling=st.booleans(),
    schedule_low_priority_values_first=st.booleans(),
    abort_on_priority_when_disabled=st.booleans(),
    max_running=st.sampled_from([None, 1, 3]),
)
profiles = st.sampled_from([profile for profile in PROFILES if profile.echoes_queue_aborts])


class SchedulerMachine(RuleBasedStateMachine):
    """Drives one engine. No rid is used twice, so whatever ends does so under its own name."""

    engine: Engine
    profile: Profile

    @initialize(profile=profiles, config=configs)
    def start(self, profile: Profile, config: Config) -> None:
        self.profile, self.config = profile, config
        self.restart()

    def restart(self) -> None:
        self.engine = Engine(self.profile, self.config)
        self.now = 100.0
        self.operations: list[dict[str, Any]] = []
        self.outcomes: list[str] = []
        self.arrived: list[str] = []
        self.ended: Counter[str] = Counter()
        self.dead = False

    # Driving.

    def do(self, op: str, **arguments: Any) -> dict[str, Any]:
        self.now += 1 / 64
        operation = {"op": op, "now": self.now, **arguments}
        outcome = outcome_digest(apply(self.engine, operation), op, self.engine)
        self.operations.append(operation)
        self.outcomes.append(json.dumps(outcome, sort_keys=True))
        self.dead = "crash" in outcome
        for message in outcome["messages"]:
            if message["kind"] != "open" and not self.is_queued_all_the_same(message):
                self.ended[message["rid"]] += 1
        return outcome

    def is_queued_all_the_same(self, message: dict[str, Any]) -> bool:
        """Tell a refusal that ends nothing: two releases queue the request after it, and repeat it at a retraction."""
        reason = message["finished_reason"] or {}
        return self.profile.refused_priority_still_queues and reason.get("message") == PRIORITY_DISABLED

    alive = precondition(lambda self: not self.dead)

    @precondition(lambda self: self.dead)
    @rule()
    def start_again_after_a_crash(self) -> None:
        self.teardown()
        self.restart()

    @alive
    @rule(session=st.sampled_from(SESSIONS), streaming=st.booleans(), timeout=st.sampled_from([None, 0.0, 2.0]))
    def open(self, session: str, streaming: bool, timeout: float | None) -> None:
        known = session in self.engine.controller.sessions
        has_reaper = self.profile.has_reaper
        outcome = self.do(
            "open", session=session, streaming=streaming and has_reaper, timeout=timeout if has_reaper else None
        )
        if not known and not self.dead:
            assert outcome["messages"] == [{"kind": "open", "session": session, "success": True}]

    @alive
    @rule(session=st.sampled_from(SESSIONS))
    def close(self, session: str) -> None:
        self.do("close", session=session)

    @alive
    @rule(
        stem=st.sampled_from(STEMS),
        length=st.integers(1, 4),
        limit=st.integers(1, 4),
        priority=st.sampled_from([None, None, 1, 2]),
    )
    def arrive(self, stem: str, length: int, limit: int, priority: int | None) -> None:
        self.receive(stem, length, limit, priority, None)

    @alive
    @rule(
        stem=st.sampled_from(STEMS),
        length=st.integers(1, 4),
        session=st.sampled_from(SESSIONS),
        parent=st.integers(-1, 3),
        replace=st.booleans(),
        drop=st.booleans(),
        offset=st.sampled_from([None, None, 2, -1]),
    )
    def take_turn(
        self, stem: str, length: int, session: str, parent: int, replace: bool, drop: bool, offset: int | None
    ) -> None:
        known = self.engine.controller.sessions.get(session)
        rids = [] if known is None else list(known.nodes)
        rid = None if parent < 0 else rids[parent % len(rids)] if rids else "nobody"
        # A replace without a rid kills the scheduler, and with it the example: leave it to the transcripts.
        params = {"id": session, "rid": rid, "replace": replace and rid is not None, "offset": offset}
        self.receive(stem, length, 4, None, params | {"drop_previous_output": drop and offset is None})

    def receive(self, stem: str, length: int, limit: int, priority: int | None, params: dict[str, Any] | None) -> None:
        rid = f"{stem}-{len(self.arrived)}"
        self.arrived.append(rid)
        self.do("arrive", rid=rid, len=length, max_new_tokens=limit, priority=priority, session=params)

    @alive
    @rule(rid=st.sampled_from(["", "a", "a1", "a-", "ba", "c"]))
    def abort(self, rid: str) -> None:
        self.abort_and_compare({"op": "abort", "rid": rid}, rid)

    @alive
    @rule(pick=st.integers(0, 50))
    def abort_someone(self, pick: int) -> None:
        if self.arrived:
            rid = self.arrived[-1 - pick % len(self.arrived)]
            self.abort_and_compare({"op": "abort", "rid": rid}, rid)

    @alive
    @rule()
    def abort_all(self) -> None:
        self.abort_and_compare({"op": "abort_all"}, "")

    def abort_and_compare(self, operation: dict[str, Any], prefix: str) -> None:
        """An abort touches exactly the rids that its rule matches."""
        waiting = self.rids(self.engine.queue.requests)
        before = {request.rid: request.mark for request in self.unfinished()}
        outcome = self.do(**operation)

        echoed = [message["rid"] for message in outcome["messages"]]
        assert echoed == [rid for rid in reversed(waiting) if rid.startswith(prefix)]
        assert self.rids(self.engine.queue.requests) == [rid for rid in waiting if not rid.startswith(prefix)]
        after = {request.rid: request.mark for request in self.unfinished()}
        assert after.keys() == before.keys()
        for rid, mark in after.items():
            if rid.startswith(prefix):
                assert mark is not None
                assert mark.message == "Aborted"
            else:
                assert mark is before[rid]

    @alive
    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        before = state_digest(self.engine)
        assert self.do("tick", seconds=seconds)["state"] == before

    @alive
    @rule()
    def reap(self) -> None:
        before = state_digest(self.engine)
        after = self.do("reap")["state"]
        assert before["waiting"] == after["waiting"]
        assert before["running"] == after["running"]

    @alive
    @rule()
    def poll(self) -> None:
        """A timeout hits who is overdue and no one else, where it is not an abort by rid in disguise."""
        waiting = {request.rid: request.queued_at for request in self.engine.queue.requests}
        before: dict[str, FinishReason | None] = {request.rid: request.mark for request in self.unfinished()}
        started = {request.rid: request.started_at for request in self.unfinished()}
        outcome = self.do("poll")

        echoed = {message["rid"] for message in outcome["messages"]}
        marked = {request.rid: request.mark for request in self.unfinished() if request.mark is not before[request.rid]}
        assert echoed <= waiting.keys(), "only who waits is answered by a timeout"
        now = self.now
        late = {rid for rid, at in waiting.items() if self.config.waiting_timeout and now - at > WAITING}
        long = {
            rid for rid, at in started.items() if self.config.running_timeout and at is not None and now - at > RUNNING
        }
        if not self.profile.timeouts_are_aborts:
            assert echoed == (late if self.profile.waiting_timeout_text else set())
            assert marked.keys() <= (long if self.profile.has_running_timeout else set())
            assert all(mark and mark.message == "Request running timeout reached." for mark in marked.values())
        else:
            assert late <= echoed
            assert all(any(rid.startswith(cause) for cause in late | long) for rid in echoed | marked.keys())

    # Scheduling.

    @alive
    @rule(pick=st.integers(0, 5))
    def admit(self, pick: int) -> None:
        waiting = self.rids(self.engine.queue.requests)
        if not waiting:
            assert self.do("admit", rid="nobody")["noop"] is True
            return
        rid = waiting[pick % len(waiting)]
        outcome = self.do("admit", rid=rid)
        assert outcome["batch"] == {"mode": "prefill", "rids": [rid]}
        assert self.rids(self.engine.queue.requests) == [other for other in waiting if other != rid]

    @alive
    @rule(count=st.integers(1, 3))
    def step(self, count: int) -> None:
        self.do("step", n=count)

    @alive
    @rule(pick=st.integers(0, 5))
    def finish(self, pick: int) -> None:
        running = self.rids(self.unfinished())
        if not running:
            return
        rid = running[pick % len(running)]
        outcome = self.do("finish", rid=rid)
        assert rid in [message["rid"] for message in outcome["messages"]]

    @alive
    @rule()
    def retract(self) -> None:
        before = len(self.unfinished())
        outcome = self.do("retract")
        # One request always stays, and the retracted one waits or was refused; the rest took a token.
        if before > 1:
            assert len(outcome["batch"]["rids"]) == before - 1

    @alive
    @rule()
    def oom(self) -> None:
        self.do("oom")

    @alive
    @rule()
    def iterate(self) -> None:
        before = len(self.engine.batches.running.requests)
        outcome = self.do("iterate")
        ran = outcome["batch"]
        limit = self.config.max_running
        if ran is not None and ran["mode"] == "prefill" and limit is not None:
            assert len(ran["rids"]) <= limit
            assert len(self.engine.batches.requests()) <= max(limit, before)

    # What holds after every operation.

    @staticmethod
    def rids(requests: list[Request]) -> list[str]:
        return [request.rid for request in requests]

    def unfinished(self) -> list[Request]:
        return [request for request in self.engine.batches.requests() if request.finished is None]

    @alive
    @invariant()
    def everyone_is_in_one_place(self) -> None:
        places = Counter(self.rids(self.engine.queue.requests) + self.rids(self.engine.batches.requests()))
        assert not [rid for rid, count in places.items() if count > 1]

    @alive
    @invariant()
    def everyone_ends_once_and_nobody_is_lost(self) -> None:
        alive = set(self.rids(self.engine.queue.requests) + self.rids(self.unfinished()))
        for rid in self.arrived:
            assert self.ended[rid] == (0 if rid in alive else 1), rid

    @alive
    @invariant()
    def waiting_requests_have_not_finished(self) -> None:
        assert all(request.finished is None for request in self.engine.queue.requests)

    @alive
    @invariant()
    def queue_stays_within_its_limit(self) -> None:
        if self.config.max_queued_requests is not None:
            assert len(self.engine.queue.requests) <= self.config.max_queued_requests

    @alive
    @invariant()
    def nodes_form_a_forest(self) -> None:
        for session in self.engine.controller.sessions.values():
            assert not session.streaming or len(session.nodes) <= 1
            for rid, node in session.nodes.items():
                assert node.request.rid == rid
                assert all(session.nodes[child.request.rid] is child for child in node.children)
                seen = {id(node)}
                while node.parent is not None:
                    assert sum(child is node for child in node.parent.children) == 1
                    node = node.parent
                    assert id(node) not in seen
                    seen.add(id(node))

    @alive
    @invariant()
    def a_busy_session_is_one_that_streams(self) -> None:
        for session in self.engine.controller.sessions.values():
            assert session.streaming or not (session.inflight or session.close_on_finish)

    def teardown(self) -> None:
        """Equal inputs give equal outputs."""
        twin = Engine(self.profile, self.config)
        for operation, outcome in zip(self.operations, self.outcomes, strict=True):
            again = outcome_digest(apply(twin, operation), operation["op"], twin)
            assert json.dumps(again, sort_keys=True) == outcome


def test_invariants_hold_in_every_era() -> None:
    run_state_machine_as_test(
        SchedulerMachine,
        settings=settings(
            max_examples=400,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
