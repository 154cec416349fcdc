"""What must not change a verdict, and what may only make it less certain: tried on every story."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import client_stories
import pytest
import refusal_stories
import scheduler_stories
import server_stories
import session_stories
import transfer_stories
from renderer import Server
from stories import MAIN, STORIES, Story, Telling, judge
from wordings import RELEASES, START, between

from sglang_lifecycle.analyzers.verdict import Verdict

STORYTELLERS = (  # importing them registers stories
    client_stories,
    refusal_stories,
    scheduler_stories,
    server_stories,
    session_stories,
    transfer_stories,
)
CERTAINTY = {"not-established": 0, "likely": 1, "proven": 2}


TOLD_RIGHTLY = [one for one in STORIES if not one.wrong]


def newest() -> list[Story]:
    """Each story once, in the newest release that has it."""
    found: dict[tuple[str, str], Story] = {}
    for one in TOLD_RIGHTLY:
        key = (one.cause, one.name)
        if key not in found or RELEASES.index(one.release) > RELEASES.index(found[key].release):
            found[key] = one
    return list(found.values())


def spread() -> list[Story]:
    """Each story once, in releases that take turns, so that all eras are met."""
    found: dict[tuple[str, str], list[Story]] = {}
    for one in TOLD_RIGHTLY:
        found.setdefault((one.cause, one.name), []).append(one)
    return [same[sum(map(ord, name)) % len(same)] for (_, name), same in found.items()]


WRONG: dict[tuple[str, str], str] = {
    ("line", "crashed_and_counted_differently_by_the_dump"): "a count that fits by chance counts as proof",
}
"""What is known not to hold yet: a property and a story, with the reason."""


def over(property_: str, told: list[Story]) -> list[Any]:
    """The stories as parameters of a test of a property."""
    return [
        pytest.param(s, id=s.id, marks=[pytest.mark.xfail(reason=WRONG[key], strict=True)] if key in WRONG else [])
        for s in told
        for key in [(property_, s.name)]
    ]


def stamped() -> list[Story]:
    """Each story once, in the oldest release that has it and whose request log has times."""
    found: dict[str, Story] = {}
    for one in TOLD_RIGHTLY:
        if not between(one.release, "0.5.8", "0.5.11") and not one.options.get("as_json"):
            found.setdefault(one.name, one)
    return list(found.values())


def says(verdict: Verdict) -> tuple[object, ...]:
    """What a verdict says, apart from the lines that it quotes."""
    links = [(link.cause, link.rid) for link in verdict.chain]
    return verdict.status, verdict.cause, verdict.confidence, verdict.stage, verdict.actor, verdict.effects, links


# --- records ----------------------------------------------------------------------------------------------------------
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]*\] ")
BARE = ("Receive", "Finish", '{"timestamp"')
API = ("Receive", "Finish", "{", "in=", "[http_server]", "Error:", "INFO:", "server_args", "The server is",
       "Received output", "Abort request for", "SIGTERM", "SIGQUIT", "Received sigquit", "Gracefully", "Signal SIGTERM",
       "Start update", "Subprocess", "Scheduler or", "TokenizerManager hit", "Health check")  # fmt: skip


def records(text: str) -> list[str]:
    """A log cut at the beginnings of its records; continuation lines stay with theirs."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if found and not STAMP.match(line) and not line.startswith(BARE):
            found[-1] += line
        else:
            found.append(line)
    return found


def message(record: str) -> str:
    match = STAMP.match(record)
    return record[match.end() :] if match else record


def second(record: str) -> str | None:
    match = STAMP.match(record)
    return match[1] if match else None


# --- nothing changes --------------------------------------------------------------------------------------------------
def brief_traffic(story: Story, at: float, number: int) -> str:
    """A request that came and went at one moment."""
    server = Server(story.release, **story.options | {"start": at})
    server.receive(f"brief-{number}")
    server.done(f"brief-{number}")
    return server.text()


def epoch(record: str) -> float | None:
    stamp = second(record)
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() if stamp else None


@pytest.mark.parametrize("story", over("traffic", spread()))
def test_traffic_that_comes_and_goes_changes_nothing(story: Story) -> None:
    telling = story.tell()
    mixed, now = "", START
    for number, record in enumerate(records(telling.logs[MAIN])):
        now = epoch(record) or now
        mixed += record
        if number % 2 == 0 and number > 3 and "Receive OpenAI" not in record:
            mixed += brief_traffic(story, now, number)
    assert says(judge(telling.logs | {MAIN: mixed}, telling.ending.rid)) == says(telling.verdict())


@pytest.mark.parametrize("story", over("server", newest()))
def test_another_server_changes_nothing(story: Story) -> None:
    telling = story.tell()
    other = Server(story.release, start=START)
    other.boot()
    for number in range(5):
        other.receive(f"other-{number}", stream=number % 2 == 0)
        other.prefill()
        other.wait(3)
        other.decode(running=1)
        other.done(f"other-{number}")
    logs = {f"main/{name}": text for name, text in telling.logs.items()} | {"other/server.log": other.text()}
    assert says(judge(logs, telling.ending.rid)) == says(telling.verdict())


@pytest.mark.parametrize("story", over("ranks", [s for s in newest() if "tp" not in s.options]))
def test_the_lines_of_other_ranks_change_nothing(story: Story) -> None:
    alone, four = story.tell(), replace(story, options=story.options | {"tp": 4}).tell()
    assert says(four.verdict()) == says(alone.verdict())


RID = re.compile(r"(?<![\w.-])(?:[a-z]{1,5}-\d+)(?![\w-]|\.\w|\()")
RENAMINGS: list[Callable[[str], str]] = [
    lambda rid: f"chatcmpl-{rid}",
    lambda rid: "00f3" * 7 + rid.encode().hex(),
    lambda rid: f"tenant:7/{rid}",
]


@pytest.mark.parametrize("story", over("rids", spread()))
def test_other_rids_change_nothing(story: Story) -> None:
    """Every renaming keeps which rid is a prefix of which; they take turns."""
    rename = RENAMINGS[sum(map(ord, story.name)) % len(RENAMINGS)]
    telling = story.tell()
    logs = {name: RID.sub(lambda m: rename(m[0]), text) for name, text in telling.logs.items()}
    rid = telling.ending.rid
    before, after = says(telling.verdict()), says(judge(logs, rename(rid)))
    links = [(cause, rename(rid) if rid is not None else None) for cause, rid in before[-1]]  # type: ignore[attr-defined]
    assert after == (*before[:-1], links)


def shuffled(text: str, order: Callable[[list[str], list[str]], list[str]]) -> str:
    """Within each second the records of the API server and of the scheduler are put together anew."""
    mixed: list[str] = []
    api: list[str] = []
    scheduler: list[str] = []
    now: str | None = None
    for record in records(text):
        stamp = second(record) or now
        if stamp != now:
            mixed += order(api, scheduler)
            api, scheduler, now = [], [], stamp
        (api if message(record).startswith(API) else scheduler).append(record)
    return "".join([*mixed, *order(api, scheduler)])


def at_random(api: list[str], scheduler: list[str]) -> list[str]:
    dice, left, right = random.Random(len(api) * 31 + len(scheduler)), list(api), list(scheduler)
    mixed = []
    while left or right:
        mixed.append((left if left and (not right or dice.random() < 0.5) else right).pop(0))
    return mixed


ORDERS: dict[str, Callable[[list[str], list[str]], list[str]]] = {
    "scheduler-first": lambda api, scheduler: [*scheduler, *api],
    "scheduler-last": lambda api, scheduler: [*api, *scheduler],
    "at-random": at_random,
}


@pytest.mark.parametrize(
    ("order", "story"), [pytest.param(o, *p.values, id=f"{o}-{p.id}", marks=p.marks) for o in ORDERS for p in
                         over(f"order-{o}", newest() if o == "scheduler-first" else stamped())]
)  # fmt: skip
def test_the_order_of_processes_within_a_second_changes_nothing(order: str, story: Story) -> None:
    telling = story.tell()
    logs = telling.logs | {MAIN: shuffled(telling.logs[MAIN], ORDERS[order])}
    assert says(judge(logs, telling.ending.rid)) == says(telling.verdict())


# --- less can only be less certain ------------------------------------------------------------------------------------
def without(telling: Telling, dropped: set[int]) -> Verdict:
    kept = "".join(r for i, r in enumerate(records(telling.logs[MAIN])) if i not in dropped)
    return judge(telling.logs | {MAIN: kept}, telling.ending.rid)


def overclaims(whole: Verdict, partial: Verdict) -> bool:
    """Whether less evidence made a verdict surer of anything but what the whole says."""
    if partial.cause == whole.cause:
        return CERTAINTY[partial.confidence] > CERTAINTY[whole.confidence]
    return partial.confidence == "proven"


def alone(told: list[Story]) -> list[Story]:
    """Without stories of a rid that was used twice: without the second use the verdict is rightly about the first."""
    return [one for one in told if one.cause != "duplicate-rid"]


def lines_of_the_story(telling: Telling) -> Iterator[int]:
    """The records after the server's start."""
    found = records(telling.logs[MAIN])
    start = next(i for i, r in enumerate(found) if "fired up" in r)
    yield from range(start + 1, len(found))


@pytest.mark.parametrize("story", over("line", alone(newest())))
def test_a_missing_line_makes_nothing_surer(story: Story) -> None:
    telling = story.tell()
    whole = telling.verdict()
    for index in lines_of_the_story(telling):
        partial = without(telling, {index})
        assert not overclaims(whole, partial), (
            records(telling.logs[MAIN])[index][:200], partial.cause, partial.confidence, whole.cause, whole.confidence
        )  # fmt: skip


@pytest.mark.parametrize("story", over("lines", alone(spread())))
def test_missing_lines_make_nothing_surer(story: Story) -> None:
    telling = story.tell()
    whole = telling.verdict()
    dice = random.Random(story.id)
    places = list(lines_of_the_story(telling))
    for _ in range(4):
        dropped = {index for index in places if dice.random() < 0.35}
        partial = without(telling, dropped)
        assert not overclaims(whole, partial), (
            [records(telling.logs[MAIN])[i][:120] for i in sorted(dropped)], partial.cause, partial.confidence
        )  # fmt: skip


# --- two stories on one server ----------------------------------------------------------------------------------------
def pairs() -> Iterator[object]:
    """Stories of one release, each followed by another; a story of a request in flight needs the end of the log."""
    dice = random.Random(7)
    for release in ("0.4.9", "0.4.10", "0.5.9", "0.5.10", "0.5.18", "0.5.23"):
        told = [s for s in TOLD_RIGHTLY if s.release == release and not s.options and s.cause != "in-flight"]
        told = [s for s in told if s.build.__module__ != server_stories.__name__]
        for _ in range(12):
            first, after = dice.sample(told, 2)
            yield pytest.param(first, after, id=f"{first.name}-{after.name}-{release}")


NAMES = re.compile(r"\b(sess|ghost)(?![a-z_])")


@pytest.mark.parametrize(("first", "after"), pairs())
def test_two_stories_on_one_server_keep_their_verdicts(first: Story, after: Story) -> None:
    one = first.tell()
    now = max(epoch(record) or START for record in records(one.logs[MAIN]))
    alone, follower = Server(after.release, start=now + 35), Server(after.release, start=now + 63)
    alone.boot()
    ending = after.build(follower)
    then = NAMES.sub(r"other-\1", RID.sub(lambda m: f"other-{m[0]}", follower.text()))
    rid = f"other-{ending.rid}"
    both = {MAIN: one.logs[MAIN] + then}
    assert says(judge(one.logs | both, one.ending.rid))[:2] == says(one.verdict())[:2]
    assert says(judge(both, rid))[:2] == says(judge({MAIN: alone.text() + then}, rid))[:2]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("stop_string_is_the_text_of_nan", "model_produced_nan"),
        ("another_rank_knows_why", "decode_side_never_called"),
    ],
)
def test_the_line_of_another_request_proves_nothing(name: str, other: str) -> None:
    """In the order that fooled a verdict: the other request's line stands near, and names no rid or another one."""
    first, after = (next(s for s in STORIES if s.name == n and s.release == "0.4.10") for n in (name, other))
    one = first.tell()
    follower = Server("0.4.10", start=max(epoch(record) or START for record in records(one.logs[MAIN])) + 3)
    after.build(follower)
    both = {MAIN: one.logs[MAIN] + RID.sub(lambda m: f"other-{m[0]}", follower.text())}
    assert judge(both, one.ending.rid).confidence != "proven"
