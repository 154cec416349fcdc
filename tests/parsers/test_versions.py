"""The order of SGLang's versions, and what is none."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from sglang_lifecycle.parsers.versions import RELEASES, in_range, key


def test_the_releases_are_in_order() -> None:
    assert list(RELEASES) == sorted(set(RELEASES), key=key)


def test_snapshots_and_candidates_come_before_a_release_and_posts_after_it() -> None:
    chain = ["0.5.9", "0.5.10.dev1", "0.5.10a1", "0.5.10rc1", "0.5.10rc2.dev1", "0.5.10rc2", "0.5.10", "0.5.10.post1"]
    assert sorted(chain, key=key) == chain
    assert key("0.5") == key("0.5.0") != key("0.50")


VERSIONS = st.builds(
    "{}{}{}{}".format,
    st.lists(st.integers(0, 2), min_size=1, max_size=3).map(lambda numbers: ".".join(map(str, numbers))),
    st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from(["a", "b", "rc"]), st.integers(0, 2))),
    st.one_of(st.just(""), st.builds(".post{}".format, st.integers(0, 2))),
    st.one_of(st.just(""), st.builds(".dev{}".format, st.integers(0, 2))),
)


@given(VERSIONS, VERSIONS)
def test_versions_are_ordered_as_python_packaging_orders_them(one: str, other: str) -> None:
    assert (key(one) < key(other)) is (Version(one) < Version(other))
    assert (key(one) == key(other)) is (Version(one) == Version(other))


@given(VERSIONS, VERSIONS, VERSIONS)
def test_in_range_includes_both_ends(version: str, first: str, last: str) -> None:
    assert in_range(version, first, last) is (Version(first) <= Version(version) <= Version(last))
    assert in_range(version, version, version)


@given(VERSIONS, st.sampled_from(["+cu126", "+g1a2b3c", "+d20260101"]))
def test_a_build_tag_does_not_count(version: str, tag: str) -> None:
    assert key(version + tag) == key(version) == key("v" + version) == key(f" {version} ")


@given(st.text(max_size=12))
def test_any_text_is_a_version_or_refused(text: str) -> None:
    complaint = ""
    try:
        key(text)
    except ValueError as error:
        complaint = str(error)
    assert repr(text) in complaint if complaint else re.match(r"v?[0-9]", text.strip(), re.IGNORECASE)
