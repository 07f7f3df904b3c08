"""Datasets: how long a run of 100,000 items, one in a hundred changed, takes to fold into its dataset, and how much
memory; how fast the changes are read; and how soon crawls begin meanwhile. A long run does the same with a million
items.

The fold runs in a process of its own, because peak memory can only be measured for a whole process. Most of the time
is spent in the embedded MongoDB server, which is written in Python.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from bench.effort import Effort
from bench.first_line import streamed
from bench.our_platform import Site, embedded_mongo, free_port, running_stack, valkey_server
from bench.submission import served
from bench.table import Row
from bench.tables import most_memory
from gateway.clock import utc_now
from gateway.container import Container
from gateway.contract.crawl import CrawlSpec
from gateway.contract.reasons import Reason
from gateway.contract.records import Progress
from gateway.datasets.dataset import RunState
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.fold_threads import Folding
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Job, JobStatus
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect

#: Target values: seconds for 100,000 items, MiB above rest, and changes read per second.
WANTED_SECONDS, WANTED_MEMORY, WANTED_CHANGES = 15.0, 60.0, 5_000.0
#: One item in this many has changed.
CHANGED = 100
_MIB = 1 << 20
_BATCH = 1000


class Folded(NamedTuple):
    #: The run with the changes, and the run before it, in which all items are new.
    seconds: float
    first_seconds: float
    #: MiB above rest.
    memory: float


def run(effort: Effort) -> list[Row]:
    rows: list[Row] = []
    for count in effort.of((2_000,), (100_000,), (100_000, 1_000_000)):
        rows += of(count)
    return [*rows, first_line_beside(effort.of(2_000, 20_000, 100_000), effort.of(1, 7))]


def of(count: int) -> list[Row]:
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        mongo_uri = str(ends.enter_context(embedded_mongo(folder / "mongo")))
        redis_url = str(ends.enter_context(valkey_server(folder / "redis")))
        pool = ends.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
        folded = pool.submit(_fold, mongo_uri, count).result()
        port, log = free_port(), ends.enter_context((folder / "log").open("wb"))
        stores = {"MONGO_URI": mongo_uri, "REDIS_URL": redis_url, "BROKER_URL": redis_url}
        home = {"DISCOVERYBOT_HOME": str(folder / "home"), "GATEWAY_PORT": str(port)}
        ends.enter_context(served("-m", "gateway.web", log=log, port=port, **stores, **home))
        changes = _read(port, count + count // CHANGED)
    wanted = WANTED_SECONDS * count / 100_000
    print(f"{folded.first_seconds:10.1f} s  {count:,} new items folded", file=sys.stderr)
    return [
        Row(f"fold of {count:,} items, 1 % changed", "s", folded.seconds, wanted, "what was asked for",
            folded.seconds / wanted, "<= 1"),
        Row(f"fold of {count:,} items, all new: memory above rest", "MiB", folded.memory, WANTED_MEMORY,
            "what was asked for", folded.memory / WANTED_MEMORY, "<= 1"),
        Row(f"changes of {count:,} items read, a thousand at a time", "1/s", changes, WANTED_CHANGES,
            "what was asked for", changes / WANTED_CHANGES, ">= 1"),
    ]  # fmt: skip


def first_line_beside(count: int, rounds: int) -> Row:
    """How soon crawls of another user begin while a run with `count` new items is folded."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Site() as site,
        running_stack(Path(folder) / "home", HTTP_CACHE_TTL="0") as stack,
    ):
        parts = Container()
        parts.database = connect(stack.ready["mongo_uri"])
        due = parts.database["jobs"]
        streamed(stack, site)
        alone = [streamed(stack, site) for _ in range(rounds)]
        job_id = _crawl(parts, "big", _items(count), is_due=False)
        due.update_one({"_id": job_id}, {"$set": {"dataset_due": utc_now()}})
        beside = [streamed(stack, site)]
        while due.count_documents({"_id": job_id, "dataset_due": {"$exists": True}}):
            beside.append(streamed(stack, site))
        parts.database.client.close()
    print(f"{len(beside):10} crawls while a run was folded", file=sys.stderr)
    ours, peer = statistics.median(beside), statistics.median(alone)
    what = f"POST to a spider's first line while another user's {count:,} new items are folded"
    return Row(what, "s", ours, peer, "the same while nothing else is done", ours / peer, "<= 2")


def _fold(uri: str, count: int) -> Folded:
    parts = Container()
    parts.database = connect(uri)
    ensure_indexes(parts.database)
    # so that imports count as memory at rest
    _crawl(parts, "small", _items(1000))
    _folded(parts)
    _crawl(parts, "big", _items(count))
    rest = most_memory()
    first = _folded(parts)
    memory = most_memory() - rest
    _crawl(parts, "big", _items(count, changed=CHANGED))
    seconds = _folded(parts)
    parts.database.client.close()
    return Folded(seconds, first, memory / _MIB)


def _folded(parts: Container) -> float:
    """Seconds for folding the runs that are due."""
    due = parts[FoldQueue].next_due()
    assert due is not None
    began = time.monotonic()
    done = parts[Folding].fold_next(due)
    assert done is not None
    assert done.state is RunState.PUBLISHED, done.message
    return time.monotonic() - began


def _crawl(parts: Container, name: str, items: Iterator[dict[str, Any]], *, is_due: bool = True) -> str:
    """Make an ended crawl and return its id. Unless `is_due` is false, it is due to be folded."""
    now = utc_now() - timedelta(minutes=1)
    spec = CrawlSpec.model_validate(
        {"spider": "offers", "start_urls": ["http://bench.invalid/"], "dataset": {"name": name, "key": ["sku"]}}
    )
    report = {"finish_reason": "finished", "progress": Progress(), "ended_at": now}
    attempt = {
        "attempt": 1, "node": "n1", "dispatched_at": now, "started_at": now, "ended_at": now,
        "exit": {"attempt": 1, "ended_at": now, "exit_code": 0, "report": report},
    }  # fmt: skip
    job = Job.model_validate(
        {
            "id": f"{time.monotonic_ns():032x}", "user_id": "bench", "spec": spec, "fingerprint": name,
            "created_at": now, "updated_at": now, "not_before": now, "started_at": utc_now(), "finished_at": now,
            "status": JobStatus.FINISHED, "reason": Reason.COMPLETED, "settled": True, "attempt": 1,
            "attempts": {"1": attempt},
            **({"dataset_due": now} if is_due else {}),
        }
    )  # fmt: skip
    parts.database["jobs"].insert_one(job.to_document())
    batch: list[Item] = []
    for number, one in enumerate(items, 1):
        batch.append(Item(job.id, 1, number * 400, one))
        if len(batch) == _BATCH:
            parts[ItemStore].insert(batch)
            batch.clear()
    parts[ItemStore].insert(batch)
    return job.id


def _items(count: int, changed: int = 0) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "sku": f"sku-{number}",
            "url": f"https://shop.invalid/products/{number}",
            "title": f"Product {number * 2654435761 % 2**32:08x}",
            "price": number % 9973 / 100 + (1 if changed and number % changed == 0 else 0),
            "in_stock": bool(number % 90),
            "text": f"{number:x} " * 30,
        }


def _read(port: int, count: int) -> float:
    """Changes per second that one client reads, from the first to the last."""
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        since = read = 0
        began = time.monotonic()
        while read < count:
            page = http.get("/datasets/big/changes", params={"since": since, "limit": 1000}).raise_for_status().json()
            assert page["changes"]
            read += len(page["changes"])
            since = page["next"]
        return read / (time.monotonic() - began)
