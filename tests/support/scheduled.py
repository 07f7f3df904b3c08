"""Functions that make schedules, and the jobs of their occurrences, for tests in one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jobs import make_job

from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import CrawlOrder, Decision, Job, JobStatus, Occurrence, new_job_id, occurrence_id
from gateway.schedules.schedule import Schedule, Timing

NINE = datetime(2027, 6, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def make_schedule(**fields: Any) -> Schedule:
    identity = fields.pop("id", new_job_id())
    spec = CrawlSpec(spider=fields.pop("spider", "seo"), start_urls=("http://site.example/",))
    given = {"user_id": "ada", "timing": Timing(interval="every 1h", starts_at=NINE), "next_at": NINE}
    known = {"crawl": CrawlOrder(spec=spec), "next_run": NINE, "fingerprint": identity, "live_key": identity}
    return Schedule.model_validate(
        {"id": identity, **given, **known, "created_at": NINE, "updated_at": NINE, **fields}
    )


def make_occurrence_job(schedule: Schedule, at: datetime = NINE, **fields: Any) -> Job:
    occurrence = Occurrence(rev=schedule.rev, at=at, due=at, fired_at=at, next_at=at + HOUR, next_due=at + HOUR)
    given = {
        "held": Decision.RUN,
        "noted": False,
        "slot": occurrence,
        "status": JobStatus.SCHEDULED,
        "live_key": None,
    }
    return make_job(id=occurrence_id(schedule.id, at), schedule_id=schedule.id, **{**given, **fields})
