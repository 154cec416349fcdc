"""The screens, as people see them."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from sglang_lifecycle.analyzers.catalogue import cause
from sglang_lifecycle.analyzers.listing import Audit, RequestRow
from sglang_lifecycle.analyzers.verdict import Attempt, EvidenceLine, Times, Verdict
from sglang_lifecycle.cli.interrupted import shares
from sglang_lifecycle.cli.output import render
from sglang_lifecycle.cli.screen import screen
from sglang_lifecycle.cli.table import table
from sglang_lifecycle.cli.text import clean, width
from sglang_lifecycle.cli.times import Clock, zone

WIDTHS = [80, 100]


def explained(verdict: Verdict, columns: int, color: bool = False) -> str:
    return render(screen(verdict, Clock(), columns), columns, color)


def audited(audit: Audit, columns: int, limit: int | None = 200) -> str:
    return render(table(audit, Clock(), columns, limit), columns, False)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", ["verdict", "undecided", "hostile"])
def test_explain(name: str, columns: int, request: pytest.FixtureRequest, snapshot: SnapshotAssertion) -> None:
    assert explained(request.getfixturevalue(name), columns) == snapshot


@pytest.mark.parametrize("columns", WIDTHS)
def test_audit(an_audit: Audit, columns: int, snapshot: SnapshotAssertion) -> None:
    assert audited(an_audit, columns) == snapshot


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
@pytest.mark.parametrize("name", ["verdict", "undecided", "hostile"])
def test_no_line_of_explain_is_too_long_or_holds_a_control(
    name: str, columns: int, request: pytest.FixtureRequest
) -> None:
    text = explained(shown := request.getfixturevalue(name), columns)
    assert_tidy(text.removeprefix(f"Request {clean(shown.rid)}\n"), columns)


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_no_line_of_audit_is_too_long_or_holds_a_control(an_audit: Audit, nasty: str, columns: int) -> None:
    text = audited(an_audit, columns)
    assert_tidy(text.replace(f"    {clean(nasty)}\n", ""), columns)
    # Nothing is cut, and ids least: they are there to be copied.
    assert text.count("1h02m") == 1
    assert clean(nasty) in text
    assert "perhaps abort-all or pause-abort" in text
    assert "or else explicit-abort" in text


def assert_tidy(text: str, columns: int) -> None:
    for line in text.split("\n"):
        assert line.isprintable()
        assert line == line.rstrip()
        assert width(line) <= columns


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_every_rid_of_an_audit_is_whole(an_audit: Audit, columns: int) -> None:
    text = audited(an_audit, columns)
    listed = [row.rid for row in an_audit.requests if row.status == "interrupted" and not row.synthetic]
    assert [rid for rid in listed if clean(rid) not in text] == []


def test_a_rid_that_nobody_copies_is_cut(an_audit: Audit) -> None:
    an_audit.requests[0].rid = "x" * 100_000
    assert len(audited(an_audit, 100)) < 10_000


def test_markup_of_strangers_is_text(hostile: Verdict) -> None:
    assert "[red]x[/]" in explained(hostile, 100)
    assert "\x1b" not in explained(hostile, 100)


def test_a_long_rid_is_not_broken(verdict: Verdict) -> None:
    verdict.rid = "chatcmpl-" + "0123456789abcdef" * 4
    assert f" {verdict.rid}" in explained(verdict, 60)


def test_colour_comes_from_us_alone(hostile: Verdict) -> None:
    text = explained(hostile, 100, color=True)
    assert "\x1b[1;32mproven" in text
    assert "\x1b[31m" not in text
    assert "\\x1b[31mred" in text


@pytest.mark.parametrize(
    ("times", "marks", "rows"),
    [
        (("12:00:00", "12:00:10", 4, 6), [], ["├", "▒", "█"]),
        (("12:00:00", None, 4, None), ["12:00:08"], ["ended: not in the logs", "·", "▒"]),
        ((None, "12:00:10", None, 6), ["12:00:02"], ["received: not in the logs", "┤", "█"]),
        (("12:00:00", "12:00:10", None, None), ["11:00:00", "13:00:00"], ["‹1", "2›"]),
        (
            ("12:00:00", "12:00:00", 0, None),
            [],
            ["nothing to draw: all that has a time is at 2026-08-02 12:00:00.000 UTC"],
        ),
        (("12:00:01", "12:00:00", None, None), [], ["received and ended within the error of its times"]),
        ((None, None, 4, 6), [], ["nothing to draw: the logs give no times for it"]),
    ],
)
def test_timeline(
    verdict: Verdict,
    times: tuple[str | None, str | None, float | None, float | None],
    marks: list[str],
    rows: list[str],
) -> None:
    def moment(clock: str | None) -> str | None:
        return clock and f"2026-08-02T{clock}Z"

    received, ended, waited, ran = times
    verdict.times = Times(received=moment(received), ended=moment(ended), waited_s=waited, ran_s=ran)
    verdict.evidence = [EvidenceLine(source="a", line=1, event="e", at=moment(mark)) for mark in marks]
    text = explained(verdict, 100)
    assert [row for row in rows if row not in text] == []


def test_timeline_is_to_scale(verdict: Verdict) -> None:
    verdict.evidence = []
    verdict.times = Times(received="2026-08-02T12:00:00Z", ended="2026-08-02T12:00:40Z", waited_s=10, ran_s=30)
    rows = explained(verdict, 100).split("\n")
    waited, ran = (next(row for row in rows if row.startswith(f"  {name} ")) for name in ("waited", "ran"))
    assert ran.count("█") / waited.count("▒") == pytest.approx(3, rel=0.05)
    assert ran.index("█") == waited.rindex("▒") + 1 or ran.index("█") == waited.rindex("▒")


def test_many_evidence_lines_are_counted(verdict: Verdict) -> None:
    verdict.evidence = [EvidenceLine(source="a.log", line=line, event="e") for line in range(1, 31)]
    text = explained(verdict, 100)
    assert "a.log:20 " in text
    assert "a.log:21 " not in text
    assert "and 10 more" in text


def test_a_long_folder_is_named_once(verdict: Verdict) -> None:
    folder = "/var/log/" + "deep/" * 12
    for line in verdict.evidence:
        line.source = f"{folder}server.log"
    text = explained(verdict, 100)
    assert f"Evidence  in {folder}\n" in text
    assert "  1   server.log:31  11:59:55.000" in text
    verdict.evidence[0].source = "relative/server.log"
    assert text.count(folder) == 1
    assert explained(verdict, 100).count(f"{folder}server.log:") == 2


def test_standard_input_has_a_name(verdict: Verdict) -> None:
    for line in verdict.evidence:
        line.source = "-"
    assert "  stdin:31  11:59:55.000" in explained(verdict, 100)


def test_in_flight_and_finished_read_as_sentences(verdict: Verdict) -> None:
    verdict.status, verdict.stage = "in-flight", "running"
    assert "Received at 2026-08-02 12:00:01.500 UTC; the logs end while it ran in the batch." in explained(verdict, 100)
    verdict.status = "finished"
    assert "Ended at 2026-08-02 12:00:21.500 UTC." in explained(verdict, 100)


def test_times_are_shown_in_the_zone_asked_for(verdict: Verdict) -> None:
    text = render(screen(verdict, Clock(zone("+05:30")), 100), 100, False)
    assert "17:30:21.500 UTC+05:30" in text
    assert "12:00:21" not in text


def many(number: int, cause_id: str) -> list[RequestRow]:
    return [
        RequestRow(
            rid=f"{cause_id}-{index}",
            status="interrupted",
            cause=cause_id,
            confidence="proven",
            layer="scheduler",
            stage="waiting",
            actor="scheduler",
            times=Times(),
        )
        for index in range(number)
    ]


def test_the_list_is_limited_and_says_so() -> None:
    audit = Audit(requests=many(300, "queue-full") + many(3, "abort-all"))
    text = audited(audit, 100)
    assert "200 of 303; --all lists them all" in text
    assert "197 of 300" in text
    assert text.count("    abort-all-") == 3  # a rare cause is not crowded out
    assert text.count("    queue-full-") == 197
    assert audited(audit, 100, None).count("    queue-full-") == 300


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ({"a": 5, "b": 1}, None, {"a": 5, "b": 1}),
        ({"a": 5, "b": 1}, 4, {"a": 3, "b": 1}),
        ({"a": 9, "b": 9, "c": 9}, 10, {"a": 3, "b": 3, "c": 4}),
    ],
)
def test_shares(sizes: dict[str, int], limit: int | None, expected: dict[str, int]) -> None:
    assert shares(sizes, limit) == expected


def test_an_audit_of_nothing_is_a_summary() -> None:
    assert audited(Audit(), 100).startswith("0 requests: 0 interrupted.\nRead 0 inputs")


def test_causes_without_a_title_are_still_listed() -> None:
    assert "made-up-cause" in audited(Audit(requests=many(1, "made-up-cause")), 100)


def test_titles_come_from_the_catalogue() -> None:
    assert cause("queue-full").title in audited(Audit(requests=many(1, "queue-full")), 100)


def test_a_time_is_not_told_more_precisely_than_it_is_known(verdict: Verdict) -> None:
    verdict.times.ended_error_s = 89.0
    text = explained(verdict, 100)
    assert "at 2026-08-02 12:00:21 UTC ±89.0 s." in text
    assert "ended 12:00:21 ±89.0 s" in text
    assert "12:00:21.500 UTC" not in text


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_what_a_cause_means_is_read_not_spelt(columns: int) -> None:
    rows = [*many(1, "session-parent-unfinished"), *many(1, "queue-full")]
    rows[0].confidence = "not-established"  # one column more
    text = audited(Audit(requests=rows), columns)
    assert cause("queue-full").title in text
    assert "appended to a turn" in text


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_every_attempt_says_how_it_ended_however_long_its_server_is_called(verdict: Verdict, columns: int) -> None:
    verdict.attempts = [
        Attempt(
            status="interrupted",
            cause=cause_id,
            confidence="likely",
            received=f"2026-08-02T12:00:0{life}.361Z",
            ended=f"2026-08-02T12:00:0{life}.948Z",
            life=life,
            server=f"/var/log/sglang/{name}-of-the-decode-pool/server.log",
        )
        for life, (name, cause_id) in enumerate([("first", "queue-full"), ("second", "abort-all")], 1)
    ]
    text = explained(verdict, columns)
    for whole in ("interrupted: queue-full", "interrupted: abort-all", "12:00:01.948", "12:00:02.948"):
        assert whole in text
    assert "life 1 of first-of-the-decode-pool/server.log" in text
