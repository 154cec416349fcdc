"""Settings: which one wins, what is said of a wrong one, and that commands heed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_lifecycle.cli.app import main
from sglang_lifecycle.cli.settings import SETTINGS

LOGS = Path(__file__).resolve().parents[2] / "fixtures/0.5.23/s14_timeout_prefix/logs"

ENVELOPE = "[[envelopes]]\nname = 'acme'\nregex = '{}'"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, two below where settings are put."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.delenv("LIFECYCLE_CONFIG", raising=False)
    return folder


def shown(capsys: Capture, *arguments: str) -> dict[str, tuple[Any, str]]:
    assert main(["config", "--json", *arguments]) == 0
    return {name: (each["value"], each["from"]) for name, each in json.loads(capsys.readouterr().out).items()}


def test_the_defaults(capsys: Capture) -> None:
    found = shown(capsys)
    assert found.keys() == {setting.name for setting in SETTINGS}
    assert {origin for _, origin in found.values()} == {"default"}
    assert found["ignore"][0] == ["HEALTH_CHECK_[0-9]*"]


def test_the_usual_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    file = tmp_path / "lifecycle.toml"
    file.write_text('tz = "Europe/Berlin"\ndisplay_tz = "+01:00"\nsglang_version = "0.5.9"\nwaiting_timeout = 30\n')
    monkeypatch.setenv("LIFECYCLE_DISPLAY_TZ", "+02:00")
    monkeypatch.setenv("LIFECYCLE_SGLANG_VERSION", "0.5.10")
    monkeypatch.setenv("LIFECYCLE_FAIL_ON", "waiting-timeout > 1%, queue-full > 3")
    found = shown(capsys, "--sglang-version", "0.5.23", "--running-timeout", "4")
    assert found["running_timeout"] == (4.0, "--running-timeout")
    assert found["tz"] == ("Europe/Berlin", str(file))
    assert found["display_tz"] == ("+02:00", "LIFECYCLE_DISPLAY_TZ")
    assert found["sglang_version"] == ("0.5.23", "--sglang-version")
    assert found["waiting_timeout"] == (30.0, str(file))
    assert found["fail_on"] == (["waiting-timeout > 1%", "queue-full > 3"], "LIFECYCLE_FAIL_ON")


def test_the_nearest_file_counts_alone(elsewhere: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "lifecycle.toml").write_text('tz = "+01:00"\n')
    (elsewhere / "lifecycle.toml").write_text('display_tz = "+02:00"\n')
    found = shown(capsys)
    assert found["tz"] == (None, "default")
    assert found["display_tz"] == ("+02:00", str(elsewhere / "lifecycle.toml"))


@pytest.mark.parametrize("arguments", [["--config", "other.toml", "config"], ["config", "--config", "other.toml"]])
def test_a_named_file_replaces_the_nearest(arguments: list[str], elsewhere: Path, capsys: Capture) -> None:
    (elsewhere / "lifecycle.toml").write_text('tz = "+01:00"\n')
    (elsewhere / "other.toml").write_text('display_tz = "+02:00"\n')
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tz"]["value"] is None
    assert found["display_tz"] == {"value": "+02:00", "from": "other.toml"}


def test_the_screen(elsewhere: Path, capsys: Capture) -> None:
    (elsewhere / "lifecycle.toml").write_text("running_timeout = 2.5\n")
    assert main(["config"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Settings of ")
    assert "2.5 s" in out
    assert "HEALTH_CHECK_[0-9]*" in out


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("tz = 3", "lifecycle.toml: tz 3 is not a text"),
        ('waiting_timeout = "long"', "waiting_timeout 'long' is not a number of seconds"),
        ("waiting_timeout = true", "waiting_timeout True is not a number of seconds"),
        ("waiting_timeout = -2", "waiting_timeout -2 is not a number of seconds"),
        ("ignore = [1]", "ignore [1] is not a list of texts"),
        ("wating_timeout = 3", "there is no setting 'wating_timeout'; did you mean waiting_timeout?"),
        ('processes = "x"', "processes 'x' is not a table of texts"),
        ('[processes]\n"a" = 1', "processes {'a': 1} is not a table of texts"),
        (
            '[[envelopes]]\nname = "x"',
            "envelopes [{'name': 'x'}] is not a list of tables with the texts name and regex",
        ),
        (ENVELOPE.format("("), "lifecycle.toml: envelope 'acme': '(' is no regular expression: missing )"),
        (ENVELOPE.format(".*"), "lifecycle.toml: envelope 'acme': '.*' has no group (?P<message>…)"),
        (ENVELOPE.format("(?P<message>.*)(?P<tim>.)"), "has a group 'tim'; there are message, time and stream"),
        ("tz = ", "Invalid value"),
        ('tz = "Mars/Base"', "lifecycle.toml: tz 'Mars/Base' is no time zone"),
        ('sglang_version = "new"', "lifecycle.toml: sglang_version 'new' is no version"),
        ('sglang_version = "0.5.10x"', "lifecycle.toml: sglang_version '0.5.10x' is no version"),
        ('fail_on = ["nosuch > 1"]', "lifecycle.toml: 'nosuch > 1': no cause is named 'nosuch'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(content: str, names: str, elsewhere: Path, capsys: Capture) -> None:
    (elsewhere / "lifecycle.toml").write_text(content)
    assert main(["config"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert names in err


def test_variables_are_checked_too(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("LIFECYCLE_RUNNING_TIMEOUT", "soon")
    assert main(["config"]) == 2
    assert "LIFECYCLE_RUNNING_TIMEOUT: 'soon' is not a number of seconds" in capsys.readouterr().err


def test_a_missing_file_is_unreadable(capsys: Capture) -> None:
    assert main(["config", "--config", "none.toml"]) == 4
    assert capsys.readouterr().err == "lifecycle: error: none.toml: cannot be read: No such file or directory\n"


def test_commands_heed_the_settings(elsewhere: Path, world: Any, capsys: Capture) -> None:
    (elsewhere / "lifecycle.toml").write_text('tz = "Europe/Berlin"\ndisplay_tz = "+02:00"\n')
    assert main(["explain", "wt-7", "server.log"]) == 0
    assert world.asked["tz"] == "Europe/Berlin"
    assert "14:00:21.500 UTC+02:00" in capsys.readouterr().out
    assert main(["explain", "wt-7", "server.log", "--tz", "+03:00"]) == 0
    assert world.asked["tz"] == "+03:00"


def test_known_limits_reach_every_command_that_judges(elsewhere: Path, capsys: Capture) -> None:
    logs = str(LOGS)
    assert main(["explain", "job-2", logs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == "likely"
    (elsewhere / "lifecycle.toml").write_text("waiting_timeout = 3\n")
    assert main(["explain", "job-2", logs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == "proven"
    assert main(["audit", logs, "--format", "json"]) == 0
    rows = {row["rid"]: row for row in json.loads(capsys.readouterr().out)["requests"]}
    assert rows["job-2"]["confidence"] == "proven"
    assert main(["find", logs, "--status", "waiting-timeout", "--json"]) == 0
    assert {row["confidence"] for row in json.loads(capsys.readouterr().out)["candidates"]} == {"proven"}
    assert main(["watch", "-", "--from-start", "--help"]) == 0
    assert "--waiting-timeout" in capsys.readouterr().out
    assert main(["replay", "run", logs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lives"][0]["waiting_limit_s"] == 3.0


@pytest.mark.parametrize("command", [["explain", "job-2"], ["replay", "run"], ["sessions"], ["audit"]])
def test_a_limit_on_the_command_line_wins_and_is_checked(command: list[str], elsewhere: Path, capsys: Capture) -> None:
    (elsewhere / "lifecycle.toml").write_text("waiting_timeout = 30\n")
    assert main([*command, str(LOGS), "--waiting-timeout", "0"]) == 2
    assert (
        capsys.readouterr().err
        == "lifecycle: error: --waiting-timeout: 0.0 is not a number of seconds, or -1 where there is no limit\n"
    )
    assert main([*command, str(LOGS), "--waiting-timeout", "3", "--running-timeout", "4"]) == 0
    assert "30 s" not in capsys.readouterr().out


def test_the_servers_word_for_no_limit_tells_nothing(elsewhere: Path, capsys: Capture) -> None:
    arguments = ["explain", "job-2", str(LOGS), "--json"]
    assert main(arguments) == 0
    untold = capsys.readouterr().out
    assert main([*arguments, "--waiting-timeout=-1", "--running-timeout=-1"]) == 0
    assert capsys.readouterr().out == untold


def test_thresholds_of_the_file_gate_and_flags_replace_them(elsewhere: Path, world: Any, an_audit: Any) -> None:
    world.audit = an_audit
    (elsewhere / "lifecycle.toml").write_text('fail_on = ["waiting-timeout > 0"]\n')
    assert main(["audit", "server.log"]) == 5
    assert main(["audit", "server.log", "--fail-on", "queue-full > 0"]) == 0


def wrapped(folder: Path) -> str:
    """The lines of two servers as a collector of no known kind writes them."""
    lines = (LOGS / "server.log").read_text("utf-8").splitlines()
    log = folder / "collected.txt"
    log.write_text("".join(f"acme~node-{n}~2026-11-29T19:50:00Z~ {line} ;;\n" for n in (1, 2) for line in lines))
    return str(log)


ACME = ENVELOPE.format(r"acme~(?P<stream>\S+?)~(?P<time>\S+?)~ (?P<message>.*) ;;$")


def test_own_envelopes_are_taken_off(elsewhere: Path, capsys: Capture) -> None:
    log = wrapped(elsewhere)
    assert main(["explain", "job-2", log, "--json", "--quiet"]) == 3
    (elsewhere / "lifecycle.toml").write_text(ACME)
    capsys.readouterr()
    assert main(["explain", "job-2", log, "--json", "--quiet"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["cause"] == "waiting-timeout"
    assert {each["source"] for each in verdict["evidence"]} <= {f"{log}[node-1]", f"{log}[node-2]"}
    assert any("Finish: obj=" in (each["text"] or "") for each in verdict["evidence"])
    assert main(["doctor", log, "--json"]) == 0
    assert [life["server"] for life in json.loads(capsys.readouterr().out)["lives"]] == [
        f"{log}[node-1]", f"{log}[node-2]",
    ]  # fmt: skip
    (elsewhere / "lifecycle.toml").unlink()
    assert main(["explain", "job-2", log, "--json", "--quiet"]) == 3  # it holds for one run only


def test_an_envelope_leaves_bare_logs_alone(elsewhere: Path, capsys: Capture) -> None:
    (elsewhere / "lifecycle.toml").write_text(ENVELOPE.format(r"(?P<time>\S+) (?P<message>.*)"))
    assert main(["explain", "job-11", str(LOGS), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == "proven"


def test_servers_have_the_names_that_are_given(elsewhere: Path, capsys: Capture) -> None:
    text = (LOGS / "server.log").read_text("utf-8")
    for name in ("a", "b", "c"):
        (elsewhere / name).mkdir()
        (elsewhere / name / "server.log").write_text(text.replace("job-", f"{name}-job-"))

    def servers() -> list[str]:
        assert main(["doctor", "a", "b", "c", "--json"]) == 0
        return list(dict.fromkeys(life["server"] for life in json.loads(capsys.readouterr().out)["lives"]))

    assert servers() == ["a/server.log", "b/server.log", "c/server.log"]
    (elsewhere / "lifecycle.toml").write_text('[processes]\n"a/*" = "east"\n"?/server.log" = "west"\n')
    assert servers() == ["east", "west"]
    (elsewhere / "lifecycle.toml").write_text('[processes]\n"b/server.log" = "east"\n')
    assert servers() == ["a/server.log", "east", "c/server.log"]


def test_the_example_of_the_documentation_is_right(elsewhere: Path, capsys: Capture) -> None:
    page = (LOGS.parents[3] / "docs/configuration.md").read_text("utf-8")
    (elsewhere / "lifecycle.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    found = shown(capsys)
    assert found["processes"][0] == {"sglang-1.log": "node 1", "node-1/*": "node 1"}
    assert main(["config"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "node-1/* = node 1" in out
    assert "acme" in out
