"""What a log shows of the moments at which requests ended, in the terms in which `replay.cuts` is asked.

Durations are taken from SGLang's own measurements where a record has them, else from the log's clock with its error.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from functools import cached_property

from sglang_lifecycle.analyzers import prefixes, session_trace, timeouts, twins
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.limits import KINDS, SLACK, spent
from sglang_lifecycle.analyzers.scene import CALL_AFTER, CALL_BEFORE, ENGINE_CALL, Call, Scene
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.replay.config import Config
from sglang_lifecycle.replay.cuts import Abort, Alive, Stage
from sglang_lifecycle.replay.ends import canonical


@dataclass(eq=False)
class Moments:
    """The ends of one life."""

    scene: Scene
    by_prefix: bool
    """Whether a timeout may have hit by rid prefix (0.5.20 to 0.5.23)."""
    _survivors: dict[int, list[Attempt]] = field(default_factory=dict)

    def calls(self, attempt: Attempt) -> dict[Abort, list[Call]]:
        """The aborts that may have been asked for around an end, each with the calls that may have been it."""
        ended, order = attempt.ended_at, attempt.finish_order or 0
        if ended is None:
            return {}
        slack = attempt.finish.at_error or 0.0 if attempt.finish is not None else 0.0
        scene, found = self.scene, dict[Abort, list[Call]]()
        around = scene.calls_between("abort", ended - CALL_BEFORE - slack, ended + CALL_AFTER + slack)
        calls = [call for call in around if call.order > attempt.order]
        if calls:
            found = {Abort("abort-prefix-collision", rid): [*calls] for rid in scene.beginnings(attempt.rid)}
            found |= {Abort("explicit-abort", attempt.rid): calls, Abort("abort-all", None): calls}
        for kind, cause in (("pause", "pause-abort"), ("weights", "weight-update-abort")):
            answered = scene.calls_between(kind, ended - CALL_AFTER - slack, ended + ENGINE_CALL)
            if later := [call for call in answered if call.order > order]:
                found[Abort(cause, None)] = later
        for root, fact in prefixes.left(scene, attempt):
            left = Call("left", scene.places[id(fact)], fact)
            found.setdefault(Abort("abort-prefix-collision", root.rid), []).append(left)
        if (gone := twins.left(scene, attempt)) is not None:
            found[Abort("duplicate-rid", attempt.rid)] = [Call("left", scene.places[id(gone)], gone)]
        if updates := scene.updates_between(ended - ENGINE_CALL, ended + CALL_AFTER):
            found.setdefault(Abort("weight-update-abort", None), []).extend(
                Call("weights", order, update) for update in updates
            )
        return found

    def lived_on(self, call: Call) -> list[Attempt]:
        """The attempts that were surely alive when a call was carried out and ended well much later."""
        if call.at is None or call.kind in ("pause", "weights"):
            return []  # its line is written long after its aborts: who lived through them is not clear
        if call.order not in self._survivors:
            at, slack = call.at, (call.fact.at_error or 0.0) + CALL_AFTER
            self._survivors[call.order] = [
                a
                for a in self.scene.open_at(call.order)
                if a.finish is not None
                and a.went_well
                and a.received is not None
                and (a.received_at or at) < at - slack - (a.received.at_error or 0.0) - session_trace.DELAY
                and (a.ended_at or at) > at + slack + (a.finish.at_error or 0.0)
            ]
        return self._survivors[call.order]

    @cached_property
    def limits(self) -> dict[str, float]:
        """The limits in seconds: those that are told, else the shortest time after which a timeout struck by itself."""
        found: dict[str, float] = {}
        for attempt in self.scene.attempts:
            message = canonical(attempt.finish.message_id) if attempt.finish is not None else None
            if message not in KINDS or self.roots(attempt, message):
                continue
            length = spent(attempt, message)
            if length is not None:
                found[message] = min(length, found.get(message, length))
        return {**found, **self.scene.limits}

    def bounds(self, message: str) -> tuple[float | None, float | None]:
        """The waiting and the running limit, at least, in seconds, for a question about one kind's text.

        Where all whom it ended have a root, none shows the limit: any time may have reached it.
        """
        limits = {kind: limit - SLACK for kind, limit in self.limits.items()}
        limits.setdefault(message, 0.0)
        return limits.get("waiting_timeout"), limits.get("running_timeout")

    def roots(self, attempt: Attempt, message: str) -> list[Attempt]:
        """The attempts that the same timeout ended in the same stroke and whose rid begins this one's."""
        return timeouts.roots_of(self.scene, attempt, message) if self.by_prefix else []

    def alive(self, attempt: Attempt) -> Alive:
        """An attempt at its end, by its records."""
        finish = attempt.finish
        by_clock = finish is None or finish.e2e_s is None
        slack = _error(attempt.received) + _error(finish) if by_clock else 0.0
        lived, ran = spent(attempt, "waiting_timeout"), spent(attempt, "running_timeout")
        return Alive(
            attempt.rid,
            1e5 if lived is None else max(0.0, lived + slack),
            1e5 if ran is None else max(0.0, ran + slack),
            self._stages(attempt),
        )

    def _stages(self, attempt: Attempt) -> frozenset[Stage]:
        finish = attempt.finish
        found = set()
        if finish is None or not timeouts.ran_before(attempt):
            found.add(Stage.WAITING)
        if finish is None or finish.completion_tokens != 0 or finish.finish_shape == "scheduler":
            found.add(Stage.RUNNING)
        retracted = finish is not None and finish.retractions
        if retracted or self._may_retract:
            found.add(Stage.RETRACTED)
        return frozenset(found or {Stage.WAITING})

    @cached_property
    def _may_retract(self) -> bool:
        """Whether requests may have gone back to the queue: memory ran short, or priorities pushed them out."""
        return bool(self.scene.life.of(Event.KV_RETRACTED)) or bool(
            self.scene.life.args.get("enable_priority_scheduling")
        )

    @cached_property
    def _begins(self) -> list[int]:
        return sorted(a.order for a in self.scene.attempts if a.received is not None)

    @cached_property
    def _ends(self) -> list[int]:
        return sorted(a.finish_order for a in self.scene.attempts if a.received and a.finish_order is not None)

    def others(self, attempt: Attempt) -> int:
        """How many other requests were in flight, at most, when an attempt reached the queue."""
        return session_trace.in_flight(self.scene, self._begins, self._ends, attempt) - 1

    @cached_property
    def _priorities(self) -> list[tuple[int, int]]:
        """The place of each arrival with a priority, and the priority."""
        found = [(a.order, a.received.detail.get("priority")) for a in self.scene.attempts if a.received is not None]
        return sorted((order, priority) for order, priority in found if isinstance(priority, int))

    def newcomers(self, attempt: Attempt) -> set[int]:
        """The priorities of the requests that came while an attempt lived."""
        if attempt.finish_order is None:
            return set()
        first = bisect.bisect_left(self._priorities, (attempt.order + 1, 0))
        last = bisect.bisect_left(self._priorities, (attempt.finish_order, 0))
        return {priority for _, priority in self._priorities[first:last]}

    def config(self, most: int) -> Config:
        """What the server was told about its queue; where its arguments are not in the log, what explains most."""
        args = self.scene.life.args
        limit = args.get("max_queued_requests") if args else most
        return Config(
            max_queued_requests=limit if isinstance(limit, int) else None,
            enable_priority_scheduling=bool(args.get("enable_priority_scheduling")),
            schedule_low_priority_values_first=bool(args.get("schedule_low_priority_values_first")),
            abort_on_priority_when_disabled=bool(args.get("abort_on_priority_when_disabled", not args)),
        )


def _error(fact: Fact | None) -> float:
    return (fact.at_error or 0.0) if fact is not None else 0.0
