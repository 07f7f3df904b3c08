"""A platform is lost, and restored from a copy of MongoDB, as `docs/how-to/back-up-and-restore.md` says."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from forms import in_full
from pymongo import MongoClient
from sites.server import Site
from stack import Stack, running_stack, wait_until
from stores import embedded_mongo

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(600),
    in_full("a platform that is started anew on its stores in e2e/test_up.py"),
]

#: So that it is still under way when the platform is lost.
SLOWLY: dict[str, float] = {"min_pause_seconds": 0.3, "max_pause_seconds": 0.5}
Dump = dict[str, list[dict[str, Any]]]


def _dump(uri: str) -> Dump:
    """As `mongodump` does, one collection after the other while all goes on: schedules first, as our page says."""
    with MongoClient[dict[str, Any]](uri) as client:
        database = client.get_default_database()
        names = sorted(database.list_collection_names(), key=lambda name: name != "schedules")
        return {name: list(database[name].find()) for name in names}


def _restore(uri: str, dump: Dump) -> None:
    with MongoClient[dict[str, Any]](uri) as client:
        database = client.get_default_database()
        for name, documents in dump.items():
            if documents:
                database[name].insert_many(documents)


def _runs(stack: Stack, schedule_id: str) -> list[dict[str, Any]]:
    page = stack.http.get(f"{stack.url}/jobs", params={"schedule_id": schedule_id, "limit": 200})
    runs: list[dict[str, Any]] = page.raise_for_status().json()["jobs"]
    return runs


def _set_secret(stack: Stack) -> None:
    answer = stack.http.put(f"{stack.url}/projects/Shop/env/API_KEY", json={"value": "s3cret", "secret": True})
    assert answer.is_success, answer.text


def test_nothing_is_lost_or_doubled_and_schedules_go_on(tmp_path: Path, site: Site) -> None:
    again = {"interval": "every 2s", "jitter": 0, "overlap": "queue", "ignore_cache": True}
    small = {"user_id": "ada", "spider": "seo", "start_urls": [f"{site.url}/tree/2"]}
    endless = f"{site.url}/endless/0"
    long: dict[str, Any] = {"max_pages": 40, "fetch": SLOWLY}
    with embedded_mongo(tmp_path / "first") as uri, running_stack(tmp_path / "home", MONGO_URI=uri) as stack:
        _set_secret(stack)
        done = stack.crawl(small["start_urls"][0])
        assert stack.wait_final(done)["status"] == "finished"
        items = stack.items(done)
        schedule = str(stack.http.post(f"{stack.url}/crawl", json={**small, **again}).json()["job_id"])
        wait_until(lambda: len(_runs(stack, schedule)) >= 2, what="two runs of the schedule")
        under_way = stack.crawl(f"{site.url}/endless/0", max_pages=40, fetch=SLOWLY)
        wait_until(lambda: stack.status(under_way)["completed_pages"] > 0, what="a crawl under way")
        dump = _dump(uri)
    key = (tmp_path / "home" / "secrets-key").read_bytes()
    shutil.rmtree(tmp_path / "home")

    (tmp_path / "new").mkdir(mode=0o700)
    (tmp_path / "new" / "secrets-key").write_bytes(key)
    with embedded_mongo(tmp_path / "second") as uri:
        _restore(uri, dump)
        with running_stack(tmp_path / "new", MONGO_URI=uri) as stack:
            assert stack.items(done) == items
            # Redis is empty, and still the request is answered by the crawl that it got
            assert stack.crawl(endless, **long) == under_way
            before = {run["job_id"] for run in _runs(stack, schedule)}
            wait_until(lambda: {run["job_id"] for run in _runs(stack, schedule)} - before, what="a run after it")
            occurrences = Counter(run["slot"]["at"] for run in _runs(stack, schedule))
            assert set(occurrences.values()) == {1}
            assert stack.http.get(f"{stack.url}/projects/Shop/env").raise_for_status().json()["variables"]
            if os.environ.get("FAULT_SECONDS"):
                _is_begun_anew(stack, under_way)


def _is_begun_anew(stack: Stack, job_id: str) -> None:
    """After the minute that a node may be silent."""
    ended = stack.wait_final(job_id, timeout=120)
    assert (ended["status"], ended["attempt"] > 1) == ("finished", True)
    urls = Counter(item["url"] for item in stack.items(job_id))
    assert urls
    assert set(urls.values()) == {1}
