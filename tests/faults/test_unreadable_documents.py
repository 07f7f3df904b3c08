"""Documents that nobody can read, in every collection and state: nobody else notices, and /health says so."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import full_or_short, in_full
from sites.server import Site, links
from stack import Stack, running_stack, wait_until

from gateway.clock import utc_now
from gateway.retention.retention import READERS

pytestmark = in_full("each collection in storage/test_documents.py, waiting jobs in services/test_dispatch.py")

#: Of each kind, and seconds for which others crawl beside them.
OF_EACH = full_or_short(20, 2)
SECONDS = full_or_short(60, 5)
#: Seconds within which others' crawls start.
PROMPT = full_or_short(5.0, 20.0)
#: One that cannot be read closes the door of a platform without keys, as any other does: storage/test_documents.py.
#: Entries of Celery's own schedule are read where it has any, what a project has when one of its crawls begins.
#: Counts of fields are made anew by the one who cannot read them.
#: Nobody of this load has a dataset.
READ = {name for name in READERS if not name.startswith("dataset")}
READ -= {"keys", "projects", "static_entries", "item_fields"}
LISTS = (
    *("/jobs", "/jobs?limit=1", "/schedules", "/schedules?limit=1", "/sites", "/targets", "/nodes", "/spiders"),
    *("/dead-letters", "/jobs/queue/status", "/jobs/health", "/scheduler/status", "/audit", "/metrics"),
)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "home") as stack:
        yield stack


class Spoiler:
    """Copies documents of a living platform, and makes them such as no version can read."""

    def __init__(self, stack: Stack, job_id: str, schedule_id: str) -> None:
        self._mongo: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
            stack.environment()["MONGO_URI"], tz_aware=True
        )
        self.database = self._mongo.get_default_database()
        self._job_id, self._schedule_id = job_id, schedule_id
        self._node: str = self.database["nodes"].distinct("_id")[0]
        self._made: list[tuple[str, dict[str, Any]]] = []
        self._before = utc_now() - timedelta(seconds=30)

    def close(self) -> None:
        self._mongo.close()

    def spoil(self) -> int:
        """How many there are now."""
        self._made = [(name, document) for _ in range(OF_EACH) for name, document in self._documents()]
        for name, document in self._made:
            self.database[name].insert_one(document)
        # so that somebody looks for its earlier attempts
        self.database["jobs"].update_one({"_id": self._job_id}, {"$set": {"superseded": OF_EACH}})
        return len(self._made)

    def removed(self) -> list[tuple[str, Any]]:
        gone = (one for one in self._made if not self.database[one[0]].find_one({"_id": one[1]["_id"]}))
        return [(name, document["_id"]) for name, document in gone]

    def _documents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        name = uuid.uuid4().hex
        yield from (("jobs", job) for job in self._jobs())
        yield "attempts", {"_id": f"{self._job_id}:{name}", "attempt": 1, "node": 7}
        yield "schedules", {**self._copy("schedules", self._schedule_id), "next_run": self._before, "rev": "x"}
        yield "schedule_ledger", {"_id": name, "schedule_id": self._schedule_id, "due": self._before, "kind": 7}
        yield "sites", {"_id": name, "number": "x", "enabled": True}
        yield "targets", {"_id": name, "number": uuid.uuid4().int % 10**9, "site": 7}
        yield "nodes", {"_id": name, "url": 7, "slots": [], "render_slots": []}
        yield "spiders", {"_id": name, "node": self._node, "project": "default", "name": "x", "info": 7}
        yield "spiders", {"_id": f"2{name}", "node": {"un": "known"}, "project": "default", "name": "x", "info": "{}"}
        yield "holds", {"_id": f"user:{name}", "used": 1, "holders": 7}
        yield "eggs", {"_id": f"p/{name}", "project": "p", "version": name, "content": 7}
        yield "egg_copies", {"_id": f"{self._node}/p/{name}", "node": self._node, "project": 7, "outdated": True}
        yield "audit", {"_id": name, "at": self._before, "kind": "x"}
        yield "items", {"_id": f"{self._job_id}:0001:{name}", "data": {}}
        yield "progress", {"_id": f"{self._job_id}:0009{name}", "points": 7}
        yield "requests", {"_id": f"{self._job_id}:0001:{name}", "data": 7}
        yield "files", {"_id": f"{self._job_id}:{name}//000001", "job_id": self._job_id, "attempt": "x"}
        yield "heartbeats", {"_id": f"beat:{name}", "at": "x"}
        yield "heartbeats", {"_id": f"worker:{name}", "at": "x"}
        yield "deliveries", {"_id": name, "user_id": "ada", "due_at": self._before, "url": 7}
        yield "endpoints", {"_id": name, "user_id": "ada", "url": 7}

    def _jobs(self) -> Iterator[dict[str, Any]]:
        """One for each question that is asked of jobs."""
        now = utc_now()
        waiting = {"status": "pending", "not_before": self._before, "rank": self._before}
        for state in (
            waiting,
            {**waiting, "waiting_reason": "capacity"},
            {**waiting, "signals_due": self._before, "signals": [{"turn": "ended", "at": self._before}]},
            {"status": "scheduled", "not_before": self._before},
            {"status": "running", "node": self._node, "undecided": True},
            {"status": "finished", "settled": True, "dataset_due": self._before},
            {"status": "error", "settled": False, "finished_at": now, "dead": True},
            {"status": "pending", "cancel_requested_at": self._before, "not_before": now + timedelta(hours=1)},
        ):
            yield {**self._copy("jobs", self._job_id), "finished_at": now, **state, "max_retries": "x"}

    def _copy(self, collection: str, identity: str) -> dict[str, Any]:
        found = self.database[collection].find_one({"_id": identity})
        assert found is not None
        unique = {"live_key", "idempotency_key", "settled"}
        return {**{key: value for key, value in found.items() if key not in unique}, "_id": uuid.uuid4().hex}


@pytest.mark.stack
@pytest.mark.timeout(300)
def test_what_cannot_be_read_is_nobody_elses_trouble(stack: Stack, site: Site) -> None:
    with ExitStack() as closing, CrawlVerifier(stack, site, pages=1) as verifier:
        site.pages["/again"] = links()
        order = {"user_id": "patient", "spider": "seo", "start_urls": [f"{site.url}/again"]}
        first = stack.crawl(f"{site.url}/again", user_id="first")
        stack.wait_final(first)
        schedule = {**order, "interval": "every 1s", "jitter": 0, "overlap": "allow"}
        schedule_id = stack.http.post(f"{stack.url}/crawl", json=schedule).raise_for_status().json()["job_id"]
        spoiler = Spoiler(stack, first, schedule_id)
        closing.callback(spoiler.close)
        made = spoiler.spoil()
        others, slowest, end = 0, 0.0, time.monotonic() + SECONDS
        while time.monotonic() < end or not others:
            slowest = max(slowest, verifier.begun(user_id=f"other{others}"))
            assert slowest < PROMPT
            assert {path: code for path in _lists(first, schedule_id) if (code := _code(stack, path)) != 200} == {}
            others += 1
        url = f"{stack.url}/schedules/{schedule_id}"
        wait_until(lambda: stack.http.get(url).json()["runs"] >= SECONDS / 2, what="runs of the schedule")
        stack.http.post(f"{url}/pause").raise_for_status()
        # some are read once a minute
        wait_until(lambda: _named_after_all_was_read(stack) == READ, what="a word of each in /health")
        verifier.wait()
        verdict = verifier.verdict()
        assert not spoiler.removed(), "somebody removed what cannot be read"
    injected = f"{made} in {len(READ)} collections; {others} crawls of others, {SECONDS} s"
    record("Unreadable documents", injected, recovered=None, **verdict)


def _lists(job_id: str, schedule_id: str) -> tuple[str, ...]:
    of_job = (f"/jobs/{job_id}/{part}" for part in ("items", "requests", "files", "progress"))
    return (*LISTS, *of_job, f"/schedules/{schedule_id}/history")


def _code(stack: Stack, path: str) -> int:
    return stack.http.get(f"{stack.url}{path}").status_code


def _named_after_all_was_read(stack: Stack) -> set[str]:
    # spiders are read when somebody asks for them, half a minute after the last time
    assert _code(stack, "/spiders") == 200
    return set(_named(stack))


def _named(stack: Stack) -> list[str]:
    """The collections of which `/health` says that documents cannot be read."""
    message = stack.check("documents")["message"]
    return [part.split(" of ")[1] for part in message.partition(": ")[2].split(", ") if " of " in part]
