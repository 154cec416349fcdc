"""What the list is made of: rows, queries, views, pieces of time, raw lines."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sglang_lifecycle.analyzers.listing import SessionRow
from sglang_lifecycle.analyzers.verdict import EvidenceLine, Verdict
from sglang_lifecycle.cli.browser.around import LONGEST, around
from sglang_lifecycle.cli.browser.bins import STEPS, bars, bins, step_for, ticks
from sglang_lifecycle.cli.browser.export import sessions_table
from sglang_lifecycle.cli.browser.loading import Loading, Progress, Step, load
from sglang_lifecycle.cli.browser.query import Query, parse
from sglang_lifecycle.cli.browser.rows import Rows, frame, row
from sglang_lifecycle.cli.browser.view import Group, Order, View
from sglang_lifecycle.cli.errors import UsageError
from sglang_lifecycle.cli.inputs import Request, request
from sglang_lifecycle.cli.times import Clock
from sglang_lifecycle.parsers.evidence import Event, Evidence, Fact

CAUSES = ("waiting-timeout", "abort-all", "client-disconnect", "finished")


def made(rid: str, cause: str = "abort-all", at: float | None = 0.0, **changes: Any) -> tuple[Any, ...]:
    values: dict[str, Any] = {
        "rid": rid,
        "status": "finished" if cause == "finished" else "interrupted",
        "cause": cause,
        "stage": "waiting",
        "actor": "operator",
        "confidence": "proven",
        "at": at,
        "waited": None,
        "ran": None,
        "prompt": None,
        "completion": None,
        "session": None,
        "synthetic": False,
        "provisional": False,
        "text": f"{rid} {cause}",
    }
    return tuple((values | changes).values())


def many(number: int) -> Rows:
    chance = random.Random(7)
    rows = Rows()
    for start in range(0, number, 40):
        part = [
            made(f"r{n:04}", chance.choice(CAUSES), chance.random() * 100, waited=chance.choice([None, 1.0, 2.0]))
            for n in range(start, min(start + 40, number))
        ]
        rows.extend(frame(part))
    return rows


def rids(view: View) -> list[str]:
    found = (view.line(number) for number in range(len(view)))
    return [view.row(line)["rid"] for line in found if isinstance(line, int)]


def test_a_row_says_what_the_verdict_says(verdict: Verdict) -> None:
    rows = Rows()
    rows.extend(frame([row(verdict, "sess")]))
    assert rows.frame.row(0, named=True) | {"text": ""} == {
        "rid": "wt-7",
        "status": "interrupted",
        "cause": "waiting-timeout",
        "stage": "waiting",
        "actor": "scheduler",
        "confidence": "proven",
        "at": 1785672021.5,
        "waited": 20.0,
        "ran": None,
        "prompt": 12,
        "completion": 0,
        "session": "sess",
        "synthetic": False,
        "provisional": False,
        "text": "",
    }
    assert "zombie-1 held the only slot" in rows.frame["text"][0]  # a summary can be searched


def test_ids_that_are_no_unicode_can_be_rows(verdict: Verdict) -> None:
    verdict.rid = "a\ud800b"
    assert frame([row(verdict, "\udfff")]).row(0, named=True)["rid"] == "a\\ud800b"


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("column", ["at", "rid", "cause", "waited"])
def test_a_view_sorts_all_it_shows_and_finds_each_again(column: str, descending: bool, grouped: bool) -> None:
    rows = many(300)
    view = View(rows.frame, Query(), Order(column, descending, grouped))
    shown = rids(view)
    assert sorted(shown) == sorted(rows.frame.filter(Query().condition())["rid"])
    for number in range(len(view)):
        line = view.line(number)
        if isinstance(line, int):
            assert view.find(view.row(line)["rid"]) == number
    if not grouped:
        values = [rows.frame.filter(rows.frame["rid"] == rid)[column].item() for rid in shown]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=descending)
        assert values[len(known) :] == [None] * (len(values) - len(known))  # what is unknown comes last


def test_groups_count_and_fold() -> None:
    rows = many(200)
    open_ = View(rows.frame, Query(everything=True), Order(grouped=True))
    assert sum(group.count for group in open_.groups) == 200
    assert [group.count for group in open_.groups] == sorted((g.count for g in open_.groups), reverse=True)
    first = open_.groups[0]
    folded = View(rows.frame, Query(everything=True), Order(grouped=True), frozenset({first.cause}))
    assert folded.line(0) == Group(first.cause, first.count, True)
    assert isinstance(folded.line(1), Group)
    assert len(folded) == len(open_) - first.count
    hidden = open_.line(1)
    assert isinstance(hidden, int)
    assert folded.find(open_.row(hidden)["rid"]) == 0  # the cursor goes to the group


def test_counts_of_a_facet_hold_under_the_other_filters() -> None:
    rows = Rows()
    rows.extend(
        frame(
            [
                made("a", "abort-all", stage="running"),
                made("b", "abort-all", stage="waiting"),
                made("c", "queue-full", stage="waiting"),
                made("d", "finished", stage="finished"),
                made("e", "abort-all", synthetic=True),
            ]
        )
    )
    query = Query().toggled("cause", "abort-all")
    view = View(rows.frame, query, Order())
    assert view.counts("cause") == [("abort-all", 2), ("queue-full", 1)]
    assert view.counts("stage") == [("running", 1), ("waiting", 1)]
    emptied = View(rows.frame, replace(query, words=("nowhere",)), Order())
    assert emptied.counts("cause") == [("abort-all", 0)]  # what is chosen can be let go of
    assert query.toggled("cause", "abort-all") == Query()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "abcd"),
        ("cause:queue-full", "c"),
        ("cause:queue", "c"),
        ("cause:abort-all cause:queue-full", "abc"),
        ("session:'s 1'", "b"),
        ("since:2026-01-01T00:00:10 until:2026-01-01T00:00:20", "b"),
        ("since:-15s", "cd"),
        ("QUEUE", "c"),
        ("client disc", "d"),
        ("client abort", ""),
        ('"unclosed', ""),
        ("nokey:x", ""),
        ("cause: since: queue", "c"),
        ("verdict:undecided", "d"),  # as the list says it
        ("verdict:un", "d"),
        ("confidence:not-established", "d"),
        ("verdict:proven", "abc"),
    ],
)
def test_a_line_of_text_is_a_query(text: str, found: str) -> None:
    start = 1767225600.0
    rows = Rows()
    rows.extend(
        frame(
            [
                made("a", at=start),
                made("b", at=start + 15, session="s 1"),
                made("c", "queue-full", start + 30),
                made("d", "client-disconnect", start + 40, confidence="not-established"),
            ]
        )
    )
    query = parse(text, Query(), UTC, start + 40)
    assert "".join(rids(View(rows.frame, query, Order()))) == found
    assert parse(query.text(Clock()), Query(), UTC, start + 40) == query


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="since: 'soon' is no time"):
        parse("since:soon", Query(), UTC, None)


def loaded(question: Request) -> list[Step]:
    found: list[Step] = []
    Loading(question, found.append).read()
    return found


def chunks(steps: list[Step]) -> list[pl.DataFrame]:
    return [step for step in steps if isinstance(step, pl.DataFrame)]


def test_steps_tell_of_reading_first_and_hand_over_every_request() -> None:
    found = loaded(request(["fixtures/0.5.23/s06_abort/logs"], None, None, None, None, None))
    told = [step for step in found if isinstance(step, Progress)]
    assert (told[0].doing, told[-1].doing) == ("reading", "judging")
    assert all(last.done == last.total > 0 for last in (told[-1], [t for t in told if t.doing == "reading"][-1]))
    rows = Rows()
    for chunk in chunks(found):
        rows.extend(chunk)
    assert len(rows) == 26
    interrupted = rows.frame["status"] == "interrupted"
    assert interrupted.head(16).all()  # those that people wait for come first


def test_a_window_of_time_leaves_out_what_lies_outside() -> None:
    path = "fixtures/0.5.23/s06_abort/logs"
    question = request([path], "2026-11-29T18:31:55", None, None, None, None)
    times = [at for chunk in chunks(loaded(question)) for at in chunk["at"]]
    assert times
    assert min(times) >= Clock().epoch("2026-11-29T18:31:55Z")  # type: ignore[operator]


def test_the_ignored_count_as_little_as_those_of_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIFECYCLE_IGNORE", "job-1*")
    question = request(["fixtures/0.5.23/s14_timeout_prefix/logs"], None, None, None, None, None)
    rows = pl.concat(chunks(loaded(question)))
    ignored = rows.filter(pl.col("rid").str.starts_with("job-1"))
    assert len(ignored) == 5
    assert ignored["synthetic"].all()
    assert not rows.filter(pl.col("rid") == "job-2")["synthetic"].any()


def fact(at: float | None, queued: int, tainted: bool = False) -> Fact:
    return Fact(Event.BATCH_DECODE, "a", 1, 0, 1, at=at, queued=queued, running=1, token_usage=0.5, tainted=tainted)


def test_load_is_what_dated_and_genuine_batch_lines_tell() -> None:
    found = load(Evidence([fact(2.0, 5), fact(1.0, 3), fact(None, 9), fact(3.0, 99, tainted=True)]))
    assert found.rows() == [(1.0, 3, 1, 0.5), (2.0, 5, 1, 0.5)]


def test_pieces_of_time_hold_every_interruption_and_the_peaks() -> None:
    rows = frame([made("a", at=100.2), made("b", at=100.9), made("c", "queue-full", at=140)]).select("at", "cause")
    peaks = load(Evidence([fact(100.5, 2), fact(100.6, 7)]))
    cut = bins(rows, peaks, 50, None)
    assert cut is not None
    assert {cause: sum(values) for cause, values in cut.causes.items()} == {"abort-all": 2, "queue-full": 1}
    assert list(cut.causes) == ["abort-all", "queue-full"]
    busy = cut.busiest
    assert cut.at(busy) <= 100.2 < cut.at(busy + 1)
    assert cut.load["queued"][busy] == 7
    assert cut.total(range(busy, busy + 1)) == {"abort-all": 2}
    assert bins(rows.clear(), peaks, 50, None) is None


@pytest.mark.parametrize("seconds", [0.3, 1, 59, 61, 3599, 86400, 10 * 86400])
def test_steps_can_be_read_off_and_cover_the_time(seconds: float) -> None:
    step = step_for(seconds, 50)
    assert step * 50 > seconds
    assert step in STEPS or step % 86400 == 0


def test_ticks_stand_at_round_times_apart_from_each_other() -> None:
    cut = bins(frame([made("a", at=30.0), made("b", at=3700.0)]).select("at", "cause"), load(Evidence()), 60, None)
    assert cut is not None
    places = list(ticks(cut, 10))
    assert places
    assert all(cut.at(place) % 600 == 0 for place in places)
    assert min(b - a for a, b in pairwise(places)) >= 10


def test_bars_are_to_scale_and_show_whatever_is_not_nothing() -> None:
    assert bars([0, None, 1, 50, 100], 100, 1) == ["  ▁▄█"]
    assert bars([50, 75, 100], 100, 2) == [" ▄█", "███"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(1, 1001)))
    return path


def at(log: Path, number: int, length: int = 6) -> EvidenceLine:
    offset = log.read_bytes().index(b"line %d " % number)
    return EvidenceLine(source=str(log), line=number, event="x", offset=offset, length=length)


@pytest.mark.parametrize("number", [1, 2, 500, 1000])
def test_the_lines_around_a_line_have_their_numbers(log: Path, number: int) -> None:
    found = around(at(log, number))
    assert all(line.text.startswith(f"line {line.number} ") for line in found)
    assert [line.number for line in found if line.evidence] == [number]
    assert found[0].number == max(1, number - 60)
    assert found[-1].number == min(1000, number + 60)


def test_little_is_read_and_long_lines_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_lifecycle.cli.browser import around as module

    path = tmp_path / "server.log"
    path.write_bytes(b"before\n" * 200_000 + b"x" * 5_000_000 + b"\n" + b"after\n" * 200_000)
    asked: list[int] = []
    read: Callable[[str, int, int], bytes] = module.read_span

    def counting(name: str, offset: int, length: int) -> bytes:
        asked.append(length)
        return read(name, offset, length)

    monkeypatch.setattr(module, "read_span", counting)
    line = EvidenceLine(source=str(path), line=200_001, event="x", offset=1_400_000, length=5_000_000)
    found = around(line, folded=False)
    assert sum(asked) < 1 << 20
    assert max(len(line.text) for line in found) <= LONGEST
    assert [line.number for line in found if line.evidence] == [200_001]
    assert found[0].text == "before"


def test_payload_is_folded_and_unfolded() -> None:
    path = Path("fixtures/0.5.23/s06_abort/logs/server.log")
    raw = path.read_bytes()
    offset = raw.index(b" Receive: obj=")
    offset = raw.rindex(b"\n", 0, offset) + 1
    length = raw.index(b"\n", offset) - offset
    number = raw.count(b"\n", 0, offset) + 1
    line = EvidenceLine(source=str(path), line=number, event="request.received", offset=offset, length=length)
    (folded,) = (each for each in around(line) if each.evidence)
    (whole,) = (each for each in around(line, folded=False) if each.evidence)
    assert whole.text == raw[offset : offset + length].decode()
    assert len(folded.text) < len(whole.text)
    assert "text=" not in folded.text


def test_an_input_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        around(EvidenceLine(source=str(tmp_path / "gone"), line=1, event="x", length=5))


def test_sessions_of_a_log_whose_name_is_no_text_can_be_exported() -> None:
    writers = sessions_table([SessionRow(id="s", server="caf\udce9.log", state="open")])
    assert all(b"caf\\udce9.log" in write().replace(b"\\\\", b"\\") for write in writers.values())
