"""Every store test runs against each server: mongomock, the embedded one, and any named in MONGO_TEST_URI.

Mongomock is left out where it cannot follow: in bulk writes (`served`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mongomock
import pytest
from databases import Databases
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


@pytest.fixture(scope="session")
def embedded(embedded_uri: str) -> Iterator[Databases]:
    with Databases(embedded_uri) as databases:
        yield databases


@pytest.fixture(scope="session")
def external() -> Iterator[Databases]:
    with Databases(os.environ["MONGO_TEST_URI"]) as databases:
        yield databases


@contextmanager
def _fresh(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "mongomock":
        database = mongomock.MongoClient(tz_aware=True)["test"]
        ensure_indexes(database)
        yield database
        return
    databases: Databases = request.getfixturevalue(request.param)
    with databases.lent() as name, MongoClient[dict[str, Any]](databases.uri, tz_aware=True) as client:
        yield client[name]


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest) -> Iterator[Database[dict[str, Any]]]:
    with _fresh(request) as database:
        yield database


@pytest.fixture(params=REAL_BACKENDS)
def served(request: pytest.FixtureRequest) -> Iterator[Database[dict[str, Any]]]:
    with _fresh(request) as database:
        yield database


@pytest.fixture
def jobs(database: Database[dict[str, Any]]) -> JobStore:
    return JobStore(database)


@pytest.fixture
def queue(database: Database[dict[str, Any]]) -> JobQueue:
    return JobQueue(database)
