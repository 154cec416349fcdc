"""One request under its other names: gateway id, x-request-id, trace and room lead to the rid, and say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import answered, changed, prefill, said, started
from lines import ABORTED, used, write

from sglang_lifecycle.cli.app import main

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GATEWAY = (
    '2026-04-06 12:50:5{second} {level} http_request{{method=POST uri=/generate request_id="{id}"{status}}}: '
    "smg::{target}: {message}\n"
)
REFUSED = "Failed to select PD pair error=No available prefill workers (all circuits open or unhealthy)"


def received(rid: str, second: int = 0, request_id: str = "up-1", room: int = 77) -> str:
    head = f"{{'traceparent': '00-{TRACE}-00f067aa0ba902b7-01'}}"
    return (
        f"[2026-04-06 12:50:5{second}] Receive: obj=GenerateReqInput(rid='{rid}', text='x', bootstrap_room={room}, "
        f"external_trace_header={head}, stream=False), headers={{'x-request-id': '{request_id}'}}\n"
    )


def gateway(message: str, target: str = "response", level: str = "ERROR", status: int | None = None) -> str:
    told = f" status_code={status} latency=5" if status else ""
    return GATEWAY.format(second=9, level=level, id="chatcmpl-9", status=told, target=target, message=message)


@pytest.fixture
def explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> object:
    def run(text: str, server: str = "", front: str = "") -> list[dict[str, object]]:
        for name, content in (("server.log", server), ("gateway.log", front)):
            if content:
                (tmp_path / name).write_text(content)
        main(["explain", text, str(tmp_path), "--json"])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("r-1", "rid"),
        ("r-", "prefix"),
        ("up-1", "request-id"),
        (TRACE, "trace"),
        (TRACE.upper(), "trace"),
        (f"00-{TRACE}-00f067aa0ba902b7-01", "trace"),
        ("77", "room"),
    ],
)
def test_every_name_of_a_request_leads_to_it(text: str, by: str, explained) -> None:
    (verdict,) = explained(text, received("r-1"))
    assert (verdict["rid"], verdict["matched_by"]) == ("r-1", by)


def test_the_json_request_log_names_them_too(explained) -> None:
    record = {"timestamp": "2026-04-06T12:50:59", "event": "request.received", "rid": "r-1", "obj": {"rid": "r-1"}}
    (verdict,) = explained("up-1", json.dumps(record | {"headers": {"x-request-id": "up-1"}}) + "\n")
    assert (verdict["rid"], verdict["matched_by"]) == ("r-1", "request-id")


def test_a_retry_has_several_rids(explained) -> None:
    found = explained("up-1", received("r-1") + received("r-2", 3) + received("r-3", 4, "up-2"))
    assert [v["rid"] for v in found] == ["r-1", "r-2"]


def test_a_rid_goes_before_every_other_name(explained) -> None:
    (verdict,) = explained("77", received("77", room=5) + received("r-2", room=77))
    assert (verdict["rid"], verdict["matched_by"]) == ("77", "rid")


def test_a_refusal_at_the_gateway(explained) -> None:
    refused = gateway(REFUSED, "routers::http::pd_router")
    (verdict,) = explained("chatcmpl-9", received("r-1"), refused)
    assert (verdict["cause"], verdict["confidence"], verdict["matched_by"]) == ("never-received", "likely", "gateway")
    said = gateway("request failed with server error", status=503)
    (verdict,) = explained("chatcmpl-9", received("r-1"), refused + said)
    assert (verdict["cause"], verdict["client"]["http_status"]) == ("never-received", 503)
    assert len(verdict["evidence"]) == 2
    assert "No available prefill workers" in verdict["evidence"][0]["text"]


@pytest.mark.parametrize(
    "front",
    [
        gateway("Request failed worker_url=http://a:1 error=connection closed", "routers::http::router"),
        gateway(REFUSED, "routers::http::pd_router") + gateway("finished processing request", level="INFO", status=200),
        gateway(REFUSED, "routers::http::pd_router") + gateway("Request failed http://a:1", "routers::http::router"),
        gateway("started processing request", "request", "INFO"),
    ],
)
def test_what_reached_some_server_stays_open(front: str, explained) -> None:
    (verdict,) = explained("chatcmpl-9", received("r-1"), front)
    assert (verdict["cause"], verdict["matched_by"]) == ("not-established", "gateway")
    assert verdict["candidates"]


def test_a_trace_names_the_rid(tmp_path: Path, explained) -> None:
    span = {"traceId": TRACE, "attributes": [{"key": "rid", "value": {"stringValue": "r-1"}}]}
    (tmp_path / "t.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n")
    plain = "[2026-04-06 12:50:50] Receive: obj=GenerateReqInput(rid='r-1', text='x', stream=False)\n"
    (verdict,) = explained(TRACE, plain)
    assert (verdict["rid"], verdict["matched_by"]) == ("r-1", "trace")


def test_an_unknown_id_stays_unknown(explained) -> None:
    (verdict,) = explained("nobody", received("r-1"), gateway(REFUSED))
    assert verdict["status"] == "not-found"


GONE = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='4712_job-9'"
CUT = used("4711_job-7", 10, 14, ABORTED)
OF_WORKERS = (
    started(more=", tokenizer_worker_num=2") + CUT[:1] + prefill(10, 0) + answered(13, "/abort_request")
    + changed(CUT[1:], "'id': '4711_job-7'", "'id': 'job-7'") + answered(14, "/generate")
    + used("4712_job-9", 30, 30)[:1] + prefill(30, 0) + said(40, GONE) + answered(40, "/generate", "400 Bad Request")
)  # fmt: skip


@pytest.mark.parametrize("release", ["0.5.2", "0.5.3"])
@pytest.mark.parametrize(("rid", "says"), [("job-7", "abort-all"), ("job-9", "client-disconnect")])
def test_a_rid_that_a_tokenizer_worker_wrote_behind_its_pid(
    rid: str, says: str, release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "server.log", OF_WORKERS)
    main(["explain", rid, str(log), "--json", "--sglang-version", release])
    (verdict,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert verdict["status"] == "interrupted"
    assert says in {verdict["cause"], *(each["cause"] for each in verdict["candidates"])}
