"""The lanes of a tree."""

from __future__ import annotations

from sglang_lifecycle.cli.graph import LANES, Graph


def drawn(parents: list[int | None], tries: tuple[int, ...] = ()) -> list[str]:
    graph = Graph(parents)
    graph.begin()
    return [graph.node(index, "•", index not in tries).first for index in range(len(parents))]


def test_a_chain_stays_in_its_lane() -> None:
    assert drawn([None, 0, 1]) == ["├─•", "│ •", "│ •"]


def test_roots_branch_off_the_trunk() -> None:
    assert drawn([None, None, None]) == ["├─•", "├─•", "├─•"]


def test_children_branch_off_and_the_last_goes_on() -> None:
    assert drawn([None, 0, 0, 0]) == ["├─•", "│ ├─•", "│ ├─•", "│ •"]


def test_a_branch_passes_behind_the_lanes_between() -> None:
    assert drawn([None, 0, 0, 1, 2]) == ["├─•", "│ ├─•", "│ • │", "│ │ •", "│ •"]
    assert drawn([None, 0, 0, 0, 1]) == ["├─•", "│ ├─•", "│ ├─│─•", "│ • │", "│   •"]


def test_who_only_tried_never_takes_a_lane() -> None:
    assert drawn([None, 0, 0], tries=(1, 2)) == ["├─•", "│ ├·•", "│ └·•"]


def test_events_stand_on_the_trunk_until_it_ends() -> None:
    graph = Graph([None, 0, None])
    assert graph.event(begins=True).first == "├─"
    assert graph.node(0, "•").first == "├─•"
    assert graph.event().first == "├─│"
    assert graph.event(ends=True).first == "└─│"
    assert graph.event().first == "· │"
    assert graph.node(1, "x", firm=False).first == "  └·x"
    assert graph.node(2, "x", firm=False).first == "  x"
    assert graph.event(begins=True).first == "├─"


def test_what_follows_a_line_goes_on_beside_it() -> None:
    graph = Graph([None, 0, 0])
    graph.begin()
    graph.node(0, "•")
    assert graph.node(1, "x").rest == "│ │"
    assert graph.node(2, "x").rest == "│"


def test_very_many_lanes_end_at_the_edge() -> None:
    wide = 40
    parents: list[int | None] = [None, *range(wide), *range(wide - 1, -1, -1)]
    graph = Graph(parents)
    graph.begin()
    beside = [graph.node(index, "•") for index in range(len(parents))]
    assert max(len(each.first) for each in beside) == 2 * (LANES + 1) + 1
    assert beside[wide].edge
    assert not beside[1].edge
