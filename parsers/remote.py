"""Logs by URL: object stores and HTTP(S), fetched through fsspec into temporary copies. Needs the extra `cloud`.

A URL may carry a password or a signature, and so may what a store says of it: neither is repeated. An object goes by
its URL without them, and an error by its kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from sglang_lifecycle.parsers.spool import MAX_BYTES, Budget, Refused, spool

SCHEMES = ("s3", "gs", "https", "http", "file", "memory")
"""What is read by URL; the last two are for files and for tests."""

MAX_OBJECTS = 10_000
"""Objects that one URL may stand for."""

PATIENCE = 60
"""Seconds that an HTTP server may be silent."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HTTP = ("https", "http")
_CHUNK = 1 << 20
_BLOCK = 8 << 20  # bytes that an object store is asked for at once
_EXTRA = "needs more packages; pip install 'sglang-lifecycle[cloud]'"

Progress = Callable[[int, int], None]
"""Called with the bytes read and the bytes in all; 0 where nobody knows."""


class Unreachable(Exception):
    """A URL that can't be read; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class Remote:
    """What was fetched: its name for people, the copy, and whether the URL names it rather than its folder."""

    name: str
    path: Path
    named: bool


def is_url(name: str) -> bool:
    """Whether an argument is a URL rather than a path."""
    return _URL.match(name) is not None


def shown(url: str) -> str:
    """A URL without what may be secret: the user and password, and over HTTP the query."""
    scheme = url.partition("://")[0].lower()
    try:
        parts = urlsplit(url)
        _ = parts.port  # a password with a slash in it ends up here
    except ValueError:
        return f"{scheme}://…"
    if scheme in _HTTP:
        return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    host, slash, key = url.partition("://")[2].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{key}"


def fetch(url: str, progress: Progress | None = None) -> Iterator[Remote]:
    """Copies of the objects behind a URL: the one that it names, those below it, or those that fit its wildcards.

    Raises `Unreachable`.
    """
    name, scheme = shown(url), url.partition("://")[0].lower()
    if scheme not in SCHEMES:
        raise Unreachable(f"{name}: cannot be read: known are {', '.join(SCHEMES[:-1])} URLs")
    if name.endswith("://…"):
        raise Unreachable(f"{name}: cannot be read: not a URL")
    try:
        system = _system(scheme)
        objects = [url] if scheme in _HTTP else _objects(system, system._strip_protocol(url))
        for each in objects:
            path = spool(_chunks(system, each, scheme, progress))
            whole = len(objects) == 1 and each in (url, system._strip_protocol(url))
            yield Remote(name if whole else f"{scheme}://{each.lstrip('/')}", path, whole)
    except ImportError:
        raise Unreachable(f"{name}: cannot be read: {_EXTRA}") from None
    except Refused as refused:
        raise Unreachable(f"{name}: refused: {refused}") from None
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except Exception as error:  # each store has its own
        raise Unreachable(f"{name}: cannot be read: {_why(error)}") from None


def _system(scheme: str) -> Any:
    import fsspec  # an extra

    if scheme not in _HTTP:
        return fsspec.filesystem(scheme)
    import aiohttp  # an extra

    patience = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=PATIENCE)
    return fsspec.filesystem(scheme, client_kwargs={"timeout": patience, "trust_env": True})


def _objects(system: Any, path: str) -> list[str]:
    try:
        kind = system.info(path)["type"]
    except FileNotFoundError:
        found = sorted(system.glob(path)) if re.search(r"[*?\[]", path) else []
        found = [each for each in found if system.isfile(each)]
        if not found:
            raise
    else:
        found = sorted(system.find(path)) if kind == "directory" else [path]
    if len(found) > MAX_OBJECTS:
        raise Refused(f"holds more than {MAX_OBJECTS} objects")
    return found


def _chunks(system: Any, path: str, scheme: str, progress: Progress | None) -> Iterator[bytes]:
    budget, done = Budget(MAX_BYTES), 0
    stream: IO[bytes]
    with system.open(path, "rb", block_size=0 if scheme in _HTTP else _BLOCK) as stream:  # 0: no seeking, one request
        total = getattr(stream, "size", None) or 0
        while chunk := stream.read(_CHUNK):
            budget.take(len(chunk))
            done += len(chunk)
            if progress is not None:
                progress(done, total)
            yield chunk


def _why(error: Exception) -> str:
    """The kind of an error of a store; its text may repeat what is secret."""
    cause = error.__cause__ or error
    status = getattr(cause, "status", None)
    if isinstance(status, int):
        return f"the server answers {status}"
    if isinstance(cause, OSError) and (cause.errno or 0) > 0:
        return os.strerror(cause.errno or 0)
    if isinstance(error, FileNotFoundError):
        return "no such object"
    if isinstance(error, PermissionError):
        return "access denied"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return type(cause).__name__
