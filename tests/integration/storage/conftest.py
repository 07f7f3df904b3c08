"""Every store test runs against each server: mongomock, the embedded one, and any named in MONGO_TEST_URI.

Mongomock is left out where it cannot follow: in bulk writes (`served`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mongomock
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from stores import REAL_BACKENDS, embedded_mongo

from gateway.jobs.queue import JobQueue
from gateway.jobs.store import JobStore
from gateway.stores.indexes import ensure_indexes

BACKENDS = ["mongomock", *REAL_BACKENDS]


@pytest.fixture(scope="session")
def embedded_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as uri:
        yield uri


@contextmanager
def _fresh(client: Any) -> Iterator[Database[dict[str, Any]]]:
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    ensure_indexes(database)
    yield database
    client.drop_database(database.name)
    client.close()


def _client(backend: str, request: pytest.FixtureRequest) -> Any:
    if backend == "mongomock":
        return mongomock.MongoClient(tz_aware=True)
    embedded = backend == "embedded"
    return MongoClient(
        request.getfixturevalue("embedded_uri") if embedded else os.environ["MONGO_TEST_URI"], tz_aware=True
    )


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest) -> Iterator[Database[dict[str, Any]]]:
    with _fresh(_client(request.param, request)) as database:
        yield database


@pytest.fixture(params=BACKENDS[1:])
def served(request: pytest.FixtureRequest) -> Iterator[Database[dict[str, Any]]]:
    with _fresh(_client(request.param, request)) as database:
        yield database


@pytest.fixture
def jobs(database: Database[dict[str, Any]]) -> JobStore:
    return JobStore(database)


@pytest.fixture
def queue(database: Database[dict[str, Any]]) -> JobQueue:
    return JobQueue(database)
