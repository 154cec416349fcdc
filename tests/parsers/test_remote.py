"""Logs by URL, from a store in memory and from a server on this machine."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest

from sglang_lifecycle.cli.app import main
from sglang_lifecycle.parsers import remote, spool
from sglang_lifecycle.parsers.evidence import Evidence
from sglang_lifecycle.parsers.log import read
from sglang_lifecycle.parsers.quote import quote

READY = b"[2026-10-30 01:05:00] The server is fired up and ready to roll!\n"


def packed(*names: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(READY)
            archive.addfile(info, io.BytesIO(READY))
    return file.getvalue()


OBJECTS = {
    "/logs/server.log": READY,
    "/logs/old.log.gz": gzip.compress(READY),
    "/logs/pods.tar.gz": packed("pods/a.log", "pods/b.log"),
}


@pytest.fixture
def store() -> Iterator[Any]:
    memory = fsspec.filesystem("memory")
    for path, data in OBJECTS.items():
        memory.pipe(path, data)
    yield memory
    memory.store.clear()


class _Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append((self.path, self.headers.get("Authorization")))
        data = OBJECTS.get(path)
        signed_for_get = self.command == "HEAD" and "?" in self.path
        self.send_response(403 if path == "/secret.log" or signed_for_get else 200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data or b"")

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        _Handler.asked.clear()
        yield f"127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()
        thread.join()


def sources(evidence: Evidence) -> list[str]:
    assert evidence.failed == []
    assert [source.warnings for source in evidence.sources] == [[] for _ in evidence.sources]
    assert all(source.recognised == 1 for source in evidence.sources)
    return [source.path for source in evidence.sources]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("logs/server.log", ["logs/server.log"]),
        ("logs/old.log.gz", ["logs/old.log.gz"]),
        ("logs/pods.tar.gz", ["logs/pods.tar.gz!pods/a.log", "logs/pods.tar.gz!pods/b.log"]),
        ("logs/*.log", ["logs/server.log"]),
        ("logs/o*", ["logs/old.log.gz"]),
        (
            "logs/",
            ["logs/old.log.gz", "logs/pods.tar.gz!pods/a.log", "logs/pods.tar.gz!pods/b.log", "logs/server.log"],
        ),
    ],
)
def test_an_object_is_read_like_a_file(store: Any, path: str, names: list[str]) -> None:
    assert sources(read([f"memory://{path}"])) == [f"memory://{name}" for name in names]


@pytest.mark.parametrize("path", ["logs/server.log", "logs/old.log.gz"])
def test_what_a_server_serves_is_read_like_a_file(server: str, path: str) -> None:
    evidence = read([f"http://{server}/{path}"])
    assert sources(evidence) == [f"http://{server}/{path}"]
    if path.endswith(".log"):
        (fact,) = evidence.facts
        assert "ready to roll" in quote(fact.source, fact.offset, fact.length, fact.event, 400)


def test_a_file_by_its_url(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(READY)
    assert sources(read([f"file://{tmp_path}/server.log"])) == [f"file://{tmp_path}/server.log"]


def test_credentials_are_used_and_never_shown(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    urls = [f"http://me:hunter2@{server}/{path}?X-Signature=s3cret" for path in ("logs/server.log", "secret.log")]
    assert main(["audit", *urls, "--format", "json"]) == 4
    output = "".join(capsys.readouterr())
    assert "hunter2" not in output
    assert "s3cret" not in output
    assert f"lifecycle: error: http://{server}/secret.log: cannot be read: the server answers 403" in output
    path, authorization = _Handler.asked[0]
    assert path.endswith("?X-Signature=s3cret")
    assert authorization is not None


def test_urls_that_differ_only_in_what_is_not_shown_stay_apart(server: str) -> None:
    url = f"http://{server}/logs/server.log"
    assert sources(read([f"{url}?version=1", f"{url}?version=2", f"{url}?version=1"])) == [url, f"{url}#2"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://me:pass@host:8443/a@b/c.log?sig=1#x", "https://host:8443/a@b/c.log"),
        ("HTTPS://me:pass/word@host/c.log", "https://…"),
        ("https://[host/c.log", "https://…"),
        ("s3://key:secret@bucket/what?.log", "s3://bucket/what?.log"),
        ("s3://bucket/@today/a#b.log", "s3://bucket/@today/a#b.log"),
    ],
)
def test_a_url_is_shown_without_secrets(url: str, name: str) -> None:
    assert remote.shown(url) == name


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://logs/none.log", "memory://logs/none.log: cannot be read: no such object"),
        ("memory://none/*.log", "memory://none/*.log: cannot be read: no such object"),
        ("ftp://me:pass@host/a.log", "ftp://host/a.log: cannot be read: known are s3, gs, https, http, file URLs"),
        ("https://me:pass/word@host/a.log", "https://…: cannot be read: not a URL"),
        ("http://127.0.0.1:1/a.log", "http://127.0.0.1:1/a.log: cannot be read: Connection refused"),
    ],
)
def test_what_cannot_be_fetched_is_one_line_and_the_rest_is_read(
    store: Any, url: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", url, "memory://logs/server.log", "--format", "json"]) == 4
    streams = capsys.readouterr()
    assert streams.err.splitlines() == [f"lifecycle: error: {message}"]
    assert "memory://logs/server.log" in streams.out


@pytest.mark.parametrize(("url", "module"), [("s3://b/a.log", "fsspec"), ("gs://b/a.log", "gcsfs")])
def test_a_missing_extra_is_named(
    url: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["audit", url]) == 4
    line = f"lifecycle: error: {url}: cannot be read: needs more packages; pip install 'sglang-lifecycle[cloud]'"
    assert line in capsys.readouterr().err.splitlines()


def test_fetching_is_reported_and_bounded(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    read(["memory://logs/server.log"], progress=lambda done, total: told.append((done, total)))
    assert told[0] == (len(READY), len(READY))
    monkeypatch.setattr(spool, "MAX_BYTES", 10)
    assert read(["memory://logs/server.log"]).failed == [
        "memory://logs/server.log: refused: unpacks to more than 0 GiB"
    ]


def test_an_object_bomb_is_refused(store: Any) -> None:
    store.pipe("/logs/bomb.gz", gzip.compress(bytes(80 << 20)))
    (line,) = read(["memory://logs/bomb.gz"]).failed
    assert line.startswith("memory://logs/bomb.gz: ")


def test_an_error_of_a_store_names_only_its_kind(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("token=s3cret")

    monkeypatch.setattr(type(store), "info", fail)
    assert read(["memory://logs/server.log"]).failed == ["memory://logs/server.log: cannot be read: RuntimeError"]
