"""Several processes read a log as one reader does, wherever it is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from executors import Here
from hypothesis import example, given
from hypothesis import strategies as st

from sglang_lifecycle.cli.app import main
from sglang_lifecycle.parsers import blocks, ranges
from sglang_lifecycle.parsers.log import read

STAMP = "[2026-11-29 19:00:00] "
RECEIVE = STAMP + "Receive: obj=GenerateReqInput(rid='{0}', text='x', stream=False)"
FINISH = (
    STAMP + "Finish: obj=GenerateReqInput(rid='{0}', text='x', stream=False), "
    "out={{'text': 'y', 'meta_info': {{'id': '{0}', 'finish_reason': {{'type': 'stop', 'matched': 2}}}}}}"
)
GONE = STAMP + "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='{0}'"
SESSION = STAMP + "[http_server] Error: Invalid request: session id {0} does not exist"
UNDELIVERED = STAMP + "Received output for rid='a' but the state was deleted in TokenizerManager."
ANSWER = STAMP + 'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK'
LINES = st.one_of(
    *(st.sampled_from("abc").map(text.format) for text in (RECEIVE, FINISH, GONE, SESSION)),
    st.sampled_from([
        UNDELIVERED,
        ANSWER,
        STAMP + 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
        STAMP + "Scheduler hit an exception: Traceback (most recent call last):",
        '  File "scheduler.py", line 1, in run',
        "ValueError: a",
        "[http_server] Error: no stamp here",
        "a does not exist",
        "anything",
        STAMP + "Decode batch, #running-req: 1, #token: 5, token usage: 0.10, #queue-req: 0",
        RECEIVE.format("a").replace("stream=False", "session_params={'id': 'one\\n" + STAMP + "SIGTERM received.'}"),
        STAMP + "SIGTERM received.",
    ]),
)  # fmt: skip


@example([(RECEIVE.format("a"), 0), (UNDELIVERED, 0), (UNDELIVERED, 0)], 20, 1, "\n", False)  # the last has no ending
@example([(line, 0) for line in (UNDELIVERED, UNDELIVERED, ANSWER) * 9], 700, 225, "\n", True)
@given(
    st.lists(st.tuples(LINES, st.sampled_from([0, 0, 1])), max_size=40),
    st.integers(20, 900),
    st.integers(1, 900),
    st.sampled_from(["\n", "\n", "\n", "\r\n"]),
    st.booleans(),
)
def test_every_cut_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str, int]],
    size: int,
    block: int,
    newline: str,
    ended: bool,
) -> None:
    path = tmp_path_factory.mktemp("log") / "server.log"
    seconds = accumulate(step for _, step in lines)
    dated = [
        line.replace(STAMP, STAMP.replace("00]", f"{at:02}]")) for (line, _), at in zip(lines, seconds, strict=True)
    ]
    path.write_text("\n".join(dated) + ("\n" if ended else ""), newline=newline)
    whole = read([str(path)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "SIZE", size)
        patch.setattr(blocks, "BLOCK", block)
        parts = read([str(path)], pool=Here())
    assert parts.facts == whole.facts
    assert parts.sources == whole.sources


BATCHES = [STAMP + f"Decode batch, #running-req: {i}, #token: 5, token usage: 0.10, #queue-req: 0" for i in range(9)]
READY = STAMP + "The server is fired up and ready to roll!"
CRASH = STAMP + "Scheduler hit an exception: Traceback (most recent call last):"
NAMED = STAMP + "Abort waiting mm request. rid=a"
SIGTERM = STAMP + "SIGTERM received."
ACCESS = STAMP + 'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK'
LONG = "\n".join(["A" * 500, "C" * 600, ACCESS, SIGTERM, "B" * 1500])
SHORTENED = RECEIVE.format("b").replace(
    "stream=False", f"session_params={{'id': {LONG[:1024] + ' ... ' + LONG[-1024:]!r}}}"
)
PRINTED = STAMP + f"[http_server] Error: Invalid request: close was requested for session {LONG}"
UNREADABLE = f"abc\n{STAMP[:-2]} TP0] Prefill out of memory. Try to lower your batch size.\udcff\nzz"
QUOTED = RECEIVE.format("b").replace(
    "stream=False", "session_params={'id': " + repr(UNREADABLE.replace("\udcff", "\ufffd")) + "}"
)
HARD: dict[str, list[list[str]]] = {
    "a line that opens, before any record": [[NAMED, SIGTERM, *BATCHES, SIGTERM]],
    "a traceback that goes on in the next file": [
        [READY, CRASH],
        ['  File "a.py", line 1, in run', "ValueError: a", SIGTERM],
    ],
    "a rid that is received twice": [
        [
            BATCHES[0],
            RECEIVE.format("a"),
            *BATCHES[:3],
            RECEIVE.format("a"),
            FINISH.format("a"),
            *BATCHES[3:],
            NAMED,
            SIGTERM,
        ]
    ],
    "a long text that is printed where another range is read": [
        [*BATCHES, SHORTENED, *BATCHES * 3, *PRINTED.split("\n"), *BATCHES]
    ],
    "a text with bytes that are none": [
        [*BATCHES, QUOTED, *BATCHES * 3, *f"unknown {UNREADABLE}".split("\n"), *BATCHES]
    ],
    "digits that are none": [
        [BATCHES[0], *[STAMP.replace("]", " TP\u0663\u0663]") + "SIGTERM received.", STAMP + "x"] * 4]
    ],
}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("name", HARD)
def test_what_one_reader_knows_of_the_lines_before(name: str, ending: str, tmp_path: Path) -> None:
    for number, lines in enumerate(HARD[name]):
        text = "".join(line + ending for line in lines)
        path = tmp_path / f"server.log{'' if number == len(HARD[name]) - 1 else f'.{len(HARD[name]) - 1 - number}'}"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    whole = read([str(tmp_path)])
    for size in range(20, 4000, 90):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranges, "SIZE", size)
            assert read([str(tmp_path)], pool=Here()).facts == whole.facts


@pytest.mark.parametrize("size", [3_000, 20_000])
def test_recorded_logs(scenario: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "SIZE", size)
    parts = read([str(scenario.logs)], pool=Here())
    assert parts.facts == scenario.evidence.facts
    assert parts.sources == scenario.evidence.sources


def test_most_logs_need_no_second_reading(all_recorded: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "SIZE", 20_000)
    joined: list[bool] = []
    original = ranges.read

    def counting(*arguments: Any) -> Iterator[ranges.Joined]:
        joined.append(False)
        yield from original(*arguments)
        joined[-1] = True

    monkeypatch.setattr(ranges, "read", counting)
    for scenario in all_recorded:
        read([str(scenario.logs)], pool=Here())
    assert sum(joined) > 0.9 * len(joined)
    assert len(joined) > 20


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, get_context("spawn")) as found:
        yield found


def test_processes_of_their_own(recorded: Any, pool: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "SIZE", 10_000)
    scenario = recorded("0.5.10/s06_abort")
    seen: list[tuple[int, int]] = []
    parts = read([str(scenario.logs)], pool=pool, progress=lambda done, total: seen.append((done, total)))
    assert parts.facts == scenario.evidence.facts
    assert seen == sorted(seen)


def test_a_pool_whose_workers_die_is_done_without(recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(Here):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(BrokenProcessPool("a worker died"))
            return future

    monkeypatch.setattr(ranges, "SIZE", 10_000)
    scenario = recorded("0.5.10/s06_abort")
    assert read([str(scenario.logs)], pool=Dying()).facts == scenario.evidence.facts


def test_a_dask_cluster(recorded: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from distributed import LocalCluster

    logs = recorded("0.5.10/s06_abort").logs
    alone, shared = tmp_path / "alone.json", tmp_path / "shared.json"
    assert main(["audit", str(logs), "--format", "json", "-o", str(alone)]) == 0
    monkeypatch.setattr(ranges, "SIZE", 10_000)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        arguments = ["audit", str(logs), "--format", "json", "-o", str(shared)]
        assert main([*arguments, "--cluster", cluster.scheduler_address]) == 0
    assert shared.read_bytes() == alone.read_bytes()


def test_a_cluster_that_is_not_there(recorded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logs = str(recorded("0.5.10/s06_abort").logs)
    assert main(["audit", logs, "--cluster", "nonsense://here"]) == 4
    assert "no Dask scheduler answers" in capsys.readouterr().err
