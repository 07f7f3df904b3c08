"""One table of expectations, two servers: the embedded one, and the real one `MONGO_TEST_URI` may name."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from stores import StoreProcess, embedded_mongo

Document = dict[str, Any]
Client = MongoClient[Document]


_GIVEN = os.environ.get("MONGO_TEST_URI")


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the embedded server has its file."""
    return tmp_path_factory.mktemp("mongo")


@pytest.fixture(scope="package")
def server(folder: Path) -> Iterator[StoreProcess]:
    with embedded_mongo(folder) as server:
        yield server


@pytest.fixture(scope="package")
def embedded(server: StoreProcess) -> Iterator[Client]:
    with Client(server) as client:
        yield client


@pytest.fixture(scope="package", params=["embedded", *(["given"] if _GIVEN else [])])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    if request.param == "embedded":
        yield request.getfixturevalue("embedded")
    else:
        with Client(_GIVEN) as client:
            yield client


@pytest.fixture(scope="package")
def database(client: Client) -> Iterator[Database[Document]]:
    name = f"conformance_{uuid.uuid4().hex[:8]}"
    yield client[name]
    client.drop_database(name)


@pytest.fixture
def collection(database: Database[Document]) -> Collection[Document]:
    """A name nobody has used."""
    return database[f"c{uuid.uuid4().hex[:12]}"]
