"""One table of expectations, two servers: the embedded one, and the real one `MONGO_TEST_URI` may name."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from stores import embedded_mongo

Document = dict[str, Any]
Client = MongoClient[Document]


_GIVEN = os.environ.get("MONGO_TEST_URI")


@pytest.fixture(scope="package", params=["embedded", *(["given"] if _GIVEN else [])])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    if request.param == "embedded":
        with embedded_mongo(tmp_path_factory.mktemp("mongo")) as uri, Client(uri) as client:
            yield client
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
