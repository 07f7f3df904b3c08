"""Every call has an end, and what is built on calls lasts longer than they do together."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis
from pymongo.errors import PyMongoError
from relay import SILENCE, MongoRelay
from stores import embedded_mongo, valkey_server

from gateway.clock import VERDICT_SECONDS
from gateway.dispatch import egg_delivery, sweeping
from gateway.errors import NodeUnreachableError
from gateway.jobs import queue
from gateway.nodes import scrapyd
from gateway.nodes.scrapyd import ScrapydClient
from gateway.projects import eggs
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect, within
from gateway.stores.redis import connect as connect_redis

#: Seconds that a machine with much to do may add.
SLACK = 1.5


@pytest.fixture(scope="module")
def mongo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as uri:
        yield uri


@pytest.fixture
def relay(mongo: str) -> Iterator[MongoRelay]:
    with MongoRelay.before(mongo).running() as relay:
        yield relay


def took(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with suppress(PyMongoError, redis.RedisError, NodeUnreachableError):
        call()
        pytest.fail("it was answered")
    return time.monotonic() - began


def ends_in_time(call: Callable[[], object], seconds: float, *, least: float = 0.0) -> bool:
    """At one of a few times: a machine that others share may stand still at any moment."""
    return any(least < took(call) < seconds + SLACK for _ in range(3))


@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: jobs.insert_one({}),
        lambda jobs: jobs.update_one({"a": 1}, {"$set": {"a": 2}}),
        lambda jobs: jobs.find_one_and_update({"a": 1}, {"$set": {"a": 2}}),
        lambda jobs: list(jobs.find()),
        lambda jobs: jobs.count_documents({}),
        lambda jobs: jobs.database.command("hello"),
    ],
)
def test_each_operation_ends_in_time_though_its_connections_go_silent(
    mongo: str, relay: MongoRelay, ask: Callable[[Any], object]
) -> None:
    database = connect(relay.url(mongo), timeout=0.5)
    database["jobs"].insert_one({"a": 1})
    # one after the other, also those that are made anew
    relay.fault = lambda _: SILENCE
    relay.forget()
    assert ends_in_time(lambda: ask(database["jobs"]), 0.5, least=0.3)
    database.client.close()


def test_the_server_is_told_how_long_it_may_take(mongo: str, relay: MongoRelay) -> None:
    limits: dict[str, int | None] = {}
    relay.fault = lambda command: limits.update({next(iter(command)): command.get("maxTimeMS")})
    database = connect(relay.url(mongo), timeout=5)
    jobs = database["jobs"]
    jobs.insert_many([{"_id": number} for number in range(150)])
    jobs.update_one({"_id": 1}, {"$set": {"a": 1}})
    jobs.find_one_and_update({"_id": 1}, {"$set": {"a": 2}})
    jobs.delete_one({"_id": 2})
    assert len(list(jobs.find({"_id": {"$lt": 150}}))) == 149
    ensure_indexes(database)
    database.client.close()
    asked = {"insert", "update", "findAndModify", "delete", "find"}
    assert all(0 < (limits[name] or 0) <= 5000 for name in asked), limits
    assert (limits["createIndexes"] or 0) > 60_000


def test_a_block_bounds_all_that_it_asks_and_building_indexes_counts_not(mongo: str, relay: MongoRelay) -> None:
    database = connect(relay.url(mongo))
    ensure_indexes(database)

    def ask_often() -> None:
        with within(0.8):
            for _ in range(4):
                with suppress(PyMongoError):
                    database["jobs"].find_one()
            raise PyMongoError

    relay.fault = lambda command: SILENCE if "find" in command else None
    assert ends_in_time(ask_often, 0.8)
    relay.fault = lambda _: None
    with within(0.0001):
        ensure_indexes(database)
    database.client.close()


def test_in_a_block_a_redis_that_hangs_is_waited_for_no_longer(tmp_path_factory: pytest.TempPathFactory) -> None:
    with valkey_server(tmp_path_factory.mktemp("valkey")) as url:
        client = connect_redis(url)
        client.ping()

        def ask_often() -> None:
            with within(0.5):
                for _ in range(20):
                    with suppress(redis.RedisError):
                        client.ping()
                raise redis.RedisError

        with url.frozen():
            assert ends_in_time(ask_often, 0.5)
        client.close()


@contextmanager
def dripping() -> Iterator[str]:
    """A node that answers a byte every now and then, and never comes to an end."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not over.wait(0.1):
                connection.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        thread.join()
        listener.close()


@pytest.mark.parametrize("seconds", [None, 1.0])
def test_a_node_that_drips_its_answer_is_given_up_in_time(seconds: float | None) -> None:
    client = ScrapydClient("discoverybot", "secret")
    try:
        with dripping() as url, within(seconds or 60):
            # it has no end by itself
            assert took(lambda: client.question(url).result()) < (seconds or VERDICT_SECONDS) + 30
    finally:
        client.close()


def test_leases_outlast_the_calls_that_are_made_under_them() -> None:
    # an assignment, and the answer of the node
    assert queue.ATTEND_SECONDS > VERDICT_SECONDS + scrapyd.CALL_SECONDS
    assert sweeping.TAKEN_FOR.total_seconds() > VERDICT_SECONDS
    assert eggs.LEASE.total_seconds() > egg_delivery.READ_SECONDS + scrapyd.DEPLOY_SECONDS
