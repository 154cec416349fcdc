"""`lifecycle sessions`: its screens, and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from sglang_lifecycle.analyzers.listing import SessionEvent, SessionFinding, SessionRow, Sessions, SessionTree, Turn
from sglang_lifecycle.analyzers.session_trees import sessions, trees
from sglang_lifecycle.analyzers.verdict import Times
from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.output import render
from sglang_lifecycle.cli.session_screen import screen, table
from sglang_lifecycle.cli.text import width
from sglang_lifecycle.cli.times import Clock

Recorded = Callable[[str], Any]
Capture = pytest.CaptureFixture[str]
WIDTHS = [80, 100]
LOG = """\
[2026-11-29 12:00:00] Session opened: sess-A (active=1)
[2026-11-29 12:00:01] Receive: obj=GenerateReqInput(rid='a', stream=False, session_params={'id': 'sess-A'})
[2026-11-29 12:00:02] Session opened: sess-B (active=2)
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(LOG, encoding="utf-8")
    return str(path)


@pytest.fixture
def hostile(nasty: str) -> SessionTree:
    """A tree whose every id comes from a stranger."""

    def turn(index: int, parent: int | None, **changes: Any) -> Turn:
        known: dict[str, Any] = {
            "rid": f"{nasty}{index}",
            "place": index,
            "parent": parent,
            "parent_rid": nasty,
            "how": "appends",
            "accepted": True,
            "status": "interrupted",
            "cause": "session-replaced",
            "confidence": "likely",
            "stage": "running",
            "actor": "session",
            "summary": nasty,
            "replaced_by": nasty,
            "cleared_by": nasty,
            "latency_s": 3725.0,
            "times": Times(received="2026-08-02T12:00:00Z", prompt_tokens=12_345, completion_tokens=6),
        }
        return Turn(**(known | changes))

    finding = SessionFinding(cause="context-lost", confidence="proven", summary=nasty * 3)
    return SessionTree(
        session=SessionRow(id=nasty, server=f"/logs/{nasty}/server.log", state="closing", turns=4),
        events=[SessionEvent(kind="reaped", place=9, at="2026-08-03T12:00:00Z", until="2026-08-03T12:01:00Z", told=60)],
        turns=[turn(0, None), turn(1, 0, how="replaces"), turn(2, 0, findings=[finding]), turn(3, 1, accepted=False)],
    )


def test_the_comma_before_the_confidence_has_no_colour(hostile: SessionTree) -> None:
    shown = render(screen(hostile, Clock(), 200), 200, True)
    assert re.search(r"session-replaced, \x1b\[[\d;]+mlikely\x1b\[0m, running", shown)
    assert re.search(r"context-lost, \x1b\[[\d;]+mproven\x1b\[0m: ", shown)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("0.5.23/s02a_session", "sess-A"),
        ("0.5.10/s02c_session_replace", "sess-R"),
        ("0.5.18/s16_stuck_session", "st-Q"),
    ],
)
def test_tree(recorded: Recorded, name: str, session: str, columns: int, snapshot: SnapshotAssertion) -> None:
    (tree,) = trees(recorded(name).incident, session)
    tree.session.server = "server.log"
    assert render(screen(tree, Clock(), columns), columns, False) == snapshot


@pytest.mark.parametrize("columns", WIDTHS)
def test_list(recorded: Recorded, columns: int, snapshot: SnapshotAssertion) -> None:
    found = sessions(recorded("0.5.23/s02a_session").incident)
    assert render(table(found, Clock(), columns), columns, False) == snapshot


@pytest.mark.parametrize("columns", WIDTHS)
def test_strangers_move_nothing(hostile: SessionTree, columns: int, snapshot: SnapshotAssertion) -> None:
    text = render(screen(hostile, Clock(), columns), columns, False)
    listed = render(table(Sessions(sessions=[hostile.session] * 2), Clock(), columns), columns, False)
    for line in [*text.split("\n"), *listed.split("\n")]:
        assert line.isprintable()
        assert width(line) <= columns
    assert text == snapshot


def test_no_session_is_said_so() -> None:
    assert render(table(Sessions(), Clock(), 80), 80, False) == "No session in these logs."


class TestCommand:
    def test_lists(self, log: str, capsys: Capture) -> None:
        assert main(["sessions", log]) == 0
        assert capsys.readouterr().out.startswith(
            "2 sessions, 1 turn: 0 interrupted, 1 in flight where the logs end.\n"
        )

    def test_lists_as_json(self, log: str, capsys: Capture) -> None:
        assert main(["sessions", log, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["schema_version"] == 1
        assert [row["id"] for row in Sessions.model_validate(answer).model_dump()["sessions"]] == ["sess-A", "sess-B"]

    def test_shows_one_by_its_beginning(self, log: str, capsys: Capture) -> None:
        assert main(["sessions", log, "--session", "sess-B", "--json"]) == 0
        tree = SessionTree.model_validate(json.loads(capsys.readouterr().out))
        assert tree.session.id == "sess-B"
        assert tree.events[0].evidence[0].text

    def test_an_unknown_id(self, log: str, capsys: Capture) -> None:
        assert main(["sessions", log, "--session", "nobody"]) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert err == (
            "lifecycle: error: no session 'nobody' in the inputs (1 input, 3 lines);"
            " lifecycle sessions without --session lists them\n"
        )
        assert main(["sessions", log, "--session", "nobody", "--json"]) == 3
        assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "sessions": []}

    def test_an_ambiguous_beginning(self, log: str, capsys: Capture) -> None:
        assert main(["sessions", log, "--session", "sess-"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == [
            "lifecycle: error: 'sess-' is the beginning of 2 session ids; give more of it",
            "  sess-A",
            "  sess-B",
        ]

    def test_an_empty_id(self, log: str, capsys: Capture) -> None:
        assert main(["sessions", log, "--session", ""]) == 2
        assert "the session id is empty" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["sessions", "session", "doctor"])
    def test_schemas(self, name: str, capsys: Capture) -> None:
        assert main(["schema", name]) == 0
        assert "schema_version" in json.loads(capsys.readouterr().out)["properties"]


def test_thousands_of_turns(tmp_path: Path, capsys: Capture) -> None:
    record = "[2026-11-29 12:00:0{}] {}: obj=GenerateReqInput(rid='r{}', stream=False, session_params={!r}){}\n"
    end = ", out={{'meta_info': {{'id': 'r{}', 'finish_reason': {{'type': 'stop'}}, 'prompt_tokens': {}}}}}"
    path, number = tmp_path / "server.log", 3000
    with path.open("w") as log:
        for i in range(number):
            params = {"id": "S", "rid": f"r{i - 1}"} if i else {"id": "S"}
            log.write(record.format(1, "Receive", i, params, ""))
            log.write(record.format(2, "Finish", i, params, end.format(i, i + 1)))
    assert main(["sessions", str(path), "--session", "S"]) == 0
    out = capsys.readouterr().out
    assert out.count("finished, ") == number + 1  # the legend has the word, too
    assert out.rstrip().splitlines()[-1].lstrip().startswith("12:00:01  │ •  r2999")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["sessions", "sess-A"], "a session has this id: lifecycle sessions PATH… --session ID"),
        (["audit", "a"], "a request has this id: lifecycle explain ID PATH…"),
    ],
)
def test_an_id_in_the_place_of_a_path_gets_a_hint(arguments: list[str], hint: str, log: str, capsys: Capture) -> None:
    command, mistaken = arguments
    assert main([command, log, mistaken]) == 4
    assert f"{mistaken}: no such file or folder; {hint}\n" in capsys.readouterr().err
    assert main([command, log, "nowhere"]) == 4
    assert "nowhere: no such file or folder\n" in capsys.readouterr().err
