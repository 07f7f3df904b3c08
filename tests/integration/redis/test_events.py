"""What is published about jobs: nobody waits for it, and it comes in order."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import redis
from jobs import make_job
from stack import wait_until
from stores import StoreProcess, valkey_server

from gateway.jobs.messages import EventPublisher, decode
from gateway.stores.redis import ALL_EVENTS, connect

#: Each would wait for twice two seconds.
MANY = 20


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("events")) as server:
        yield server


@pytest.fixture
def heard(valkey: StoreProcess) -> Iterator[redis.client.PubSub]:
    with redis.Redis.from_url(valkey) as client, client.pubsub(ignore_subscribe_messages=True) as listening:
        listening.subscribe(ALL_EVENTS)
        # the answer to that
        wait_until(lambda: listening.subscribed and listening.get_message(timeout=1) is None, what="the subscription")
        yield listening


def next_job(heard: redis.client.PubSub) -> str:
    message = wait_until(lambda: heard.get_message(timeout=1), what="an event")
    return str(decode(message["data"])["job_id"])


def test_events_come_in_the_order_in_which_they_were_published(
    valkey: StoreProcess, heard: redis.client.PubSub
) -> None:
    publisher, jobs = EventPublisher(connect(valkey)), [make_job() for _ in range(MANY)]
    for job in jobs:
        publisher.status(job)
    assert [next_job(heard) for _ in jobs] == [job.id for job in jobs]
    publisher.close()


def test_nobody_waits_for_a_redis_that_is_silent(valkey: StoreProcess, heard: redis.client.PubSub) -> None:
    publisher, before, after = EventPublisher(connect(valkey)), make_job(), make_job()
    publisher.status(before)
    assert next_job(heard) == before.id
    with valkey.frozen():
        began = time.monotonic()
        for _ in range(MANY):
            publisher.status(make_job())
        assert time.monotonic() - began < MANY
    publisher.status(after)
    wait_until(lambda: next_job(heard) == after.id, what="an event after the silence")
    publisher.close()


def test_what_was_to_be_published_is_published_before_the_end(
    valkey: StoreProcess, heard: redis.client.PubSub
) -> None:
    publisher, job = EventPublisher(connect(valkey)), make_job()
    publisher.status(job)
    publisher.close()
    assert next_job(heard) == job.id
    # the process ends: that is no error
    publisher.status(job)
