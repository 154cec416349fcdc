"""One session in every order that its steps allow: against a search that tries every order, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_lifecycle.replay.engine import Engine
from sglang_lifecycle.replay.hypotheses import Step, replay_session
from sglang_lifecycle.replay.profiles import PROFILES, Profile, profile_for
from sglang_lifecycle.replay.requests import SessionParams
from sglang_lifecycle.replay.worlds import ACCEPTED, ENDS, Answer, Kind, Turn, World

OLD, STUCK, FIXED = profile_for("0.5.10"), profile_for("0.5.18"), profile_for("0.5.23")
UNFINISHED = Answer("session-parent-unfinished", "session_parent_unfinished")
UNKNOWN = Answer("session-unknown", "session_unknown")


def turn(key: int, rid: str, parent: str | None = None, answered: str | None = None, replace: bool = False) -> Turn:
    return Turn(key, rid, SessionParams("s", parent, replace), answered=answered)


def opened(*steps: Step) -> list[Step]:
    return [Step(Kind.OPEN, -1, -1), *steps]


FIRST = turn(0, "a", answered="")
NEXT = turn(1, "b", "a")


@pytest.mark.parametrize(
    ("finish", "expected"),
    [((1, 2), {ACCEPTED}), ((4, 6), {UNFINISHED}), ((1, 4), {ACCEPTED, UNFINISHED})],
)
def test_an_order_that_the_log_leaves_open_gives_both_answers(
    finish: tuple[float, float], expected: set[Answer]
) -> None:
    steps = opened(Step(Kind.ARRIVE, 0, 0, FIRST), Step(Kind.FINISH, *finish, FIRST), Step(Kind.ARRIVE, 3, 3, NEXT))
    history = replay_session(FIXED, steps, streaming=[False])
    assert history.forecasts[1].answers == expected
    assert history.forbidden is None
    assert not history.bounded


def test_an_answer_in_the_log_decides_what_came_first() -> None:
    refused = turn(1, "b", "a", answered="session_parent_unfinished")
    third = turn(2, "c", "b")
    steps = opened(
        Step(Kind.ARRIVE, 0, 0, FIRST),
        Step(Kind.FINISH, 1, 4, FIRST),
        Step(Kind.ARRIVE, 3, 3, refused),
        Step(Kind.CUT, 5, 5, refused),
        Step(Kind.ARRIVE, 6, 6, third),
    )
    assert replay_session(FIXED, steps).forecasts[2].answers == {
        Answer("session-parent-unknown", "session_parent_unknown")
    }


def test_what_no_order_allows_is_named() -> None:
    refused = turn(1, "b", "a", answered="session_unknown")
    steps = opened(Step(Kind.ARRIVE, 0, 0, FIRST), Step(Kind.FINISH, 1, 1, FIRST), Step(Kind.ARRIVE, 3, 3, refused))
    history = replay_session(FIXED, steps)
    assert history.forbidden is not None
    assert history.forbidden.key == 1
    assert history.forecasts[1].answers == {ACCEPTED}


def test_a_close_that_may_have_been_another_sessions() -> None:
    steps = opened(
        Step(Kind.ARRIVE, 0, 0, FIRST),
        Step(Kind.FINISH, 1, 1, FIRST),
        Step(Kind.CLOSE, 2, 2, optional=True),
        Step(Kind.ARRIVE, 3, 3, NEXT),
    )
    assert replay_session(OLD, steps).forecasts[1].answers == {ACCEPTED, Answer("session-closed", "session_unknown")}


@pytest.mark.parametrize(("profile", "answer"), [(STUCK, "session-stuck"), (FIXED, "")])
def test_a_turn_dropped_from_the_queue_leaves_its_mark_up_to_0_5_21(profile: Profile, answer: str) -> None:
    steps = opened(Step(Kind.ARRIVE, 0, 0, FIRST), Step(Kind.DROP, 1, 1, FIRST), Step(Kind.ARRIVE, 2, 2, turn(1, "b")))
    history = replay_session(profile, steps, streaming=[True])
    assert {found.cause for found in history.forecasts[1].answers} == {answer}


def test_a_replace_marks_what_it_names_and_what_hangs_below() -> None:
    child, heir = turn(1, "b", "a", answered=""), turn(2, "c", "a", replace=True)
    grandchild = turn(3, "d", "b")
    steps = opened(
        Step(Kind.ARRIVE, 0, 0, FIRST),
        Step(Kind.FINISH, 1, 1, FIRST),
        Step(Kind.ARRIVE, 2, 2, child),
        Step(Kind.ARRIVE, 3, 3, heir),
        Step(Kind.CUT, 4, 4, child),
        Step(Kind.ARRIVE, 5, 5, grandchild),
    )
    history = replay_session(FIXED, steps, streaming=[False])
    assert history.forecasts[1].marks == {"session-branch-cleared"}
    assert {answer.cause for answer in history.forecasts[3].answers} == {"session-parent-unknown"}


def test_an_expiry_is_not_a_close() -> None:
    steps = [Step(Kind.OPEN, 0, 0), Step(Kind.REAP, 1, 1), Step(Kind.ARRIVE, 2, 2, turn(0, "a"))]
    assert {a.cause for a in replay_session(FIXED, steps).forecasts[0].answers} == {"session-reaped"}


def test_effort_is_bounded_and_said_to_be() -> None:
    turns = [turn(key, f"r{key}") for key in range(60)]
    steps = opened(*(Step(kind, 0, 100, each) for each in turns for kind in (Kind.ARRIVE, Kind.CUT)))
    history = replay_session(FIXED, steps)
    assert history.bounded
    assert history.forecasts.keys() == set(range(60))


def test_a_long_session_is_no_problem() -> None:
    """Copying its tree must not recurse along it."""
    steps = opened()
    for key in range(1500):
        each = turn(key, f"r{key}", f"r{key - 1}" if key else None, answered="")
        steps += [Step(Kind.ARRIVE, 4 * key, 4 * key, each), Step(Kind.FINISH, 4 * key + 1, 4 * key + 1, each)]
    last = turn(-1, "last", "r1499")
    steps += [Step(Kind.CLOSE, 9000, 9000, optional=True), Step(Kind.ARRIVE, 9001, 9001, last)]
    causes = {answer.cause for answer in replay_session(FIXED, steps).forecasts[-1].answers}
    assert causes == {"", "session-closed"}


# Every order, one by one.


def orders(steps: Sequence[Step]) -> Iterator[list[Step]]:
    for order in permutations(steps):
        before = [(one, other) for index, one in enumerate(order) for other in order[index + 1 :]]
        if any(other.hi < one.lo for one, other in before):
            continue
        arrived = [
            (one, other)
            for one, other in before
            if one.kind in ENDS and other.kind is Kind.ARRIVE and one.turn == other.turn
        ]
        if not arrived:
            choices = [[step] if not step.optional else [step, None] for step in order]
            yield from ([step for step in chosen if step is not None] for chosen in product(*choices))


def by_hand(profile: Profile, steps: Sequence[Step]) -> dict[int, set[Answer]]:
    """The answers in the orders that the log allows as far as to the turn's own answer."""
    found: dict[int, set[Answer]] = {}
    for streaming in (False, True) if profile.has_reaper else (False,):
        for order in orders(steps):
            world = World(Engine(profile), streaming)
            for step in order:
                if step.turn is None:
                    world.session(step.kind)
                elif step.kind is Kind.ARRIVE:
                    answer = world.arrive(step.turn)
                    found.setdefault(step.turn.key, set()).add(answer)
                    if world.dead or not step.turn.fits(answer):
                        break
                elif not world.end(step.turn.rid, step.kind):
                    break
    return found


@st.composite
def small_sessions(draw: st.DrawFn) -> list[Step]:
    steps = opened()
    for key in range(draw(st.integers(1, 2))):
        parent = draw(st.sampled_from([None, "00000000"]))
        replaces = parent is not None and draw(st.booleans())
        answered = draw(st.sampled_from([None, None, ""]))
        each = Turn(key, f"{key:08}", SessionParams("s", parent, replaces), 1, answered)
        start, end = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        steps.append(Step(Kind.ARRIVE, start, start + draw(st.integers(0, 2)), each))
        kind = draw(st.sampled_from(sorted(ENDS, key=lambda kind: kind.value)))
        steps.append(Step(kind, start + end, start + end + draw(st.integers(0, 3)), each))
    if draw(st.booleans()):
        steps.append(Step(Kind.CLOSE, draw(st.integers(0, 6)), 6, optional=draw(st.booleans())))
    return steps


@settings(max_examples=150)
@given(small_sessions(), st.sampled_from([profile for profile in PROFILES if profile.session_request_crash is None]))
def test_the_search_finds_what_trying_every_order_finds(steps: list[Step], profile: Profile) -> None:
    history = replay_session(profile, steps)
    wanted = by_hand(profile, steps)
    if history.forbidden is None:
        assert {key: forecast.answers for key, forecast in history.forecasts.items() if forecast.answers} == wanted
    else:
        assert all(forecast.answers <= wanted.get(key, set()) for key, forecast in history.forecasts.items())


@settings(max_examples=100)
@given(small_sessions(), st.randoms(use_true_random=False))
def test_the_order_in_which_steps_are_given_does_not_matter(steps: list[Step], random: object) -> None:
    shuffled = list(steps)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = replay_session(STUCK, steps), replay_session(STUCK, shuffled)
    assert {k: f.answers for k, f in one.forecasts.items()} == {k: f.answers for k, f in other.forecasts.items()}
    assert one.streaming == other.streaming
