"""The recipes do what they say, as they are written; only the world around them is played."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from sglang_lifecycle.cli.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs" / "recipes"
LOGS = ROOT / "fixtures/0.5.23/s14_timeout_prefix/logs"


class Place:
    """A folder with the logs of a load test, and with commands that stand in for those of the world."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        shutil.copytree(LOGS, folder / "logs")
        self.command("lifecycle", f'exec "{sys.executable}" -m sglang_lifecycle "$@"')
        self.command("python3", 'echo "$@" >> installed')
        self.command("load-test.sh", "true", self.folder)

    def command(self, name: str, script: str, folder: Path | None = None) -> None:
        file = (folder or self.bin) / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def run(self, script: str, *arguments: str, shell: str = "bash", **environment: str) -> int:
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        command = [shell, "-e", "-c", script, "recipe", *arguments]
        environment = dict(os.environ) | {"PATH": path} | environment
        self.result = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        return self.result.returncode

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text("utf-8"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def loaded(name: str) -> Any:
    return yaml.safe_load((RECIPES / name).read_text("utf-8"))


def test_github_actions(place: Place) -> None:
    workflow = loaded("github-actions.yml")
    assert workflow.keys() == {"name", True, "jobs"}, "YAML reads `on` as true; GitHub does not"
    steps = workflow["jobs"]["load-test"]["steps"]
    assert all(step.keys() <= {"name", "run", "uses", "with", "if"} for step in steps)
    codes = {step["name"]: place.run(step["run"], GITHUB_STEP_SUMMARY="summary.md") for step in steps if "run" in step}
    assert codes == {"Run the load test": 0, "Install lifecycle": 0, "Keep the evidence": 0, "Summary": 0, "Gate": 5}
    assert (place.folder / "summary.md").read_text().startswith("# Audit: 7 of 14 requests interrupted\n")
    assert "waiting-timeout > 1%: 3 of 14 requests" in place.result.stderr
    kept = next(step["with"]["path"].split() for step in steps if "with" in step)
    assert all((place.folder / name).exists() for name in kept)


def test_gitlab_ci(place: Place) -> None:
    job = loaded("gitlab-ci.yml")["load-test"]
    assert place.run("\n".join(job["script"]), **job["variables"]) == 5
    suite = ET.parse(place.folder / job["artifacts"]["reports"]["junit"]).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert all((place.folder / path).exists() for path in job["artifacts"]["paths"])
    assert "sglang-lifecycle" in (place.folder / "installed").read_text()


def test_kubernetes_cronjob(place: Place) -> None:
    job = loaded("kubernetes-cronjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert len(job["spec"]["schedule"].split()) == 5
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    named = {each["name"]: each["value"] for each in container["env"]}
    assert all(any(Path(path).is_relative_to(mount) for mount in mounted) for path in named.values())
    shell, flags = container["command"]
    assert flags == "-ec"
    assert place.run(container["args"][0], shell=shell, LOGS="logs", METRICS="lifecycle.prom") == 0
    text = (place.folder / "lifecycle.prom").read_text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    status = {sample.labels["status"]: sample.value for sample in families["lifecycle_requests"].samples}
    assert status == {"interrupted": 7, "finished": 7, "in-flight": 0}


def test_the_gate(place: Place) -> None:
    script = str(RECIPES / "gate.sh")
    assert place.run(f'"{script}" "$@"', "logs", "baseline.json") == 5
    assert not (place.folder / "baseline.json").exists(), "a bad build is no baseline"
    shutil.rmtree(place.folder / "logs")
    shutil.copytree(ROOT / "fixtures/0.5.23/s02a_session/logs", place.folder / "logs")
    assert place.run(f'"{script}" "$@"', "logs", "baseline.json") == 0
    assert place.json("baseline.json")["totals"]["requests"] > 0
    assert place.run(f'"{script}" "$@"', "logs", "baseline.json") == 0
    assert "Against the baseline" in (place.folder / "comparison.md").read_text()


def test_one_liners(place: Place) -> None:
    log = LOGS / "server.log"
    place.command("kubectl", f'test "$1" = logs && cat "{log}"')
    place.command("logcli", f'test "$1" = query && "{sys.executable}" "{place.bin}/loki.py"')
    (place.bin / "loki.py").write_text(
        "import json\n"
        f"for line in open({str(log)!r}, encoding='utf-8'):\n"
        "    stamp = '2026-11-29T19:50:04.000000000Z'\n"
        "    print(json.dumps({'labels': {'app': 'sglang'}, 'line': line.rstrip('\\n'), 'timestamp': stamp}))\n"
    )
    if shutil.which("jq") is None:
        place.command("jq", "cat > /dev/null")
    blocks = (RECIPES / "one-liners.sh").read_text().split("\n\n")
    assert len(blocks) == 4
    results = []
    for block in blocks:
        assert place.run(block) == 0, place.result.stderr
        results.append(place.result.stdout)
    assert results[0].startswith("14 requests: 7 interrupted")
    assert results[1].startswith("Request job-12 was hit by the timeout of another request")
    assert (place.folder / "audit.csv").read_text().count("\n") == 1 + 15


def test_the_notebook(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    names: dict[str, Any] = {}
    exec(compile((RECIPES / "notebook.py").read_text("utf-8"), "notebook.py", "exec"), names)
    assert names["found"].totals.interrupted == 7
    assert names["verdict"].cause == "timeout-prefix-collision"
    assert names["batches"].height > 0


def test_the_settings(place: Place) -> None:
    text = (RECIPES / "lifecycle.toml").read_text("utf-8")
    assert tomllib.loads(text).keys() <= {setting.name for setting in SETTINGS}
    shutil.copy(RECIPES / "lifecycle.toml", place.folder)
    assert place.run("lifecycle config") == 0, place.result.stderr
    assert place.run("lifecycle audit logs") == 5
    assert "finished < 95%: 7 of 14 requests (50%)" in place.result.stderr


def test_no_recipe_is_left_out_of_the_documentation() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    assert all(f"recipes/{file.name}" in page for file in RECIPES.iterdir())
