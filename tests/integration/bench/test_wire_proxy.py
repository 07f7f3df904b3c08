from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pymongo
import pytest
import redis
from stores import embedded_mongo, valkey_server

from bench.wire_proxy import UPKEEP, Asked, Commands, CountingProxy, RoundTrips


def test_it_counts_commands_by_process_and_collection(tmp_path: Path) -> None:
    with (
        embedded_mongo(tmp_path) as url,
        CountingProxy(urlsplit(url).port or 0, Commands).running() as proxy,
        pymongo.MongoClient[dict[str, object]]("127.0.0.1", proxy.port) as client,
    ):
        jobs = client["bench"]["jobs"]
        jobs.insert_many([{"_id": number, "text": "x" * 100_000} for number in range(5)])
        before = proxy.counts.copy()
        assert len(list(jobs.find(batch_size=2))) == 5
        jobs.update_one({"_id": 1}, {"$set": {"text": "y"}})
        counted = Counter({asked: count for asked, count in proxy.since(before).items() if count})
        me = os.getpid()
    assert {asked: count for asked, count in counted.items() if asked.command not in UPKEEP} == {
        Asked(me, "find", "jobs"): 1,
        Asked(me, "getMore"): 2,
        Asked(me, "update", "jobs"): 1,
    }


def test_a_pipeline_is_one_round_trip(tmp_path: Path) -> None:
    with (
        valkey_server(tmp_path) as url,
        CountingProxy(urlsplit(url).port or 0, RoundTrips).running() as proxy,
        redis.Redis(port=proxy.port) as client,
    ):
        client.ping()
        before = proxy.counts.copy()
        with client.pipeline(transaction=False) as pipeline:
            for number in range(50):
                pipeline.set(f"key-{number}", number)
            pipeline.execute()
        client.get("key-1")
        client.get("key-2")
        assert proxy.since(before) == {Asked(os.getpid(), "round trip"): 3}


def test_a_connection_ends_with_the_store(tmp_path: Path) -> None:
    with (
        valkey_server(tmp_path) as url,
        CountingProxy(urlsplit(url).port or 0, RoundTrips).running() as proxy,
        redis.Redis(port=proxy.port) as client,
    ):
        client.ping()
        url.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
