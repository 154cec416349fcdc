"""Reading Python literals: what `repr` writes comes back, whatever strangers put into it."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.parsers import literals

# Quotes, brackets, escapes and record heads are what a reader trips over; plain text comes along.
TEXT = st.text(st.sampled_from("'\"\\,=:(){}[]\n\r\t \x1b\x00\u2028é🙂ab0")) | st.sampled_from(
    ["', 'rid': 'victim", "), out={'meta_info': {", "\nFinish: obj=GenerateReqInput(", "' ... '", "\\", "\\'", "None"]
)
KEY = st.text(st.sampled_from("abé🙂 ,:=(){}[]'"), max_size=8)  # what SGLang names fields, and a little more
LEAF = st.none() | st.booleans() | st.integers(-(10**15), 10**15)


def nested(text: st.SearchStrategy[str], key: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        LEAF | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(key, inner, max_size=4),
        max_leaves=12,
    )


LITERAL = nested(TEXT, KEY)
PLAIN = nested(st.text(st.sampled_from("ab é🙂=:")), st.text(st.sampled_from("abc")))


@given(LITERAL)
def test_what_repr_writes_is_read_back(thing: Any) -> None:
    assert literals.value(repr(thing)) == thing


@given(st.lists(LITERAL, max_size=5), TEXT)
def test_a_list_is_split_at_its_own_commas_and_ends_at_its_own_bracket(things: list[Any], after: str) -> None:
    text = repr(things)
    spans, end = literals.split(text + after, 0)
    assert end == len(text)
    assert [ast.literal_eval(text[a:b].strip()) for a, b in spans] == things


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), LITERAL, max_size=5), TEXT)
def test_a_call_gives_its_fields(fields: dict[str, Any], after: str) -> None:
    text = f"GenerateReqInput({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
    spans, end = literals.split(text + after, text.index("("))
    assert end == len(text)
    assert {name: literals.value(text[a:b]) for name, a, b in literals.call_fields(text, spans)} == fields


@given(st.dictionaries(KEY, LITERAL, max_size=5))
def test_a_dictionary_gives_its_items(things: dict[str, Any]) -> None:
    text = repr(things)
    spans, _ = literals.split(text, 0)
    assert [literals.value(text[a:b]) for _, a, b in literals.dict_items(text, spans)] == list(things.values())


@given(st.lists(PLAIN, min_size=1, max_size=4), st.data())
def test_a_cut_literal_is_known_to_be_cut(things: list[Any], data: st.DataObject) -> None:
    text = repr(things)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    with pytest.raises(literals.Unbalanced) as caught:
        literals.split(cut, 0)
    complete = [ast.literal_eval(cut[a:b].strip()) for a, b in caught.value.spans]
    assert complete == things[: len(complete)]


@given(TEXT)
def test_a_string_is_its_value_and_nothing_else_is_a_string(text: str) -> None:
    assert literals.string(repr(text)) == text
    assert literals.string(repr(text) + "x") is None
    assert literals.string(repr([text])) is None


@pytest.mark.parametrize("head", ["abc", "it's", 'say "x"', "a\nb", "back\\"])
@pytest.mark.parametrize("tail", ["xyz", "don't", '"'])
def test_a_string_that_the_level_cut_keeps_its_mark(head: str, tail: str) -> None:
    text = f"{head!r} ... {tail!r}"
    assert literals.value(text) == f"{head} ... {tail}"
    spans, end = literals.split(f"(text={text}, rid='r-1')", 0)
    assert len(spans) == 2
    assert end == len(text) + len("(text=, rid='r-1')")


def test_a_list_that_the_level_cut_is_one_item() -> None:
    spans, _ = literals.split("(input_ids=[1, 2] ... [8, 9], rid='r-1')", 0)
    assert len(spans) == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("400", 400),
        ("-3", -3),
        ("1.5e-05", 1.5e-05),
        ("HTTPStatus.BAD_REQUEST", 400),
        ("<HTTPStatus.SERVICE_UNAVAILABLE: 503>", 503),
        ("HTTPStatus.NO_SUCH_THING", "HTTPStatus.NO_SUCH_THING"),
        ("<object at 0x7f>", "<object at 0x7f>"),
        ("('sess-7', 'r-0')", ["sess-7", "r-0"]),
        ('{type: "length", length: 8}', {"type": "length", "length": 8}),
        ("[1, 2", "[1, 2"),
        ("'open", "'open"),
        ("''", ""),
    ],
)
def test_what_is_not_quite_a_literal(text: str, value: object) -> None:
    assert literals.value(text) == value


def test_nothing_is_evaluated() -> None:
    text = "__import__('os').getpid()"
    assert literals.value(text) == text


def test_nesting_without_end_is_text() -> None:
    deep = "[" * 5000 + "]" * 5000
    assert isinstance(literals.value(deep), list)
    assert literals.split(deep, 0)[1] == len(deep)


@pytest.mark.parametrize("piece", ["'", '"', "\\'", "'\"", "', ", "{'", "(\"'"])
def test_long_text_full_of_quotes_stays_one_string(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    record = f"GenerateReqInput(text={text!r}, rid='r-1')"
    spans, end = literals.split(record, record.index("("))
    assert end == len(record)
    assert [name for name, _, _ in literals.call_fields(record, spans)] == ["text", "rid"]
    assert literals.value(record[spans[0][0] + len("text=") : spans[0][1]]) == text


@pytest.mark.parametrize("piece", ["'", '"', "'\"", "(", "\\"])
def test_long_text_with_no_structure_comes_to_an_end(piece: str) -> None:
    with pytest.raises(literals.Unbalanced):
        literals.split("(" + piece * (200_000 // len(piece)), 0)


@given(TEXT, TEXT)
def test_the_trailing_string_is_the_last_that_reaches_the_end(before: str, rid: str) -> None:
    assert literals.trailing_string(f"{before}, self.rid={rid!r}", ", self.rid=") == (before, rid)


def test_no_trailing_string() -> None:
    assert literals.trailing_string("nothing here", ", self.rid=") is None
    assert literals.trailing_string("x, self.rid='r-1' and more", ", self.rid=") is None
