"""Other tools that can do a part of the job: rid, event, time, finish type and message of every record, as a table.

`python benchmarks/peers.py NAME FILE` prints, as JSON, what one of them finds: how often a request was cut, by message
of the finish reason. Each is written the best way it allows; a greedy `.*` reaches the record's last marker, which no
prompt before it can imitate. `speed.py` runs them and holds them against the truth.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HEAD = r"^\[([^\]]+)\] (Receive|Finish): obj=GenerateReqInput\(rid='([^']*)'"
REASON = (
    r".*'finish_reason': \{'type': '(\w+)'(?:, 'status_code': \w+)?"
    r"(?:, 'message': (?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"))?"
)
LNAV_FORMAT = {
    "$schema": "https://lnav.org/schemas/format-v1.schema.json",
    "sglang_log": {
        "title": "SGLang",
        "description": "The server log of SGLang",
        "regex": {
            "line": {
                "pattern": r"^\[(?<timestamp>\d[^\]]+)\] (?:(?<event>Receive|Finish): obj=GenerateReqInput"
                r"\(rid='(?<rid>[^']*)')?(?<body>.*)$"
            }
        },
        "timestamp-format": ["%Y-%m-%d %H:%M:%S"],
        "value": {"event": {"kind": "string"}, "rid": {"kind": "string", "identifier": True}},
        "sample": [{"line": "[2026-11-29 18:50:01] The server is fired up and ready to roll!"}],
    },
}


def polars(path: str) -> dict[str, int]:
    """Polars, `str.extract_groups` over the lines."""
    import polars as pl

    lines = pl.scan_lines(path)
    ends = pl.col("line").str.slice(22, 7) == "Finish:"
    finished = lines.filter(ends).select(pl.col("line").str.extract_groups(HEAD + REASON).struct.unnest())
    others = lines.filter(~ends).select(pl.col("line").str.extract_groups(HEAD).struct.unnest())
    frame = pl.concat([finished, others], how="diagonal").collect(engine="streaming")
    return Counter(frame.filter(pl.col("4") == "abort").get_column("5").to_list())


def duckdb(path: str) -> dict[str, int]:
    """DuckDB, `regexp_extract` over the lines."""
    return _duckdb(
        path,
        "SELECT regexp_extract(line, ?, ['at', 'event', 'rid']) AS head, CASE WHEN substr(line, 23, 7) = 'Finish:'"
        " THEN regexp_extract(line, ?, ['type', 'message', 'other']) END AS reason FROM lines",
        [HEAD, REASON],
        "reason.type = 'abort'",
        "reason.message",
    )


def duckdb_json(path: str) -> dict[str, int]:
    """DuckDB, its JSON functions."""
    paths = "['$.rid', '$.event', '$.timestamp', '$.out.meta_info.finish_reason.type'"
    paths += ", '$.out.meta_info.finish_reason.message']"
    return _duckdb(
        path,
        f"SELECT json_extract_string(substr(line, 23), {paths}) AS found FROM lines WHERE substr(line, 23, 1) = '{{'",
        [],
        "found[2] = 'request.finished' AND found[4] = 'abort'",
        "found[5]",
    )


def lnav(path: str) -> dict[str, int]:
    """Lnav, a format file and SQL."""
    with tempfile.TemporaryDirectory() as folder:
        formats = Path(folder) / "formats/sglang"
        formats.mkdir(parents=True)
        (formats / "sglang.json").write_text(json.dumps(LNAV_FORMAT))
        reason = REASON.replace("'", "''")
        found = f"CASE event WHEN 'Finish' THEN regexp_match('{reason}', log_body) END AS reason"
        query = f"SELECT log_time, event, rid, {found} FROM sglang_log WHERE event IS NOT NULL"
        ran = subprocess.run(
            ["lnav", "-n", "-I", folder, "-c", f";{query}", "-c", ":write-jsonlines-to -", path],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    reasons = [json.loads(line)["reason"] for line in ran.stdout.splitlines()]
    return Counter(reason["col_1"] or reason["col_2"] for reason in reasons if reason and reason["col_0"] == "abort")


def jq(path: str) -> dict[str, int]:
    """Jq, behind the date that stands before each record."""
    columns = "(.out.meta_info.finish_reason | .type, .message)"
    program = f'select(.[22:23] == "{{") | .[22:] | fromjson | [.rid, .event, .timestamp, {columns}]'
    ran = subprocess.run(["jq", "-R", "-c", program, path], stdout=subprocess.PIPE, check=True, text=True)
    rows = map(json.loads, ran.stdout.splitlines())
    return Counter(message for _, event, _, kind, message in rows if event == "request.finished" and kind == "abort")


def _duckdb(path: str, query: str, values: list[str], where: str, message: str) -> dict[str, int]:
    import duckdb

    lines = (
        "read_csv(?, columns = {'line': 'VARCHAR'}, delim = '\\x01', quote = '', escape = '', header = false,"
        " auto_detect = false, max_line_size = 10000000)"
    )
    found = duckdb.execute(
        f"WITH lines AS (FROM {lines}), found AS MATERIALIZED ({query})"
        f" SELECT {message}, count(*) FROM found WHERE {where} GROUP BY 1",
        [path, *values],
    )
    return dict(found.fetchall())


@dataclass(frozen=True)
class Peer:
    """A tool, what it reads, and what has to be installed for it."""

    run: Callable[[str], dict[str, int]]
    format: str
    module: str = ""
    program: str = ""

    @property
    def missing(self) -> str:
        """Name what is not installed, if anything."""
        if self.module and not importlib.util.find_spec(self.module):
            return self.module
        return self.program if self.program and not shutil.which(self.program) else ""


PEERS = {
    "polars": Peer(polars, "text", module="polars"),
    "duckdb": Peer(duckdb, "text", module="duckdb"),
    "lnav": Peer(lnav, "text", program="lnav"),
    "jq": Peer(jq, "json", program="jq"),
    "duckdb-json": Peer(duckdb_json, "json", module="duckdb"),
}


if __name__ == "__main__":
    print(json.dumps(PEERS[sys.argv[1]].run(sys.argv[2])))
