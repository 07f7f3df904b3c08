"""Projects with requirements of their own: each runs with them, side by side with others that contradict them.

No index is asked. The wheels are made here; that of Scrapy only leads to the Scrapy that is installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest
from eggs import egg, source
from forms import first_in_short, in_full
from wheels import write_wheel, write_wheels_of_node

from gateway.contract.outbox import remove_tree

from .conftest import Crawl, EggNode, new_node

SPIDER = """
import os, sys
import colour
import scrapy

class Teller(scrapy.Spider):
    name = "teller"

    async def start(self):
        minder = open(f"/proc/{os.getppid()}/stat").read()
        parent = int(minder.rpartition(")")[2].split()[1])
        found = {"python": sys.prefix, "version": os.environ["VIRTUAL_ENV"], "parent": parent}
        yield {"colour": colour.NAME, **found}
"""
WAIT = """
        import asyncio, pathlib
        pathlib.Path("../ready").touch()
        while not pathlib.Path("../go").exists():
            await asyncio.sleep(0.02)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    write_wheels_of_node(folder)
    write_wheel(folder, "scrapy", "2.5.1", {})
    write_wheel(folder, "colour", "1.0", {"colour.py": "NAME = 'red'"})
    write_wheel(folder, "colour", "2.0", {"colour.py": "NAME = 'blue'"})
    for name in ("before", "after"):
        write_wheel(folder, name, "1.0", {})
    write_wheel(folder, "paint", "1.0", {"paint.py": ""}, needs=("colour<2",))
    return folder


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, wheels: Path, plan: Path) -> Iterator[EggNode]:
    places = {
        "PROJECT_WARM_PROCESSES": "1",
        "PROJECT_INDEX_URL": "none",
        "PROJECT_WHEELS": str(wheels),
        "DISCOVERYBOT_CRASH_PLAN": str(plan),
    }
    node = new_node(tmp_path_factory.mktemp("home"), **places)
    try:
        yield node.start()
    finally:
        node.clean_up()


def shop(requirements: str, package: str = "shop", spider: str = SPIDER) -> bytes:
    return egg({**source(package, spiders=spider), "requirements.txt": requirements})


def deployed(node: EggNode, project: str, requirements: str, version: str = "1.0") -> dict[str, Any]:
    return node.deploy(project, version, shop(requirements))


def deploy(node: EggNode, project: str, requirements: str, version: str = "1.0") -> None:
    answer = deployed(node, project, requirements, version)
    assert answer["status"] == "ok", answer


def told(crawl: Crawl) -> Any:
    assert crawl.exit["exit_code"] == 0, crawl.log
    return crawl.items[0]


def dependencies(node: EggNode, project: str, version: str = "1.0") -> dict[str, Any]:
    answer: dict[str, Any] = node.client.get(
        "/dependencies.json", params={"project": project, "version": version}
    ).json()
    assert answer["status"] == "ok", answer
    return answer


def venvs(node: EggNode) -> set[str]:
    return {path.name for path in (node.home / "node/venvs").iterdir() if not path.name.startswith(".")}


def test_two_projects_whose_pins_contradict_run_side_by_side(node: EggNode) -> None:
    for project, pin in (("red", "colour==1.0"), ("blue", "colour==2.0")):
        deploy(node, project, pin)
    attempts = [node.run("teller", project=project) for project in ("red", "blue")]
    red, blue = (told(node.ended(attempt)) for attempt in attempts)
    assert (red["colour"], blue["colour"]) == ("red", "blue")
    assert red["python"] == red["version"] != blue["python"]
    answer = dependencies(node, "red")
    assert answer["state"] == "ready"
    assert "colour==1.0" in answer["packages"]
    assert f"scrapy=={version('scrapy')}" in answer["packages"]
    assert "+ colour==1.0" in answer["log"]


def test_a_conflict_is_told_in_the_resolvers_words_and_the_old_version_stays(node: EggNode) -> None:
    deploy(node, "painter", "colour==1.0")
    answer = deployed(node, "painter", "paint==1.0\ncolour==2.0\n", "2.0")
    assert (answer["status"], answer["reason"]) == ("error", "requirements_unmet")
    assert "colour<2. And because you require colour==2.0" in answer["message"]
    failed = dependencies(node, "painter", "2.0")
    assert "unsatisfiable" in failed["log"]
    assert (failed["state"], failed["reason"]) == ("failed", "requirements_unmet")
    assert told(node.ended(node.run("teller", project="painter")))["colour"] == "red"


@pytest.mark.parametrize(
    ("requirements", "why", "reason"),
    first_in_short(
        [
            ("scrapy==2.5.1\n", "you require scrapy>=2.11,<2.12", "requirements_unmet"),
            (
                "colour\n--index-url https://example.com/simple\n",
                "line 2: '--index-url https://example.com/simple' is",
                "requirements_refused",
            ),
            ("-r base.txt", "write the other file's lines into this one", "requirements_refused"),
            ("colour @ https://example.com/colour-1.0-py3-none-any.whl", "PROJECT_SOURCES", "requirements_refused"),
            ("colour \\\n  ==1.0 # and\n./local", "line 3: './local' is no requirement", "requirements_refused"),
            ("# requires-python: >=3.99\ncolour", "asks for Python >=3.99", "python_missing"),
            ("nowhere", "nowhere was not found", "requirements_unmet"),
            ("colour==1.0 --hash=sha256:" + "0" * 64, "Hash mismatch", "requirements_unmet"),
        ],
        4,
    ),
)
def test_requirements_that_cannot_be_met_are_refused_with_the_reason(
    node: EggNode, requirements: str, why: str, reason: str
) -> None:
    answer = deployed(node, "refused", requirements)
    assert (answer["status"], answer["reason"]) == ("error", reason)
    assert why in answer["message"]
    assert "refused" not in node.client.get("/listprojects.json").json()["projects"]


@in_full("what is installed, refused and killed here")
def test_the_same_requirements_are_installed_once(node: EggNode) -> None:
    """Two that ask for them at the same moment: see `test_slow_index.py`."""
    for project in ("twin1", "twin2"):
        deploy(node, project, "colour>=1 # the newest\n")
    first, second = (told(node.ended(node.run("teller", project=project))) for project in ("twin1", "twin2"))
    assert first["python"] == second["python"]
    assert first["colour"] == "blue"
    # the log is that of the one installation
    log = dependencies(node, "twin2")["log"]
    assert (log, log.count("compiling")) == (dependencies(node, "twin1")["log"], 1)


@in_full("what is installed, refused and killed here")
def test_what_is_installed_cannot_be_changed_by_accident(node: EggNode) -> None:
    deploy(node, "red", "colour==1.0")
    for module in (node.home / "node/venvs").glob("*/venv/lib/*/site-packages/colour.py"):
        assert module.stat().st_mode & 0o222 == 0
        assert module.parent.stat().st_mode & 0o222 == 0
        assert module.stat().st_nlink == 1
        assert list((module.parent / "__pycache__").glob("colour.*.pyc"))


@pytest.mark.parametrize("side", first_in_short(["before", "after"]))
def test_an_installation_that_is_killed_leaves_nothing_half_done(node: EggNode, plan: Path, side: str) -> None:
    requirements = f"colour==1.0\n{side}\n"
    (plan / f"node.put_venv.{side}").touch()
    answer = deployed(node, "cut", requirements)
    assert (answer["status"], "was interrupted" in answer["message"]) == ("error", True)
    deploy(node, "cut", requirements)
    assert told(node.ended(node.run("teller", project="cut")))["colour"] == "red"


@in_full("what is installed, refused and killed here")
def test_what_no_version_uses_any_more_is_removed_but_not_under_a_crawl(node: EggNode) -> None:
    before = venvs(node)
    requirements = "colour==2.0\npaint==1.0 ; python_version < '3'\norjson\n"
    slow = SPIDER.replace("        yield", f"{WAIT}        yield")
    answer = node.deploy("brief", "1.0", shop(requirements, spider=slow))
    assert answer["status"] == "ok", answer
    (new,) = venvs(node) - before
    os.utime(node.home / "node/venvs" / new, (0, 0))
    attempt = node.run_until_ready("teller", project="brief")
    node.ask("delproject", project="brief")
    assert new in venvs(node)
    (attempt / "go").touch()
    assert told(node.ended(attempt))["colour"] == "blue"
    node.wait_until_idle()
    deploy(node, "red", "colour==1.0")  # after which what is not used is removed
    node.wait_for(lambda: new not in venvs(node))


@in_full("what is installed, refused and killed here")
def test_a_node_that_starts_again_runs_what_was_installed_without_asking_for_anything(
    node: EggNode, wheels: Path
) -> None:
    deploy(node, "red", "colour==1.0")
    away = wheels.rename(wheels.with_name("away"))
    try:
        node.end()
        left = node.home / "node/venvs/.incoming-left"
        left.mkdir()
        node.start()
        node.wait_for(lambda: not left.exists())
        assert told(node.ended(node.run("teller", project="red")))["colour"] == "red"
        # what a node knows of its eggs may be of another release: then it looks at them anew
        (node.home / "node/eggs/red/1.0.spiders.json").unlink()
        node.end()
        node.start()
        assert told(node.ended(node.run("teller", project="red")))["colour"] == "red"
    finally:
        away.rename(wheels)


@in_full("what is installed, refused and killed here")
def test_an_attempt_says_why_what_it_needs_can_no_longer_be_installed(node: EggNode, wheels: Path) -> None:
    deploy(node, "blue", "colour==2.0")
    away = wheels.rename(wheels.with_name("away"))
    try:
        node.end()
        remove_tree(node.home / "node/venvs")
        node.start()
        refused = node.ended(node.run("teller", project="blue")).exit
        assert "version '1.0' of project 'blue' cannot be run on this node" in refused["refused"]
        assert refused["reason"] == "requirements_unmet"
    finally:
        away.rename(wheels)


def is_forked(item: dict[str, Any]) -> bool:
    """Whether it came from a process of its environment, which has imported the runner."""
    command = psutil.Process(item["parent"]).cmdline()
    return command == [f"{item['version']}/bin/python", "-m", "crawler.node.zygote", "crawler.node.runner"]


@in_full("what is installed, refused and killed here")
def test_crawls_are_forked_from_a_warm_process_of_their_environment_once_there_is_one(node: EggNode) -> None:
    def crawl(project: str) -> dict[str, Any]:
        item: dict[str, Any] = told(node.ended(node.run("teller", project=project)))
        return item

    def warm(project: str) -> dict[str, Any] | None:
        item = crawl(project)
        return item if is_forked(item) else None

    for project, pin in (("red", "colour==1.0"), ("blue", "colour==2.0")):
        deploy(node, project, pin)
    red = node.wait_for(lambda: warm("red"))
    assert (red["colour"], red["python"]) == ("red", red["version"])
    # there is room for one: that of the other takes its place
    blue = node.wait_for(lambda: warm("blue"))
    assert blue["colour"] == "blue"
    node.wait_for(lambda: not psutil.pid_exists(red["parent"]))
