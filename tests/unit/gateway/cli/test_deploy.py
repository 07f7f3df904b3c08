from __future__ import annotations

import io
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from unit.gateway.cli.conftest import Answer, Run, StandIn


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "shop").mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    for name in ("__init__", "settings"):
        (folder / "shop" / f"{name}.py").touch()
    return folder


def node(name: str, message: str | None = None) -> dict[str, Any]:
    accepted = message is None
    return {"node": name, "accepted": accepted, "spiders": 2 if accepted else 0, "message": message}


def test_a_project_is_built_sent_and_each_nodes_answer_told(gateway: StandIn, run: Run, project: Path) -> None:
    answer = {"project": "shop", "version": "1.4", "spiders": 2, "nodes": [node("n1"), node("n2")]}
    gateway.says("POST /projects/shop/versions", Answer(200, answer))
    done = run("deploy", str(project), "--version", "1.4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "✓ n1: 2 spiders\n✓ n2: 2 spiders\nshop 1.4: 2 spiders\n"
    request = gateway.asked("/projects/shop/versions")[0]
    assert request.query == "version=1.4"
    with zipfile.ZipFile(io.BytesIO(request.body)) as egg:
        assert egg.read("EGG-INFO/entry_points.txt") == b"[scrapy]\nsettings = shop.settings\n"


def test_a_refusal_tells_what_each_node_said(gateway: StandIn, run: Run, project: Path) -> None:
    detail = {"field": "egg", "nodes": [node("n1"), node("n2", "No module named 'pandas'")]}
    error = {"code": "node_error", "message": "deployed on 1 of 2 nodes: No module named 'pandas'", "detail": detail}
    gateway.says("POST /projects/store/versions", Answer(502, {"error": error, "request_id": "1"}))
    done = run("deploy", str(project), "--project", "store")
    assert done.returncode == 1
    assert done.stdout == "✓ n1: 2 spiders\n"
    assert done.stderr == "✗ n2: No module named 'pandas'\nerror: deployed on 1 of 2 nodes\n"


def test_what_all_nodes_say_is_told_once(gateway: StandIn, run: Run, project: Path) -> None:
    why = "egg: it cannot be imported: No module named 'pandas' (shop/spiders.py, line 2)"
    detail = {"field": "egg", "nodes": [node("n1", why), node("n2", why)]}
    error = {"code": "invalid_request", "message": why, "detail": detail}
    gateway.says("POST /projects/shop/versions", Answer(422, {"error": error, "request_id": "1"}))
    done = run("deploy", str(project))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {why}\n")


GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(folder: Path, *words: str) -> None:
    by = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "tag.gpgsign=false")
    subprocess.run(["git", *by, *words], cwd=folder, check=True, capture_output=True, env={**os.environ, **GIT})


def test_the_version_is_that_of_the_source_if_scrapy_cfg_says_so(gateway: StandIn, run: Run, project: Path) -> None:
    (project / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n\n[deploy:live]\nversion = GIT\n")
    gateway.says(
        "POST /projects/shop/versions", *[Answer(200, {"project": "shop", "spiders": 1, "nodes": [node("n1")]})] * 4
    )
    git(project, "init", "--initial-branch", "feature/shoes")
    git(project, "add", ".")
    for message in ("one", "two"):
        git(project, "commit", "--allow-empty", "--message", message)
    assert run("deploy", str(project)).returncode == 0
    git(project, "tag", "--annotate", "v1.4", "--message", "1.4")
    assert run("deploy", str(project)).returncode == 0
    assert run("deploy", str(project), "--version", "7").returncode == 0
    queries = [request.query for request in gateway.asked("/projects/shop/versions")]
    assert queries == ["version=r2-feature_shoes", "version=v1.4-feature_shoes", "version=7"]


def test_a_version_of_a_source_that_is_in_no_repository_is_refused(gateway: StandIn, run: Run, project: Path) -> None:
    done = run("deploy", str(project), "--version", "GIT", GIT_CEILING_DIRECTORIES=str(project.parent))
    assert done.returncode == 2
    assert done.stderr.startswith("error: version: git rev-parse --abbrev-ref HEAD: fatal: not a git repository")
    assert not gateway.requests


def test_a_version_is_deleted_and_told_where_it_still_is(gateway: StandIn, run: Run) -> None:
    nodes = [
        {"node": "n1", "removed": True, "message": None},
        {"node": "n2", "removed": False, "message": "it is dead; removed when it is back"},
    ]
    answer = {"project": "my shop", "version": "1.4", "nodes": nodes}
    gateway.says("DELETE /projects/my%20shop/versions/1.4", Answer(200, answer))
    done = run("undeploy", "my shop", "1.4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "✓ n1: removed\nmy shop 1.4: deleted\n"
    assert done.stderr == "✗ n2: it is dead; removed when it is back\n"


def test_a_folder_that_is_no_project_is_refused_before_anything_is_sent(gateway: StandIn, run: Run) -> None:
    done = run("deploy")
    assert done.returncode == 2
    assert "it has no scrapy.cfg" in done.stderr
    assert not gateway.requests
