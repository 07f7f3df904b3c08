"""Retention, killed wherever it writes: the next run finishes what it left, on a database that outlives both."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from jobs import make_job
from stores import ROOT, embedded_mongo

from gateway.domain.clock import utc_now
from gateway.domain.job import JobStatus
from gateway.domain.node_files import SpiderInfo
from gateway.domain.schedule import LedgerEntry, LedgerKind
from gateway.storage.client import connect
from gateway.storage.heartbeats import HeartbeatStore
from gateway.storage.indexes import ensure_indexes
from gateway.storage.items import Item, ItemStore
from gateway.storage.jobs import JobStore
from gateway.storage.ledger import LedgerStore
from gateway.storage.logs import LogChunk, LogStore
from gateway.storage.nodes import NodeStore
from gateway.storage.spiders import SpiderStore

POINTS = (
    *("nodes.forget", "spiders.publish", "heartbeats.forget", "expiry.mark_removed", "expiry.advance"),
    *("logs.delete", "items.delete", "dedupe.release", "jobs.delete", "schedule_ledger.forget"),
)
#: Runs retention as a worker does, in one fork after another, until one is not killed; prints how many were.
RUNS = """
import os
from celery_app import app
killed = 0
while True:
    if (pid := os.fork()) == 0:
        app.wiring.retention.run()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status):
        break
    killed += 1
print(killed, os.waitstatus_to_exitcode(status))
"""


@pytest.mark.timeout(60)
def test_whoever_is_killed_in_between_everything_is_removed_in_the_end(tmp_path: Path, redis_url: str) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    for point in POINTS:
        for side in ("before", "after"):
            (plan / f"{point}.{side}").touch()
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        ensure_indexes(database)
        long_ago = utc_now() - timedelta(days=100)
        jobs, items, logs = JobStore(database), ItemStore(database), LogStore(database)
        for _ in range(3):
            job = make_job(status=JobStatus.FINISHED, finished_at=long_ago, settled=True, live_key=None)
            jobs.insert(job)
            items.insert([Item(job.id, 1, 9, {"number": 1})])
            logs.append(LogChunk(job.id, 1, 0, 4, "INFO", b"log\n"))
        nodes = NodeStore(database, lambda: long_ago)
        nodes.heartbeat("n1", url="http://n1", max_slots=1, alive=[], present=[], beating_since=long_ago)
        SpiderStore(database).publish("n1", [SpiderInfo(project="default", name="seo")])
        HeartbeatStore(database, lambda: long_ago).beat("beat:old")
        times = {"at": long_ago, "due": long_ago, "recorded_at": long_ago}
        entry = LedgerEntry(
            job_id="1" * 32, schedule_id="2" * 32, kind=LedgerKind.MISSED, late_by_seconds=9, rev=1, **times
        )
        LedgerStore(database).record([entry])
        environment = {
            **os.environ,
            "MONGO_URI": uri,
            "REDIS_URL": redis_url,
            "DISCOVERYBOT_CRASH_PLAN": str(plan),
        }
        command = [sys.executable, "-c", RUNS]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=True
        )
        assert list(plan.iterdir()) == []
        assert done.stdout.splitlines()[-1].split() == [str(2 * len(POINTS)), "0"], done.stderr
        for collection in ("jobs", "items", "logs", "nodes", "spiders", "heartbeats", "schedule_ledger"):
            assert database[collection].count_documents({}) == 0, collection
        database.client.close()
