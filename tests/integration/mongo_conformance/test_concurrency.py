"""Many clients of the embedded server at once, and kill -9 under them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pymongo import MongoClient, ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import ConnectionFailure, DuplicateKeyError, ExecutionTimeout, OperationFailure
from stores import StoreProcess, embedded_mongo

Document = dict[str, Any]


@pytest.fixture
def collection(embedded: MongoClient[Document]) -> Iterator[Collection[Document]]:
    """Only the embedded server's."""
    collection = embedded["test"][f"c{uuid.uuid4().hex[:12]}"]
    yield collection
    collection.drop()


def test_sixteen_clients_claim_each_job_once_in_order(collection: Collection[Document]) -> None:
    collection.create_index([("status", 1), ("priority", -1), ("created_at", 1)])
    collection.insert_many(
        [{"_id": n, "status": "pending", "priority": n % 3, "created_at": n, "due": 0} for n in range(400)]
    )

    def claim(_: int) -> list[Document]:
        claimed: list[Document] = []
        while job := collection.find_one_and_update(
            {"status": "pending", "due": {"$lte": 1}},
            {"$set": {"status": "running"}},
            sort=[("priority", -1), ("created_at", 1)],
            return_document=ReturnDocument.AFTER,
        ):
            claimed.append(job)
        return claimed

    with ThreadPoolExecutor(16) as pool:
        claims = list(pool.map(claim, range(16)))
    assert sorted(job["_id"] for claimed in claims for job in claimed) == list(range(400))
    for claimed in claims:
        places = [(-job["priority"], job["created_at"]) for job in claimed]
        assert places == sorted(places)


def test_sixteen_clients_compare_and_set_without_an_index(collection: Collection[Document]) -> None:
    collection.insert_many([{"_id": n, "state": "free", "filler": "x" * 500} for n in range(300)])

    def win(by: int) -> int:
        return sum(
            collection.update_one(
                {"filler": {"$exists": True}, "state": "free"}, {"$set": {"state": by}}
            ).modified_count
            for _ in range(25)
        )

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(win, range(16))) == 300
    assert collection.count_documents({"state": "free"}) == 0


def test_simultaneous_upserts_of_one_key_make_one_document(collection: Collection[Document]) -> None:
    collection.create_index("key", unique=True)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: collection.update_one({"key": n % 5}, {"$inc": {"n": 1}}, upsert=True), range(200)))
    assert sorted((found["key"], found["n"]) for found in collection.find()) == [(key, 40) for key in range(5)]


def test_a_long_scan_does_not_keep_others_waiting(collection: Collection[Document]) -> None:
    collection.insert_many([{"_id": n, "text": "x" * 200, "n": n} for n in range(10_000)])
    stopped = threading.Event()

    def scan(_: int) -> list[float]:
        scans = []
        while not stopped.is_set():
            started = time.monotonic()
            assert collection.find_one({"n": -1, "text": {"$regex": "y"}}) is None
            scans.append(time.monotonic() - started)
        return scans

    with ThreadPoolExecutor(2) as pool:
        scanning = pool.map(scan, range(2))
        waits = []
        for number in range(50):
            started = time.monotonic()
            assert collection.find_one({"_id": number})
            waits.append(time.monotonic() - started)
        stopped.set()
        scans = [seconds for one in scanning for seconds in one]
    # a machine that is busy slows down both
    assert median(waits) < max(0.1, median(scans) / 2)


def test_a_scan_beyond_its_time_ends(collection: Collection[Document]) -> None:
    collection.insert_many([{"_id": n, "text": "x" * 200} for n in range(20_000)])
    with pytest.raises(ExecutionTimeout):
        collection.find_one({"text": {"$regex": "x*x*y"}}, max_time_ms=20)


def test_a_cursor_outlives_changes_but_not_its_collection(collection: Collection[Document]) -> None:
    collection.insert_many([{"_id": n} for n in range(300)])
    cursor = collection.find(batch_size=10).sort("_id", 1)
    seen = [next(cursor)["_id"] for _ in range(10)]
    collection.delete_many({"_id": {"$lt": 290}})
    seen += [found["_id"] for found in cursor]
    assert (seen[:10], seen[-10:]) == (list(range(10)), list(range(290, 300)))
    other = collection.find(batch_size=2)
    next(other)
    collection.drop()
    with pytest.raises(OperationFailure) as caught:
        list(other)
    assert caught.value.code == 175


def test_nothing_acknowledged_is_lost_when_the_process_is_killed_under_eight_writers(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path) as server:
        kill_under_eight_writers(server)


def kill_under_eight_writers(server: StoreProcess) -> None:
    with MongoClient[Document](server) as client:
        client["test"]["docs"].create_index("key", unique=True)
        client["test"]["counters"].insert_many([{"_id": writer, "n": 0} for writer in range(8)])
    inserted: list[str] = []
    increments = [0] * 8

    def write(writer: int) -> None:
        with MongoClient[Document](server, serverSelectionTimeoutMS=500, retryWrites=False) as client:
            number = 0
            while True:
                key = f"{writer}-{number}"
                try:
                    client["test"]["docs"].insert_one({"_id": key, "key": key})
                    inserted.append(key)
                    client["test"]["counters"].update_one({"_id": writer}, {"$inc": {"n": 1}})
                except ConnectionFailure:
                    return
                increments[writer] += 1
                number += 1

    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write, writer) for writer in range(8)]
        while len(inserted) < 500:
            assert not any(one.done() for one in writing)
            time.sleep(0.01)
        server.kill()
        for one in writing:
            one.result()
    server.start()
    with MongoClient[Document](server) as client:
        assert set(inserted) <= {found["_id"] for found in client["test"]["docs"].find()}
        for writer, acknowledged in enumerate(increments):
            # the last one may have been carried out and not acknowledged
            counter = client["test"]["counters"].find_one({"_id": writer}) or {}
            assert acknowledged <= counter["n"] <= acknowledged + 1
        with pytest.raises(DuplicateKeyError):
            client["test"]["docs"].insert_one({"key": inserted[0]})
