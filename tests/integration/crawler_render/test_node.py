"""A real node, whose spiders are forked, and the browsers that they start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from integration.crawler_render.test_rendering import PATIENT, RENDERED, browsers, part, script
from node import ROOT, Node
from sites.server import Site


@pytest.fixture(scope="module")
def node(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    home = tmp_path_factory.mktemp("home")
    running = Node(home, ROOT, CRAWL_ALLOW_NETWORKS="127.0.0.0/8", NODE_FORK="true", CHROMIUM_PATH=chromium)
    try:
        yield running.start()
    finally:
        running.clean_up()


def test_it_tells_which_chromium_it_has(node: Node, chromium: str) -> None:
    assert json.loads((node.home / "node" / "browser.json").read_bytes())["chromium"] == chromium


def test_a_forked_spider_renders(node: Node) -> None:
    with Site({"/": script("document.title = 'made'")}) as site:
        folder = node.run("seo", start_urls=[site.url], params=RENDERED)
        report = node.wait_for(lambda: (folder / "exit.json").exists() and node.exit_of(folder))
    assert report["exit_code"] == 0, (folder / "crawl.log").read_text()
    (item,) = (json.loads(line) for line in (folder / "items.jsonl").read_bytes().splitlines())
    assert item["title"] == "made"
    node.wait_for(lambda: browsers(folder) == [])


def test_a_browser_dies_with_its_spider(node: Node) -> None:
    with Site({"/": script("fetch('/shown')"), "/shown": "yes"}) as site:
        folder = node.run("seo", start_urls=[site.url], params=PATIENT)
        node.wait_for(lambda: site.hits("/shown"))
        (driver,) = part(folder, "driver")
        family = [driver, *part(folder, "browser"), *part(folder, "renderer")]
        driver.parent().kill()  # type: ignore[union-attr] # it has one: the spider
        node.exit_of(folder)
        node.wait_for(lambda: not any(is_running(process) for process in family))


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_node_without_a_chromium_says_so(tmp_path: Path) -> None:
    bare = Node(tmp_path / "home", ROOT, CHROMIUM_PATH="/nowhere/chromium")
    try:
        bare.start()
        assert json.loads((bare.home / "node" / "browser.json").read_bytes())["chromium"] is None
    finally:
        bare.clean_up()
