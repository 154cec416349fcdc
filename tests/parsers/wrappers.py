"""Writers of the formats that log collectors produce: each wraps the lines of a log as its collector would."""

from __future__ import annotations

import bz2
import csv
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

import yaml

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


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1e3)


def bits(lines: Lines) -> list[str]:
    return [json.dumps({"date": at.timestamp(), "log": line, "kubernetes": KUBERNETES}) for at, line in lines]


def newest_first(lines: Lines) -> str:
    return "".join(line + "\n" for _, line in reversed(lines))


def escaped(lines: Lines) -> str:
    return "".join(json.dumps(line, ensure_ascii=False)[1:-1] + "\n" for _, line in lines)


def typeset(line: str) -> str:
    """What a word processor makes of quotes: those that follow a blank or a bracket open, the others close."""
    line = re.sub(r"(^|[\s=(\[{])'", "\\1\u2018", line).replace("'", "\u2019")
    return re.sub(r'(^|[\s=(\[{])"', "\\1\u201c", line).replace('"', "\u201d")


def escaped_whole(lines: Lines) -> str:
    return json.dumps("\n".join(line for _, line in lines), ensure_ascii=False) + ",\n"


def hard_wrapped(lines: Lines, width: int = 180) -> str:
    return "".join(piece + "\n" for _, line in lines for piece in pieces(line, width))


def lost_brackets(lines: Lines) -> str:
    return "".join(
        (line[1:] if index % 3 == 0 and STAMP.match(line) else line) + "\n" for index, (_, line) in enumerate(lines)
    )


def table(header: Sequence[str], row: Callable[[datetime, str], Sequence[object]]) -> Callable[[Lines], str]:
    def whole(lines: Lines) -> str:
        out = io.StringIO()
        writer = csv.writer(out, quoting=csv.QUOTE_ALL if header[-1] == "Message" else csv.QUOTE_MINIMAL)
        writer.writerow(header)
        writer.writerows(row(at, line) for at, line in reversed(lines))
        return out.getvalue()

    return whole


def azure(lines: Lines) -> str:
    columns = [{"name": name, "type": "string"} for name in ("TimeGenerated", "PodName", "LogMessage")]
    rows = [[iso(at, 3), "sglang-0", line] for at, line in lines]
    return json.dumps({"tables": [{"name": "PrimaryResult", "columns": columns, "rows": rows}]})


def splunk(lines: Lines) -> str:
    results = [{"_raw": line, "_time": iso(at, 3), "host": "node-a"} for at, line in reversed(lines)]
    return json.dumps({"preview": False, "messages": [{"type": "INFO", "text": "done"}], "results": results})


def strings(lines: Lines) -> str:
    return json.dumps([line for _, line in lines])


def yaml_documents(lines: Lines) -> str:
    """What `gcloud logging read` prints unless told otherwise: the newest first, long texts broken."""
    labels = {"container_name": "sglang", "pod_name": "sglang-0"}
    resource = {"labels": labels, "type": "k8s_container"}
    entries = [
        {"insertId": "a", "resource": resource, "textPayload": line, "timestamp": iso(at)} for at, line in lines[::-1]
    ]
    return yaml.safe_dump_all(entries, explicit_start=True, allow_unicode=True)


def yaml_events(lines: Lines) -> str:
    """What `aws logs get-log-events --output yaml` prints."""
    events = [{"ingestionTime": ms(at) + 300, "message": line, "timestamp": ms(at)} for at, line in lines]
    return yaml.safe_dump({"events": events, "nextForwardToken": "f/1"}, width=1 << 20)


def opentelemetry(lines: Lines) -> str:
    resource = {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": "sglang-0"}}]}
    out = ""
    for start in range(0, len(lines), 20):
        records = [
            {"timeUnixNano": str(round(at.timestamp() * 1e6) * 1000), "body": {"stringValue": line}}
            for at, line in lines[start : start + 20]
        ]
        out += json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}) + "\n"
    return out


def captured(lines: Lines, width: int = 120) -> str:
    """A screen's lines, without the blanks at their ends."""
    return "".join(piece.rstrip(" ") + "\n" for _, line in lines for piece in pieces(line, width))


def filled(lines: Lines, width: int = 120) -> str:
    return "".join(piece.ljust(width) + "\n" for _, line in lines for piece in pieces(line, width))


def numbered(form: str) -> Callable[[Lines], str]:
    return lambda lines: "".join(form.format(number, line) + "\n" for number, (_, line) in enumerate(lines, 1))


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
    "captured": captured,
    "filled": filled,
    "trailing-blanks": each(lambda at, line: f"{line}   "),
    "no-break": each(lambda at, line: line.replace(" ", "\u00a0")),
    "remains": each(lambda at, line: f"^[[36m(SGLangEngine pid=720234)^[[0m {line}"),
    "tags": each(lambda at, line: f'<span class="line">{html.escape(line)}</span><br>'),
    "typeset": each(lambda at, line: typeset(line)),
    "ts": each(lambda at, line: f"[{at:%Y-%m-%d %H:%M:%S}] {line}"),
    "aws-text": each(lambda at, line: f"EVENTS\t{ms(at) + 300}\tsglang/server/a1\t{line}\t{ms(at)}"),
    "gh-run": each(lambda at, line: f"unit-test (0)\tRun tests\t{iso(at, 7)} {line}"),
    "fluent-bit-stdout": each(
        lambda at, line: f'[3] kube.var.log.sg: [[{at.timestamp():.9f}, {{}}], {{"stream"=>"stderr", "log"=>"{line}"}}]'
    ),
    "fluent-bit-stdout-1": each(
        lambda at, line: (
            f'[0] kube.sg: [{at.timestamp():.9f}, {{"log"=>"{line}", "stream"=>"stderr", '
            '"kubernetes"=>{"pod_name"=>"sg-0", "labels"=>{"app"=>"sglang"}, "container_name"=>"sglang"}}]'
        )
    ),
    "splunk-hec": each(
        lambda at, line: json.dumps({"time": at.timestamp(), "host": "node-a", "sourcetype": "sg", "event": line})
    ),
    "splunk-hec-fields": each(
        lambda at, line: json.dumps({"time": at.timestamp(), "event": {"message": line, "severity": "info"}})
    ),
    "fluentd-stdout": each(
        lambda at, line: (
            f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond:06}000 +0000 kube.sglang: " + json.dumps({"log": line})
        )
    ),
    "fluent-bit-file": each(lambda at, line: f"kube.sglang: [{at.timestamp():.6f}, {json.dumps({'log': line})}]"),
    "filebeat": each(
        lambda at, line: json.dumps(
            {"@timestamp": iso(at, 3), "log": {"offset": 3, "file": {"path": "/x"}}, "message": line}
        )
    ),
    "google": each(
        lambda at, line: json.dumps(
            {
                "insertId": "a",
                "jsonPayload": {"message": line},
                "timestamp": iso(at),
                "resource": {"type": "k8s_container", "labels": {"pod_name": "sglang-0"}},
            }
        )
    ),
    "google-yaml": yaml_documents,
    "aws-yaml": yaml_events,
    "aliyun": each(
        lambda at, line: json.dumps({"__time__": str(int(at.timestamp())), "content": line, "_pod_name_": "sglang-0"})
    ),
    "some-of-an-array": each(lambda at, line: json.dumps({"message": line, "timestamp": iso(at, 3)}) + ","),
    "fluent-bit-in-loki": lambda lines: loki(list(zip([at for at, _ in lines], bits(lines), strict=True))),
    "opentelemetry": opentelemetry,
    "azure-tables": azure,
    "splunk": splunk,
    "strings": strings,
    "datadog-csv": table(["Date", "Host", "Service", "Message"], lambda at, line: [iso(at, 3), "a", "sglang", line]),
    "grafana-csv": table(["labels", "Time", "Line", "tsNs"], lambda at, line: ["{}", "", line, ms(at) * 10**6]),
    "insights-csv": table(["@timestamp", "@message"], lambda at, line: [iso(at, 3).replace("T", " ")[:-1], line]),
    "kibana-csv": table(
        ["@timestamp", "_id", "kubernetes.pod.name", "message"],
        lambda at, line: [f"{at:%b} {at.day}, {at:%Y @ %H:%M:%S}.000", "x", "sglang-0", line],
    ),
    "splunk-csv": table(["_raw", "_time", "host"], lambda at, line: [line, iso(at, 3), "node-a"]),
    "cri-in-kubectl": lambda lines: "".join(
        f"[pod/a-0/b] {line}\n" for line in cri(lines).removesuffix("\n").split("\n")
    ),
}


LEARNT = {
    "kail": each(lambda at, line: f"serving/sglang-0[server]: {line}"),
    "heroku": each(lambda at, line: f"{iso(at, 6)} app[web.1]: {line}"),
    "moreutils": each(lambda at, line: f"{at:%b %d %H:%M:%S} {line}"),
    "journal-delta": each(lambda at, line: f"[{at.timestamp() % 10**6:12.6f} <    0.000120 >] a sglang[4120]: {line}"),
    "aws-tail": each(lambda at, line: f"{iso(at, 6)} sglang/server/abc123 {line}"),
    "torchrun": each(lambda at, line: f"[default0]:{line}"),
    "ranks": each(lambda at, line: f"[rank0]: {line}"),
    "mpirun": each(lambda at, line: f"[1,0]<{'stdout' if 'GET' in line else 'stderr'}>: {line}"),
    "honcho": each(lambda at, line: f"{at:%H:%M:%S} sglang.1   | {line}"),
    "gitlab": each(lambda at, line: f"{iso(at, 6)} 00{'O' if 'GET' in line else 'E'} {line}"),
    "airflow": each(lambda at, line: f"[{iso(at, 3)[:-1]}+0000] {{subprocess.py:93}} INFO - {line}"),
    "skypilot": each(lambda at, line: f"(head, rank=0, pid=4120) {line}"),
    "loguru": each(lambda at, line: f"{iso(at, 3)[:-1]} | {'ERROR' if 'GET' in line else 'INFO':8} | a:b:12 - {line}"),
    "two-stamps": each(lambda at, line: f"{iso(at)} {iso(at)} {line}"),
    "bullets": each(lambda at, line: f"- {line}"),
    "added": each(lambda at, line: f"+{line}"),
    "cat-n": numbered("{:6}\t{}"),
    "less-N": numbered("{:7} {}"),
    "nl": numbered("{:5}: {}"),
    "bat": numbered("{:4}   │ {}"),
    "docker-under-a-path": lambda lines: "".join(
        f"/var/log/sglang/current:{line}\n" for line in docker(lines).removesuffix("\n").split("\n")
    ),
}
"""Prefixes that no rule knows."""

WRITERS |= LEARNT


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


def verbose(data: bytes) -> bytes:
    """What `journalctl -o verbose` prints."""
    entries = ""
    for at, line in timed(data.decode("utf-8", "replace")):
        cursor = f"[s=ab;i={len(entries):x};b=cd;m=1;t={round(at.timestamp() * 1e6):x};x=3]"
        entries += f"{at:%a %Y-%m-%d %H:%M:%S.%f} UTC {cursor}\n    _TRANSPORT=stdout\n    PRIORITY=6\n"
        entries += f"    MESSAGE={line}\n    _PID=123\n    _HOSTNAME=node-a\n"
    return entries.encode()


def export(data: bytes) -> bytes:
    """The journal's export format."""
    entries = b""
    for at, line in timed(data.decode("utf-8", "replace")):
        text = line.encode()
        size = len(text).to_bytes(8, "little")
        entries += f"__CURSOR=s=1;i={len(entries)}\n__REALTIME_TIMESTAMP={round(at.timestamp() * 1e6)}\n".encode()
        entries += b"MESSAGE=%s\n\n" % text if line.isprintable() else b"MESSAGE\n%s%s\n\n" % (size, text)
    return entries


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
    "journal-export": lambda name, data: (name, export(data)),
    "journal-verbose": lambda name, data: (name, verbose(data)),
    "utf-16": lambda name, data: (name, data.decode("utf-8", "replace").encode("utf-16")),
    "bom-crlf": lambda name, data: (name, b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")),
}
