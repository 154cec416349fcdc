"""Archives, compression and endless lines: read in bounded memory, or refused in one line that names them."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import wrappers

from sglang_lifecycle.parsers import inputs, spool
from sglang_lifecycle.parsers.log import read
from sglang_lifecycle.parsers.quote import quote

READY = b"[2026-10-30 01:05:00] The server is fired up and ready to roll!\n"


def warnings(*paths: Path) -> list[str]:
    evidence = read([str(path) for path in paths])
    return [*evidence.failed, *(text for source in evidence.sources for text in source.warnings)]


def tar(path: Path, fill: Callable[[tarfile.TarFile], None], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        fill(archive)
        info = tarfile.TarInfo("good/server.log")
        info.size = len(READY)
        archive.addfile(info, io.BytesIO(READY))
    return path


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b""
) -> Callable[[tarfile.TarFile], None]:
    def fill(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, len(data)
        archive.addfile(info, io.BytesIO(data))

    return fill


HOSTILE = {
    "climbs": (member("../../evil.log", data=READY), "../../evil.log"),
    "absolute": (member("/etc/cron.d/evil.log", data=READY), "/etc/cron.d/evil.log"),
    "symlink": (member("a.log", tarfile.SYMTYPE, "/etc/passwd"), "a.log"),
    "hard link": (member("a.log", tarfile.LNKTYPE, "/etc/passwd"), "a.log"),
    "device": (member("a.log", tarfile.CHRTYPE), "a.log"),
    "pipe": (member("a.log", tarfile.FIFOTYPE), "a.log"),
}


@pytest.mark.parametrize(("fill", "name"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_member_is_refused_and_named(
    fill: Callable[[tarfile.TarFile], None], name: str, tmp_path: Path
) -> None:
    archive = tar(tmp_path / "bundle.tar.gz", fill)
    before = sorted(tmp_path.rglob("*"))
    evidence = read([str(archive)])
    said = [text for source in evidence.sources for text in source.warnings]
    assert any(text.startswith(f"{archive}!{name}: refused: ") for text in said)
    assert [fact.source for fact in evidence.facts] == [f"{archive}!good/server.log"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_zip_that_climbs(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../evil.log", READY)
        archive.writestr("server.log", READY)
    evidence = read([str(path)])
    assert [fact.source for fact in evidence.facts] == [f"{path}!server.log"]
    assert f"{path}!../evil.log: refused: a path that leads out of the archive" in warnings(path)


@pytest.mark.parametrize("ending", ["gz", "tar.gz", "zip", "zst", "gz.gz"])
def test_a_bomb_is_refused(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MIN_BYTES", 1 << 20)
    path = tmp_path / f"bomb.{ending}"
    bomb = (b"a" * 9999 + b"\n") * 1700
    if ending == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("bomb.log", bomb)
    elif ending == "tar.gz":
        tar(path, member("bomb.log", data=bomb))
    elif ending == "zst":
        import zstandard

        path.write_bytes(zstandard.ZstdCompressor().compress(bomb))
    else:
        data = gzip.compress(bomb * 4)
        path.write_bytes(gzip.compress(data) if ending == "gz.gz" else data)
    (text,) = [text for text in warnings(path) if ": refused: " in text]
    assert text.startswith(f"{path}: refused: ")
    assert "times its size" in text


def test_nothing_is_packed_without_end(tmp_path: Path) -> None:
    data = READY
    for _ in range(inputs.DEPTH + 1):
        data = gzip.compress(data)
    path = tmp_path / "server.log.gz"
    path.write_bytes(data)
    assert warnings(path) == [f"{path}: refused: packed more than {inputs.DEPTH} times over"]


NOISE = b"".join(b"[2026-10-30 01:05:00] %d %s\n" % (i, os.urandom(40).hex().encode()) for i in range(40_000))


@pytest.mark.parametrize("packer", ["gz", "gz-members", "zst-frames", "xz", "bz2", "tar.gz", "tar.zst", "tar"])
def test_all_that_lies_before_a_cut_is_read(packer: str, tmp_path: Path) -> None:
    name, data = wrappers.PACKERS[packer]("server.log", READY * 300 + NOISE)
    path = tmp_path / name
    path.write_bytes(data[:-20_000])
    evidence = read([str(path)])
    (source,) = (source for source in evidence.sources if source.lines)
    largest_block = 900_000 if packer == "bz2" else 128 << 10  # one that isn't whole can't be unpacked
    assert len(NOISE) - source.bytes < largest_block + 80_000
    assert len(evidence.facts) == 300
    (text,) = (text for text in source.warnings if "damaged, the end is missing" in text)
    assert text.startswith(f"{source.path}: ")


def test_a_cut_between_members_is_told(tmp_path: Path) -> None:
    data = wrappers.tarred("server.log", READY)
    path = tmp_path / "server.tar.gz"
    path.write_bytes(gzip.compress(data + NOISE[:4096])[:-2000])
    assert any(text.startswith(f"{path}: damaged") for text in warnings(path))


def test_a_damaged_member_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.log", READY * 2)
        archive.writestr("b.log", READY)
    path.write_bytes(path.read_bytes().replace(READY * 2, READY + READY.replace(b"fired", b"tired")))
    evidence = read([str(path)])
    assert {fact.source for fact in evidence.facts} >= {f"{path}!b.log"}
    assert any(text.startswith(f"{path}!a.log: damaged") for text in warnings(path))


@pytest.mark.parametrize(
    "data", [b"\x1f\x8b\x08\x00garbage", b"PK\x03\x04garbage", b"\x28\xb5\x2f\xfdgarbage", b"BZh9x"]
)
def test_a_damaged_file_costs_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    path.write_bytes(data * 20)
    (text,) = warnings(path)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text


def test_evidence_within_archives_is_quoted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "must-gather.tar.gz"
    tar(path, member("pods/a/server.log.1.gz", data=gzip.compress(READY)))
    for fact in read([str(path)]).facts:
        assert quote(fact.source, fact.offset, fact.length, fact.event) == READY.decode().strip()


def test_lives_of_a_container_follow_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "serving_sglang-0_0b8a3c1e-7d34-4c6e-9d0e-0123456789ab" / "server"
    folder.mkdir(parents=True)
    for restart in range(3):
        (folder / f"{restart}.log").write_bytes(READY)
    evidence = read([str(tmp_path)])
    assert [Path(fact.source).name for fact in evidence.facts] == ["0.log", "1.log", "2.log"]
    assert len(evidence.sources) == 1
    for name in ("current.log", "previous.log"):
        (tmp_path / name).write_bytes(READY)
    evidence = read([str(tmp_path / "current.log"), str(tmp_path / "previous.log")])
    assert [Path(fact.source).name for fact in evidence.facts] == ["previous.log", "current.log"]


def test_numbered_files_without_an_ending_are_logs_of_their_own(tmp_path: Path) -> None:
    for name in ("rank.0", "rank.1", "0.log", "1.log"):
        (tmp_path / name).write_bytes(READY)
    assert len(read([str(tmp_path)]).sources) == 4


def test_a_glob_and_a_pipe(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(READY)
    assert len(read([str(tmp_path / "*.log")]).sources) == 2
    code = (
        f"from sglang_lifecycle.parsers.log import read; print(len(read(['-']).facts), len(read(['{tmp_path}']).facts))"
    )
    packed = gzip.compress(READY * 3)
    out = subprocess.run([sys.executable, "-c", code], input=packed, capture_output=True, check=True).stdout
    assert out.split() == [b"3", b"2"]


def test_a_hole_of_nuls_is_no_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"\0" * 100 + READY * 9)
    assert len(read([str(path)]).facts) == 8
    path.write_bytes(bytes(range(256)) * 40)
    assert warnings(path) == [f"{path}: a binary file, not a log"]


ENDLESS = {
    "a line": b"Receive: obj=GenerateReqInput(rid='x', text='" + b"a" * (200 << 20),
    "brackets": b"Receive: obj=GenerateReqInput(rid='x', text=" + b"[" * 100_000,
    "objects": b'{"timestamp": "2026-10-30T01:05:00", "event": "request.received", "rid": "x", "obj": '
    + b'{"a":' * 100_000,
    "an array": b"[" * 100_000,
    "wrapped": b'{"log": "' + b"[" * (80 << 20),
}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
@pytest.mark.parametrize("data", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_line_is_read_in_bounded_memory(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(READY + data + b"\n" + READY)
    code = (
        "import re, sys; from sglang_lifecycle.parsers.log import read; evidence = read(sys.argv[1:]);"
        "print(len([f for f in evidence.facts if f.event == 'server.ready']), evidence.sources[0].lines,"
        " int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) >> 10,"
        " *evidence.sources[0].warnings)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    ready, lines, megabytes, *said = done.stdout.split(maxsplit=3)
    assert (int(ready), int(lines)) == (2, 3)
    assert int(megabytes) < 600
    assert ("were left out" in " ".join(said)) == (len(data) > 64 << 20)
