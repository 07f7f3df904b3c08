"""The page of a spider with a million jobs in the database: of a spider that has half of them, of one that has few
among many of its name and of its project, and for users with many jobs and with few.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

import httpx2

from bench.dispatch import Platform, platform
from bench.effort import Effort
from bench.lists import ASKED, SPIDER, spider_seconds
from bench.schedules import fill as add_schedules
from bench.table import Row
from gateway.container import Container
from gateway.contract.crawl import CrawlSpec
from gateway.contract.error_fingerprint import group
from gateway.contract.records import Progress
from gateway.error_groups.attempt_errors import FoundErrors
from gateway.error_groups.error_group import ErrorGroup
from gateway.error_groups.store import MOST_OF_SPIDER
from gateway.jobs.job import Attempt, CrawlOrder, Job, JobStatus, new_job_id
from gateway.jobs.run_days import RunDays

DAYS, USERS, SCHEDULES = 90, 500, 10_000
#: One job in this many is added to the daily sums; adding all would take as long as the rest of the benchmark.
SUMMED = 19
#: One job in this many is of the spider with few jobs, and of the user with few jobs of the other spider.
FEW = 5_000
PAGES: dict[str, tuple[str, dict[str, str]]] = {
    "most jobs": ("default/seo", {}),
    "one of many users": ("default/seo", {"user_id": "user-7"}),
    "a user with many jobs of another spider": ("default/seo", {"user_id": "other"}),
    "few jobs, in a project that has many": ("shop/seo", {}),
    "no jobs": ("shop/none", {}),
}


def run(effort: Effort) -> list[Row]:
    count = effort.of(10_000, 100_000, 1_000_000)
    with platform() as stack:
        fill(stack, count)
        seconds = measured(stack)
    slowest = max(seconds.values())
    return [
        Row(f"a spider's page, {count:,} jobs, {DAYS} days: slowest of {len(PAGES)}", "s", slowest, SPIDER, ASKED,
            slowest / SPIDER, "<= 1"),
    ]  # fmt: skip


def measured(stack: Platform) -> dict[str, float]:
    with stack.parts("gateway"), httpx2.Client(base_url=stack.url, timeout=60, trust_env=False) as http:
        seconds = {name: spider_seconds(http, wanted, spider) for name, (spider, wanted) in PAGES.items()}
    for name, median in seconds.items():
        print(f"{median * 1000:8.1f} ms  {'/console/spiders/' + PAGES[name][0]}: {name}", file=sys.stderr)
    return seconds


def fill(stack: Platform, count: int) -> None:
    step = timedelta(days=DAYS) / count
    began = datetime.now().astimezone() - timedelta(days=DAYS)
    parts = Container()
    parts.database = stack.database
    for first in range(0, count, 1000):
        jobs = [ended_job(number, began + number * step) for number in range(first, first + 1000)]
        stack.database["jobs"].insert_many([job.to_document() for job in jobs], ordered=False)
        # this makes as many sums as adding all jobs would
        parts[RunDays].add(jobs[::SUMMED])
    known = [error_group(number, jobs[-1]) for number in range(MOST_OF_SPIDER)]
    stack.database["error_groups"].insert_many([one.model_dump(by_alias=True, exclude_none=True) for one in known])
    add_schedules(stack.database, SCHEDULES, datetime.now().astimezone() + timedelta(days=1))


def ended_job(number: int, moment: datetime) -> Job:
    """An ended job. Every second job is of `default/seo`, the rest of `shop/feed`, except for the few of
    `shop/seo`.
    """
    job_id, is_seo, is_few = new_job_id(), number % 2 == 1, number % FEW <= 1
    project, spider = ("default", "seo") if is_seo else ("shop", "seo" if is_few else "feed")
    user = "other" if is_seo == is_few else f"user-{number % USERS}"
    ended = moment + timedelta(seconds=30 + number % 60)
    attempt = Attempt(attempt=1, node="node-1", dispatched_at=moment, started_at=moment, ended_at=ended)
    return Job.new(
        user,
        CrawlOrder(spec=CrawlSpec(project=project, spider=spider, start_urls=(f"http://site.example/{number}",))),
        job_id,
        moment,
        id=job_id,
        status=JobStatus.ERROR if number % 10 == 1 else JobStatus.FINISHED,
        message="finished",
        settled=True,
        attempt=1,
        attempts={"1": attempt},
        started_at=moment,
        finished_at=ended,
        progress=Progress(completed_pages=400, items_count=number % 400, errors_count=number % 7),
    )


def error_group(number: int, run: Job) -> ErrorGroup:
    made = group("exception", "ValueError", f"shop.py:{number}", f"no price on {chr(97 + number % 26) * 20}")
    found = FoundErrors(**made, count=3, at=run.finished_at)
    return ErrorGroup.new(run, found).with_run(run, found, 1)
