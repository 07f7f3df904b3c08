from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import StoreProcess, embedded_mongo, valkey_server

sys.path.insert(0, str(Path(__file__).parent))
from tailer_node import Node, tailing_node


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def mongo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as server:
        yield server


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, mongo: StoreProcess, valkey: StoreProcess) -> Iterator[Node]:
    with tailing_node(tmp_path_factory.mktemp("home"), mongo, valkey) as running:
        yield running
