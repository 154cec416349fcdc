"""Looking through large logs: what is found doesn't depend on where windows and ranges are cut."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.parsers import ripgrep, selection
from sglang_lifecycle.parsers.lines import Forward
from sglang_lifecycle.parsers.log import read

STAMP = b"[2026-11-29 19:00:00 TP0] "
LINES = st.sampled_from([
    STAMP + b"Receive: obj=GenerateReqInput(rid='needle', text='x')",
    STAMP + b"Finish: obj=GenerateReqInput(rid='other', text='[2026-11-29 19:00:00] needles')",
    STAMP + b'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK',
    STAMP + b'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 503 Service Unavailable',
    STAMP + b'INFO:     127.0.0.1:1 - "POST /abort_request HTTP/1.1" 200 OK',
    STAMP + b"Decode batch, #running-req: 1",
    STAMP + b"Gracefully exiting...",
    b"Receive: obj=GenerateReqInput(rid='bare')",
    STAMP + b"Receive: obj=GenerateReqInput(rid='need', text='x')",
    STAMP + b"Finish: obj=GenerateReqInput(text='x', rid='nee')",
    STAMP + b"Finish: obj=GenerateReqInput(text='x', rid='nil')",
    STAMP + b"Req Time Stats(rid='n', len=1)",
    b'{"timestamp": "2026-11-29T19:00:00.000001", "event": "request.finished", "rid": "ne", "obj": {}}',
    b'{"timestamp": "2026-11-29T19:00:00.000001", "event": "request.received", "rid": "needle"}',
    b"Traceback (most recent call last):",
    b"",
    b"x" * 3000,
    b"\xff\xfe needle",
])  # fmt: skip
USUAL = (
    b"Req Time Stats",
    b"Receive",
    b"Finish",
    b'127.0.0.1:1 - "POST /generate HTTP/1.1"',
    b"Decode batch",
    b'"event": "request.',
)

NAMED = re.compile(rb"""needle|rid(=|": )['"](n|ne|nee|need|needl)['"]""")


@given(
    st.lists(LINES, max_size=12),
    st.booleans(),
    st.integers(1, 5000),
    st.lists(st.integers(0, 9000), max_size=3),
)
def test_every_cut_finds_the_same(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, block: int, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "server.log"
    raw = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    path.write_bytes(raw)
    whole = list(Forward(io.BytesIO(raw)))
    wanted = [
        (line.offset, line.number - 1)
        for line in whole
        for text in [raw[line.offset : line.offset + line.length]]
        if NAMED.search(text) or not any(usual in text for usual in USUAL)
    ]
    named = {line.offset for line in whole if NAMED.search(raw[line.offset : line.offset + line.length])}
    bounds = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "_BLOCK", block)
        parts = [selection.scan(path, a, b, [b"needle"]) for a, b in pairwise(bounds)]
    found, lines_before = [], 0
    for part in parts:
        found += [(o, lines_before + n) for o, n in zip(part.offsets, part.numbers, strict=True)]
        lines_before += part.newlines
    assert found == wanted
    assert {offset for part in parts for offset in part.named} == named
    assert lines_before == raw.count(b"\n")


@pytest.mark.parametrize("installed", [True, False])
def test_a_large_file_is_looked_through_in_ranges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: bool
) -> None:
    """With ripgrep or without, where it is installed."""
    if not installed:
        monkeypatch.setattr("shutil.which", lambda _: None)
    path = tmp_path / "server.log"
    line = STAMP + b"Receive: obj=GenerateReqInput(rid='%06d')\n"
    unusual = b"[2026-11-29 19:00:01] SIGTERM received. signum=15\n"
    path.write_bytes(b"".join(line % number for number in range(5000)) + unusual + line.replace(b"%06d", b"0043"))
    monkeypatch.setattr(selection, "_RANGE", 64 << 10)
    seen: list[int] = []
    places = selection.everywhere(path, path.stat().st_size, [b"004321"], seen.append)
    named, other = 4321 * len(line % 0), 5000 * len(line % 0)
    assert list(places.offsets) == [named, other, other + len(unusual)]
    assert list(places.numbers) == [4321, 5000, 5001]
    assert places.named == {named, other + len(unusual)}  # its rid is the beginning of the needle
    assert places.newlines == 5002
    assert seen == sorted(seen)


def test_a_search_that_fails_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "rg"
    program.write_text("#!/bin/sh\necho 1:0:x\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    assert ripgrep.places(tmp_path / "server.log", [b"rid"], b"^usual") is None
    monkeypatch.setattr("shutil.which", lambda _: str(tmp_path / "absent"))
    assert ripgrep.places(tmp_path / "server.log", [b"rid"], b"^usual") is None


def test_lines_keep_their_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is left out, a line has the number and the offset that it has in the file."""
    for name in ("SMALLEST", "_EDGE", "_WIDEST", "_STEP"):
        monkeypatch.setattr(selection, name, 512)
    monkeypatch.setattr(selection, "NEAR", 40)
    path = tmp_path / "server.log"
    line = STAMP + b"Receive: obj=GenerateReqInput(rid='%06d')\n"
    path.write_bytes(b"".join(line % number for number in range(2000)) + STAMP + b"SIGTERM received. signum=15\n")
    part = read([str(path)], about=["001000"])
    assert part.partial
    assert part.sources[0].lines == 2001
    assert part.sources[0].bytes == path.stat().st_size
    numbers = {fact.rid: fact.line for fact in part.facts if fact.rid}
    assert numbers["001000"] == 1001
    assert len(numbers) < 200
    assert all(number == int(rid) + 1 for rid, number in numbers.items())


def test_a_mark_at_the_beginning_of_a_file_is_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A byte order mark, as shells of Windows write it."""
    monkeypatch.setattr(selection, "SMALLEST", 0)
    path = tmp_path / "server.log"
    path.write_bytes(b"\xef\xbb\xbf" + STAMP + b"Receive: obj=GenerateReqInput(rid='000001')\n")
    (fact,) = read([str(path)], about=["000001"]).facts
    assert (fact.rid, fact.line, fact.offset) == ("000001", 1, 3)


def test_small_files_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(STAMP + b"Receive: obj=GenerateReqInput(rid='one')\n" * 3)
    assert not read([str(path)], about=["absent"]).partial


def test_an_endless_line_is_nothing_to_look_through(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(selection, "CAP", 4096)
    monkeypatch.setattr(selection, "_BLOCK", 1024)
    monkeypatch.setattr(selection, "SMALLEST", 1)
    path = tmp_path / "server.log"
    path.write_bytes(STAMP + b"Receive: obj=GenerateReqInput(rid='one')\n" + b"x" * 20_000 + b"\n")
    with pytest.raises(selection.TooLong):
        selection.scan(path, 0, path.stat().st_size, [b"one"])
    evidence = read([str(path)], about=["one"])
    assert not evidence.partial
    assert [fact.rid for fact in evidence.facts] == ["one"]


def test_both_searches_are_heard_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever finds more than a pipe holds need not wait for the other to end: here each waits for the other."""
    program, told = tmp_path / "rg", tmp_path / "told"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f"*--invert-match*) seq 1 40000 | sed 's/.*/&:&:x/' && touch '{told}';;\n"
        f"*) for i in $(seq 100); do [ -e '{told}' ] && echo 1:0:x && exit 0; sleep 0.1; done; exit 2;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    found = ripgrep.places(tmp_path / "server.log", [b"rid"], b"^usual")
    assert found is not None
    assert found[0] == {0: 0}
    assert len(found[1]) == 40_000
