"""A real node with its own scrapyd.conf and runner, and eggs that are deployed as `scrapyd-deploy` does it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from eggs import egg, folder
from node import ROOT, Node
from sites.server import Site, links

PROJECTS = Path(__file__).parent / "projects"
#: An egg's spider starts from nothing: on a busy machine that takes a while.
PATIENCE = 60


class Crawl(NamedTuple):
    """What an attempt left behind."""

    folder: Path
    exit: dict[str, Any]

    @property
    def items(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "items.jsonl").read_bytes().splitlines()]

    @property
    def log(self) -> str:
        return (self.folder / "crawl.log").read_text()

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.items if item.get("kind") == kind]


class EggNode(Node):
    """Deploys, and knows what it has told the world."""

    def deploy(self, project: str, version: str, content: bytes) -> dict[str, Any]:
        data, files = {"project": project, "version": version}, {"egg": ("project.egg", content)}
        answer: dict[str, Any] = self.client.post("/addversion.json", data=data, files=files, timeout=PATIENCE).json()
        return answer

    def deploy_folder(self, project: str) -> dict[str, Any]:
        answer = self.deploy(project, "1.0", egg(folder(PROJECTS / project), f"{project}.settings"))
        assert answer["status"] == "ok", answer
        return answer

    def ask(self, service: str, **fields: str) -> dict[str, Any]:
        """Post to a web service that changes something."""
        answer: dict[str, Any] = self.client.post(f"/{service}.json", data=fields).json()
        return answer

    def catalog(self, project: str) -> list[dict[str, Any]]:
        path = self.home / "node/catalog.json"
        self.wait_for(path.exists)
        infos = json.loads(path.read_bytes())
        return [info for info in infos if info["project"] == project]

    def ended(self, attempt: Path) -> Crawl:
        self.wait_for((attempt / "exit.json").exists, PATIENCE)
        return Crawl(attempt, self.exit_of(attempt))


def new_node(home: Path, **environ: str) -> EggNode:
    quick = {"PYTHONPATH": "", "CRAWL_STOP_GRACE": "5", "NODE_SLOTS": "3"}
    return EggNode(home, ROOT, **{**quick, **environ})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EggNode]:
    node = new_node(tmp_path_factory.mktemp("home"), CRAWL_ALLOW_NETWORKS="127.0.0.0/8")
    try:
        yield node.start()
    finally:
        node.clean_up()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    pages = {
        "/": links("/a"),
        "/a": links("/b"),
        "/b": links(),
        **dict.fromkeys(("/books", "/hard-coded", "/former"), links()),
    }
    with Site(pages) as site:
        yield site
