"""A gateway with sites that can be scraped. There is no worker: the test does what one would do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx2
import redis
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.contract.reasons import Reason
from gateway.contract.records import Progress, SpiderInfo
from gateway.files.store import FileBytes, FilesPlace, FileStore
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Attempt, Job, JobStatus, new_job_id
from gateway.jobs.messages import EventPublisher
from gateway.jobs.outcome import Outcome
from gateway.jobs.store import JobStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings
from gateway.sites.site import Site
from gateway.sites.store import SiteStore
from gateway.stores.mongo import connect

Serve = Callable[[Settings], AbstractContextManager[httpx2.Client]]
#: The fields of a run's record.
RECORD = (
    *("run_id", "site_schedule_id", "task_id", "trigger", "status", "started_at", "finished_at"),
    *("requested_pages", "completed_pages", "errors_count", "message", "created_at", "updated_at"),
)
PARAMS = {"type": "object", "properties": {"max_result_pages": {"type": "integer"}}}
TEMPLATE = "https://board.example/search?q={keywords}&l={location}"


class Board:
    """A gateway whose database has one site of each kind, and what a worker would do."""

    def __init__(self, settings: Settings, http: httpx2.Client) -> None:
        self.http = http
        self.database: Database[dict[str, Any]] = connect(settings.mongo_uri)
        self.jobs = JobStore(self.database)
        self.items = ItemStore(self.database)
        self.files = FileStore(self.database, FileBytes(FilesPlace(settings.files_location)))
        self.redis = redis.Redis.from_url(settings.redis_location)
        self.publisher = EventPublisher(self.redis)

    def add_site(self, name: str, number: int, **fields: Any) -> None:
        now = utc_now()
        given = {"search_url": TEMPLATE, "schedule_id": new_job_id(), "created_at": now, "updated_at": now}
        SiteStore(self.database).insert(Site(name=name, number=number, **{**given, **fields}))

    def scrape(self, *, mode: str = "async", headers: dict[str, str] | None = None, **body: Any) -> httpx2.Response:
        asked = {"site_name": "board", "search_term": "bees", **body}
        return self.http.post("/jobs/scrape", json=asked, params={"mode": mode}, headers=headers)

    def started(self, **body: Any) -> Job:
        return self.jobs.get(self.scrape(**body).raise_for_status().json()["data"]["task_id"])

    def waiting(self, user: str) -> Job:
        """The run that this user waits for, as soon as it is in the database."""
        deadline = time.monotonic() + 60
        while (found := self.database["jobs"].find_one({"user_id": user}, {"_id": 1})) is None:
            assert time.monotonic() < deadline, "no run was started"
            time.sleep(0.01)
        return self.jobs.get(found["_id"])

    def end(self, job: Job, status: JobStatus, *results: dict[str, Any], announced: bool = True) -> None:
        """End the job, as if a node had run it."""
        now = utc_now()
        attempt = Attempt(attempt=1, node="n1", dispatched_at=now, started_at=now, ended_at=now)
        progress = Progress(requested_pages=3, completed_pages=2, errors_count=1, items_count=len(results))
        known = {
            "status": JobStatus.RUNNING,
            "attempt": 1,
            "attempts": {"1": attempt.model_dump(exclude_none=True)},
            "started_at": now,
        }
        self.items.insert([Item(job.id, 1, end, data) for end, data in enumerate(results, start=1)])
        ran = {**known, "progress": progress.model_dump(exclude_none=True)}
        self.database["jobs"].update_one({"_id": job.id}, {"$set": ran})
        ended = self.jobs.finish(self.jobs.get(job.id), Outcome(status, Reason.COMPLETED, "3 pages"))
        assert ended is not None
        if announced:
            self.publisher.status(ended)

    def run(self, run_id: str, **query: Any) -> dict[str, Any]:
        told: dict[str, Any] = self.http.get(f"/jobs/scrape/{run_id}", params=query).raise_for_status().json()
        return told


@contextmanager
def open_board(serve: Serve, settings: Settings, database: str, *, patience: float = 60) -> Iterator[Board]:
    """A board on a database of its own. Calls that wait for a run do so for `patience` seconds at most."""
    uri = settings.mongo_uri.replace("/discoverybot", f"/{database}")
    own = settings.model_copy(update={"mongo_uri": uri, "scrape_sync_timeout": patience})
    with serve(own) as http:
        board = Board(own, http)
        SpiderStore(board.database).publish("n1", [SpiderInfo(project="default", name="jobs", params_schema=PARAMS)])
        board.add_site("board", 7)
        yield board
        board.redis.close()
        board.database.client.close()


def problem(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]
