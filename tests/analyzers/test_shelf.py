"""Rows on disk come back as they were, in the order of an audit."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.analyzers import shelf
from sglang_lifecycle.analyzers.audit import order
from sglang_lifecycle.analyzers.listing import RequestRow
from sglang_lifecycle.analyzers.shelf import Shelf
from sglang_lifecycle.analyzers.verdict import Times


def _row(rid: str, second: int | None, stage: str) -> RequestRow:
    return RequestRow(
        rid=rid, status="finished", cause="finished", confidence="proven", layer="client", stage=stage, actor="client",
        times=Times(received=f"2026-11-29T10:00:0{second}.000Z" if second is not None else None),
    )  # fmt: skip


RIDS = st.text(max_size=3) | st.sampled_from(["a", "b", "ü", "東", "\ud800", "\U0001f600"])
ROWS = st.lists(st.builds(_row, RIDS, st.none() | st.integers(0, 5), st.sampled_from("xyz")), max_size=12)


@given(ROWS, ROWS, st.integers(1, 5))
def test_rows_come_in_the_order_of_an_audit_each_rid_once(
    shelved: list[RequestRow], held: list[RequestRow], many: int
) -> None:
    others = sorted({row.rid: row for row in held}.values(), key=order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shelf, "_MANY", many)
        kept = Shelf(repr)
        for row in shelved:
            kept.add(row)
        found = list(kept.texts(others))
    newest = {row.rid: row for row in [*shelved, *others]}
    assert found == [repr(row) for row in sorted(newest.values(), key=order)]


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Shelf(repr)

    class Full:
        def executemany(self, *_: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(kept, "_file", Full())
    kept.add(_row("a", 1, "x"))
    with pytest.raises(OSError, match="database or disk is full"):
        list(kept.texts([]))
