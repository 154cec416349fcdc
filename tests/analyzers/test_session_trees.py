"""Sessions on recorded logs, and on small ones made for what was not recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.analyzers.explain import explain
from sglang_lifecycle.analyzers.incident import Incident
from sglang_lifecycle.analyzers.listing import SessionTree, Turn
from sglang_lifecycle.analyzers.session_trees import ids, matches, sessions, trees
from sglang_lifecycle.parsers.log import read

Recorded = Callable[[str], Any]
LENGTH = "{'type': 'length', 'length': 8}"
REFUSED = "{'type': 'abort', 'message': %r, 'status_code': 400, 'err_type': 'BadRequestError'}"
UNFINISHED = "Session request is appending to a request that hasn't finished."
BUSY = "Streaming session already has an active request."


def turn(
    second: int, rid: str, params: str, prompt: int = 5, completion: int = 8, reason: str = LENGTH, extra: str = ""
) -> list[str]:
    obj = f"GenerateReqInput(rid={rid!r}, stream=False, session_params={params}{extra})"
    meta = f"'id': {rid!r}, 'finish_reason': {reason}, 'prompt_tokens': {prompt}, 'completion_tokens': {completion}"
    head = f"[2026-11-29 12:00:{second:02}] "
    return [f"{head}Receive: obj={obj}", f"{head}Finish: obj={obj}, out={{'meta_info': {{{meta}}}}}"]


def line(second: int, text: str) -> list[str]:
    return [f"[2026-11-29 12:00:{second:02}] {text}"]


@pytest.fixture
def grown(tmp_path: Path) -> Callable[..., SessionTree]:
    def grow(*parts: list[str], version: str = "0.5.18") -> SessionTree:
        log = tmp_path / "server.log"
        log.write_text("\n".join(text for part in parts for text in part) + "\n", encoding="utf-8")
        (tree,) = trees(Incident(read([str(log)]), version), "S")
        return tree

    return grow


def shape(tree: SessionTree) -> dict[str, str | None]:
    """Each turn with the one that it hangs below."""
    return {t.rid: tree.turns[t.parent].rid if t.parent is not None else None for t in tree.turns}


def by_rid(tree: SessionTree) -> dict[str, Turn]:
    return {t.rid: t for t in tree.turns}


class TestRecorded:
    def test_a_turn_has_the_times_of_its_verdict(self, recorded: Recorded) -> None:
        incident = recorded("0.5.23/s02a_session").incident
        (tree,) = trees(incident, "sess-A")
        assert {t.rid: t.times for t in tree.turns} == {t.rid: explain(incident, t.rid).times for t in tree.turns}

    def test_an_ordinary_session_is_a_tree_by_the_rids_that_its_turns_name(self, recorded: Recorded) -> None:
        (tree,) = trees(recorded("0.5.23/s02a_session").incident, "sess-A")
        assert shape(tree) == {
            "sA-1": None, "sA-2": "sA-1", "sA-3a": "sA-1", "sA-3b": "sA-1", "sA-4": "sA-2", "sA-5": "sA-4",
            "sA-5s": "sA-4", "sA-6": None, "sA-6r": None, "sA-7": "sA-5", "sA-8": "sA-1", "sA-9": "sA-1",
            "sA-10": "sA-1", "sA-11": "sA-1",
        }  # fmt: skip
        assert [t.rid for t in tree.turns if not t.accepted] == ["sA-5", "sA-5s", "sA-6", "sA-6r", "sA-7", "sA-11"]
        assert [e.kind for e in tree.events] == ["opened", "open-refused", "closed", "close-unknown"]
        assert (tree.session.state, tree.session.streaming) == ("closed", False)
        assert by_rid(tree)["sA-9"].offset == 3
        assert by_rid(tree)["sA-10"].drop_previous_output
        assert tree.session.context_lost == 0

    def test_verdicts_are_those_of_explain(self, recorded: Recorded) -> None:
        scenario = recorded("0.5.23/s02a_session")
        for id in ids(scenario.incident):
            for tree in trees(scenario.incident, id):
                for each in tree.turns:
                    verdict = scenario.explain(each.rid)
                    assert (each.cause, each.confidence, each.stage) == (
                        verdict.cause,
                        verdict.confidence,
                        verdict.stage,
                    )

    def test_replace_marks_the_replaced_and_the_branch_below_it(self, recorded: Recorded) -> None:
        (tree,) = trees(recorded("0.5.10/s02c_session_replace").incident, "sess-R")
        assert {t.rid: t.replaced_by for t in tree.turns if t.replaced_by} == {
            "r-2": "r-3", "r-4": "r-6", "r-7": "r-8"
        }  # fmt: skip
        assert {t.rid: t.cleared_by for t in tree.turns if t.cleared_by} == {"r-5": "r-6"}
        assert len(tree.session.replaced) == 3

    def test_a_streaming_session_goes_on_from_its_last_good_turn(self, recorded: Recorded) -> None:
        (tree,) = trees(recorded("0.5.18/s16_stuck_session").incident, "st-Q")
        assert shape(tree) == {
            "q-1": None, "q-2": "q-1", "q-3": "q-2", "q-4": "q-1", "q-5": "q-4", "q-6": "q-5", "q-7": None
        }  # fmt: skip
        assert tree.session.streaming is True
        assert by_rid(tree)["q-7"].how == "begins"  # the id was opened again: nothing of the first one is left
        assert tree.session.context_lost == 0

    def test_a_session_ends_with_its_server(self, recorded: Recorded) -> None:
        (tree,) = trees(recorded("0.5.10/s02e_session_clear_tree").incident, "sess-C")
        assert tree.session.state == "lost"
        assert tree.events[-1].kind == "server-ended"

    def test_sessions_lists_what_trees_hold(self, recorded: Recorded) -> None:
        incident = recorded("0.5.23/s02a_session").incident
        rows = {row.id: row for row in sessions(incident).sessions}
        assert rows["sess-T"].state == "reaped"
        assert rows["no-such-session"].state == "never-opened"
        assert (rows["sess-A"].turns, rows["sess-A"].interrupted) == (14, 6)
        assert set(rows) == set(ids(incident))

    def test_bounds_leave_out_what_lived_before_or_after(self, recorded: Recorded) -> None:
        incident = recorded("0.5.23/s02a_session").incident
        closed = next(f.at for f in incident.evidence.facts if f.event == "session.closed" and f.session_id == "sess-A")
        early = [row.id for row in sessions(incident, until=closed - 4).sessions]
        late = [row.id for row in sessions(incident, since=closed + 2).sessions]
        assert "sess-A" in early
        assert "sess-T" not in early
        assert "sess-A" not in late
        assert "sess-T2" in late

    def test_matches_an_id_or_its_beginning(self, recorded: Recorded) -> None:
        incident = recorded("0.5.23/s02a_session").incident
        assert matches(incident, "sess-T") == ["sess-T"]
        assert matches(incident, "sess-T2") == ["sess-T2"]
        assert matches(incident, "sess-") == ["sess-A", "sess-B", "sess-T", "sess-T2", "sess-Z"]
        assert matches(incident, "") == matches(incident, "x") == []


class TestLostHistory:
    def test_a_stub_in_its_place_proves_it(self, grown: Callable[..., SessionTree]) -> None:
        tree = grown(
            turn(1, "a", "{'id': 'S'}", 88, 6),
            turn(2, "bad", "{'id': 'S', 'rid': 'a'}", 1, 1, REFUSED % "Failed to compile json grammar: x"),
            turn(3, "next", "{'id': 'S', 'rid': 'bad'}", 7, 6),
        )
        (finding,) = by_rid(tree)["next"].findings
        assert (finding.cause, finding.confidence) == ("context-lost", "proven")
        assert finding.summary == (
            "Its prompt has 7 tokens, its history up to 'a' 94: 'bad', refused after the session had taken it in,"
            " left a stub in its place."
        )
        assert [each.line for each in finding.evidence] == [6, 2, 4]

    def test_a_small_prompt_alone_makes_it_likely(self, grown: Callable[..., SessionTree]) -> None:
        tree = grown(turn(1, "a", "{'id': 'S'}", 88, 6), turn(3, "b", "{'id': 'S', 'rid': 'a'}", 7, 6))
        assert by_rid(tree)["b"].findings[0].confidence == "likely"
        assert tree.session.context_lost == 1

    def test_what_follows_a_lost_history_has_lost_nothing_more(self, grown: Callable[..., SessionTree]) -> None:
        tree = grown(
            turn(1, "a", "{'id': 'S'}", 88, 6),
            turn(2, "b", "{'id': 'S', 'rid': 'a'}", 7, 6),
            turn(3, "c", "{'id': 'S', 'rid': 'b'}", 15, 6),
        )
        assert [t.rid for t in tree.turns if t.findings] == ["b"]

    @pytest.mark.parametrize(
        ("params", "prompt"),
        [
            ("{'id': 'S', 'rid': 'a'}", 99),
            ("{'id': 'S', 'rid': 'a', 'offset': 3}", 7),
            ("{'id': 'S', 'rid': 'a', 'drop_previous_output': True}", 7),
            ("{'id': 'S'}", 7),
        ],
    )
    def test_asked_for_or_whole(self, grown: Callable[..., SessionTree], params: str, prompt: int) -> None:
        tree = grown(turn(1, "a", "{'id': 'S'}", 88, 6), turn(2, "b", params, prompt))
        assert tree.session.context_lost == 0

    def test_a_streaming_session_that_may_have_been_opened_anew_accuses_nobody(
        self, grown: Callable[..., SessionTree]
    ) -> None:
        parts = [
            turn(1, "a", "{'id': 'S'}", 88, 6),
            turn(2, "x", "{'id': 'S'}", 1, 1, REFUSED % "Streaming sessions do not support offset."),
            turn(3, "b", "{'id': 'S'}", 7, 6),
        ]
        assert grown(*parts, version="0.5.10").session.context_lost == 0
        assert grown(*parts, version="0.5.18").session.context_lost == 1


class TestTree:
    def test_a_refused_turn_hangs_where_it_tried_to_append(self, grown: Callable[..., SessionTree]) -> None:
        tree = grown(turn(1, "a", "{'id': 'S'}"), turn(2, "b", "{'id': 'S', 'rid': 'a'}", 1, 1, REFUSED % UNFINISHED))
        assert shape(tree) == {"a": None, "b": "a"}
        assert not by_rid(tree)["b"].accepted
        assert tree.session.streaming is False

    def test_a_rid_that_came_twice_is_appended_to_by_its_newest(self, grown: Callable[..., SessionTree]) -> None:
        tree = grown(
            turn(1, "a", "{'id': 'S'}"), turn(2, "a", "{'id': 'S'}"), turn(3, "b", "{'id': 'S', 'rid': 'a'}", 20)
        )
        assert [t.parent for t in tree.turns] == [None, None, 1]

    def test_a_streaming_session_is_known_by_prompts_that_carry_over(self, grown: Callable[..., SessionTree]) -> None:
        first = turn(1, "a", "{'id': 'S'}", 4, 8, extra=", text='one two'")
        assert grown(first, turn(2, "b", "{'id': 'S'}", 15, 8, extra=", text='and more'")).session.streaming is True
        assert grown(first, turn(2, "b", "{'id': 'S'}", 3, 8, extra=", text='and more'")).session.streaming is None
        assert grown(first, turn(2, "b", "{'id': 'S'}", 90, 8, extra=", text='and more'")).session.streaming is None

    def test_a_refused_streaming_turn_hangs_below_the_one_in_its_way(self, grown: Callable[..., SessionTree]) -> None:
        tree = grown(
            turn(1, "a", "{'id': 'S'}"),
            turn(2, "b", "{'id': 'S'}", 15, 1, "{'type': 'abort', 'message': 'Aborted'}"),
            turn(3, "c", "{'id': 'S'}", 1, 1, REFUSED % BUSY),
            turn(4, "d", "{'id': 'S'}", 15),
        )
        assert shape(tree) == {"a": None, "b": "a", "c": "b", "d": "a"}


class TestLife:
    def test_what_is_told_every_second_is_told_once(self, grown: Callable[..., SessionTree]) -> None:
        again = [
            text
            for second in range(3, 8)
            for text in (
                *line(second, "Session S timed out, closing."),
                *line(second, "Deferring session close for S (unfinished request)"),
            )
        ]
        tree = grown(line(1, "Session opened: S (active=1)"), again)
        assert [(e.kind, e.told) for e in tree.events] == [("opened", 1), ("reaped", 5), ("close-deferred", 5)]
        assert tree.events[1].until == "2026-11-29T12:00:07.500Z"
        assert (tree.session.state, tree.session.streaming) == ("closing", True)

    def test_ranks_tell_the_same_thing(self, grown: Callable[..., SessionTree]) -> None:
        parts = [f"[2026-11-29 12:00:03 TP{rank}] Session KV released: S (7 tokens freed)" for rank in (0, 1)]
        (event,) = grown(parts).events
        assert (event.kind, event.told, event.tokens) == ("kv-released", 2, 7)

    def test_two_releases_on_one_rank_are_two(self, grown: Callable[..., SessionTree]) -> None:
        tree = grown(
            line(3, "Session KV released: S (7 tokens freed)"), line(4, "Session KV released: S (9 tokens freed)")
        )
        assert [event.tokens for event in tree.events] == [7, 9]

    @pytest.mark.parametrize(
        ("texts", "state"),
        [
            (["Session opened: S (active=1)"], "open"),
            (["Session opened: S (active=1)", "Session closed: S (active=0)"], "closed"),
            (
                ["Session opened: S (active=1)", "Session S timed out, closing.", "Session closed: S (active=0)"],
                "reaped",
            ),
            (
                ["Session opened: S (active=1)", "Session closed: S (active=0)", "Session opened: S (active=1)"],
                "open",
            ),
            (["session id S does not exist, cannot delete."], "unknown"),
        ],
    )
    def test_states(self, grown: Callable[..., SessionTree], texts: list[str], state: str) -> None:
        assert grown(*(line(second, text) for second, text in enumerate(texts))).session.state == state

    @pytest.mark.parametrize(("version", "state"), [("0.5.18", "stuck"), ("0.5.22", "open")])
    def test_a_turn_dropped_from_the_queue_leaves_a_streaming_session_stuck(
        self, grown: Callable[..., SessionTree], version: str, state: str
    ) -> None:
        tree = grown(
            line(0, "Session opened: S (active=1)"),
            line(1, "Session KV released: S (7 tokens freed)"),
            turn(2, "b", "{'id': 'S'}", 5, 0, "{'type': 'abort', 'message': 'Abort in waiting queue'}"),
            version=version,
        )
        assert tree.session.state == state
