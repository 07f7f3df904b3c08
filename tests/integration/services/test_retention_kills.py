"""Retention, killed wherever it writes: the next run finishes what it left, on a database that outlives both."""

from __future__ import annotations

from pathlib import Path

from killed import killed_everywhere
from retention_story import check_it_is_gone, prepare
from stores import embedded_mongo

from gateway.stores.mongo import connect

POINTS = (
    *("nodes.forget", "spiders.publish", "heartbeats.forget", "expiry.mark_removed", "expiry.advance"),
    *("logs.delete", "items.delete", "requests.delete", "progress.delete", "attempts.delete"),
    *("dedupe.release", "jobs.delete", "schedule_ledger.forget", "files.remove", "files.forget"),
)
#: Runs retention as a worker does.
RUNS = """
from celery_app import app
from gateway.retention.retention import Retention

def tell():
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
