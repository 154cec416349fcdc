"""An audit that holds little says what one says that holds everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import polars as pl
import pytest
from lines import ABORTED, TIMEOUT, Story, batch, calls, clock, traffic, used, write

from sglang_lifecycle.analyzers import partial, sweep
from sglang_lifecycle.analyzers.audit import audit as audited
from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import RequestRow
from sglang_lifecycle.analyzers.scene import Scene
from sglang_lifecycle.cli import inputs
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.errors import ExitCode
from sglang_lifecycle.parsers import ranges, selection, store
from sglang_lifecycle.parsers.evidence import Event, Evidence, Fact
from sglang_lifecycle.parsers.garbage import uncollected
from sglang_lifecycle.parsers.log import read, stream


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded logs are short: as if they were long."""
    monkeypatch.setattr(sweep, "FACTS", 120)
    monkeypatch.setattr(sweep, "CONTEXT", 50)


def test_rows_and_events_are_those_of_an_audit(all_recorded: list[Any], narrow: None) -> None:
    alone = [s for s in all_recorded if sum(source.recognised > 0 for source in s.evidence.sources) == 1]
    assert len(alone) > 20
    for scenario in alone:
        rows: list[RequestRow] = []
        swept = sweep.Sweep(rows.append)
        swept.take(scenario.evidence.facts)
        events = swept.finish()
        wanted = {row.rid: row for row in scenario.audit.requests}
        assert len(rows) == len(wanted), scenario
        assert {row.rid: row for row in rows} == wanted, scenario
        assert [each.summary for each in events] == [each.summary for each in scenario.audit.server_events], scenario


def test_what_was_judged_goes_at_once(all_recorded: list[Any], narrow: None) -> None:
    """Garbage is not looked for meanwhile: whatever referred to itself would stay to the end."""
    made: list[ReferenceType[Scene]] = []

    def incident(evidence: Evidence) -> Incident:
        found = Incident(evidence)
        made.extend(map(ref, found.scenes))
        return found

    with uncollected():
        for scenario in all_recorded:
            swept = sweep.Sweep(lambda _: None, incident)
            swept.take(scenario.evidence.facts)
            swept.finish()
            assert not any(scene() for scene in made), scenario
    assert len(made) >= len(all_recorded)


FIXTURES = Path(__file__).parents[2] / "fixtures"
SEVERAL = [
    ("0.5.23/s06_abort", "0.5.10/s06_abort"),
    ("0.5.23/s14_timeout_prefix", "0.5.23/s18_two_lives", "0.5.9/s12_json_stdout"),
    ("0.5.10/s05_disconnect", "0.5.23/s02a_session"),
]


@pytest.mark.parametrize("size", [4 << 10, 32 << 20])
@pytest.mark.parametrize("names", SEVERAL)
def test_several_logs_are_judged_in_order_of_time(
    recorded: Any, names: tuple[str, ...], size: int, narrow: None, pool: ProcessPoolExecutor, monkeypatch: Any
) -> None:
    """Read in ranges, or whole where they are small."""
    monkeypatch.setattr(ranges, "SIZE", size)
    monkeypatch.setattr(sweep, "CONTEXT", 100)
    logs = [str(recorded(name).server_log) for name in names]
    found = sweep.audit(lambda take: stream(logs, take, pool), Incident)
    assert found is not None
    assert found[0] == audited(Incident(read(logs)))


@pytest.mark.parametrize("name", ["0.5.23/s11a_kill9_scheduler", "0.5.10/s11d_model_exception"])
def test_a_dump_beside_a_log_is_told_with_it(recorded: Any, name: str, narrow: None, pool: ProcessPoolExecutor) -> None:
    logs = sorted([str(recorded(name).server_log), *map(str, (FIXTURES / "dumps" / name).iterdir())])
    whole = read(logs)
    assert any(fact.event is Event.REQUEST_DUMPED for fact in whole.facts)
    found = sweep.audit(lambda take: stream(logs, take, pool), Incident)
    assert found is not None
    assert found[0] == audited(Incident(whole))


def test_a_log_that_repeats_the_records_of_another_is_held(recorded: Any, pool: ProcessPoolExecutor) -> None:
    logs = [str(recorded("0.5.10/s12_text_dir").logs)]
    assert len(read(logs).sources) > 1
    assert sweep.audit(lambda take: stream(logs, take, pool), Incident) is None


def test_a_store_among_logs_is_no_log(
    recorded: Any, large: list[bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [str(recorded(name).server_log) for name in SEVERAL[0]]
    assert main(["ingest", logs[0], "-o", str(tmp_path / "kept.parquet")]) == 0
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "kept.parquet"), logs[1], "--format", "json"]) == 0
    wanted = {row.rid for row in audited(Incident(read(logs))).requests}
    assert {row["rid"] for row in json.loads(capsys.readouterr().out)["requests"]} == wanted


WAITED = TIMEOUT.replace("running", "waiting")


def undelivered(rid: str, start: int, end: int) -> Story:
    """Outputs that come when a client has gone: one, then two at once, and so on."""
    text = f"Received output for rid='{rid}' but the state was deleted in TokenizerManager."
    return [(second, f"[{clock(second)}] {text}") for second in range(start, end) for _ in range(1 + second % 2)]


def test_however_long_a_request_has_outputs_for_nobody_few_are_held(tmp_path: Path, narrow: None) -> None:
    log = write(tmp_path / "server.log", used("left", 5, 6)[:1] + undelivered("left", 7, 2000) + traffic(0, 2000))
    held: list[int] = []

    def incident(evidence: Evidence) -> Incident:
        held.append(len(evidence.facts))
        return Incident(evidence)

    swept = sweep.Sweep(lambda _: None, incident)
    swept.take(read([str(log)]).facts)
    assert len(held) > 20
    assert max(held) < 200


def test_what_is_settled_is_let_go(recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the log is, what is judged at a time stays about as much."""
    monkeypatch.setattr(sweep, "FACTS", 60)
    monkeypatch.setattr(sweep, "CONTEXT", 10)
    facts = recorded("0.5.23/s13_adversarial").evidence.facts
    held: list[int] = []

    def incident(evidence: Evidence) -> Incident:
        held.append(len(evidence.facts))
        return Incident(evidence)

    rows: list[RequestRow] = []
    swept = sweep.Sweep(rows.append, incident)
    swept.take(facts)
    early = len(rows)
    swept.finish()
    assert 0 < early < len(rows)
    assert len(held) > 3
    assert max(held) < len(facts) / 2


LONG_AGO: dict[str, Story] = {
    "a retry": used("again", 5, 6) + used("again", 170, 172, ABORTED) + calls("/abort_request", 172),
    "a retry of one without an end": used("again", 5, 6)[:1]
    + used("again", 250, 252, ABORTED)
    + calls("/abort_request", 252),
    "a retry that went well": used("again", 5, 7, ABORTED) + calls("/abort_request", 7) + used("again", 250, 252),
    "a survivor": used("long", 1, 280)
    + [line for rid in ("v-1", "w-1", "x-1") for line in used(rid, 20, 23, ABORTED)]
    + calls("/abort_request", 23),
    "a survivor of a pause": used("long", 1, 280)
    + [line for rid in ("v-1", "w-1") for line in used(rid, 20, 23, ABORTED)]
    + calls("/pause_generation", 24),
    "a batch": batch("several", 20, 22),
    "a batch of which one never ends": batch("several", 20, 22)[:2],
    "outputs for nobody": used("left", 5, 6)[:1] + undelivered("left", 7, 290),
    "outputs for nobody, of a rid that was used again": used("left", 5, 6)[:1]
    + undelivered("left", 7, 120)
    + used("left", 121, 122)[:1]
    + undelivered("left", 130, 290),
    "outputs for nobody, before and after a start": [
        *undelivered("left", 7, 100),
        (101, f"[{clock(101)}] server_args=ServerArgs(model_path='m')"),
        *undelivered("left", 110, 290),
    ],
    "an end that comes long after": used("late", 10, 290) + undelivered("late", 20, 23),
    "an end that comes long after a shutdown": [*used("late", 60, 290), (100, f"[{clock(100)}] SIGTERM received.")],
    "a timeout that comes long after another Receive": used("late", 78, 79)[:1] + used("late", 98, 278, TIMEOUT),
    "a zombie behind a waiting timeout": used("late", 5, 6)[:1]
    + undelivered("late", 7, 40)
    + used("w-1", 20, 30, WAITED),
    "restarts": [
        (at + second, f"[{clock(at + second)}] {text}")
        for at in (0, 70, 140, 210)
        for second, text in enumerate(
            ("server_args=ServerArgs(model_path='m')", "The server is fired up and ready to roll!")
        )
    ]
    + [(at, f"[{clock(at)}] SIGTERM received.") for at in (69, 139, 209)],
    "outputs for nobody while one waits": used("left", 5, 6)[:1]
    + undelivered("left", 7, 100)
    + used("waits", 50, 280, WAITED),
    "timeouts far apart": used("t-1", 20, 26, TIMEOUT) + used("u-1", 220, 226, TIMEOUT),
    "one that nothing ended": used("silent", 20, 21)[:1],
    "a warm-up, and a request of the same rid": [
        (at, text.replace("text='x'", "text='The capital city of France is'")) for at, text in used("again", 5, 6)
    ]
    + [(30, f"[{clock(30)}] The server is fired up and ready to roll!")]
    + used("again", 250, 252),
    "a list that names two which ended long ago": used("left", 5, 6, ABORTED)
    + calls("/abort_request", 6)
    + used("right", 5, 7)
    + [
        (
            299,
            f"[{clock(299)}] Gracefully exiting... Remaining number of requests 2. Remaining requests "
            "remaining_rids=['left', 'right'].",
        )
    ],
    "two that went well": used("again", 5, 7) + used("again", 250, 252),
    "one that went well and one without an end": used("again", 5, 7) + used("again", 250, 252)[:1],
    "one that went well and one that did not": used("again", 5, 7)
    + used("again", 250, 252, ABORTED)
    + calls("/abort_request", 252),
}


def judged(rows: list[RequestRow]) -> dict[str, RequestRow]:
    """The rows by rid; when a request came that was given up in between is let go."""
    return {row.rid: row.model_copy(update={"times": None} if row.rid == "late" else {}) for row in rows}


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("name", LONG_AGO)
def test_what_happened_long_ago_still_counts(
    name: str, everything: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what belongs together lie more facts than are held."""
    monkeypatch.setattr(sweep, "FACTS", 60)
    monkeypatch.setattr(sweep, "CONTEXT", 20)
    log = write(tmp_path / "server.log", LONG_AGO[name] + traffic(0, 300))
    whole = Incident(read([str(log)]))
    wanted = audited(whole)

    def stream(take: Callable[[list[Fact]], None]) -> Evidence:
        evidence = read([str(log)])
        take(evidence.facts)
        return evidence

    found = sweep.audit(stream, Incident, everything=everything)
    assert found is not None
    listed = [row for row in wanted.requests if everything or row.status != "finished"]
    assert judged(found[0].requests) == judged(listed)
    assert found[0].server_events == wanted.server_events
    assert found[0].totals == wanted.totals
    assert all(row.model_fields_set == set(RequestRow.model_fields) for row in found[0].requests)


@pytest.mark.parametrize("name", LONG_AGO)
def test_the_same_rids_on_two_servers_at_once(
    name: str, tmp_path: Path, pool: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "FACTS", 60)
    monkeypatch.setattr(sweep, "CONTEXT", 20)
    logs = []
    for server in ("a", "b"):
        (tmp_path / server).mkdir()
        begins = [(0, f"[{clock(0)}] server_args=ServerArgs(model_path='{server}')")]
        logs.append(str(write(tmp_path / server / "server.log", begins + LONG_AGO[name] + traffic(0, 300))))
    wanted = audited(Incident(read(logs)))
    found = sweep.audit(lambda take: stream(logs, take, pool), Incident)
    assert found is not None
    assert judged(found[0].requests) == judged(wanted.requests)
    assert found[0].server_events == wanted.server_events
    assert found[0].totals == wanted.totals


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, get_context("spawn")) as found:
        yield found


@pytest.fixture
def large(narrow: None, monkeypatch: pytest.MonkeyPatch, pool: ProcessPoolExecutor) -> list[bool]:
    """As if every log were very large; tells whether it was swept."""
    monkeypatch.setattr(inputs, "_VERY_LARGE", 0)
    monkeypatch.setattr(ranges, "SIZE", 20_000)
    monkeypatch.setattr(inputs, "workers", lambda *_: nullcontext(pool))
    swept: list[bool] = []
    original = sweep.audit

    def watched(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options)
        swept.append(found is not None)
        return found

    monkeypatch.setattr(sweep, "audit", watched)
    return swept


@pytest.mark.parametrize("format", ["json", "table", "csv", "ndjson"])
@pytest.mark.parametrize(
    "name", ["0.5.23/s06_abort", "0.5.18/s16_stuck_session", "0.5.23/s18_two_lives", "0.5.10/s05_disconnect"]
)
def test_the_command_prints_the_same(
    recorded: Any, name: str, format: str, tmp_path: Path, large: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = str(recorded(name).server_log)
    swept, whole = tmp_path / "swept", tmp_path / "whole"
    assert main(["audit", log, "--format", format, "-o", str(swept)]) == 0
    assert large == [True]
    monkeypatch.setattr(inputs, "_VERY_LARGE", 1 << 60)
    assert main(["audit", log, "--format", format, "-o", str(whole)]) == 0
    assert swept.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("threshold", ["explicit-abort >= 90%", "finished > 500", "* < 3", "in-flight > 9"])
@pytest.mark.parametrize("format", ["json", "junit"])
def test_thresholds_find_the_same(
    recorded: Any, threshold: str, format: str, tmp_path: Path, large: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of requests that finished, which are not held unless a threshold speaks of them."""
    asked = ["audit", str(recorded("0.5.23/s06_abort").server_log), "--fail-on", threshold, "--format", format, "-o"]
    swept, whole = tmp_path / "swept", tmp_path / "whole"
    status = main([*asked, str(swept)])
    assert large == [True]
    monkeypatch.setattr(inputs, "_VERY_LARGE", 1 << 60)
    assert main([*asked, str(whole)]) == status
    assert swept.read_bytes() == whole.read_bytes()


def test_verdicts_are_those_of_what_is_held(all_recorded: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """But for who is on the other end of a connection, of which less is known where answers have gone."""
    monkeypatch.setattr(sweep, "FACTS", 800)
    monkeypatch.setattr(sweep, "CONTEXT", 300)
    asked = 0
    for scenario in all_recorded:
        evidence: Evidence = scenario.evidence
        if sum(source.recognised > 0 for source in evidence.sources) > 1:
            continue
        interrupted = [row.rid for row in scenario.audit.requests if row.status != "finished"]

        def given(take: Callable[[list[Fact]], None], evidence: Evidence = evidence) -> Evidence:
            take(list(evidence.facts))
            return evidence

        told = sweep.verdicts(given, Incident, interrupted)
        assert told is not None
        assert sorted(told) == sorted(interrupted)
        for rid, verdict in told.items():
            whole = explain(scenario.incident, rid)
            assert verdict.model_dump(exclude={"client"}) == whole.model_dump(exclude={"client"}), (scenario, rid)
            assert verdict.client is None or whole.client is None or verdict.client.peer in (None, whole.client.peer)
            asked += 1
    assert asked > 200


def test_who_has_no_end_is_explained_without_holding_the_log(
    tmp_path: Path, large: list[bool], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = used("lost-1", 100, 110)[:1]
    log = str(write(tmp_path / "server.log", [*traffic(0, 300), *lost]))
    for size, value in (("SMALLEST", 0), ("_EDGE", 2048), ("_STEP", 1024), ("_WIDEST", 4096), ("_WHOLE", 4096)):
        monkeypatch.setattr(selection, size, value)
    for module, name, value in ((selection, "CONTEXT", 12), (partial, "CONTEXT", 12), (selection, "NEAR", 4)):
        monkeypatch.setattr(module, name, value)
    read_whole: list[bool] = []
    original = inputs.Request.evidence

    def watched(question: inputs.Request, report: Any, about: Any = (), **options: Any) -> Evidence:
        if not about:
            read_whole.append(True)
        return original(question, report, about, **options)

    monkeypatch.setattr(inputs.Request, "evidence", watched)
    assert main(["explain", "lost-1", log, "--json"]) == 0
    swept = capsys.readouterr().out
    assert not read_whole
    monkeypatch.setattr(inputs, "_VERY_LARGE", 1 << 60)
    assert main(["explain", "lost-1", log, "--json"]) == 0
    assert read_whole
    assert json.loads(swept)["cause"] == "not-established"
    assert capsys.readouterr().out == swept


def test_bounds_and_ignored_requests(recorded: Any, tmp_path: Path, large: list[bool], monkeypatch: Any) -> None:
    scenario = recorded("0.5.23/s06_abort")
    times = sorted(row.times.received for row in scenario.audit.requests if row.times.received)
    (tmp_path / "lifecycle.toml").write_text('ignore = ["all-*"]\n')
    options = ["--since", times[3], "--until", times[-3], "--config", str(tmp_path / "lifecycle.toml")]
    outputs = []
    for limit in (0, 1 << 60):
        monkeypatch.setattr(inputs, "_VERY_LARGE", limit)
        outputs.append(tmp_path / f"{limit}.json")
        assert main(["audit", str(scenario.server_log), *options, "--format", "json", "-o", str(outputs[-1])]) == 0
    assert large == [True]
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_what_depends_on_the_end_of_the_log_is_held(recorded: Any, large: list[bool], capsys: Any) -> None:
    assert main(["audit", str(recorded("0.5.23/s06_abort").server_log), "--since", "-1m"]) == 0
    assert large == []
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", ["0.5.23/s06_abort", "0.5.10/s05_disconnect", "0.5.23/s18_two_lives"])
def test_a_store_written_while_reading_is_that_of_what_is_held(
    recorded: Any, name: str, tmp_path: Path, large: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = str(recorded(name).server_log)
    streamed, held = tmp_path / "streamed.parquet", tmp_path / "held.parquet"
    assert main(["ingest", log, "-o", str(streamed)]) == 0
    monkeypatch.setattr(inputs, "_VERY_LARGE", 1 << 60)
    assert main(["ingest", log, "-o", str(held)]) == 0
    assert store.load(streamed) == store.load(held) == read([log])
    assert sorted(tmp_path.iterdir()) == [held, streamed]
    for rid in list(Incident(read([log])).by_rid)[:9]:
        assert store.load(streamed, [rid]) == store.load(held, [rid])


def test_a_full_disk_is_no_reason_to_read_the_log_again(
    recorded: Any, tmp_path: Path, large: list[bool], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def full(*_: Any, **_options: Any) -> None:
        raise pl.exceptions.ComputeError("No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    monkeypatch.setattr(inputs.Request, "read", lambda *_: pytest.fail("read again"))
    target = tmp_path / "kept.parquet"
    assert main(["ingest", str(recorded("0.5.23/s06_abort").server_log), "-o", str(target)]) == ExitCode.UNREADABLE
    assert capsys.readouterr().err.endswith(f"{target}: the store cannot be written: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_what_can_not_be_read_in_ranges_is_written_all_the_same(
    tmp_path: Path, large: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    log, target = tmp_path / "server.log", tmp_path / "kept.parquet"
    write(log, used("a", 0, 5))
    log.write_text("2026-10-30T01:05:00Z " + log.read_text().replace("\n", "\n2026-10-30T01:05:00Z ").strip() + "\n")
    assert main(["ingest", str(log), "-o", str(target)]) == 0
    assert store.load(target) == read([str(log)])
    assert sorted(tmp_path.iterdir()) == [target, log]
