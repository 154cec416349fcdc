"""The pickle reader: what it builds is inert, whatever the pickle asks for, and bounded."""

from __future__ import annotations

import collections
import os
import pickle
import pickletools
import struct
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_lifecycle.parsers import pickles
from sglang_lifecycle.parsers.pickles import Name, Numbers, Object

DUMPS = sorted((Path(__file__).parents[2] / "fixtures").rglob("*.pkl"))


class Evil:
    """Pickled as a call of any function."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call, self.args


class Plain:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Slotted:
    __slots__ = ("x",)


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(_PLAIN, st.integers(3, 5))
def test_plain_values_come_back_as_they_were(value: Any, protocol: int) -> None:
    assert pickles.loads(pickle.dumps(value, protocol)).values == [value]


@pytest.mark.parametrize("protocol", range(6))
def test_an_object_is_its_class_name_and_its_fields(protocol: int) -> None:
    (found,) = pickles.loads(pickle.dumps(Plain(rid="a", n=1), protocol)).values
    assert isinstance(found, Object)
    assert found.name == f"{__name__}.Plain"
    assert found.fields == {"rid": "a", "n": 1}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_slots_enums_and_kinds_of_dicts(protocol: int) -> None:
    slotted = Slotted()
    slotted.x = 5
    ordered = collections.OrderedDict(a=1)
    values = pickles.loads(pickle.dumps([slotted, HTTPStatus.OK, ordered, {1, 2}, frozenset({3})], protocol)).values[0]
    assert values[0].fields == {"x": 5}
    assert (values[1].name, values[1].args) == ("http.HTTPStatus", (200,))
    assert values[2].fields == {"a": 1}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(("call", "name"), [(os.system, "system"), (eval, "eval"), (exec, "exec"), (open, "open")])
def test_nothing_is_called(call: Any, name: str, protocol: int, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    data = pickle.dumps({"requests": [Evil(call, f"touch {proof}")]}, protocol)
    (found,) = pickles.loads(data).values
    assert isinstance(found["requests"][0], Object)
    assert found["requests"][0].name.endswith(f".{name}")
    assert not proof.exists()


def test_nothing_is_imported() -> None:
    absent = "antigravity"
    assert absent not in sys.modules
    found = pickles.loads(b"cantigravity\nfly\n(tR.").values
    assert isinstance(found[0], Object)
    assert absent not in sys.modules


def test_a_function_as_an_argument_is_a_name() -> None:
    (found,) = pickles.loads(b"\x80\x04cbuiltins\ngetattr\ncos\nsystem\n\x8c\x01a\x86R.").values
    assert (found.name, found.args) == ("builtins.getattr", (Name("os.system"), "a"))


def test_what_contains_itself_is_read() -> None:
    loop: list[Any] = []
    loop.append(loop)
    (found,) = pickles.loads(pickle.dumps(loop)).values
    assert found[0] is found


def test_deep_nesting_is_read_without_recursion() -> None:
    depth = 200_000
    (found,) = pickles.loads(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b".").values
    assert isinstance(found, Numbers)
    assert len(found) == 1


def test_a_bomb_of_shared_lists_stays_as_small_as_it_is() -> None:
    """Thirty lists, each the one before it ten times over: 10^30 items for whoever walks them."""
    data = b"\x80\x04]\x94" + b"".join(
        b"](" + b"h" + bytes([i]) + (b"h" + bytes([i])) * 9 + b"e\x94" for i in range(30)
    )
    pickles.loads(data + b".")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"abc.",  # a text of 4 EiB
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",
        b"\x80\x04B" + struct.pack("<I", 0xFFFFFFFF) + b".",
        b"\x80\x04\x8b" + struct.pack("<i", 0x7FFFFFFF) + b".",  # a number of 2 GiB
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",  # a frame
        b"I" + b"9" * 100_000 + b"\n.",
        b"\x80\x04h\x07.",  # a memo that was never written
        b"\x80\x04a.",  # an empty stack
        b"\x80\x04\x85.",
        b"\x80\x04t.",  # no mark
        b"\x80\x04(K\x01u.",
        b"",
        b"not a pickle",
    ],
)
def test_a_broken_pickle_is_called_damaged(data: bytes) -> None:
    found = pickles.loads(data)
    assert found.damage or data.startswith(b"\x80\x04\x95")
    assert "\n" not in (found.damage or "")


def test_a_long_list_of_numbers_is_counted(tmp_path: Path) -> None:
    (found,) = pickles.loads(pickle.dumps(list(range(100_000)))).values
    assert found.size == 100_000
    assert list(found) == list(range(pickles.MAX_NUMBERS))
    (texts,) = pickles.loads(pickle.dumps(["a"] * 1000)).values
    assert len(texts) == 1000


def test_a_long_text_is_cut() -> None:
    (found,) = pickles.loads(pickle.dumps("x" * 1_000_000)).values
    assert found == "x" * pickles.MAX_TEXT


def test_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_STEPS", 1000)
    found = pickles.loads(b"\x80\x04" + b"N0" * 10_000 + b"N.")
    assert found.damage == "more than 1,000 steps"


@pytest.mark.parametrize(
    "data",
    [
        b"]" * 5000,
        b"}" * 5000,
        b")" * 5000,
        b"N" + b"\x94" * 5000,  # memo entries
        b"K\x01" * 50_000 + b"]",  # a stack that nobody takes from
        b"}(" + b"".join(b"\x8c\x04%04dN" % i for i in range(5000)) + b"u",
        b"](" + b"N" * 5000 + b"e",
        b"(" + b"N" * 5000 + b"t",
    ],
)
def test_values_are_bounded(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_VALUES", 1000)
    assert "more than 1,000 values" in (pickles.loads(b"\x80\x04" + data + b".").damage or "")


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "dump.pkl"
    path.write_bytes(pickle.dumps("x" * 100))
    monkeypatch.setattr(pickles, "MAX_BYTES", 50)
    with pytest.raises(pickles.PickleError, match="more than"):
        pickles.load(path)
    path.write_bytes(b"")
    with pytest.raises(pickles.PickleError, match="empty"):
        pickles.load(path)


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: f"{p.parts[-3]}-{p.parts[-2]}")
def test_recorded_dumps_are_read_whole(path: Path) -> None:
    found = pickles.load(path)
    assert found.damage is None
    assert {"server_args", "requests"} <= found.values[0].keys()


@pytest.mark.parametrize("path", DUMPS[:1], ids=lambda p: f"{p.parts[-3]}-{p.parts[-2]}")
def test_a_cut_dump_keeps_what_came_before_the_cut(path: Path) -> None:
    data = path.read_bytes()
    whole = [v for v in pickles.loads(data).values[0]["requests"] if isinstance(v, tuple)]
    cut = pickles.loads(data[: len(data) - 100])
    assert cut.damage is not None
    lists = [value for value in cut.values if isinstance(value, Numbers)]
    assert [len(each) for each in lists] == [len(whole)]


@settings(max_examples=400)
@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    for start in (b"", b"\x80\x04"):
        found = pickles.loads(start + data)
        assert isinstance(found.values, list)


_CODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(_CODES) | st.binary(max_size=3), max_size=60))
def test_any_opcodes_are_read(parts: list[bytes]) -> None:
    found = pickles.loads(b"\x80\x04" + b"".join(parts) + b".")
    assert isinstance(found.values, list)


@settings(max_examples=100)
@given(st.data())
def test_mutated_dumps_are_read(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(DUMPS)).read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.integers(0, 255))
    found = pickles.loads(bytes(raw[: data.draw(st.integers(1, len(raw)))]))
    assert isinstance(found.values, list)
