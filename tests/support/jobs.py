"""Functions that make jobs for tests in one line."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import Assignment, Job, new_job_id
from gateway.jobs.queue import JobQueue


def make_job(**fields: Any) -> Job:
    now: datetime = fields.pop("created_at", None) or utc_now()
    identity = fields.pop("fingerprint", None) or new_job_id()
    project, spider = fields.pop("project", "default"), fields.pop("spider", "seo")
    spec = CrawlSpec(project=project, spider=spider, start_urls=("http://site.example/",))
    given = {"user_id": "ada", "spec": spec, "fingerprint": identity, "live_key": identity, "not_before": now}
    return Job.model_validate({"id": new_job_id(), "created_at": now, "updated_at": now, **given, **fields})


def assigned(queue: JobQueue, job: Job, *, attempt: int = 1, node: str = "n1") -> Assignment:
    """Assign the job to the node, as a worker does."""
    assignment = Assignment(attempt=attempt, node=node, token="token", until=utc_now() + timedelta(seconds=120))
    candidate = next(one for one in queue.best(job.partition, 99) if one.job_id == job.id)
    assert [one.id for one in queue.assign([(candidate, assignment)])] == [job.id]
    return assignment
