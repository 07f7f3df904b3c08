"""One Valkey for all; a database and a gateway for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import mongomock
import pytest
import redis
from integration.event_stream.stage import Gateway, Play, gateway
from pymongo.database import Database
from stores import StoreProcess, embedded_mongo, valkey_server

from gateway.stores import mongo
from gateway.stores.mongo import Document
from gateway.web.event_stream.log_lines import StreamLimits

#: Impatient, so that tests are quick.
LIMITS = StreamLimits(poll=0.1, refresh=0.4, gap_patience=0.3, farewell=1)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def database() -> Database[Document]:
    return mongomock.MongoClient(tz_aware=True)["discoverybot"]


@pytest.fixture
def redis_client(valkey: StoreProcess) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey) as client:
        yield client


@pytest.fixture
async def streams(database: Database[Document], valkey: StoreProcess) -> AsyncIterator[Gateway]:
    async with gateway(database, valkey, LIMITS) as running:
        yield running


@pytest.fixture
def play(database: Database[Document], redis_client: redis.Redis) -> Callable[..., Play]:
    def make(**fields: Any) -> Play:
        return Play(database, redis_client, **fields)

    return make


@pytest.fixture(scope="session")
def mongo_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as server:
        yield server


@pytest.fixture
def shared_database(mongo_url: StoreProcess) -> Iterator[Database[Document]]:
    """One that other processes see as well."""
    database = mongo.connect(mongo_url)
    yield database
    database.client.close()
