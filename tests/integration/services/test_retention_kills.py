"""Retention is killed wherever it writes. The next run, on the same database, finishes its work."""

from __future__ import annotations

from pathlib import Path

from killed import killed_everywhere
from retention_story import check_it_is_gone, prepare
from stores import embedded_mongo

from gateway.stores.mongo import connect

POINTS = (
    *("nodes.forget", "spiders.publish", "heartbeats.forget", "windows.mark_removed", "windows.advance"),
    *("logs.delete", "items.delete", "requests.delete", "progress.delete", "attempts.delete"),
    *("dedupe.release_all", "jobs.delete", "schedule_ledger.forget", "files.remove", "files.forget"),
    *("windows.insert", "windows.take", "windows.leave", "windows.finish"),
)
#: Runs retention as a worker does, but without waiting for the lease of a worker that was killed.
RUNS = """
from celery_app import app
from datetime import timedelta
from gateway.retention.retention import Retention
from gateway.retention.windows import Windows

def tell():
    app.parts[Windows] = app.parts.build(Windows, lease=timedelta())
    app.parts[Retention].run()
"""


def test_whoever_is_killed_in_between_everything_is_removed_in_the_end(tmp_path: Path, redis_url: str) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        kept = tmp_path / "kept"
        prepare(database, kept)
        stores = {"MONGO_URI": uri, "REDIS_URL": redis_url, "FILES_URL": kept.as_uri()}
        killed_everywhere(tmp_path, POINTS, RUNS, beside=__file__, **stores)
        check_it_is_gone(database, kept)
        database.client.close()
