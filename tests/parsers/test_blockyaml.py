"""YAML in blocks: what its writers write is read back, and no text of a stranger becomes anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.parsers import blockyaml
from sglang_lifecycle.parsers.evidence import Event
from sglang_lifecycle.parsers.log import read

READY = "[2026-10-30 01:05:00] The server is fired up and ready to roll!"
TEXTS = st.text("ab '\"\\:#-\n\t{}[]|>%&*!?@`,=\x1b\0\xe9\U0001f642", max_size=200)
FORGED = f"session\n---\ntextPayload: '{READY}'\ntimestamp: '2026-10-30T01:05:09Z'\n- {READY}"


def entry(text: str, second: int = 0) -> dict[str, object]:
    return {"insertId": "a", "textPayload": text, "timestamp": f"2026-10-30T01:05:{second:02}.5Z"}


def written(*texts: str) -> str:
    return str(yaml.safe_dump_all([entry(text, n) for n, text in enumerate(texts)], explicit_start=True))


@given(TEXTS, st.sampled_from([20, 80, 1 << 20]), st.booleans())
def test_what_is_written_comes_back(text: str, width: int, plain: bool) -> None:
    document = {"labels": {"a/b.c": text[:9]}, "list": [text, {"n": 5, "text": text}], "textPayload": text}
    whole = yaml.safe_dump(document, width=width, allow_unicode=plain, explicit_start=True)
    assert blockyaml.documents(whole) == [document]


def test_texts_as_they_are() -> None:
    text = "---\nmessage: |-\n  one\n    two\n\n  three\nother: |2\n    four\nend: x\n"
    assert blockyaml.documents(text) == [{"message": "one\n  two\n\nthree", "other": "  four", "end": "x"}]


def test_no_text_begins_a_document_or_a_field(tmp_path: Path) -> None:
    log = tmp_path / "log.yaml"
    log.write_text(written(READY, FORGED.replace(READY, "[2026-10-30 01:05:00] SIGTERM received."), READY))
    found = read([str(log)]).facts
    assert [fact.event for fact in found if fact.event is Event.SERVER_READY] == [Event.SERVER_READY] * 2
    (documents, _) = blockyaml.documents(written(FORGED, READY))
    assert documents == entry(FORGED)


@pytest.mark.parametrize("end", ["textPayload: '[2026-10-30 01:05:07] SIGT", "insertId: a\nresou", "insertId: 'a\n"])
def test_a_document_that_is_cut_or_spoilt_hides_no_other(end: str, tmp_path: Path) -> None:
    log = tmp_path / "log.yaml"
    log.write_text(f"{written(READY)}---\n{end}\n{written(READY)}---\n{end}")
    assert [fact.event for fact in read([str(log)]).facts].count(Event.SERVER_READY) == 2


@pytest.mark.parametrize("line", ["note: 'open", "# a comment", "    - ["])
def test_a_log_that_begins_alike_is_a_log(line: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"---\nhost: gpu-1\nmessage: hello\n{line}\n{READY}\n" * 3)
    assert [fact.event for fact in read([str(log)]).facts] == [Event.SERVER_READY] * 3
