"""What a change has to pass is the same at a desk, before a commit and on a runner."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.house.sources import ROOT

CLOSING_LINE = "===== 5 passed in 0.12s ====="
#: Stands in for make, so that the gate can be looked at without going through it.
MAKE = """#!/bin/sh
for target; do :; done
echo "$target" >> "$TARGETS"
cat
[ "$target" = "$FAILING" ] && exit 2
[ "$target" = test ] && echo "{closing_line}"
exit 0
"""


def _run_gate(folder: Path, *, failing: str = "") -> subprocess.CompletedProcess[str]:
    make = folder / "make"
    make.write_text(MAKE.format(closing_line=CLOSING_LINE))
    make.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.defpath}", "TARGETS": str(folder / "targets"), "FAILING": failing}
    return subprocess.run(
        [ROOT / ".ci/run"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_gate_ends_with_the_closing_line_of_pytest(tmp_path: Path) -> None:
    done = _run_gate(tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == CLOSING_LINE
    assert done.stderr == ""


@pytest.mark.parametrize("failing", ["check", "test"])
def test_the_gate_runs_both_and_says_which_failed(tmp_path: Path, failing: str) -> None:
    done = _run_gate(tmp_path, failing=failing)
    assert done.returncode == 1
    assert (tmp_path / "targets").read_text().split() == ["check", "test"]
    assert done.stderr.splitlines()[-1] == f"failed: make {failing}"


def test_hooks_before_a_commit_are_fetched_from_nowhere() -> None:
    repositories = _yaml(".pre-commit-config.yaml")["repos"]
    hooks = [hook for repository in repositories for hook in repository["hooks"]]
    assert {repository["repo"] for repository in repositories} == {"local"}
    assert all(hook["language"] == "system" and hook["entry"].startswith((".venv/bin/", "make ")) for hook in hooks)


def test_what_checks_scripts_is_locked_and_comes_from_whichever_registry_npm_is_set_to() -> None:
    locked = json.loads((ROOT / "gateway/console/package-lock.json").read_text(encoding="utf-8"))["packages"]
    tools = locked.pop("")["devDependencies"]
    assert all(locked[f"node_modules/{name}"]["version"] == version for name, version in tools.items())
    assert all("integrity" in package and "resolved" not in package for package in locked.values())


def test_the_runner_goes_through_the_same_gate_on_the_oldest_and_newest_python() -> None:
    job = _yaml(".github/workflows/ci.yml")["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.14"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_all_tests_run_on_the_python_that_debian_brings() -> None:
    job = _yaml(".github/workflows/ci.yml")["jobs"]["debian"]
    assert (job["container"], job["env"]["UV_PYTHON"]) == ("debian:12", "/usr/bin/python3")
    assert job["steps"][-1]["run"] == "make test"


def test_the_devcontainer_sets_up_as_at_a_desk_on_the_newest_python() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    newest = _yaml(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"][-1]
    assert container["image"].partition(":")[2].startswith(f"{newest}-")
    assert container["onCreateCommand"].split()[-1] == "tests/install-system-packages"
    assert container["updateContentCommand"] == "make .venv/.synced"


def test_nothing_is_published_but_tags_and_where_the_switch_is_on() -> None:
    jobs = _yaml(".github/workflows/release.yml")["jobs"]
    held = {name for name, job in jobs.items() if job.get("if") == "github.ref_type == 'tag' && vars.RELEASE == 'on'"}
    assert held == {"pypi", "npm", "images", "chart"}
    # what needs one that is held is held, too
    assert set(jobs) - held == {"wheel", "page"}
    assert held < set(jobs["page"]["needs"])
    assert "permissions" not in jobs["wheel"]


#: Stands in for uv: writes down what it was asked for, and makes what `make up` starts.
UV = """#!/bin/sh
[ "$1" = --version ] && echo "uv 0.13.0" && exit
echo "$*" >> asked
mkdir -p .venv/bin && printf '#!/bin/sh\\n' > .venv/bin/discoverybot && chmod +x .venv/bin/discoverybot
"""


def test_up_installs_what_it_takes_to_run_and_the_tests_what_they_need_and_neither_anew(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    for name in ("Makefile", "pyproject.toml", "client/pyproject.toml", "uv.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "bin").mkdir()
    (uv := tmp_path / "bin/uv").write_text(UV)
    uv.chmod(0o755)
    environment = {"PATH": f"{uv.parent}:{os.defpath}"}

    def asked(*targets: str) -> list[str]:
        (tmp_path / "asked").unlink(missing_ok=True)
        subprocess.run(("make", *targets), cwd=tmp_path, env=environment, check=True, capture_output=True)
        return (tmp_path / "asked").read_text().splitlines() if (tmp_path / "asked").exists() else []

    run, all_of_it = "sync --frozen --quiet --no-dev --inexact", "sync --frozen --quiet --compile-bytecode"
    assert asked("up") == [run]
    assert asked("demo") == []
    assert asked(".venv/.synced") == [all_of_it]
    assert asked("up") == asked(".venv/.synced") == []
    (tmp_path / "uv.lock").touch()
    assert asked("up") == [run]
    assert asked(".venv/.synced") == [all_of_it]
    assert asked("render") == [f"{run} --extra render"]


def test_a_bug_is_reported_with_what_the_doctor_prints() -> None:
    fields = {field["id"]: field for field in _yaml(".github/ISSUE_TEMPLATE/bug.yml")["body"] if "id" in field}
    assert "discoverybot doctor" in fields["doctor"]["attributes"]["label"]
    assert fields["doctor"]["validations"]["required"]


def test_the_stores_are_tested_on_a_real_mongodb() -> None:
    job = _yaml(".github/workflows/ci.yml")["jobs"]["stores"]
    assert job["services"]["mongo"]["image"] == "mongo:8"
    assert job["env"]["MONGO_TEST_URI"]
    assert "tests/integration/storage tests/integration/mongo_conformance" in job["steps"][-1]["run"]


def test_a_failover_is_tested_on_a_real_replica_set() -> None:
    job = _yaml(".github/workflows/ci.yml")["jobs"]["failover"]
    members = job["env"]["MONGO_REPLICA_SET_URI"].split("/")[2].split(",")
    steps = [step["run"] for step in job["steps"] if "run" in step]
    assert len(members) == 3
    assert all(member in steps[0] and member.partition(":")[2] in steps[0].splitlines()[0] for member in members)
    assert steps[-1] == ".venv/bin/pytest tests/faults/test_failover.py"


def _yaml(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    return content
