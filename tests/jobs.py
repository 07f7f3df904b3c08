"""Jobs for tests, as short as a test needs them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gateway.domain.clock import utc_now
from gateway.domain.job import Claim, CrawlSpec, Job, Placement, new_job_id
from gateway.domain.lane import Lane, Need
from gateway.storage.job_queue import JobQueue

#: Where `make_job` puts its jobs.
OURS = Lane(Need("default"), "ada")


def make_job(**fields: Any) -> Job:
    now: datetime = fields.pop("created_at", None) or utc_now()
    identity = fields.pop("fingerprint", None) or new_job_id()
    spec = CrawlSpec(spider=fields.pop("spider", "seo"), start_urls=("http://site.example/",))
    given = {"user_id": "ada", "spec": spec, "fingerprint": identity, "live_key": identity, "not_before": now}
    return Job.model_validate({"id": new_job_id(), "created_at": now, "updated_at": now, **given, **fields})


def claim(seconds: float = 30) -> Claim:
    return Claim(token="token", until=utc_now() + timedelta(seconds=seconds))


def placed(queue: JobQueue, job: Job, *, attempt: int = 1) -> Placement:
    mine = claim()
    assert queue.claim(mine, job.in_lane) is not None
    placement = Placement(attempt=attempt, node="n1", not_after=utc_now())
    assert queue.place(job.id, mine, placement) is not None
    return placement
