"""How many crawls of ten items retention removes per second, with one worker and with two that share the work.

`python -m bench removal` uses real stores. Most of its time is spent in the embedded MongoDB server, which is written
in Python.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.effort import Effort
from bench.our_platform import embedded_mongo, valkey_server
from bench.table import Row
from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import AttemptId
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.progress import ProgressStore
from gateway.logs.store import LogChunk, LogStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.retention.retention import Retention
from gateway.settings import Settings
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect
from gateway.worker.app import WorkerParts

#: Crawls that are removed, spread over half an hour, and items of each.
CRAWLS, ITEMS = 600, 10
#: Documents of a crawl: its job, log, requests and counts over time, and its items.
DOCUMENTS = 4 + ITEMS
#: Removals per second that are enough for ten million crawls a day.
WANTED = 10_000_000 / 86_400


def run(effort: Effort) -> list[Row]:
    crawls = effort.of(20, CRAWLS)
    one, two = (crawls / seconds(crawls, workers) for workers in (1, 2))
    return [
        Row(f"removal: crawls of {DOCUMENTS} documents, by {name}", "1/s", found, WANTED, "ten million a day",
            found / WANTED)
        for name, found in (("one worker", one), ("two workers", two))
    ]  # fmt: skip


def seconds(crawls: int, workers: int) -> float:
    """Seconds that this many workers take to remove all crawls."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        urls = {
            "mongo_uri": str(ends.enter_context(embedded_mongo(folder / "mongo"))),
            "redis_url": str(ends.enter_context(valkey_server(folder / "redis"))),
        }
        _fill(urls["mongo_uri"], crawls)
        pool = ends.enter_context(ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")))
        # so that imports and connections do not count
        list(pool.map(_work, [urls] * workers, [False] * workers))
        began = time.monotonic()
        list(pool.map(_work, [urls] * workers, [True] * workers))
        took = time.monotonic() - began
        left = connect(urls["mongo_uri"])["jobs"].count_documents({})
        assert not left, f"{left} jobs are left"
    return took


def _work(urls: dict[str, Any], goes: bool) -> None:  # noqa: FBT001 - for a process
    parts = _PARTS.setdefault(urls["mongo_uri"], WorkerParts(Settings(**urls)))
    retention = parts[Retention]
    while goes and retention.run():
        pass


_PARTS: dict[str, WorkerParts] = {}


def _fill(uri: str, crawls: int) -> None:
    database = connect(uri)
    ensure_indexes(database)
    began = utc_now() - timedelta(days=100)
    items, logs, requests = ItemStore(database), LogStore(database), RequestStore(database)
    spec, progress = CrawlSpec(spider="seo", start_urls=("http://bench.invalid/",)), ProgressStore(database)
    for number in range(crawls):
        at = began + timedelta(minutes=30) * number / crawls
        job = Job(
            id=f"{number * 2654435761 % 2**32:032x}", user_id=f"user-{number % 20}", spec=spec,
            created_at=at, updated_at=at, not_before=at, finished_at=at, status=JobStatus.FINISHED, settled=True,
            fingerprint=f"{number:064x}",
        )  # fmt: skip
        database["jobs"].insert_one(job.to_document())
        items.insert([Item(job.id, 1, 600 * place, {"text": "x" * 500}) for place in range(1, ITEMS + 1)])
        logs.append(LogChunk(job.id, 1, 0, 4, "INFO", b"log\n" * 500))
        requests.append(RequestChunk(job.id, 1, 0, 3, b"{}\n" * ITEMS))
        progress.save(progress.get(AttemptId(job.id, 1)))
    database.client.close()
