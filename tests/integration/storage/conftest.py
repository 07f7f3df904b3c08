"""Every store test runs against each server: mongomock, the embedded one, and any named in MONGO_TEST_URI."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mongomock
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from stores import embedded_mongo

from gateway.storage.indexes import ensure_indexes
from gateway.storage.job_queue import JobQueue
from gateway.storage.jobs import JobStore

BACKENDS = ["mongomock", "embedded", *(["external"] if os.environ.get("MONGO_TEST_URI") else [])]


@pytest.fixture(scope="session")
def embedded_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as uri:
        yield uri


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database[dict[str, Any]]]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    if request.param == "mongomock":
        client: Any = mongomock.MongoClient(tz_aware=True)
    elif request.param == "embedded":
        client = MongoClient(request.getfixturevalue("embedded_uri"), tz_aware=True)
    else:
        client = MongoClient(os.environ["MONGO_TEST_URI"], tz_aware=True)
    ensure_indexes(client[name])
    yield client[name]
    client.drop_database(name)
    client.close()


@pytest.fixture
def jobs(database: Database[dict[str, Any]]) -> JobStore:
    return JobStore(database)


@pytest.fixture
def queue(database: Database[dict[str, Any]]) -> JobQueue:
    return JobQueue(database)
