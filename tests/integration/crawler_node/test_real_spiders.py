"""The node as it is in this repository: its own scrapyd.conf, scrapy.cfg and runner, and an egg."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from eggs import egg as pack
from eggs import source

ROOT = Path(__file__).parents[3]
SPIDER = """
import os
import scrapy

class Shop(scrapy.Spider):
    name = "shop"

    async def start(self):
        self.logger.info("version %s of %s", "{version}", self.start_urls)
        self.logger.info("secrets: %s", [v for v in os.environ.values() if "hidden" in v])
        if False:
            yield
"""


@pytest.fixture(scope="module")
def real_node(tmp_path_factory: pytest.TempPathFactory, node_class: Callable[..., Any]) -> Iterator[Any]:
    node = node_class(tmp_path_factory.mktemp("real"), ROOT, PYTHONPATH="", CRAWL_STOP_GRACE="5")
    try:
        yield node.start()
    finally:
        node.clean_up()


def egg(version: str, spider: str = SPIDER) -> bytes:
    return pack(source("warehouse", spiders=spider.replace("{version}", version)))


def deploy(node: Any, version: str, content: bytes, project: str = "Warehouse") -> dict[str, Any]:
    data, files = {"project": project, "version": version}, {"egg": ("warehouse.egg", content)}
    answer: dict[str, Any] = node.client.post("/addversion.json", data=data, files=files).json()
    return answer


def test_an_egg_is_deployed_and_run_in_the_version_that_is_asked_for(real_node: Any) -> None:
    for version in ("1.0", "2.0"):
        assert deploy(real_node, version, egg(version))["spiders"] == 1
    listed = real_node.client.get("/listspiders.json", params={"project": "warehouse"}).json()
    assert listed["spiders"] == ["shop"]
    newest = real_node.run("shop", project="WAREHOUSE")
    older = real_node.run("shop", project="Warehouse", version="1.0")
    for folder, version in ((newest, "2.0"), (older, "1.0")):
        report = real_node.exit_of(folder)
        log = (folder / "crawl.log").read_text()
        assert report["exit_code"] == 0, log
        assert report["report"]["finish_reason"] == "finished"
        assert f"version {version} of" in log
        assert "secrets: []" in log


def test_what_is_no_egg_and_what_would_hide_our_own_project_is_refused(real_node: Any) -> None:
    assert "not a ZIP file" in deploy(real_node, "1", b"x")["message"]
    for name in ("default", "DiscoveryBot"):
        assert "the node's own" in deploy(real_node, "1", egg("1"), name)["message"]
    assert deploy(real_node, "1", egg("1"), "../x")["status"] == "error"


def test_the_node_writes_down_what_it_can_run(real_node: Any) -> None:
    catalog = real_node.home / "node/catalog.json"
    real_node.wait_for(catalog.exists)
    assert "seo" in [info["name"] for info in json.loads(catalog.read_bytes())]
