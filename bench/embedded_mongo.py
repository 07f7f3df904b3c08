"""The embedded MongoDB server at 100,000 documents: look-ups, claims, pages and inserts, by 1 and 16 clients.

The clients are separate processes, so that their interpreters do not share a lock. On two cores they still share the
processors with the server.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pymongo import ASCENDING, DESCENDING, IndexModel, MongoClient
from pymongo.collection import Collection

from bench.effort import Effort
from bench.table import Row

Jobs = Collection[dict[str, Any]]
USERS = 500
PROCESSES = 2
#: Target: at least this many operations per second.
FLOOR = 500.0
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_INDEXES = [
    IndexModel([("key", ASCENDING)], name="key", unique=True),
    IndexModel([("status", ASCENDING), ("priority", DESCENDING), ("created_at", ASCENDING)], name="best_first"),
    IndexModel([("user", ASCENDING), ("created_at", DESCENDING)], name="user_newest"),
]


class Size(NamedTuple):
    documents: int
    #: Seconds for each operation.
    seconds: float


SIZES = Size(2_000, 0.3), Size(100_000, 2.0), Size(100_000, 4.0)


class Measured(NamedTuple):
    what: str
    clients: int
    per_second: float


def job(number: int) -> dict[str, Any]:
    return {
        "_id": f"job-{number:07d}",
        "key": f"key-{number}",
        "status": "pending",
        "priority": number % 10,
        "created_at": _EPOCH + timedelta(seconds=number),
        "not_before": _EPOCH,
        "user": f"user-{number % USERS}",
        "start_urls": [f"https://example.org/{number}"],
        "params": {"depth": 3, "max_pages": 100},
    }


def look_up(jobs: Jobs, rng: random.Random, documents: int) -> None:
    assert jobs.find_one({"_id": f"job-{rng.randrange(documents):07d}"})


def look_up_by_key(jobs: Jobs, rng: random.Random, documents: int) -> None:
    assert jobs.find_one({"key": f"key-{rng.randrange(documents)}"})


def claim(jobs: Jobs, _: random.Random, __: int) -> None:
    assert jobs.find_one_and_update(
        {"status": "pending", "not_before": {"$lte": datetime.now(UTC)}},
        {"$set": {"status": "running"}},
        sort=[("priority", DESCENDING), ("created_at", ASCENDING)],
    )


def page(jobs: Jobs, rng: random.Random, _: int) -> None:
    user = f"user-{rng.randrange(USERS)}"
    assert len(jobs.find({"user": user}).sort("created_at", DESCENDING).limit(50).to_list())


def insert(jobs: Jobs, rng: random.Random, _: int) -> None:
    number = f"{rng.getrandbits(64):x}"
    jobs.insert_one({**job(0), "_id": f"new-{number}", "key": f"new-{number}", "status": "scheduled"})


OPERATIONS: list[Callable[[Jobs, random.Random, int], None]] = [look_up, look_up_by_key, page, claim, insert]


def _client(port: int, operation: str, threads: int, size: Size) -> int:
    """Run `threads` clients in this process. Returns how often they did `operation` in the time."""
    jobs: Jobs = MongoClient("127.0.0.1", port)["bench"]["jobs"]
    jobs.find_one({})
    work = globals()[operation]
    end = time.monotonic() + size.seconds

    def repeat(number: int) -> int:
        rng, done = random.Random(f"{os.getpid()} {number}"), 0
        while time.monotonic() < end:
            work(jobs, rng, size.documents)
            done += 1
        return done

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(repeat, range(threads)))


def measure(port: int, operation: str, clients: int, size: Size) -> Measured:
    processes = min(clients, PROCESSES)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(_client, port, operation, clients // processes, size) for _ in range(processes)]
        return Measured(operation, clients, sum(one.result() for one in running) / size.seconds)


def load(port: int, documents: int) -> Measured:
    jobs: Jobs = MongoClient("127.0.0.1", port)["bench"]["jobs"]
    jobs.create_indexes(_INDEXES)
    started = time.monotonic()
    for start in range(0, documents, 1000):
        jobs.insert_many([job(number) for number in range(start, start + 1000)])
    return Measured("load by 1000", 1, documents / (time.monotonic() - started))


def run(effort: Effort) -> list[Row]:
    return [
        Row(
            f"embedded MongoDB: {one.what}, {one.clients} client(s)", "1/s", one.per_second, FLOOR,
            "the floor that was asked for", one.per_second / FLOOR, ">= 1",
        )
        for one in measured(effort.of(*SIZES))
    ]  # fmt: skip


def measured(size: Size) -> list[Measured]:
    """Every operation by 1 and by 16 clients, against a fresh server."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "embedded.mongo", "--path", str(Path(folder) / "bench.db"), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().rsplit(":", 1)[1])
            rows = [load(port, size.documents)]
            rows += [measure(port, work.__name__, clients, size) for work in OPERATIONS for clients in (1, 16)]
            return rows
        finally:
            server.terminate()
            server.wait()
