"""What gateways, kernels, service managers and orchestrators say, and that no stranger can say it for them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lifecycle.parsers import gateway, table
from sglang_lifecycle.parsers.evidence import Event, Fact
from sglang_lifecycle.parsers.log import read

AT = datetime(2026, 4, 6, 12, 50, 59, tzinfo=UTC).timestamp()
SPAN = 'http_request{method=POST uri=/v1/chat/completions version=HTTP/1.1 module="smg" request_id="chatcmpl-A"'
REFUSED = (
    f"2026-04-06 12:50:59 ERROR {SPAN}}}: smg::routers::http::pd_router: /src/routers/http/pd_router.rs:172: "
    "Failed to select PD pair error=No available prefill workers (all circuits open or unhealthy)"
)
ANSWERED = (
    f"2026-04-06 12:50:59  WARN {SPAN} status_code=429 latency=12}}: smg::response: request failed with client error"
)
OLD = (
    '2025-10-29 21:49:19 ERROR http_request{method=POST uri=/generate version=HTTP/1.1 request_id="gnt-T1"}: '
    "sglang_router_rs::routers::http::pd_router: src/routers/http/pd_router.rs:142: Failed to select PD pair error=none"
)
NESTED = (
    "2025-09-04 07:15:26 ERROR http_request{method=POST uri=/v1/completions version=HTTP/1.1}:"
    "http_request{method=POST uri=/v1/completions version=HTTP/1.1 request_id=cmpl-N status=500 Internal Server Error "
    "latency=2.041450065s}: sglang_router_rs::response: src/middleware.rs:159: request failed with server error"
)
OUTER = (
    "2025-09-04 07:15:26 ERROR http_request{{method=POST uri={} version=HTTP/1.1}}: "
    "sglang_router_rs::routers::pd_router: src/routers/pd_router.rs:565: Decode server returned error status status=500"
)
JSON = (
    '{"timestamp":"2026-04-06T12:50:59.250000Z","level":"ERROR",'
    '"fields":{"message":"request failed with server error"},'
    '"target":"smg::response","span":{"request_id":"gnt-B","status_code":503,"name":"http_request"},"spans":[]}'
)


def facts_of(text: str, folder: Path, name: str = "x.log") -> list[Fact]:
    (folder / name).write_text(text)
    return read([str(folder)]).facts


@pytest.mark.parametrize(
    ("line", "event", "request_id", "status"),
    [
        (REFUSED, Event.GATEWAY_REFUSED, "chatcmpl-A", None),
        (ANSWERED, Event.GATEWAY_ANSWERED, "chatcmpl-A", 429),
        (OLD, Event.GATEWAY_REFUSED, "gnt-T1", None),
        (NESTED, Event.GATEWAY_ANSWERED, "cmpl-N", 500),
        (NESTED.replace("/v1/completions", '/v1?"}request_id=b"'), Event.GATEWAY_ANSWERED, "cmpl-N", 500),
        (NESTED.replace("/v1/completions", '/v1?"'), Event.GATEWAY_ANSWERED, "cmpl-N", 500),
        (JSON, Event.GATEWAY_ANSWERED, "gnt-B", 503),
    ],
)
def test_a_gateway_s_lines(line: str, event: Event, request_id: str, status: int | None, tmp_path: Path) -> None:
    (fact,) = facts_of(line + "\n", tmp_path)
    assert (fact.event, fact.detail["request_id"], fact.detail.get("http_status")) == (event, request_id, status)
    assert list(table.facts(table.frame([fact]))) == [fact]


def test_its_time_is_its_own(tmp_path: Path) -> None:
    first, second = facts_of(f"{REFUSED}\n{JSON}\n", tmp_path)
    assert (first.at, first.at_error) == (AT + 0.5, 0.5)
    assert second.at == pytest.approx(AT + 0.25)


def test_its_text_needs_no_wrapper_of_its_own(tmp_path: Path) -> None:
    line = f"2026-04-06T12:50:59.9Z stdout F {REFUSED}\n"
    (fact,) = facts_of(line * 3, tmp_path)[:1]
    assert fact.event is Event.GATEWAY_REFUSED


@pytest.mark.parametrize(
    "line",
    [
        REFUSED.replace("smg::routers", "other::routers"),
        REFUSED.replace('request_id="chatcmpl-A"', "x=1"),
        REFUSED.replace("ERROR", "INFO"),
        OUTER.format("/v1"),
        OUTER.format("/v1?}:a{request_id=b"),
        OUTER.format("/v1?}:http_request{request_id=b}:http_request{method=POST"),
        OUTER.format('/v1?"}request_id=b"'),
        JSON.replace("smg::response", "tower"),
        JSON[:-1],
    ],
)
def test_what_says_nothing_of_a_request_is_left(line: str) -> None:
    assert gateway.read(line) is None


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for start in ("", "2026-04-06 12:50:59 ERROR ", f"2026-04-06 12:50:59 ERROR {SPAN}", '{"target":"smg",'):
        gateway.read(start + text)


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (
            "[Mon Apr  6 12:50:59 2026] Memory cgroup out of memory: Killed process 836 (python3) total-vm:1kB",
            {"reason": "Memory cgroup out of memory", "pid": 836, "name": "python3"},
        ),
        (
            "[12345.678901] Out of memory: Killed process 12 (sglang::schedul) total-vm:1kB, anon-rss:1kB",
            {"reason": "Out of memory", "pid": 12, "name": "sglang::schedul"},
        ),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/k,task=python3,pid=7,uid=0",
            {"reason": "oom-kill", "pid": 7, "name": "python3"},
        ),
        (
            "sglang.service: Main process exited, code=killed, status=9/KILL",
            {"name": "sglang.service", "reason": "code=killed, status=9/KILL", "exit_code": 9},
        ),
        (
            "sglang.service: A process of this unit has been killed by the OOM killer.",
            {"name": "sglang.service", "reason": "A process of this unit has been killed by the OOM killer"},
        ),
    ],
)
def test_a_kernel_s_and_a_service_manager_s_lines(line: str, detail: dict[str, object], tmp_path: Path) -> None:
    (fact,) = facts_of(line + "\n", tmp_path)
    assert fact.detail == detail
    assert (fact.at == AT + 0.5) == ("2026]" in line)


def test_a_stranger_cannot_speak_for_them(tmp_path: Path) -> None:
    own = "[2026-04-06 12:50:00] The server is fired up and ready to roll!\n"
    kernel = "Out of memory: Killed process 12 (python3) total-vm:1kB\n"
    assert [f.event for f in facts_of(own + kernel + REFUSED + "\n", tmp_path)] == [Event.SERVER_READY]


DESCRIBE = """\
Name:             sglang-0
Namespace:        llm
Containers:
  sglang:
    State:          Running
      Started:      Mon, 06 Apr 2026 12:51:30 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Mon, 06 Apr 2026 10:00:00 +0000
      Finished:     Mon, 06 Apr 2026 14:50:59 +0200
    Ready:          True
  sidecar:
    State:          Waiting
      Reason:       CrashLoopBackOff
Events:
  Type     Reason     Age                From     Message
  ----     ------     ----               ----     -------
  Warning  Unhealthy  5m (x3 over 10m)   kubelet  Liveness probe failed: HTTP probe failed with statuscode: 503
  Normal   Pulled     5m                 kubelet  Container image already present
"""


def test_a_described_pod(tmp_path: Path) -> None:
    ended, noted = facts_of(DESCRIBE, tmp_path, "describe.txt")
    assert ended.event is Event.PLATFORM_ENDED
    assert ended.detail == {"name": "sglang-0/sglang", "reason": "OOMKilled", "exit_code": 137}
    assert ended.at == AT + 0.5
    assert (noted.event, noted.detail["reason"], noted.at) == (Event.PLATFORM_NOTED, "Unhealthy", None)


def test_a_table_of_events(tmp_path: Path) -> None:
    text = (
        "LAST SEEN   TYPE      REASON       OBJECT         MESSAGE\n"
        "5m          Warning   OOMKilling   node/a         Memory cgroup out of memory\n"
        "6m          Normal    Scheduled    pod/sglang-0   Successfully assigned\n"
        "7m          Warning   Unhealthy    pod/sglang-0   Readiness probe failed\n"
    )
    found = facts_of(text, tmp_path, "events.txt")
    assert [(f.detail["reason"], f.detail["name"]) for f in found] == [("OOMKilling", ""), ("Unhealthy", "sglang-0")]


@given(st.lists(st.sampled_from(DESCRIBE.splitlines(keepends=True)) | st.text(max_size=20), max_size=30))
def test_any_description_is_read(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    from sglang_lifecycle.parsers import platform

    path = tmp_path_factory.mktemp("d") / "d.txt"
    path.write_text("Name: a\nNamespace: b\n" + "".join(parts), encoding="utf-8", errors="replace")
    for row in platform.rows(path):
        assert row["event"] in (Event.PLATFORM_ENDED, Event.PLATFORM_NOTED)
