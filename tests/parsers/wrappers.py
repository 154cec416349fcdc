"""Writers of the formats that log collectors produce: each wraps the lines of a log as its collector would."""

from __future__ import annotations

import bz2
import gzip
import html
import io
import json
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
PIECE = 16384
Lines = Sequence[tuple[datetime, str]]
"""Lines with the moments (UTC) at which they were written."""


def timed(text: str) -> list[tuple[datetime, str]]:
    """Lines with the times at which a collector had them, a millisecond apart within a second.

    A record without a stamp was written just before the next one that has a stamp.
    """
    lines = text.removesuffix("\n").split("\n")
    stamps = [datetime.fromisoformat(match[1]) if (match := STAMP.match(line)) else None for line in lines]
    following = next((stamp for stamp in reversed(stamps) if stamp), datetime(2026, 11, 29, 18))
    seconds: list[datetime] = []
    for stamp in reversed(stamps):
        following = min(following, stamp) if stamp else following
        seconds.append(following)
    result, second, at = [], datetime.min, datetime.min
    for line, moment in zip(lines, reversed(seconds), strict=True):
        if moment > second:
            second = at = moment
        at = min(at + timedelta(milliseconds=1), second + timedelta(milliseconds=990))
        result.append((at.replace(tzinfo=UTC), line))
    return result


def iso(at: datetime, digits: int = 9) -> str:
    fraction = f"{at.microsecond:06}000"[:digits]
    return f"{at:%Y-%m-%dT%H:%M:%S}{'.' if digits else ''}{fraction}Z"


def each(form: Callable[[datetime, str], str]) -> Callable[[Lines], str]:
    return lambda lines: "".join(form(at, line) + "\n" for at, line in lines)


def pieces(line: str, size: int = PIECE) -> list[str]:
    return [line[i : i + size] for i in range(0, len(line), size)] or [""]


def docker(lines: Lines) -> str:
    return "".join(
        json.dumps({"log": piece, "stream": "stderr", "time": iso(at)}) + "\n"
        for at, line in lines
        for piece in pieces(line + "\n")
    )


def cri(lines: Lines) -> str:
    out = []
    for at, line in lines:
        *partial, last = pieces(line)
        out += [f"{iso(at)} stdout P {piece}\n" for piece in partial]
        out.append(f"{iso(at)} stdout F {last}\n")
    return "".join(out)


def journal_json(lines: Lines) -> str:
    def one(at: datetime, line: str) -> str:
        plain = line.isprintable()
        return json.dumps(
            {
                "__REALTIME_TIMESTAMP": str(round(at.timestamp() * 1e6)),
                "_HOSTNAME": "node-a",
                "_SYSTEMD_UNIT": "sglang.service",
                "PRIORITY": "6",
                "MESSAGE": line if plain else list(line.encode()),
            }
        )

    return each(one)(lines)


def loki(lines: Lines) -> str:
    values = [[str(round(at.timestamp() * 1e6) * 1000), line] for at, line in reversed(lines)]
    result = [{"stream": {"pod": "sglang-0", "app": "sglang"}, "values": values}]
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": result}})


def cloudwatch(lines: Lines) -> str:
    events = [
        {"logStreamName": "sglang-0", "timestamp": round(at.timestamp() * 1e3), "message": line} for at, line in lines
    ]
    return json.dumps({"events": events}, indent=2)


def elastic(lines: Lines) -> str:
    hits = [{"_source": {"@timestamp": iso(at, 3), "message": line}} for at, line in lines]
    return json.dumps({"took": 3, "hits": {"total": {"value": len(hits)}, "hits": hits[::-1]}}, indent=1)


def newest_first(lines: Lines) -> str:
    return "".join(line + "\n" for _, line in reversed(lines))


def escaped(lines: Lines) -> str:
    return "".join(json.dumps(line, ensure_ascii=False)[1:-1] + "\n" for _, line in lines)


def escaped_whole(lines: Lines) -> str:
    return json.dumps("\n".join(line for _, line in lines), ensure_ascii=False) + ",\n"


def hard_wrapped(lines: Lines, width: int = 180) -> str:
    return "".join(piece + "\n" for _, line in lines for piece in pieces(line, width))


def lost_brackets(lines: Lines) -> str:
    return "".join(
        (line[1:] if index % 3 == 0 and STAMP.match(line) else line) + "\n" for index, (_, line) in enumerate(lines)
    )


KUBERNETES = {"pod_name": "sglang-0", "namespace_name": "serving", "container_name": "server", "host": "node-a"}
PLUS8 = timedelta(hours=8)

WRITERS: dict[str, Callable[[Lines], str]] = {
    "docker": docker,
    "cri": cri,
    "kubectl-prefix": each(lambda at, line: f"[pod/sglang-0/server] {line}"),
    "kubectl-timestamps": each(lambda at, line: f"{iso(at)} {line}"),
    "kubectl-both": each(lambda at, line: f"[pod/sglang-0/server] {iso(at)} {line}"),
    "stern": each(lambda at, line: f"sglang-7d4b9c-x2x9q server {line}"),
    "compose": each(lambda at, line: f"sglang-1  | {line}"),
    "compose-timestamps": each(lambda at, line: f"sglang-1  | {iso(at)} {line}"),
    "pm2": each(lambda at, line: f"3|sglang  | {line}"),
    "srun": each(lambda at, line: f" 0: {line}"),
    "jenkins": each(lambda at, line: f"[{iso(at, 3)}] {line}"),
    "journal-json": journal_json,
    "journal-short": each(lambda at, line: f"{at:%b %d %H:%M:%S} node-a python3[4120]: {line}"),
    "journal-iso": each(lambda at, line: f"{at:%Y-%m-%dT%H:%M:%S}+0000 node-a python3[4120]: {line}"),
    "journal-iso-east": each(lambda at, line: f"{at + PLUS8:%Y-%m-%dT%H:%M:%S}+0800 node-a python3[4120]: {line}"),
    "fluent-bit": each(
        lambda at, line: json.dumps(
            {"date": at.timestamp(), "stream": "stdout", "logtag": "F", "log": line, "kubernetes": KUBERNETES}
        )
    ),
    "vector": each(
        lambda at, line: json.dumps(
            {"file": "/var/log/pods/x/0.log", "kubernetes": KUBERNETES, "message": line, "timestamp": iso(at)}
        )
    ),
    "datadog": each(
        lambda at, line: json.dumps(
            {"id": "A", "content": {"timestamp": iso(at, 3), "host": "node-a", "service": "sglang", "message": line}}
        )
    ),
    "cloudwatch": cloudwatch,
    "cloudwatch-lines": each(
        lambda at, line: json.dumps(
            {"timestamp": round(at.timestamp() * 1e3), "message": line, "logStreamName": "sglang-0"}
        )
    ),
    "loki": loki,
    "logcli": each(lambda at, line: f'{iso(at, 0)} {{app="sglang", pod="sglang-0"}} {line}'),
    "logcli-jsonl": each(
        lambda at, line: json.dumps(
            {"labels": {"app": "sglang", "pod": "sglang-0"}, "line": line, "timestamp": iso(at)}
        )
    ),
    "elastic": elastic,
    "kibana": each(lambda at, line: f"{(at + PLUS8):%b %d, %Y @ %H:%M:%S}.{at.microsecond // 1000:03}    {line}    "),
    "syslog-3164": each(lambda at, line: f"<14>{at:%b %d %H:%M:%S} gpu-1 sglang[77]: {line}"),
    "grep-n": each(lambda at, line: f"{at.second + 12}:{line}"),
    "grep-files": each(lambda at, line: f"logs/server.log:{line}"),
    "fluentd-file": each(lambda at, line: f"{iso(at, 0)}\tkube.sglang\t" + json.dumps({"log": line})),
    "azure": each(lambda at, line: json.dumps({"TimeGenerated": iso(at), "LogMessage": line})),
    "html": each(lambda at, line: html.escape(line)),
    "ray": each(lambda at, line: f"\x1b[36m(SGLangEngine pid=720234, ip=10.0.0.7)\x1b[0m {line}"),
    "tabs": each(lambda at, line: f"{round(at.timestamp() * 1e3)}\t{iso(at, 3)}\t{line}"),
    "quoted": each(lambda at, line: f"> {line}"),
    "quoted-again": each(lambda at, line: f">> > {line}".rstrip()),
    "framed": each(lambda at, line: f"│ {line:180} │"),
    "indented": each(lambda at, line: f"    {line}"),
    "tab-indented": each(lambda at, line: f"\t{line}"),
    "escaped": escaped,
    "escaped-whole": escaped_whole,
    "colour": each(lambda at, line: STAMP.sub(lambda m: f"\x1b[2m{m[0]}", line) + "\x1b[0m"),
    "newest-first": newest_first,
    "newest-first-docker": lambda lines: "".join(line + "\n" for line in docker(lines).split("\n")[-2::-1]),
    "hard-wrapped": hard_wrapped,
    "lost-brackets": lost_brackets,
    "cri-in-kubectl": lambda lines: "".join(
        f"[pod/a-0/b] {line}\n" for line in cri(lines).removesuffix("\n").split("\n")
    ),
}


def tarred(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(f"must-gather/pods/{name}")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
        junk = tarfile.TarInfo("must-gather/version.txt")
        junk.size = 4
        archive.addfile(junk, io.BytesIO(b"4.16"))
    return buffer.getvalue()


def zipped(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"logs/{name}", data)
    return buffer.getvalue()


def zstandard_frames(data: bytes) -> bytes:
    import zstandard

    half = len(data) // 2
    return b"".join(zstandard.ZstdCompressor().compress(part) for part in (data[:half], data[half:]))


PACKERS: dict[str, Callable[[str, bytes], tuple[str, bytes]]] = {
    "gz": lambda name, data: (f"{name}.gz", gzip.compress(data)),
    "gz-members": lambda name, data: (f"{name}.gz", gzip.compress(data[:1000]) + gzip.compress(data[1000:])),
    "zst-frames": lambda name, data: (f"{name}.zst", zstandard_frames(data)),
    "xz": lambda name, data: (f"{name}.xz", lzma.compress(data)),
    "bz2": lambda name, data: (f"{name}.bz2", bz2.compress(data)),
    "zip": lambda name, data: (f"{name}.zip", zipped(name, data)),
    "tar": lambda name, data: (f"{name}.tar", tarred(name, data)),
    "tar.gz": lambda name, data: (f"{name}.tar.gz", gzip.compress(tarred(name, data))),
    "tar.zst": lambda name, data: (f"{name}.tar.zst", zstandard_frames(tarred(name, data))),
    "gz-in-tar.xz": lambda name, data: (f"{name}.tar.xz", lzma.compress(tarred(f"{name}.gz", gzip.compress(data)))),
    "utf-16": lambda name, data: (name, data.decode("utf-8", "replace").encode("utf-16")),
    "bom-crlf": lambda name, data: (name, b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")),
}
