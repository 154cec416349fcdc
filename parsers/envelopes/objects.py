"""Collectors that write one JSON object a line: Docker, the journal, Fluent Bit, Vector, Datadog, CloudWatch, Loki."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from sglang_lifecycle.parsers.envelopes.containers import Pieces
from sglang_lifecycle.parsers.envelopes.stamps import stamp
from sglang_lifecycle.parsers.lines import Line, Stamp

# Where the objects keep things; the first path that an object has is taken. A dot goes one object deeper.
_TEXT = (
    "log", "message", "MESSAGE", "line", "msg", "@message", "textPayload", "_raw", "result._raw", "_source.message",
    "_source.log", "_source.textPayload", "attributes.message", "content.message", "fields.message",
    "jsonPayload.message", "jsonPayload.log", "body.stringValue", "LogMessage", "LogEntry", "logs", "data.message",
    "event.original", "_msg", "short_message", "__CONTENT__", "__content__",
)  # fmt: skip
_ALIKE = ("body", "Body", "text", "content")  # of data sets as well: their prompts have no time
_EVENTS = ("event", "event.message", "event.log", "event.line", "event.msg")
"""Of what Splunk's collector takes, which has its name for times: `event` is SGLang's own word as well."""
_STAMP = (
    "tsNs", "time", "@timestamp", "timestamp", "date", "ts", "_time", "result._time", "_source.@timestamp",
    "timeUnixNano", "attributes.timestamp", "content.timestamp", "published_date", "datetime", "TimeGenerated",
    "Timestamp", "_timestamp", "__TIMESTAMP__", "__time__", "_messageTime", "dt",
)  # fmt: skip
_MICROSECONDS = "__REALTIME_TIMESTAMP"  # the journal's, a number in a string
_POD = (
    "kubernetes.pod_name", "kubernetes.pod.name", "_source.kubernetes.pod_name", "_source.kubernetes.pod.name",
    "labels.pod", "labels.pod_name", "stream.pod", "resource.labels.pod_name", "attributes.pod_name", "pod_name", "pod",
    "kubernetes.pod", "fields.pod", "data.kubernetes.pod", "logStreamName", "@logStream", "resource.k8s.pod.name",
    "podName", "PodName", "_pod_name_", "__pod_name__",
)  # fmt: skip
_CONTAINER = (
    "kubernetes.container_name", "kubernetes.container.name", "_source.kubernetes.container_name",
    "_source.kubernetes.container.name", "labels.container", "labels.container_name", "stream.container",
    "resource.labels.container_name", "attributes.container_name", "container_name", "container", "containerName",
    "ContainerName", "_container_name_",
)  # fmt: skip
_HOST = ("_HOSTNAME", "labels.instance", "labels.host", "host", "host.name", "_source.host.name", "hostname")
_UNIT = ("_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER", "service", "labels.app")
NAMES = (*_TEXT, *_ALIKE, *_STAMP, *_POD, *_CONTAINER, *_HOST, *_UNIT)
"""The names that mean something: columns of a table may have them as well."""
TEXTS, ALIKE, STAMPS = frozenset(_TEXT), frozenset(_ALIKE), frozenset(_STAMP)
"""Those of texts, of texts where there is a time as well, and of times."""
_TAGS = ("tags", "attributes.tags", "content.tags")  # Datadog's: `pod_name:sglang-0`
_BREAKS = ("line-max", "buffer")  # a journal's line that goes on; `nul` and `eof` end one
_FOREIGN = frozenset({"target", "level"})  # a program's own structured record, such as the gateway's
_STRANGE = frozenset({"meta_info", "role", "prompt"})  # of answers, and of what is asked: the texts are strangers'


class Objects:
    """One JSON object a line, with a text, and mostly a time and the names of a pod or host."""

    name = "json"
    certain = True
    by_line = True

    def share(self, sample: Sequence[str]) -> float:
        """The part of the lines that are such objects."""
        share = sum(text.startswith("{") and _read(text) is not None for text in sample) / len(sample)
        return share if share >= 0.5 else 0.0

    def open(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The texts, pieces joined; where one holds several lines, these."""
        pieces = Pieces()
        for line in lines:
            found = _read(line.text) if line.text.startswith("{") else None
            if found is None:
                yield line
                continue
            text, data = found
            inner = line.inner(text.removesuffix("\n"), _stamp(data), _stream(data))
            origin = f"{data.get('stream')}{data.get('partial_id')}{inner.stream}"
            whole = pieces.add(origin, inner, self._goes_on(text, data))
            if whole is not None:
                yield from whole.split(whole.text)
        yield from pieces.rest()

    def _goes_on(self, text: str, data: dict[str, Any]) -> bool:
        """Whether the next object continues the line.

        Fluent Bit hands on CRI's tag; Docker's fluentd driver tells of each piece whether it is the last; the journal
        names what broke a line.
        """
        partial = str(data.get("partial_message")).lower() == "true" != str(data.get("partial_last")).lower()
        return data.get("logtag") == "P" or partial or data.get("_LINE_BREAK") in _BREAKS


class Docker(Objects):
    """Docker's json-file, `{"log": "text\\n", "stream": …, "time": …}`, as it is or as a forwarder enriched it."""

    name = "docker"

    def share(self, sample: Sequence[str]) -> float:
        """The part of the lines that are such objects, if most of their texts end with a newline."""
        logs = [
            found[0]
            for text in sample
            if text.startswith("{") and (found := _read(text)) is not None and {"log", "time"} <= found[1].keys()
        ]
        share = len(logs) / len(sample)
        return share if share >= 0.5 and sum(log.endswith("\n") for log in logs) * 2 >= len(logs) else 0.0

    def _goes_on(self, text: str, data: dict[str, Any]) -> bool:
        """A text without its newline is a piece."""
        return not text.endswith("\n")


def _read(text: str) -> tuple[str, dict[str, Any]] | None:
    try:
        data = orjson.loads(text.rstrip().removesuffix(","))  # of some lines of an array
    except orjson.JSONDecodeError:
        return None
    found = _told(data) if isinstance(data, dict) else None
    return (found, data) if found is not None else None


def holds(data: dict[str, Any]) -> bool:
    """Whether an object is an entry of a log."""
    return _told(data) is not None


def _told(data: dict[str, Any]) -> str | None:
    if data.keys() >= _FOREIGN or not _STRANGE.isdisjoint(data):
        return None
    found = _first(data, _TEXT, (str, list))
    if found is None and isinstance(data.get("time"), (int, float, str)):
        found = _first(data, _EVENTS, str)
    if found is None and _stamp(data) is not None:
        found = _first(data, _ALIKE, str)
    if isinstance(found, list):  # the journal's way to write text that holds control characters
        try:
            return bytes(found).decode("utf-8", "replace")
        except (TypeError, ValueError):
            return None
    return found if isinstance(found, str) else None


def _stamp(data: dict[str, Any]) -> Stamp | None:
    micro = data.get(_MICROSECONDS)
    if isinstance(micro, str) and micro.isdigit():
        return stamp(int(micro))
    return stamp(_first(data, _STAMP, (str, int, float)))


def _stream(data: dict[str, Any]) -> str | None:
    pod, container = _name(data, _POD) or _tagged(data, "pod_name:"), _name(data, _CONTAINER)
    if pod or container:
        return "/".join(part for part in (pod, container) if part)
    return "/".join(part for part in (_name(data, _HOST), _name(data, _UNIT)) if part) or None


def _name(data: dict[str, Any], paths: Sequence[str]) -> str | None:
    found = _first(data, paths, str)
    return found if isinstance(found, str) else None


def _tagged(data: dict[str, Any], tag: str) -> str | None:
    tags = _first(data, _TAGS, list)
    found = (each for each in tags if isinstance(each, str) and each.startswith(tag)) if isinstance(tags, list) else ()
    return next((each.removeprefix(tag) for each in found), None)


def _first(data: dict[str, Any], paths: Sequence[str], kinds: type | tuple[type, ...]) -> object:
    """The first value of some kinds that stands on one of the paths: Elastic's `log` holds the name of a file."""
    for path in paths:
        value = data.get(path)
        if value is None and "." in path:
            value = data
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, kinds):
            return value
    return None


ENVELOPES = (Docker(), Objects(), Objects())  # what one forwarder has wrapped, another may have wrapped again
