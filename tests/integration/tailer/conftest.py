from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from stores import StoreProcess, embedded_mongo, valkey_server

sys.path.insert(0, str(Path(__file__).parent))
from tailer_node import Node

TailingNode = Callable[..., AbstractContextManager[Node]]


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def mongo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as server:
        yield server


@pytest.fixture(scope="session")
def tailing_node() -> TailingNode:
    """Starts a node: called with a home, the URLs of MongoDB and Redis, and further environment variables."""

    @contextmanager
    def run(home: Path, mongo_uri: str, redis_url: str, **variables: str) -> Iterator[Node]:
        node = Node(home, mongo_uri, redis_url, **variables)
        try:
            node.start_tailer()
            yield node
        finally:
            node.close()

    return run


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> Iterator[Node]:
    with tailing_node(tmp_path_factory.mktemp("home"), mongo, valkey) as running:
        yield running
