"""Wheels on a page that takes its time: deployments do not wait for ever, and nothing outlives a killed Scrapyd."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from eggs import egg, source
from forms import in_full
from sites.server import Site
from wheels import page_of_wheels, write_wheel, write_wheels_of_node

from .conftest import EggNode, new_node

SPIDER = """
import scrapy

class Teller(scrapy.Spider):
    name = "teller"
"""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Site]:
    """Another one for each test: what uv has once fetched it asks for no more."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheels_of_node(folder)
    write_wheel(folder, "colour", "1.0", {"colour.py": ""})
    with Site(page_of_wheels(folder)) as site:
        yield site


@pytest.fixture
def node(tmp_path: Path, index: Site) -> Iterator[EggNode]:
    """One that has no other index."""
    node = new_node(tmp_path / "home", PROJECT_INDEX_URL="none", PROJECT_WHEELS=f"{index.url}/")
    try:
        yield node.start()
    finally:
        node.clean_up()


def deployed(node: EggNode, project: str, requirements: str = "colour\n", **fields: str) -> dict[str, Any]:
    content = egg({**source("shop", spiders=SPIDER), "requirements.txt": requirements})
    answer: dict[str, Any] = node.client.post(
        "/addversion.json", data={"project": project, "version": "1", **fields}, files={"egg": ("shop.egg", content)}
    ).json()
    return answer


def state(node: EggNode, project: str) -> str:
    answer = node.client.get("/dependencies.json", params={"project": project, "version": "1"}).json()
    return str(answer["state"])


def builders(node: EggNode) -> list[psutil.Process]:
    """With what they have started, for this node."""
    assert node.process is not None
    return [
        process
        for child in psutil.Process(node.process.pid).children()
        if "crawler.node.venv_builder" in child.cmdline()
        for process in (child, *child.children(recursive=True))
    ]


def test_whoever_waits_no_longer_is_told_later_what_came_of_it(node: EggNode, index: Site) -> None:
    index.hold()
    answer = deployed(node, "patient", wait="0.2")
    assert (answer["status"], answer["code"], answer["fault"]) == ("error", "still_installing", "node")
    assert state(node, "patient") == "building"
    # another one that asks for the same has no build of its own
    with ThreadPoolExecutor(1) as threads:
        twin = threads.submit(deployed, node, "twin")
        node.wait_for(lambda: state(node, "twin") == "building")
        assert [process.cmdline()[2] for process in builders(node)].count("crawler.node.venv_builder") == 1
        index.release()
        assert twin.result()["status"] == "ok"
    assert deployed(node, "patient")["status"] == "ok"
    # so it is with a failure, which is not looked for again
    index.hold()
    assert deployed(node, "sorry", "nowhere\n", wait="0")["code"] == "still_installing"
    index.release()
    node.wait_for(lambda: state(node, "sorry") == "failed")
    index.hold()
    answer = deployed(node, "sorry", "nowhere\n", wait="0")
    index.release()
    assert (answer["status"], "nowhere was not found" in answer["message"]) == ("error", True)


@in_full("who waits no longer above")
def test_an_egg_that_comes_again_once_all_is_installed_is_not_unpacked_again(node: EggNode, index: Site) -> None:
    index.hold()
    assert deployed(node, "again", wait="0.2")["code"] == "still_installing"
    (folder,) = (path for path in (node.home / "node/unpacked").iterdir() if not path.name.startswith("."))
    before = folder.stat()
    index.release()
    node.wait_for(lambda: state(node, "again") == "ready")
    assert deployed(node, "again")["status"] == "ok"
    assert (folder.stat().st_ino, folder.stat().st_ctime) == (before.st_ino, before.st_ctime)


@in_full("who waits no longer above")
def test_a_lock_for_another_python_is_refused_with_both(node: EggNode) -> None:
    answer = deployed(node, "later", "# requires-python: >=3.99\ncolour==1.0\n")
    assert "it asks for Python >=3.99, and this node has Python 3." in answer["message"]


def test_a_build_ends_with_its_scrapyd(node: EggNode, index: Site) -> None:
    index.hold()
    assert deployed(node, "cut", wait="0")["code"] == "still_installing"
    left = node.wait_for(lambda: found if len(found := builders(node)) > 1 else None)
    node.end(signal.SIGKILL)
    node.wait_for(lambda: not any(process.is_running() for process in left))
