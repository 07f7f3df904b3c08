"""The embedded server as a process: its door, bad bytes, many clients, kill -9. A real MongoDB is not asked these."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo import MongoClient, ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import ConnectionFailure, DuplicateKeyError, ExecutionTimeout, OperationFailure
from stores import ROOT, StoreProcess, embedded_mongo

Document = dict[str, Any]
COMMAND = (sys.executable, "-m", "embedded.mongo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[StoreProcess]:
    with embedded_mongo(folder) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: StoreProcess) -> Iterator[MongoClient[Document]]:
    with MongoClient[Document](server) as client:
        yield client


@pytest.fixture
def collection(client: MongoClient[Document]) -> Iterator[Collection[Document]]:
    """A name nobody has used."""
    collection = client["test"][f"c{uuid.uuid4().hex[:12]}"]
    yield collection
    collection.drop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )


def port_of(uri: str) -> int:
    return int(uri.rsplit(":", 1)[1].split("/", 1)[0])


# --- the door


def test_it_says_where_it_is_ready_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "mongo.sqlite"
    process = subprocess.Popen(
        [*COMMAND, "--path", str(path), "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("ready on 127.0.0.1:")
    with MongoClient[Document]("127.0.0.1", port_of(ready)) as client:
        client["test"]["c"].insert_one({"_id": 1})
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(10) == 0
    assert not path.with_name("mongo.sqlite-wal").exists()


def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    refused = run("--path", str(tmp_path / "mongo.sqlite"), "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "not a loopback address" in refused.stderr


def test_a_second_server_on_the_same_file_is_refused(server: StoreProcess, folder: Path) -> None:
    refused = run("--path", str(folder / "mongo.sqlite"), "--port", "0")
    assert refused.returncode == 1
    assert "in use by another embedded MongoDB server" in refused.stderr


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mongo.sqlite"
    path.write_bytes(b"garbage" * 1000)
    refused = run("--path", str(path), "--port", "0")
    assert refused.returncode == 1
    assert "mongo.sqlite is damaged" in refused.stderr


# --- bad bytes


def message(body: bytes, *, flags: int = 0, opcode: int = 2013, length: int | None = None) -> bytes:
    payload = struct.pack("<I", flags) + body
    return struct.pack("<iiii", 16 + len(payload) if length is None else length, 1, 0, opcode) + payload


PING = b"\0" + bson.encode({"ping": 1, "$db": "admin"})


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        message(PING, length=3),
        message(PING, length=2**30),
        message(PING, opcode=2001),
        message(PING, flags=1 << 7),
        message(b"\0" + struct.pack("<i", 500) + b"short"),
        message(b"\0" + b"\x0c\0\0\0\x02a\0\xff\xff\xff\x7f\0"),
        message(b"\x05" + PING[1:]),
        message(PING + PING),
        message(b""),
    ],
    ids=[
        "HTTP",
        "too short",
        "too long",
        "old insert",
        "unknown flag",
        "torn section",
        "bad BSON",
        "unknown section",
        "two bodies",
        "no body",
    ],
)
def test_bytes_that_are_no_message_end_their_connection_and_no_other(
    client: MongoClient[Document], server: StoreProcess, data: bytes
) -> None:
    client.admin.command("ping")
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=10) as connection:
        connection.sendall(data)
        assert connection.recv(100) == b""
    assert client.admin.command("ping")["ok"] == 1


def test_a_message_may_arrive_in_pieces_and_without_a_wish_for_an_answer(server: StoreProcess) -> None:
    silent = message(b"\0" + bson.encode({"insert": "c", "documents": [{"_id": 1}], "$db": "t"}), flags=2)
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=10) as connection:
        for byte in silent:
            connection.sendall(bytes((byte,)))
        connection.sendall(message(b"\0" + bson.encode({"count": "c", "$db": "t"})))
        reply = connection.recv(1000)
    assert bson.decode(reply[21:]) == {"n": 1, "ok": 1.0}


def test_what_is_not_supported_is_refused_never_ignored(collection: Collection[Document]) -> None:
    collection.insert_one({"_id": 1, "l": [1]})
    refusals: list[tuple[Callable[[], object], int]] = [
        (lambda: collection.update_one({}, {"$mul": {"n": 2}}), 238),
        (lambda: collection.update_one({}, [{"$set": {"n": 2}}]), 238),
        (lambda: collection.update_one({"l": 1}, {"$set": {"l.$": 2}}), 238),
        (lambda: collection.update_one({}, {"$push": {"l": {"$each": [0], "$sort": 1}}}), 238),
        (lambda: collection.update_one({}, {"$set": {"l.$[e]": 2}}, array_filters=[{"e": 1}]), 238),
        (lambda: collection.find_one({}, collation={"locale": "cs"}), 238),
        (lambda: collection.find_one({}, {"l": {"$elemMatch": {"$gt": 0}}}), 238),
        (lambda: collection.find_one({"$where": "true"}), 2),
        (lambda: collection.find_one({"n": {"$mod": [2, 0]}}), 2),
        (lambda: collection.create_index([("text", "text")]), 238),
        (lambda: collection.create_index("a", hidden=True), 238),
        (
            lambda: collection.aggregate(
                [{"$lookup": {"from": "x", "localField": "a", "foreignField": "b", "as": "c"}}]
            ),
            40324,
        ),
        (lambda: collection.aggregate([{"$project": {"n": {"$add": [1, 2]}}}]), 168),
        (lambda: collection.rename("other"), 59),
    ]
    for refused, code in refusals:
        with pytest.raises(OperationFailure) as caught:
            refused()
        assert caught.value.code == code
    assert collection.find_one({}) == {"_id": 1, "l": [1]}


# --- many clients


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

    def scan(_: int) -> int:
        scans = 0
        while not stopped.is_set():
            assert collection.find_one({"n": -1, "text": {"$regex": "y"}}) is None
            scans += 1
        return scans

    with ThreadPoolExecutor(2) as pool:
        scanning = pool.map(scan, range(2))
        waits = []
        for number in range(50):
            started = time.monotonic()
            assert collection.find_one({"_id": number})
            waits.append(time.monotonic() - started)
        stopped.set()
        assert sum(scanning) > 0
    assert sorted(waits)[45] < 0.25


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


# --- kill -9


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
