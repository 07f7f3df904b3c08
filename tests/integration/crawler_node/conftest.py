"""Nodes for the tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from node import ROOT, Node


@pytest.fixture(scope="session")
def stand_in_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our scrapyd.conf, but for the runner, beside a project that has no need of Scrapy."""
    folder = tmp_path_factory.mktemp("project")
    lines = (ROOT / "scrapyd.conf").read_text().splitlines()
    changes = {"runner": "stand_in", "lister": "stand_in_lister", "poll_interval": "0.5"}
    options = [line.partition("=")[0].strip() for line in lines]
    changed = [
        f"{option} = {changes[option]}" if option in changes else line
        for option, line in zip(options, lines, strict=True)
    ]
    (folder / "scrapyd.conf").write_text("\n".join(changed))
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = no.such.settings\n")
    return folder


@pytest.fixture
def new_node(tmp_path: Path, stand_in_project: Path) -> Iterator[Callable[..., Node]]:
    """Makes nodes for this test alone; not started yet."""
    nodes: list[Node] = []

    def make(folder: Path = stand_in_project, **environ: str) -> Node:
        nodes.append(Node(tmp_path / f"home{len(nodes)}", folder, **environ))
        return nodes[-1]

    yield make
    for node in nodes:
        node.clean_up()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory, stand_in_project: Path) -> Iterator[Node]:
    """A running node that most tests share; its stand-in spiders do as their names say."""
    shared = Node(tmp_path_factory.mktemp("home"), stand_in_project, CRAWL_MEMORY_LIMIT=str(250 << 20))
    try:
        yield shared.start()
    finally:
        shared.clean_up()


@pytest.fixture(scope="session")
def node_class() -> type[Node]:
    return Node
