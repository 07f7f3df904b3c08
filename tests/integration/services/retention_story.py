"""What was there weeks ago, for retention to remove."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from jobs import make_job
from pymongo.database import Database
from stack import wait_until

from gateway.clock import utc_now
from gateway.container import Container
from gateway.contract.outbox import AttemptId
from gateway.contract.records import SpiderInfo
from gateway.files.store import FileBytes, FileRecord, FilesPlace, FileStore
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import JobStatus
from gateway.jobs.progress import ProgressStore
from gateway.jobs.store import JobStore
from gateway.logs.store import LogChunk, LogStore
from gateway.nodes.health import HeartbeatStore
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.retention.retention import Retention
from gateway.retention.windows import Windows
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore
from gateway.settings import Settings
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document

OF_JOBS = ("jobs", "items", "requests", "files", "logs", "progress", "attempts")


def prepare(database: Database[Document], kept: Path) -> None:
    """`kept`: the folder of files."""
    ensure_indexes(database)
    long_ago = utc_now() - timedelta(days=100)
    jobs, items, logs = JobStore(database), ItemStore(database), LogStore(database)
    files = FileStore(database, FileBytes(FilesPlace(kept.as_uri())))
    # more jobs than processes that are killed
    for number in range(9):
        finished_at = long_ago - timedelta(minutes=2 * number)
        job = make_job(status=JobStatus.FINISHED, finished_at=finished_at, settled=True, live_key=None)
        jobs.insert(job)
        items.insert([Item(job.id, 1, 9, {"number": 1})])
        RequestStore(database).append(RequestChunk(job.id, 1, 0, 3, b"{}\n"))
        logs.append(LogChunk(job.id, 1, 0, 4, "INFO", b"log\n"))
        database["attempts"].insert_one({"_id": f"{job.id}:000001", "attempt": 1})
        attempt, facts = AttemptId(job.id, 1), {"size": 4, "sha256": "0" * 64}
        ProgressStore(database).save(ProgressStore(database).get(attempt))
        files.keep(attempt, "page.html", [b"page"])
        files.note(FileRecord.of(attempt, "page.html", **facts, modified_at=long_ago, stored_at=long_ago))
    nodes = NodeStore(database, lambda: long_ago)
    nodes.heartbeat("n1", url="http://n1", max_slots=1, alive=[], present=[], beating_since=long_ago)
    SpiderStore(database).publish("n1", [SpiderInfo(project="default", name="seo")])
    HeartbeatStore(database, lambda: long_ago).beat("beat:old")
    times = {"at": long_ago, "due": long_ago, "recorded_at": long_ago}
    entry = LedgerEntry(
        job_id="1" * 32, schedule_id="2" * 32, kind=LedgerKind.MISSED, late_by_seconds=9, rev=1, **times
    )
    LedgerStore(database).record([entry])


def tell(url: str, redis_url: str, kept: Path) -> None:
    parts = Container(Settings(mongo_uri=url, redis_url=redis_url, files_url=kept.as_uri()))
    # a job that could not be removed is tried again soon
    parts[Windows]._lease = timedelta(seconds=1)

    def all_is_gone() -> bool:
        parts[Retention].run()
        return not parts[JobStore]._jobs.count_documents({})

    wait_until(all_is_gone, what="the removal of all jobs")
    parts.close()


def check_it_is_gone(database: Database[Document], kept: Path) -> None:
    assert not [path for path in kept.rglob("*") if path.is_file()]
    for collection in (*OF_JOBS, "nodes", "spiders", "heartbeats", "schedule_ledger"):
        assert database[collection].count_documents({}) == 0, collection
