"""Nodes for the tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forms import first_in_short
from node import ROOT, Node, TurnedClock


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
def node_fork() -> str:
    """`NODE_FORK` of new nodes; tests that hold either way parametrise it."""
    return "true"


@pytest.fixture
def new_node(tmp_path: Path, stand_in_project: Path, node_fork: str) -> Iterator[Callable[..., Node]]:
    """Makes nodes for this test alone; not started yet."""
    nodes: list[Node] = []

    def make(folder: Path = stand_in_project, **environ: str) -> Node:
        nodes.append(Node(tmp_path / f"home{len(nodes)}", folder, **{"NODE_FORK": node_fork, **environ}))
        return nodes[-1]

    yield make
    for node in nodes:
        node.clean_up()


@pytest.fixture(
    scope="session",
    params=first_in_short([pytest.param("true", id="forked"), pytest.param("false", id="started")]),
)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, stand_in_project: Path
) -> Iterator[Node]:
    """A running node that most tests share; its stand-in spiders do as their names say."""
    home = tmp_path_factory.mktemp("home")
    shared = Node(home, stand_in_project, CRAWL_MEMORY_LIMIT=str(250 << 20), NODE_FORK=request.param)
    shared.forked = False
    try:
        yield shared.start()
    finally:
        shared.clean_up()


@pytest.fixture(params=[600, -600], ids=["ten minutes ahead", "ten minutes behind"])
def node_that_is_off(request: pytest.FixtureRequest, new_node: Callable[..., Node], tmp_path: Path) -> Node:
    """Its Scrapyd's clock is wrong; not started yet."""
    return new_node(**TurnedClock(tmp_path / "off", request.param).environment())


@pytest.fixture(scope="session")
def node_class() -> type[Node]:
    return Node
