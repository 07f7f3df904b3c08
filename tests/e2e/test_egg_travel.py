"""Eggs on their way between nodes: a real stack, and a second node that is lost for good."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from eggs import egg, source
from forms import in_full
from nodes import ExtraNode, nodes_beside
from pymongo.database import Database
from sites.server import Site
from stack import Stack, running_stack, wait_until

from gateway.clock import utc_now
from gateway.contract.crawl import Egg
from gateway.projects.eggs import Content, EggCopies, EggStore
from gateway.stores.mongo import Document, connect

pytestmark = [
    pytest.mark.stack,
    in_full("eggs that are brought, refused and deleted in services/test_egg_delivery.py and test_egg_kills.py"),
]

WANDERER = """
import scrapy

class Wanderer(scrapy.Spider):
    name = "wanderer"

    def parse(self, response):
        yield {"url": response.url}
"""
#: What a crawl is about of which only its start matters.
ANYWHERE = "http://127.0.0.1:9/"
#: Imports what only the second node has.
PICKY = """
import scrapy
import only_there

class Picky(scrapy.Spider):
    name = "picky"

    def parse(self, response):
        yield {"from": only_there.__name__}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("stack") / "home"
    with running_stack(home, NODE_DEAD_AFTER="12", NODE_FORK="false", NODE_NAME="first") as stack:
        yield stack


@pytest.fixture(scope="module")
def second(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtraNode]:
    modules = tmp_path_factory.mktemp("modules")
    (modules / "only_there.py").touch()
    with nodes_beside(stack, "second", NODE_FORK="false", PYTHONPATH=str(modules)) as (node,):
        yield node


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[Database[Document]]:
    database = connect(stack.ready["mongo_uri"])
    yield database
    database.client.close()


def add_version(stack: Stack, node: ExtraNode, project: str, content: bytes) -> None:
    """As `scrapyd-deploy` does it."""
    answer = httpx2.post(
        f"{node.url}/addversion.json",
        data={"project": project, "version": "1.0"},
        files={"egg": ("project.egg", content)},
        auth=(stack.ready["scrapyd_username"], stack.ready["scrapyd_password"]),
        timeout=90,
        trust_env=False,
    ).json()
    assert answer["status"] == "ok", answer


def versions(stack: Stack, project: str) -> list[str]:
    listed = stack.http.get(f"{stack.url}/spiders?project={project}").json()["projects"]
    return [version for each in listed for version in each["versions"]]


def file_of(home: Path, project: str) -> Path:
    return home / "node/eggs" / project / "1.0.egg"


@pytest.fixture(scope="module")
def lost(stack: Stack, second: ExtraNode, database: Database[Document]) -> ExtraNode:
    """The node that two projects were deployed on, and no other."""
    add_version(stack, second, "wanderer", egg(source("wanderer", spiders=WANDERER)))
    add_version(stack, second, "picky", egg(source("picky", spiders=PICKY)))
    for project in ("wanderer", "picky"):
        wait_until(lambda name=project: kept(database, name), timeout=90, what=f"the egg of {project}")  # type: ignore[misc]  # mypy cannot infer it
        wait_until(lambda name=project: versions(stack, name), timeout=90, what=f"the spiders of {project}")  # type: ignore[misc]  # as above
    second.kill()
    return second


def kept(database: Database[Document], project: str) -> Content | None:
    found = EggStore(database).get(Egg(project, "1.0"))
    return found and found.content


def test_an_egg_outlives_the_only_node_that_had_it(stack: Stack, lost: ExtraNode, site: Site) -> None:
    moved = stack.crawl(f"{site.url}/tree/1", project="wanderer", spider="wanderer")
    assert stack.wait_final(moved, timeout=90)["status"] == "finished"
    assert stack.items(moved) == [{"url": f"{site.url}/tree/1"}]
    assert stack.job(moved)["attempts"][-1]["node"] == "first"


def test_an_egg_that_a_node_refuses_is_left_alone_and_whoever_waits_is_told(
    stack: Stack, lost: ExtraNode, database: Database[Document]
) -> None:
    job_id = stack.crawl(ANYWHERE, project="picky", spider="picky")
    said = wait_until(lambda: stack.status(job_id)["message"], timeout=90, what="the reason")
    assert "node first did not accept the egg" in said
    assert "only_there" in said
    refused = EggCopies(database).of_egg(Egg("picky", "1.0"))["first"]
    assert refused.not_before is not None
    assert refused.not_before > utc_now() + timedelta(seconds=20)


def test_what_is_deleted_is_deleted_everywhere_and_does_not_come_back(
    stack: Stack, lost: ExtraNode, database: Database[Document]
) -> None:
    url = f"{stack.url}/projects/wanderer/versions/1.0"
    removed: dict[str, Any] = stack.http.delete(url).raise_for_status().json()
    assert {node["node"]: node["removed"] for node in removed["nodes"]} == {"first": True, "second": False}
    assert not file_of(stack.home, "wanderer").exists()
    assert file_of(lost.home, "wanderer").exists()
    assert stack.http.delete(url).status_code == 404

    lost.start()
    wait_until(lambda: not file_of(lost.home, "wanderer").exists(), timeout=90, what="the removal")
    wait_until(lambda: not versions(stack, "wanderer"), timeout=90, what="the end of its spiders")
    assert kept(database, "wanderer") is None


def test_who_waits_for_a_node_that_takes_the_egg_gets_it_when_it_is_back(stack: Stack, lost: ExtraNode) -> None:
    # the same request: the job that waits
    job_id = stack.crawl(ANYWHERE, project="picky", spider="picky")
    wait_until(lambda: stack.status(job_id)["status"] != "pending", timeout=90, what="its start")
