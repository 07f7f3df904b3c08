"""A gateway for the console's tests, and hands that put things into its database as the platform would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import httpx2
import orjson
import redis
from jobs import make_job
from pymongo.database import Database

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.log_line import survey
from gateway.contract.records import Progress, SpiderInfo
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Attempt, Job, JobStatus, new_job_id
from gateway.jobs.messages import EventPublisher
from gateway.jobs.store import JobStore
from gateway.logs.store import LogChunk, LogStore
from gateway.logs.volume import volume_of
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.schedules.store import ScheduleStore
from gateway.settings import Settings
from gateway.sites.site import Site
from gateway.sites.store import SiteStore
from gateway.stores.mongo import connect

#: What a spider, a user or a site may call something: markup, a turn of direction, a control, and no end.
HOSTILE = "<script>alert(1)</script><b>bold</b>\u202egnp.exe\x07" + "x" * 5000
_RAN = frozenset(JobStatus) - {JobStatus.PENDING, JobStatus.SCHEDULED}


class Console:
    def __init__(self, settings: Settings, http: httpx2.Client) -> None:
        self.settings = settings
        self.http = http
        self.url = str(http.base_url).rstrip("/")
        self.database: Database[dict[str, Any]] = connect(settings.mongo_uri)
        self.jobs = JobStore(self.database)
        self.items = ItemStore(self.database)
        self.logs = LogStore(self.database)
        self.nodes = NodeStore(self.database)
        self.schedules = ScheduleStore(self.database)
        self.redis = redis.Redis.from_url(settings.redis_location)
        self.publisher = EventPublisher(self.redis)

    def close(self) -> None:
        self.redis.close()
        self.database.client.close()

    def key(self, user: str = "anne", scope: Scope = Scope.CRAWL) -> Issued:
        return KeyIssue(KeyStore(self.database)).issue(user, [scope])

    def spider(self, name: str = "seo", project: str = "default", schema: dict[str, Any] | None = None) -> None:
        """As if the node n1 had it."""
        known = {"type": "object", "properties": {"robots": {"type": "boolean"}}, "additionalProperties": False}
        SpiderStore(self.database).publish(
            "n1", [SpiderInfo(project=project, name=name, params_schema=schema if schema is not None else known)]
        )

    def node(self, name: str = "n1", *, slots: int = 4, alive: Sequence[str] = (), **fields: Any) -> None:
        """A living one."""
        said: dict[str, Any] = {"url": f"http://{name}.example:6800", "free_bytes": 40 << 30, "version": "1.0.0"}
        now = utc_now()
        self.nodes.heartbeat(
            name, max_slots=slots, alive=alive, present=alive, beating_since=now, **{**said, **fields}
        )

    def job(
        self, status: JobStatus = JobStatus.FINISHED, *, age: float = 3600, ran: float = 60, **fields: Any
    ) -> Job:
        """A job that was asked for `age` seconds ago and, unless it has never run, ran for `ran` seconds."""
        began = utc_now() - timedelta(seconds=age)
        given: dict[str, Any] = {"status": status, "created_at": began, "live_key": None}
        if status in _RAN:
            given |= _attempted(status, began, ran, fields.pop("progress", {}))
        if "start_urls" in fields or "params" in fields or "site" in fields:
            names = ("spider", "project", "version", "start_urls", "params", "site")
            spec = {name: fields.pop(name) for name in names if name in fields}
            given["spec"] = CrawlSpec.model_validate(
                {"spider": "seo", "start_urls": ("http://site.example/",), **spec}
            )
        job = make_job(**{**given, **fields})
        self.jobs.insert(job)
        return job

    def log(self, job: Job, lines: Sequence[str], *, attempt: int = 1) -> None:
        """The whole log of an attempt; a line is `2027-06-01 09:00:01 [seo] INFO: Spider opened`."""
        data = "".join(f"{line}\n" for line in lines).encode()
        volume = volume_of(survey(data, "INFO", None).times, 0)
        self.logs.append(LogChunk(job.id, attempt, 0, len(data), "INFO", data, volume=volume))
        self.database["jobs"].update_one({"_id": job.id}, {"$set": {f"attempts.{attempt}.log_end": len(data)}})

    def results(self, job: Job, items: Sequence[Mapping[str, Any]], *, attempt: int = 1) -> None:
        self.items.insert([Item(job.id, attempt, place, dict(one)) for place, one in enumerate(items, start=1)])

    def requests(self, job: Job, requests: Sequence[Mapping[str, Any]], *, attempt: int = 1, start: int = 0) -> int:
        """What an attempt has asked for, from this place of its record on; the place of its end."""
        data = b"".join(orjson.dumps(one) + b"\n" for one in requests)
        RequestStore(self.database).append(RequestChunk(job.id, attempt, start, start + len(data), data))
        return start + len(data)

    def site(self, name: str, number: int = 7, **fields: Any) -> None:
        now = utc_now()
        given: dict[str, Any] = {
            "search_url": "https://board.example/search?q={keywords}",
            "schedule_id": new_job_id(),
        }
        given |= {"created_at": now, "updated_at": now}
        SiteStore(self.database).insert(Site(name=name, number=number, **{**given, **fields}))

    def change(self, job: Job, **changes: Any) -> Job:
        """Change the job's document, and tell those who follow it."""
        self.database["jobs"].update_one({"_id": job.id}, {"$set": changes})
        changed = self.jobs.get(job.id)
        self.publisher.status(changed)
        return changed


def _attempted(status: JobStatus, began: datetime, ran: float, progress: dict[str, Any]) -> dict[str, Any]:
    ended = None if status is JobStatus.RUNNING else began + timedelta(seconds=ran)
    attempt = Attempt(attempt=1, node="n1", dispatched_at=began, started_at=began, ended_at=ended)
    counted = {"requested_pages": 12, "completed_pages": 10, "items_count": 30, "pages_per_s": 1.5, **progress}
    is_over = status not in {JobStatus.RUNNING, JobStatus.PAUSED}
    return {
        "attempt": 1,
        "attempts": {"1": attempt},
        "started_at": began,
        "finished_at": ended if is_over else None,
        "settled": is_over,
        "progress": Progress(**counted),
    }


@contextmanager
def opened(serve: Any, settings: Settings, database: str, *, with_keys: bool = False) -> Iterator[Console]:
    """A gateway on a database of its own; `with_keys`: one that takes keys."""
    own = settings.model_copy(update={"mongo_uri": settings.mongo_uri.replace("/discoverybot", f"/{database}")})
    if with_keys:
        client = connect(own.mongo_uri)
        KeyIssue(KeyStore(client)).issue_first()
        client.client.close()
    with serve(own) as http:
        console = Console(own, http)
        try:
            yield console
        finally:
            console.close()
