"""What collectors do to a log changes no verdict: scenarios by wrappers, packings, rotations, zones."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import wrappers

from sglang_lifecycle.analyzers.audit import audit
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.parsers import documents, tables
from sglang_lifecycle.parsers.envelopes import prefixes
from sglang_lifecycle.parsers.evidence import Event, Evidence
from sglang_lifecycle.parsers.lines import Line
from sglang_lifecycle.parsers.log import read
from sglang_lifecycle.parsers.quote import quote
from sglang_lifecycle.parsers.strangers import Strangers

SCENARIOS = ("0.5.23/s14_timeout_prefix", "0.5.10/s06_abort", "0.5.10/s13b_injection", "0.5.23/s18_two_lives")
SHIFTED = re.compile(rb'(?m)^(\[|\{"timestamp": ")(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)')

SCREENS = {"captured", "filled"}
"""Writers that lose blanks."""

Verdicts = dict[str, tuple[str, str, str | None]]


def verdicts(evidence: Evidence) -> Verdicts:
    return {row.rid: (row.cause, row.confidence, row.stage) for row in audit(Incident(evidence)).requests}


def copy(scenario: Any, folder: Path, change: Callable[[str, bytes], tuple[str, bytes]]) -> Path:
    """The logs of a scenario, each file changed."""
    for path in scenario.files:
        name, data = path.name, path.read_bytes()
        if path.suffix == ".log":
            name, data = change(name, data)
        target = folder / path.relative_to(scenario.logs).parent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return folder


def wrap(writer: str) -> Callable[[str, bytes], tuple[str, bytes]]:
    def change(name: str, data: bytes) -> tuple[str, bytes]:
        return name, wrappers.WRITERS[writer](wrappers.timed(data.decode("utf-8", "replace"))).encode()

    return change


def same(found: Verdicts, expected: Verdicts) -> None:
    """The same causes and stages. A collector's stamps may make a verdict surer, where the log itself has none."""
    assert found.keys() == expected.keys()
    differing = {
        rid: (found[rid], verdict)
        for rid, verdict in expected.items()
        if found[rid] != verdict and (found[rid][::2] != verdict[::2] or found[rid][1] != "proven")
    }
    assert differing == {}


@pytest.mark.parametrize("writer", wrappers.WRITERS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_wrapper_changes_no_verdict(name: str, writer: str, recorded: Any, tmp_path: Path) -> None:
    scenario = recorded(name)
    evidence = read([str(copy(scenario, tmp_path, wrap(writer)))])
    same(verdicts(evidence), verdicts(scenario.evidence))
    if writer not in SCREENS:
        quoted = [quote(f.source, f.offset, f.length, f.event) for f in evidence.facts]
        assert quoted == [quote(f.source, f.offset, f.length, f.event) for f in scenario.evidence.facts]


def test_every_scenario_in_some_wrapper(scenario: Any, tmp_path: Path) -> None:
    writers = list(wrappers.WRITERS)
    start = sum(scenario.name.encode())
    for step in range(3):
        writer = writers[(start + 11 * step) % len(writers)]
        evidence = read([str(copy(scenario, tmp_path / writer, wrap(writer)))])
        same(verdicts(evidence), verdicts(scenario.evidence))


@pytest.mark.parametrize("packer", wrappers.PACKERS)
@pytest.mark.parametrize("name", SCENARIOS[:2])
def test_a_packing_changes_nothing(name: str, packer: str, recorded: Any, tmp_path: Path) -> None:
    scenario = recorded(name)
    evidence = read([str(copy(scenario, tmp_path, wrappers.PACKERS[packer]))])
    assert verdicts(evidence) == verdicts(scenario.evidence)
    assert [f.line for f in evidence.facts] == [f.line for f in scenario.evidence.facts]
    quoted = [quote(f.source, f.offset, f.length, f.event) for f in evidence.facts]
    assert quoted == [quote(f.source, f.offset, f.length, f.event) for f in scenario.evidence.facts]


ROTATIONS = {
    "numbers": ["server.log.3", "server.log.2", "server.log.1", "server.log"],
    "more than ten": ["server.log.12.gz", "server.log.11.gz", "server.log.10.gz", "server.log.9"],
    "dates": ["server.log.2026-10-29_23", "server.log.2026-10-30_00", "server.log.2026-10-30_01", "server.log"],
    "packed dates": ["server.log-20261028.gz", "server.log-20261029.gz", "server.log-20261030", "server.log"],
    "kubelet": ["0.log.20261029-230000.gz", "0.log.20261030-000000.gz", "0.log.20261030-010000", "0.log"],
    "dates inside": ["server-2026-10-28.log", "server-2026-10-29.log", "server-2026-10-30.log", "server.log"],
}


def test_rotated_files_are_one_log(scenario: Any, tmp_path: Path) -> None:
    lines = scenario.server_log.read_bytes().splitlines(keepends=True)
    cuts = [len(lines) * part // 5 for part in (1, 2, 4)]
    rotations = list(ROTATIONS.values())
    names = rotations[sum(scenario.name.encode()) % len(rotations)]
    places = {}
    for name, start, end in zip(names, [0, *cuts], [*cuts, len(lines)], strict=True):
        data = b"".join(lines[start:end])
        data = gzip.compress(data) if name.endswith("gz") else data
        (tmp_path / name).write_bytes(data)
        places[str(tmp_path / name)] = start
    evidence, whole = read([str(tmp_path)]), read([str(scenario.server_log)])
    (source,) = evidence.sources
    assert source.path == str(tmp_path / names[-1])
    assert (source.lines, source.bytes) == (whole.sources[0].lines, whole.sources[0].bytes)
    assert {fact.process for fact in evidence.facts} <= {source.path}
    assert verdicts(evidence) == verdicts(whole)
    assert [places[f.source] + f.line for f in evidence.facts] == [f.line for f in whole.facts]
    for fact, other in zip(evidence.facts, whole.facts, strict=True):
        if places[fact.source] + fact.line + fact.length < 400:  # records that are not cut by a rotation
            assert quote(fact.source, fact.offset, fact.length, fact.event) == quote(
                other.source, other.offset, other.length, other.event
            )


def shifted(data: bytes, by: timedelta) -> bytes:
    def move(match: re.Match[bytes]) -> bytes:
        stamp = match[2].decode()
        return match[1] + (datetime.fromisoformat(stamp) + by).isoformat(sep=stamp[10]).encode()

    return SHIFTED.sub(move, data)


@pytest.mark.parametrize("hours", [8, -3.5, 5.75, -11])
@pytest.mark.parametrize("writer", ["kubectl-timestamps", "journal-iso", "fluent-bit", "newest-first-docker", "loki"])
def test_a_collector_tells_the_zone(writer: str, hours: float, recorded: Any, tmp_path: Path) -> None:
    scenario = recorded("0.5.23/s14_timeout_prefix")
    moved = timedelta(hours=hours)
    lines = wrappers.timed(scenario.server_log.read_text())
    inner = shifted(scenario.server_log.read_bytes(), moved).decode().removesuffix("\n").split("\n")
    text = wrappers.WRITERS[writer]([(at, line) for (at, _), line in zip(lines, inner, strict=True)])
    (tmp_path / "server.log").write_text(text)
    evidence = read([str(tmp_path)])
    assert evidence.sources[0].zone is not None
    assert verdicts(evidence) == verdicts(scenario.evidence)
    assert [f.at for f in evidence.facts] == pytest.approx([f.at for f in scenario.evidence.facts], abs=0.1)
    given = read([str(tmp_path)], tz="+01:00")
    assert given.facts[0].at == pytest.approx((evidence.facts[0].at or 0) + moved.total_seconds() - 3600, abs=0.1)


def test_pods_in_one_file_are_told_apart(recorded: Any, tmp_path: Path) -> None:
    a, b = recorded("0.5.23/s14_timeout_prefix"), recorded("0.5.10/s02c_session_replace")
    lines: list[tuple[Any, int, str]] = []
    for pod, scenario in (("a", a), ("b", b)):
        timed = wrappers.timed(scenario.server_log.read_text())
        first = timed[0][0]
        lines += [(at - first, i, f"[pod/sglang-{pod}/server] {line}") for i, (at, line) in enumerate(timed)]
    log = tmp_path / "all.log"
    log.write_text("".join(line + "\n" for *_, line in sorted(lines)))
    evidence = read([str(log)])
    assert [s.path for s in evidence.sources] == [f"{log}[pod/sglang-a/server]", f"{log}[pod/sglang-b/server]"]
    assert verdicts(evidence) == {**verdicts(read([str(a.server_log)])), **verdicts(read([str(b.server_log)]))}


def test_a_collectors_stamp_dates_what_has_none(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text(
        "2026-10-30T01:05:00.100000000Z stdout F [2026-10-30 01:05:00] The server is fired up and ready to roll!\n"
        "2026-10-30T01:05:07.250000000Z stdout F Receive: obj=GenerateReqInput(rid='x', text='a')\n"
        "2026-10-30T01:05:30.000000000Z stdout F [2026-10-30 01:05:30] The server is fired up and ready to roll!\n"
    )
    fact = read([str(log)]).facts[1]
    assert (fact.rid, fact.at_from) == ("x", "wrapper")
    assert fact.at == pytest.approx(datetime.fromisoformat("2026-10-30T01:05:07.250Z").timestamp(), abs=0.06)
    assert fact.at_error is not None
    assert 0 < fact.at_error <= 0.06


def test_a_late_collector_is_no_clock(tmp_path: Path) -> None:
    """An agent that stamps what it read up to twenty seconds later says so little that the neighbours say more."""
    log = tmp_path / "agent.jsonl"
    ready = "The server is fired up and ready to roll!"
    log.write_text(
        f'{{"timestamp": "2026-10-30T01:05:20Z", "message": "[2026-10-30 01:05:00] {ready}"}}\n'
        '{"timestamp": "2026-10-30T01:05:20Z", "message": "Receive: obj=GenerateReqInput(rid=\'x\', text=\'a\')"}\n'
        f'{{"timestamp": "2026-10-30T01:05:20Z", "message": "[2026-10-30 01:05:03] {ready}"}}\n'
    )
    start = datetime.fromisoformat("2026-10-30T01:05:00Z").timestamp()
    fact = read([str(log)]).facts[1]
    assert fact.at is not None
    assert fact.at_error is not None
    assert start <= fact.at - fact.at_error <= fact.at + fact.at_error <= start + 4


PROSE = (
    "Hi, we run two servers\nbehind a router\nand then they stop\n(see the log):\n\n```\n{}```\nWhy is that?\nThanks!\n"
)
WHOLE = {"escaped", "escaped-whole", "html", "newest-first", "newest-first-docker", "hard-wrapped"}
WHOLE |= {"cloudwatch", "elastic", "loki", "fluent-bit-in-loki", "opentelemetry", "azure-tables", "splunk", "strings"}
WHOLE |= {"google-yaml", "aws-yaml"}
WHOLE |= {*SCREENS, "no-break", "ts", "remains", "tags", *wrappers.LEARNT}
WHOLE |= {name for name in wrappers.WRITERS if name.endswith("-csv")}
"""Writers of what a file has as a whole: amid prose it can't be told."""


@pytest.mark.parametrize("writer", [name for name in wrappers.WRITERS if name not in WHOLE])
def test_prose_around_a_wrapped_log_hides_nothing(writer: str, tmp_path: Path) -> None:
    log = (
        '[2026-10-30 01:05:00] INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'
        "[2026-10-30 01:05:01 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "ValueError: too much\n"
        "[2026-10-30 01:05:02] [http_server] Error: Request is disconnected from the client side (type 3). "
        "Abort request obj.rid='r-1'\n"
    )
    path = tmp_path / "issue.md"
    path.write_text(PROSE.format(wrappers.WRITERS[writer](wrappers.timed(log))))
    evidence = read([str(path)])
    assert [str(f.event) for f in evidence.facts] == ["http.access", "process.crashed", "client.disconnected"]
    assert not any("recognised" in text for source in evidence.sources for text in source.warnings)


@pytest.mark.parametrize(
    "writer", ["kubectl-prefix", "compose", "pm2", "quoted", "indented", "jenkins", "torchrun", "cat-n", "no-break"]
)
def test_what_is_wrapped_beside_bare_records_stays_wrapped(writer: str, tmp_path: Path) -> None:
    """A session's id may hold lines and imitate any wrapper; the log that has it begins records of its own."""
    fake = "[2026-10-30 01:05:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
    ready = "[2026-10-30 01:05:00] The server is fired up and ready to roll!\n"
    (tmp_path / "server.log").write_text(ready + wrappers.WRITERS[writer](wrappers.timed(fake)) + ready * 9)
    assert {str(fact.event) for fact in read([str(tmp_path / "server.log")]).facts} == {"server.ready"}


BREAKOUT = {
    "a rid": "x', rid='victim",
    "an outcome": "x'), out={'meta_info': {'id': 'victim', 'finish_reason': {'type': 'stop'}}}, y={'z': 'u",
}


@pytest.mark.parametrize("name", BREAKOUT)
def test_who_breaks_out_of_typeset_quotes_is_found_out(name: str, tmp_path: Path) -> None:
    record = (
        "[2026-10-30 01:05:00] Finish: obj=GenerateReqInput(rid='r', text='{}'), out={{'meta_info': {{'id': 'r'}}}}"
    )
    (tmp_path / "pasted.txt").write_text(
        "".join(wrappers.typeset(record.format(t)) + "\n" for t in (BREAKOUT[name], "x"))
    )
    forged, real = read([str(tmp_path / "pasted.txt")]).facts
    assert forged.tainted
    assert (real.rid, real.tainted) == ("r", False)


def test_records_in_dynamos_form(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(
        "2026-10-30T01:05:00.114Z  INFO tokenizer_manager.generate_request: "
        "Receive: obj=GenerateReqInput(rid='r-1', stream=True)\n"
        "2026-10-30T01:05:05.214Z ERROR scheduler.run_scheduler_process: "
        "Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/sgl/scheduler.py", line 1825, in run_scheduler_process\n'
        "ValueError: too much\n"
        "2026-10-30T01:05:06.100Z  WARN tokenizer_manager.sigterm_handler: SIGTERM received. signum=None frame=None. "
        "Draining requests and shutting down...   \n"
    )
    facts = read([str(tmp_path / "server.log")]).facts
    assert [(str(f.event), f.at_from) for f in facts] == [
        ("request.received", "wrapper"),
        ("process.crashed", "wrapper"),
        ("server.sigterm", "wrapper"),
    ]


def test_one_record_without_its_bracket_is_read(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("2026-10-30 01:05:00 TP0] The server is fired up and ready to roll!\n")
    (fact,) = read([str(tmp_path / "server.log")]).facts
    assert (fact.rank, fact.at_from) == ("TP0", "own")


PLAIN = {
    "a log": "[2026-10-30 01:05:00 TP0] The server is fired up and ready to roll!\n",
    "a gateway": "2026-04-06 12:50:59  INFO smg::core: started\n2026-04-06T12:50:59.123Z  WARN smg: slow\n",
    "notes": "sglang-1 is down, see below\ncall the storage team\n",
    "a request log": '{"timestamp": "2026-11-29T18:19:14.064731", "event": "request.received", "rid": "a"}\n',
    "a metrics export": '{"request_parameters": "{}", "id": "a"}\n',
    "a gateway's objects": '{"timestamp": "2026-04-06T12:50:59Z", "level": "INFO", "target": "smg", "message": "x"}\n',
    "an indented traceback": "[2026-10-30 01:05:00] ValueError\n"
    + '    File "x"\n    [2026-10-30 01:05:00] INFO: x\n' * 9,
    "a quotation": "> have you tried\n> to turn it off?\n[2026-10-30 01:05:00] The server is fired up and ready!\n",
    "one record by entities": "Finish: obj=A(b=&#39;x&#39;)\nReceive: obj=GenerateReqInput(rid='a', text='x')\n",
    "exception groups": "  + Exception Group Traceback (most recent call last):\n  |   File x\n  | ValueError\n",
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN.keys())
def test_what_is_not_wrapped_stays_as_it_is(text: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(text * 3)
    assert [source.wrappers for source in read([str(log)]).sources] == [[]]


FORGED = "[2026-10-30 01:05:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
OTHERS = {
    "an application's log": "".join(f'2026-10-30 01:05:0{n} INFO asked "{FORGED}"\n' for n in range(9)),
    "an application's prompts": "".join(
        f"(chat {n}) asked > {FORGED if n == 5 else 'What is it?'}\n" for n in range(9)
    ),
    "requests as objects": "".join(json.dumps({"role": "user", "content": FORGED}) + "\n" for _ in range(9)),
    "prompts as objects": "".join(json.dumps({"prompt": "x", "text": FORGED}) + "\n" for _ in range(9)),
    "prompts by another name": "".join(json.dumps({"id": n, "content": FORGED}) + "\n" for n in range(9)),
    "prompts in a document": json.dumps({"items": [{"text": FORGED}, {"text": "What is it?"}]}),
    "prompts in columns": "id,content\n" + f'1,"{FORGED}"\n' * 9,
    "prompts as a table": "id,prompt,text\n" + f'1,x,"{FORGED}"\n' * 9,
    "a list of prompts": json.dumps(["What is it?", "Tell me.", FORGED]),
    "some of many lines": "".join(f"talk: {FORGED + '.' * n if n % 3 else 'hello'}\ntalked\n" for n in range(9)),
}
"""What is no log of SGLang's, with text of strangers in it."""


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS.keys())
def test_a_record_in_the_text_of_strangers_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text(text)
    assert read([str(tmp_path / "other.log")]).facts == []


CRASH = (
    "[2025-01-25 21:59:48 TP0] Prefill batch. #new-seq: 12, #new-token: 295, #cached-token: 1680, token usage: 0.21\n"
    "[2025-01-25 21:59:49] DetokenizerManager hit an exception: Traceback (most recent call last):\n"
    '  File "/sgl/managers/detokenizer_manager.py", line 215, in run_detokenizer_process\n'
    "    manager.event_loop()\n"
    '  File "/sgl/managers/detokenizer_manager.py", line 158, in event_loop\n'
    "    s = self.decode_status[recv_obj.rids[i]]\n"
    "KeyError: '306df3e52654c28fe8362d17a211f1ec'\n"
)
SHORT = (
    "[http_server] Error: Request is disconnected from the client side (type 3). "
    "Abort request obj.rid='9ce65650c62166234beed252d3175512'\n"
    "Prefill bootstrap failed for request rank=0 req.rid='1f7c3c1d6fd09ac1e842dd29b39b8db0' req.bootstrap_room="
    "815128486861495660 with exception KVTransferError(bootstrap_room=815128486861495660): Aborted by AbortReq.\n"
)


@pytest.mark.parametrize("writer", ["newest-first", "datadog-csv", "cat-n", "less-N", "torchrun", "captured"])
def test_a_short_paste_is_read_as_well(writer: str, tmp_path: Path) -> None:
    """A traceback tells where up is, and the lines of one file are as long as its screen is wide."""
    log = tmp_path / "server.log"
    log.write_text(wrappers.WRITERS[writer](wrappers.timed(CRASH)))
    facts = read([str(log)]).facts
    assert [str(fact.event) for fact in facts] == ["batch.prefill", "process.crashed"]
    assert facts[1].detail["rids"] == ["306df3e52654c28fe8362d17a211f1ec"]


@pytest.mark.parametrize("writer", ["cat-n", "bat", "captured", "quoted", "html", "tags", "torchrun"])
def test_records_without_stamps_are_read_as_well(writer: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(wrappers.WRITERS[writer](wrappers.timed(SHORT)))
    facts = read([str(log)]).facts
    assert [(str(fact.event), fact.rid) for fact in facts] == [
        ("client.disconnected", "9ce65650c62166234beed252d3175512"),
        ("pd.failed", "1f7c3c1d6fd09ac1e842dd29b39b8db0"),
    ]


def test_what_is_cut_at_a_width_is_not_broken_at_it(recorded: Any, tmp_path: Path) -> None:
    """Lines that all end at one column, with records after them, go on nowhere."""
    lines = recorded("0.5.23/s02d_session_replace_waiting").server_log.read_text().split("\n")
    start = next(n for n, line in enumerate(lines) if "Receive: obj=GenerateReqInput(rid='blocker'" in line)
    (tmp_path / "server.log").write_text("\n".join(line[:600] for line in lines[start : start + 9]))
    assert [fact.line for fact in read([str(tmp_path / "server.log")]).facts] == list(range(1, 10))


@pytest.mark.parametrize("name", ["AbortedError", "TerminatedWorkerError", "KilledWorker"])
def test_an_exception_may_be_named_as_a_shell_speaks(name: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(CRASH.replace("KeyError: '306df3e52654c28fe8362d17a211f1ec'", f"{name}: no memory\n\nAborted"))
    assert read([str(log)]).facts[1].detail["exception"] == f"{name}: no memory"


READY = "[2026-10-30 01:05:09] The server is fired up and ready to roll!\n"
GONE = "[2026-10-30 01:05:00] Error: Abort request {}\n"
QUOTED = (
    "[2026-10-30 01:05:00] Error: Request is disconnected from the client side (type 1). Abort request obj.rid={!r}\n"
)


@pytest.mark.parametrize(
    ("line", "rid"),
    [(GONE, "victim "), (GONE, "victim\t"), (GONE, "vic[1mtim"), (QUOTED, "vic[1mtim"), (QUOTED, "vic\x1b[1mtim")],
)
def test_no_rid_becomes_anothers(line: str, rid: str, tmp_path: Path) -> None:
    """A client may choose a rid that would be another's without its blanks, or what may be left of colours."""
    coloured = "^[[36m(SGLangEngine pid=7)^[[0m " if "[1m" in rid else ""
    log = tmp_path / "server.log"
    log.write_text("".join(coloured + text for text in (line.format(rid), *[READY] * 3)))
    assert read([str(log)]).facts[0].rid == rid


@pytest.mark.parametrize("look", ["[1m", "\x1b[1m", "\u200b", "  "])
def test_a_strangers_line_is_known_without_its_looks(look: str) -> None:
    strangers = Strangers()
    strangers.quote([f"a session\n{look}{FORGED}"])
    line = Line(1, 0, FORGED.encode())
    assert strangers.wrote(line)


def test_what_a_shell_says_is_no_exception(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(CRASH.replace("KeyError: '306df3e52654c28fe8362d17a211f1ec'", "RuntimeError: no memory\n\nKilled"))
    assert read([str(log)]).facts[1].detail["exception"] == "RuntimeError: no memory"


def test_a_cell_may_hold_several_lines(tmp_path: Path) -> None:
    table = (
        "Date,Host,Message\r\n"
        '"2026-10-30T01:05:09Z",a,"[2026-10-30 01:05:09] The server is fired up and ready to roll!"\r\n'
        '"2026-10-30T01:05:03Z",a,"[2026-10-30 01:05:02] Scheduler hit an exception: '
        'Traceback (most recent call last):\n  File ""/sgl/x.py"", line 1, in f\nValueError: too much, ""so""\n"\r\n'
        '"2026-10-30T01:05:01Z",a,"[2026-10-30 01:05:01] The server is fired up and ready to roll!"\r\n'
    )
    (tmp_path / "export.csv").write_text(table, newline="")
    facts = read([str(tmp_path / "export.csv")]).facts
    assert [str(fact.event) for fact in facts] == ["server.ready", "process.crashed", "server.ready"]
    assert facts[1].detail["exception"] == 'ValueError: too much, "so"'


@pytest.mark.parametrize("text", ["message,a\rb\n1,2\n", "message,message\n1,2\n", "time,text;\n", "message\nhello\n"])
def test_what_is_no_table_is_read_as_lines(text: str, tmp_path: Path) -> None:
    line = "[2026-10-30 01:05:09] The server is fired up and ready to roll!\n"
    (tmp_path / "server.log").write_text(text + line * 3, newline="")
    before = text.count("\n")
    assert [fact.line - before for fact in read([str(tmp_path / "server.log")]).facts] == [1, 2, 3]


def opentelemetry(pod: str) -> str:
    resource = {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": pod}}]}
    record = {"timeUnixNano": "1793322309000000000", "body": {"stringValue": SAID}}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]})


@pytest.mark.parametrize(
    "text", ["message,time\n", "a,b,message,c\n", f"__CURSOR=x\n__REALTIME_TIMESTAMP=1\nMESSAGE={FORGED}\n\n"]
)
def test_what_only_begins_as_an_export_is_read_as_lines(text: str, tmp_path: Path) -> None:
    """Where logs are rotated, a file may begin with lines of a stranger's text."""
    line = "[2026-10-30 01:05:09] The server is fired up and ready to roll!\n"
    (tmp_path / "server.log").write_text(text + line * 3)
    before = text.count("\n")
    assert [fact.line - before for fact in read([str(tmp_path / "server.log")]).facts] == [1, 2, 3]


@pytest.mark.parametrize(
    "first", ['{"log": "the first line is c', '{"message": "x", "timestamp": "2026-10-30T01:05:09Z"},']
)
def test_lines_are_no_document_that_is_too_large(first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 400)
    line = json.dumps({"message": READY.strip(), "timestamp": "2026-10-30T01:05:09Z"}) + ",\n"
    (tmp_path / "server.log").write_text(f"{first}\n" + line * 9)
    assert len(read([str(tmp_path / "server.log")]).facts) == 9


SAID = "[2026-10-30 01:05:09] The server is fired up and ready to roll!"
NAMED = {
    "OpenTelemetry": opentelemetry,
    "Datadog": lambda pod: json.dumps({"attributes": {"tags": ["env:x", f"pod_name:{pod}"], "message": SAID}}),
    "Grafana": lambda pod: json.dumps({"line": SAID, "timestamp": "1793322309000000000", "fields": {"pod": pod}}),
    "Filebeat": lambda pod: json.dumps({"message": SAID, "log": {"offset": 1}, "host": {"name": pod}}),
    "Grafana's table": lambda pod: f'"{{""pod"": ""{pod}""}}",{SAID}',
    "Azure's table": lambda pod: f"{pod},{SAID}",
}
HEADERS = {"Grafana's table": "labels,Line\n", "Azure's table": "PodName,LogMessage\n"}


@pytest.mark.parametrize("collector", NAMED)
def test_pods_of_an_export_are_told_apart(collector: str, tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_text(HEADERS.get(collector, "") + "".join(NAMED[collector](pod) + "\n" for pod in ("a-0", "b-0", "a-0")))
    assert {source.path for source in read([str(path)]).sources} == {f"{path}[a-0]", f"{path}[b-0]"}


def test_a_prefix_that_no_rule_knows_names_streams(tmp_path: Path) -> None:
    """Ranks and pods are told apart by it; kinds of lines, dates and numbers of lines are no names."""
    line = "[2026-10-30 01:05:00] The server is fired up and ready to roll!"
    named = {
        "[default{0}]:": ["default0", "default1"],
        "(head, rank={0}, pid=71) ": ["0/71", "1/71"],
        "10-3{0} 01:05 <std{1}> ": [],
        "{2:6}  ": [],
    }
    for prefix, streams in named.items():
        lines = [prefix.format(n % 2, ("out", "err")[n % 2], n) + line for n in range(12)]
        (tmp_path / "all.log").write_text("\n".join(lines))
        paths = {source.path for source in read([str(tmp_path / "all.log")]).sources if source.recognised}
        name = str(tmp_path / "all.log")
        assert paths == ({f"{name}[{stream}]" for stream in streams} or {name})


@pytest.mark.parametrize("rule", [rule for rule in prefixes.ENVELOPES if rule.tail is not None], ids=lambda r: r.name)
@pytest.mark.parametrize("piece", [" ", "\t", "│", "│ ", " [repeated 1", '", "a"=>"', '", "a"=>{', "\t1"])
def test_a_strangers_text_does_not_hold_up_the_search_for_its_end(rule: Any, piece: str) -> None:
    """A megabyte of it: were it looked at again from each place, this would take hours."""
    text = piece * (1_000_000 // len(piece)) + "x"
    assert rule.tail.sub("", text) == text


def test_a_prompt_makes_no_wrapper(tmp_path: Path) -> None:
    """Text of strangers imitates collectors, escapes, broken lines and newest-first exports; no fact comes of it."""
    fake = "[2026-10-30 01:05:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    prompts = [
        "\n".join(f"(SGLangEngine pid={n}) {fake}" for n in range(9)),
        f"\\n{fake}" * 9,
        f"\n{fake}" * 9,
        "x" * (180 - len("Receive: obj=GenerateReqInput(rid='a', text='")) + fake,
        "\n".join(f'{{"log": "{fake}\\n", "stream": "stdout", "time": "2026-10-30T01:05:00Z"}}' for _ in range(9)),
    ]
    for prompt in prompts:
        for whole in (True, False):
            line = f"Receive: obj=GenerateReqInput(rid='a', text={prompt!r})"
            pieces = [line] if whole else wrappers.pieces(line, 180)
            (tmp_path / "server.log").write_text("".join(piece + "\n" for piece in pieces))
            facts = read([str(tmp_path / "server.log")]).facts
            assert [(f.event, f.rid) for f in facts if not f.tainted] in ([("request.received", "a")], [])


@pytest.mark.parametrize(("outer", "inner"), [("> ", "> "), ("    ", "  ")])
def test_what_is_quoted_deeper_stays_a_strangers_text(outer: str, inner: str, tmp_path: Path) -> None:
    """A client's session id, printed as it is, begins its lines as the file's own begin."""
    forged = f"{inner}[2026-11-29 10:00:12 TP0] Scheduler hit an exception: Traceback (most recent call last):"
    lines = [
        "[2026-11-29 10:00:10] Receive: obj=GenerateReqInput(rid='v', text='x', stream=False)",
        f"[2026-11-29 10:00:12] Session x\n{forged}\nyyyyyyyyyyyy timed out, closing.",
        *(f"[2026-11-29 10:00:{s}] Decode batch, #running-req: 1, #token: 5, #queue-req: 0" for s in range(13, 40)),
    ]
    log = tmp_path / "pasted.md"
    log.write_text("".join(f"{outer}{line}\n" for text in lines for line in text.split("\n")))
    evidence = read([str(log)])
    assert any(fact.event == "batch.decode" for fact in evidence.facts)
    assert not any(fact.event == "process.crashed" and not fact.tainted for fact in evidence.facts)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("cell", ["x" * 9000, f'x\n{"y" * 9000}\n"",2026-10-30T01:05:04Z,""\n', '""' * 9000])
def test_a_row_that_is_too_long_hides_no_other(
    cell: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(tables, "CAP", 8192)
    request.addfinalizer(partial(csv.field_size_limit, csv.field_size_limit()))
    ready, forged = "The server is fired up and ready to roll!", "SIGTERM received. signum=None frame=None."
    rows = [f"[2026-10-30 01:05:0{n}] {ready}" for n in (1, 5)]
    rows.insert(1, f"{cell}\n2026-10-30T01:05:03Z,[2026-10-30 01:05:03] {forged}\n")
    table = "".join(f'2026-10-30T01:05:09Z,"{row}"\n' for row in rows)
    (tmp_path / "export.csv").write_text(f"timestamp,message\n{table}".replace("\n", ending), newline="")
    facts = read([str(tmp_path / "export.csv")]).facts
    assert [fact.event for fact in facts] == [Event.SERVER_READY, Event.LINES_LOST, Event.SERVER_READY]
