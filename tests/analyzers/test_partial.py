"""A part of a log is enough only where the verdict is that of the whole log."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from lines import ABORTED, TIMEOUT, Story, calls, clock, traffic, used, write

from sglang_lifecycle.analyzers import partial
from sglang_lifecycle.analyzers.attempts import Attempt
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.identities import identify
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers import ids, selection, store
from sglang_lifecycle.parsers.log import read

SAMPLED = 6
JUDGED = {"status", "cause", "confidence", "stage", "actor", "candidates", "effects", "contradictions"}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded logs are small: as if they were large."""
    sizes = {"SMALLEST": 0, "_EDGE": 8 << 10, "_STEP": 4 << 10, "_WIDEST": 32 << 10, "_WHOLE": 64 << 10}
    for name, size in sizes.items():
        monkeypatch.setattr(selection, name, size)
    monkeypatch.setattr(selection, "_AROUND", 3.0)


def test_part_and_whole_agree(scenario: Any, narrow: None) -> None:
    whole = scenario.incident
    rids = [rid for rid in whole.by_rid if ids.searchable(rid)]
    for rid in rids[:: max(1, len(rids) // SAMPLED)]:
        part = Incident(read([str(scenario.logs)], about=[rid]))
        if more := partial.related(part, [rid]):
            part = Incident(read([str(scenario.logs)], about=[rid, *sorted(more)]))
        if partial.enough(part, [rid]):
            found, wanted = explain(part, rid), explain(whole, rid)
            assert found.model_dump(include=JUDGED) == wanted.model_dump(include=JUDGED), rid


def wide(logs: Path | str, rid: str) -> Incident:
    """What is read of a request where the lines that name it do not tell its end, nor those beside its arrival."""
    return Incident(partial.around(read([str(logs)], about=[rid], wide=True)))


def near(logs: Path | str, rid: str) -> Incident:
    """What is read of it at first."""
    return Incident(partial.around(read([str(logs)], about=[rid])))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many lines around a request are read, in small logs."""
    number = 300
    monkeypatch.setattr(selection, "CONTEXT", number)
    monkeypatch.setattr(selection, "NEAR", number // 4)
    monkeypatch.setattr(partial, "CONTEXT", number)
    return number


def _placed(attempt: Attempt) -> bool:
    """An error of the API server is its by the records around."""
    return bool(attempt.errors) and attempt.finish is None


def _silent(attempt: Attempt) -> bool:
    """It is followed to the end of its server's life, or to where it left."""
    return attempt.finish is None and not attempt.facts and not attempt.errors


@pytest.mark.usefixtures("narrow", "many")
@pytest.mark.parametrize(("without", "reach"), [(_placed, near), (_placed, wide), (_silent, wide)])
def test_what_is_written_around_a_request_is_enough_or_not(scenario: Any, without: Any, reach: Any) -> None:
    """Where no line that names it tells its end."""
    whole = scenario.incident
    asked = [rid for rid, peers in whole.by_rid.items() if ids.searchable(rid) and without(peers[-1][1])]
    for rid in asked[:: max(1, len(asked) // SAMPLED)]:
        part = reach(scenario.logs, rid)
        if partial.enough(part, [rid]):
            found, wanted = explain(part, rid), explain(whole, rid)
            assert found.model_dump(include=JUDGED) == wanted.model_dump(include=JUDGED), rid


@pytest.mark.usefixtures("narrow", "many")
def test_whom_only_its_arrival_names_is_read_so_at_once(recorded: Any) -> None:
    logs = str(recorded("0.5.20/s11d_model_exception").logs)
    assert read([logs], about=["mx-poison"]).whole
    assert not read([logs], about=["mx-done0"]).whole


@pytest.mark.usefixtures("narrow", "many")
@pytest.mark.parametrize(
    ("name", "rid"),
    [
        ("0.5.10/s05_disconnect", "dr-chat-s"),
        ("0.5.10/s06_abort", "all-r0"),
        ("0.5.20/s11d_model_exception", "mx-poison"),
    ],
)
def test_such_as_are_settled_by_what_was_written_around_them(recorded: Any, name: str, rid: str) -> None:
    scenario = recorded(name)
    part = wide(scenario.logs, rid)
    assert rid in part.by_rid
    assert partial.enough(part, [rid])
    assert explain(part, rid).cause == explain(scenario.incident, rid).cause


CRASH = [
    "[{at}] Scheduler hit an exception: Traceback (most recent call last):",
    "RuntimeError: CUDA error: device-side assert triggered",
]
START = "[{at}] server_args=ServerArgs(model_path='m', tp_size=1)"
DUMPED = f"[{clock(305)}] Dumped 0 finished and 1 unfinished requests before crash to /dumps/crash_dump.pkl"


def died(second: int) -> Story:
    return [(second, line.format(at=clock(second))) for line in CRASH]


OPEN = used("victim-1", 300, 301)[:1]
ENDS: dict[str, tuple[Story, bool]] = {
    "soon after it came": (OPEN + died(304) + traffic(0, 303), True),
    "long after it came": (OPEN + died(600) + traffic(0, 599), False),
    "soon after it came, and the next began": (
        OPEN + died(304) + traffic(0, 303) + [(330, START.format(at=clock(330)))] + traffic(335, 600),
        True,
    ),
    "and the next began, long after it came": (
        OPEN + died(500) + traffic(0, 499) + [(530, START.format(at=clock(530)))] + traffic(535, 600),
        False,
    ),
    "while one went on that had come long before": (
        OPEN + died(304) + used("long-000", 1, 303) + traffic(0, 303),
        False,
    ),
    "and one that had come long before ended after the next start": (
        OPEN + traffic(0, 304) + [(305, START.format(at=clock(305)))] + used("long-000", 1, 320) + traffic(306, 600),
        False,
    ),
    "and a dump counts who may have come long before": (
        [
            *OPEN,
            *died(304),
            (305, DUMPED),
            (1, START.format(at=clock(1))),
            *used("long-000", 5, 6)[:1],
            *traffic(2, 303),
        ],
        False,
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_end_of_its_server_has_to_be_seen(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, value in (("SMALLEST", 0), ("_EDGE", 2048), ("_STEP", 1024), ("_WIDEST", 4096), ("_WHOLE", 4096)):
        monkeypatch.setattr(selection, size, value)
    monkeypatch.setattr(selection, "CONTEXT", 60)
    monkeypatch.setattr(partial, "CONTEXT", 60)
    story, seen = ENDS[how]
    log = write(tmp_path / "server.log", story)
    part = wide(log, "victim-1")
    assert part.evidence.partial
    assert partial.enough(part, ["victim-1"]) is seen
    if seen:
        whole = explain(Incident(read([str(log)])), "victim-1")
        assert whole.cause == "scheduler-crash"
        assert explain(part, "victim-1").model_dump(include=JUDGED) == whole.model_dump(include=JUDGED)


TOO_LONG = (
    "[http_server] Error: Requested token count exceeds the model's maximum context length of 8 tokens. You requested "
    "a total of 9 tokens: 1 tokens from the input messages and 8 tokens for the completion."
)
UNTOLD: Story = [*OPEN, (300, f"[{clock(300)}] {TOO_LONG}")]
BESIDE: dict[str, tuple[Story, bool]] = {
    "nobody else is in doubt": (UNTOLD, True),
    "somebody came long before and goes on": (UNTOLD + used("long-000", 100, 303), False),
    "it may be another's": (used("short-00", 299, 301)[:1] + UNTOLD, False),
}


@pytest.mark.parametrize("how", BESIDE)
def test_an_error_beside_a_request_is_its_where_no_other_is_in_doubt(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only few lines are looked at first."""
    for size, value in (("SMALLEST", 0), ("_EDGE", 512), ("_STEP", 256), ("_WIDEST", 512), ("NEAR", 20)):
        monkeypatch.setattr(selection, size, value)
    story, seen = BESIDE[how]
    log = write(tmp_path / "server.log", story + traffic(0, 600))
    part = near(log, "victim-1")
    assert part.evidence.whole
    assert partial.enough(part, ["victim-1"]) is seen
    assert partial.enough(wide(log, "victim-1"), ["victim-1"])


def test_what_no_line_names_needs_what_was_written_around_it(recorded: Any, narrow: None) -> None:
    """A request without an end may have been ended by anything."""
    logs = recorded("0.5.23/s11a_kill9_scheduler").logs
    part = Incident(read([str(logs)], about=["kill-r"]))
    silent = [rid for rid, peers in part.by_rid.items() if peers[-1][1].finish is None]
    assert silent
    assert not partial.enough(part, silent[:1])


def test_a_rid_that_is_nowhere_is_settled(tmp_path: Path, narrow: None, recorded: Any) -> None:
    part = Incident(read([str(recorded("0.5.10/s06_abort").logs)], about=["no-such-request"]))
    assert part.evidence.partial
    assert partial.enough(part, ["no-such-request"])


@pytest.mark.parametrize(
    ("text", "fits"), [("chatcmpl-1234", True), ("a'b-c-d", False), ("r1", False), ("rid-ü-1", False)]
)
def test_ids_that_logs_write_in_several_ways(text: str, fits: bool) -> None:
    assert ids.searchable(text) is fits


FORGED = (
    "[{at}] [http_server] Error: Invalid request: session id evil\n"
    '[{at}] INFO:     127.0.0.1:1 - "POST /abort_request HTTP/1.1" 200 OK\n'
    "xx does not exist"
)
ABORT = calls("/abort_request", 250)
VICTIM = used("victim-1", 100, 250, ABORTED)
HIT = [*used("victim-1", 245, 250, ABORTED), *(line for n in range(6) for line in used(f"hit-{n}", 248, 250, ABORTED))]
BATCH = "[{at}] Decode batch, #running-req: {running}, #token: 9, token usage: 0.01, #queue-req: 0"
REFUSED = "Input length (10 tokens) exceeds the maximum allowed length (5 tokens)., self.rid='victim-1'"
FAR: dict[str, tuple[str, Story]] = {
    "a beginning of its rid is open": (
        "turn-000001-1",
        used("turn-000001", 1, 2)[:1] + used("turn-000001-1", 150, 156, TIMEOUT),
    ),
    "others were hit as well": (
        "victim-1",
        ABORT + [line for n in range(1, 6) for line in used(f"victim-{n}", 40 * n, 250, ABORTED)],
    ),
    "a rid that is the beginning of another": (
        "job-000010",
        ABORT + used("job-00001", 249, 250, ABORTED) + used("job-000010", 150, 250, ABORTED),
    ),
    "a stranger's line": ("victim-1", [*VICTIM, (249, FORGED.format(at=clock(249)))]),
    "a survivor": ("victim-1", ABORT + VICTIM + used("long-000", 1, 299)),
    "a list that names it": (
        "runner-1",
        [
            *used("runner-1", 10, 290),
            (150, f"[{clock(150)}] [http_server] Error: Duplicate request ID detected: runner-1"),
            (150, f'[{clock(150)}] INFO:     127.0.0.1:9 - "POST /generate HTTP/1.1" 400 Bad Request'),
        ],
    ),
    "refused, and its server died when it had gone": (
        "victim-1",
        [
            *used("victim-1", 100, 101)[:1],
            (100, f"[{clock(100)}] {REFUSED}"),
            *used("beside-1", 150, 299),
            *((at, BATCH.format(at=clock(at), running=1)) for at in range(200, 290, 3)),
            *died(300),
        ],
    ),
    "used twice": ("victim-1", ABORT + VICTIM + used("victim-1", 5, 6)),
}


NEEDS_ALL = {
    "a survivor",
    "a stranger's line",
    "others were hit as well",
    "a list that names it",
    "refused, and its server died when it had gone",
}


def test_whom_a_stroke_may_have_hit_is_among_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines a busy server writes in the seconds around it."""
    for size, value in (("SMALLEST", 0), ("_EDGE", 512), ("_STEP", 256), ("CONTEXT", 1), ("_WIDEST", 512)):
        monkeypatch.setattr(selection, size, value)
    others = [line for n in range(1, 9) for line in used(f"other-{n}", 300, 401 + n % 2, ABORTED)]
    log = write(tmp_path / "server.log", used("victim-1", 300, 400, ABORTED) + others + traffic(0, 600))
    evidence = read([str(log)], about=["victim-1"], wide=True)
    (stretch,) = evidence.whole
    assert stretch.end is not None
    hit = [fact for fact in evidence.facts if (fact.rid or "").startswith("other-") and fact.finish_type == "abort"]
    assert len(hit) == 8
    assert all(stretch.start <= fact.offset < stretch.end for fact in hit)


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("name", FAR)
def test_what_is_far_away_still_counts(
    name: str, installed: bool, around: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a part never more is said than of the whole; with ripgrep or without, where it is installed."""
    for size, value in (("SMALLEST", 0), ("_EDGE", 2048), ("_STEP", 1024), ("_WIDEST", 4096), ("_WHOLE", 4096)):
        monkeypatch.setattr(selection, size, value)
    monkeypatch.setattr(selection, "_RANGE", 16 << 10)
    monkeypatch.setattr(selection, "CONTEXT", 12)
    monkeypatch.setattr(partial, "CONTEXT", 12)
    if not installed:
        monkeypatch.setattr("shutil.which", lambda _: None)
    rid, story = FAR[name]
    log = str(write(tmp_path / "server.log", story + traffic(0, 300)))
    whole = explain(Incident(read([log])), rid)
    part = Incident(partial.around(read([log], about=[rid], wide=around)))
    assert part.evidence.partial
    if partial.enough(part, [rid]):
        assert explain(part, rid).model_dump(include=JUDGED) == whole.model_dump(include=JUDGED)
    else:
        assert name in NEEDS_ALL


STRUCK = [*ABORT, *HIT, *traffic(0, 249), *traffic(251, 500)]
OUTLIVED: dict[str, tuple[Story, bool]] = {
    "nothing shows who was there": (STRUCK, False),
    "who had come long before went on": (STRUCK + used("long-000", 100, 380), False),
    "a batch has room for nobody else": (
        [*STRUCK, *((at, BATCH.format(at=clock(at), running=0)) for at in (254, 256))],
        True,
    ),
    "a batch has room for one who had come long before": (
        STRUCK
        + used("long-000", 100, 380)
        + [(at, BATCH.format(at=clock(at), running=2)) for at in (244, 247, 254, 256)],
        False,
    ),
}


@pytest.mark.parametrize("how", OUTLIVED)
def test_nobody_unseen_has_outlived_a_stroke(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who came before all that was read, and went on after it, does not show but in what batch lines count."""
    for size, value in (("SMALLEST", 0), ("_EDGE", 2048), ("_STEP", 1024), ("_WIDEST", 4096), ("_WHOLE", 4096)):
        monkeypatch.setattr(selection, size, value)
    monkeypatch.setattr(selection, "CONTEXT", 60)
    monkeypatch.setattr(partial, "CONTEXT", 60)
    story, seen = OUTLIVED[how]
    log = write(tmp_path / "server.log", story)
    part, whole = wide(log, "victim-1"), explain(Incident(read([str(log)])), "victim-1")
    assert explain(part, "victim-1").cause == "abort-all"
    assert (whole.cause == "abort-all") is ("long before" not in how)
    assert partial.enough(part, ["victim-1"]) is seen
    if seen:
        assert explain(part, "victim-1").model_dump(include=JUDGED) == whole.model_dump(include=JUDGED)


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("name", FAR)
def test_a_store_says_no_more_than_the_log(
    name: str, around: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, value in (("_MANY", 60), ("_BESIDE", 10), ("CONTEXT", 20), ("NEAR", 10)):
        monkeypatch.setattr(store, size, value)
    rid, story = FAR[name]
    evidence = read([str(write(tmp_path / "server.log", story + traffic(0, 300)))])
    store.save(evidence, tmp_path / "kept.parquet")
    part = Incident(partial.around(store.load(tmp_path / "kept.parquet", [rid], wide=around)))
    assert part.evidence.partial
    if partial.enough(part, [rid]):
        whole = explain(Incident(evidence), rid)
        assert explain(part, rid).model_dump(include=JUDGED) == whole.model_dump(include=JUDGED)


@pytest.mark.parametrize("how", ENDS)
def test_a_store_shows_the_end_of_a_server_as_its_log_does(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, value in (("_MANY", 60), ("_BESIDE", 10), ("CONTEXT", 60)):
        monkeypatch.setattr(store, size, value)
    monkeypatch.setattr(partial, "CONTEXT", 60)
    story, seen = ENDS[how]
    evidence = read([str(write(tmp_path / "server.log", story))])
    store.save(evidence, tmp_path / "kept.parquet")
    part = Incident(partial.around(store.load(tmp_path / "kept.parquet", ["victim-1"], wide=True)))
    assert partial.enough(part, ["victim-1"]) is seen
    if seen:
        whole = explain(Incident(evidence), "victim-1")
        assert explain(part, "victim-1").model_dump(include=JUDGED) == whole.model_dump(include=JUDGED)


def test_a_store_finds_what_only_a_list_names(recorded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MANY", 20)
    evidence = recorded("0.5.23/s08_validation").evidence
    store.save(evidence, tmp_path / "kept.parquet")
    part = Incident(store.load(tmp_path / "kept.parquet", ["dup"]))
    assert explain(part, "dup").cause == explain(Incident(evidence), "dup").cause == "duplicate-rid"


def test_an_id_of_a_gateway_leads_to_all_lines_of_its_request(tmp_path: Path, narrow: None) -> None:
    """Only the record of its arrival has the gateway's id: the lines of the rid are looked for as well."""
    story = [
        (
            at,
            text.replace("stream=False)", "stream=False), headers={'x-request-id': 'gateway-7'}")
            if not index
            else text,
        )
        for index, (at, text) in enumerate(used("server-7", 100, 250, ABORTED))
    ]
    log = str(write(tmp_path / "server.log", ABORT + story + traffic(0, 300)))
    part = Incident(read([log], about=["gateway-7"]))
    assert partial.related(part, ["gateway-7"]) == {"server-7"}
    part = Incident(read([log], about=["gateway-7", "server-7"]))
    whole = explain(Incident(read([log])), "server-7")
    assert explain(part, "server-7").model_dump(include=JUDGED) == whole.model_dump(include=JUDGED)


def test_a_whole_id_of_a_gateway_goes_before_the_beginning_of_a_rid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_MANY", 60)
    monkeypatch.setattr(store, "_BESIDE", 5)
    headed = [
        (at, text.replace("stream=False)", "stream=False), headers={'x-request-id': 'job-4000'}"))
        for at, text in used("behind-it", 100, 101, ABORTED)
    ]
    story = [*headed, *used("job-400012", 250, 251), *traffic(0, 300)]
    evidence = read([str(write(tmp_path / "server.log", story))])
    store.save(evidence, tmp_path / "kept.parquet")
    for found in (evidence, store.load(tmp_path / "kept.parquet", ["job-4000"])):
        matched = identify(Incident(found), "job-4000")
        assert matched is not None
        assert list(matched.rids) == ["behind-it"]


class Counting(BytesIO):
    """Counts the bytes that are read from it."""

    seen = 0

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self.seen += len(piece)
        return piece


def test_what_lies_around_many_lines_is_not_read_for_each(
    tmp_path: Path, narrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that has outputs for nobody is named in hundreds of lines, seconds apart."""
    monkeypatch.setattr(selection, "_WHOLE", 1 << 10)
    lost = "Received output for rid='left-1' but the state was deleted in TokenizerManager."
    story = used("left-1", 5, 6)[:1] + [(second, f"[{clock(second)}] {lost}") for second in range(7, 590)]
    log = write(tmp_path / "server.log", story + traffic(0, 600))
    data = log.read_bytes()
    file = Counting(data)
    lines = [
        line for line in selection.Selected(file, len(data), selection.everywhere(log, len(data), [b"left-1"])) if line
    ]
    assert sum(b"left-1" in line.body for line in lines) == len(story)
    assert file.seen < 10 * len(data)
