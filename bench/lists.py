"""Lists at 100,000 jobs: by tag and by spider, alone and with other filters; a text search; the console's pages with
counts and charts; and an action on many jobs.
"""

from __future__ import annotations

import statistics
import sys
import time
from datetime import datetime, timedelta
from typing import Any

import httpx2

from bench.dispatch import Platform, platform
from bench.effort import Effort
from bench.first_page import readable_seconds
from bench.table import Row
from gateway.container import Container
from gateway.contract.crawl import CrawlSpec
from gateway.error_groups.ended_runs import EndedRuns
from gateway.jobs.job import CrawlOrder, Job, JobStatus, new_job_id
from gateway.worker.own_work import ADOPTED

USERS, ROUNDS = 500, 7
#: Targets: most seconds for a list and for a search.
LIST, SEARCH = 0.05, 1.0
#: Target: most seconds for a page of the console, including its own requests.
PAGE = 1.0
#: Target: most seconds for the page of a spider, which draws 90 days.
SPIDER = 0.1
ASKED = "what was asked for"
#: One job in this many has the rare tag and the rare spider; every second job has the common tag.
RARE = 1000
LISTS: dict[str, dict[str, Any]] = {
    "tag=common": {"tag": "common"},
    "tag=rare": {"tag": "rare"},
    "spider=rare": {"spider": "rare"},
    "tag=rare&status=error": {"tag": "rare", "status": "error"},
    "tag=common&user_id=…": {"tag": "common", "user_id": "user-7"},
    "spider=seo&user_id=…&status=error": {"spider": "seo", "user_id": "user-10", "status": "error"},
}

PAGES: dict[str, dict[str, Any]] = {
    "": {},
    "status=error": {"status": "error"},
    "spider=seo&status=error": {"spider": "seo", "status": "error"},
    "q=…": {"q": "first-of-all"},
}


def run(effort: Effort) -> list[Row]:
    count = effort.of(2_000, 100_000)
    with platform() as stack:
        fill(stack, count)
        summed = sum_up(stack, count)
        with stack.parts("gateway"), httpx2.Client(base_url=stack.url, timeout=60, trust_env=False) as http:
            seconds = {name: list_seconds(http, wanted) for name, wanted in LISTS.items()}
            answers = search(http, "first-of-all")
            readable = readable_seconds(stack.url)
            pages = {name: page_seconds(http, wanted) for name, wanted in PAGES.items()}
            spider = max(spider_seconds(http, wanted) for wanted in ({}, {"user_id": "user-7"}))
            deleted, took = delete(http)
    for name, median in seconds.items():
        print(f"{median * 1000:8.1f} ms  GET /jobs?{name}", file=sys.stderr)
    print(f"{sum(answers):8.1f} s   GET /jobs?q=… to the first job, in {len(answers)} answers", file=sys.stderr)
    for name, taken in pages.items():
        parts = ", ".join(f"{part} {part_seconds * 1000:.0f} ms" for part, part_seconds in taken.items())
        print(f"{sum(taken.values()) * 1000:8.1f} ms  /console/jobs?{name}: {parts}", file=sys.stderr)
    print(f"{spider * 1000:8.1f} ms  /console/spiders/default/seo?days=90", file=sys.stderr)
    print(f"{summed:8.1f} jobs per second added to the daily sums", file=sys.stderr)
    print(f"{deleted / took:8.1f} jobs per second deleted by POST /jobs/bulk", file=sys.stderr)
    page = max(taken["page"] for taken in pages.values())
    slowest, tag = max(seconds.values()), seconds["tag=rare"]
    return [
        Row(f"GET /jobs?tag=…, {count:,} jobs", "s", tag, LIST, ASKED, tag / LIST, "<= 1"),
        Row(f"GET /jobs by tag or spider, {count:,} jobs: slowest of {len(LISTS)} lists", "s", slowest, LIST, ASKED,
            slowest / LIST, "<= 1"),
        Row(f"GET /jobs?q=…, {count:,} jobs, found in the oldest: slowest of {len(answers)} answers", "s",
            max(answers), SEARCH, ASKED, max(answers) / SEARCH, "<= 1"),
        Row(f"a page of the console, {count:,} jobs: slowest of {len(PAGES)} lists", "s", page, PAGE, ASKED,
            page / PAGE, "<= 1"),
        Row(f"a spider's page, {count:,} jobs, 90 days", "s", spider, SPIDER, ASKED, spider / SPIDER, "<= 1"),
        Row(f"the console's first page, {count:,} jobs, nothing cached: until it can be read", "s", readable, PAGE,
            ASKED, readable / PAGE, "<= 1"),
    ]  # fmt: skip


def fill(stack: Platform, count: int) -> None:
    began = datetime.now().astimezone() - timedelta(days=30)
    for start in range(0, count, 1000):
        jobs = [ended_job(number, began) for number in range(start, start + 1000)]
        stack.database["jobs"].insert_many([job.to_document() for job in jobs], ordered=False)


def ended_job(number: int, began: datetime) -> Job:
    job_id, moment, is_rare = new_job_id(), began + timedelta(seconds=25 * number), number % RARE == 0
    page = f"http://site.example/{number or 'first-of-all'}"
    crawl = CrawlOrder(
        spec=CrawlSpec(spider="rare" if is_rare else "seo", start_urls=(page,)),
        tags=("rare", "common") if is_rare else ("common",)[: number % 2],
    )
    return Job.new(
        f"user-{number % USERS}",
        crawl,
        job_id,
        moment,
        id=job_id,
        status=JobStatus.ERROR if number % 10 == 0 else JobStatus.FINISHED,
        message="finished",
        settled=True,
        finished_at=moment,
    )


def sum_up(stack: Platform, count: int) -> float:
    """How many jobs per second are added to the daily sums, as jobs of a release without sums are."""
    parts = Container()
    parts.database = stack.database
    ended, began = parts[EndedRuns], time.perf_counter()
    while ended.adopt(ADOPTED):
        pass
    return count / (time.perf_counter() - began)


def spider_seconds(http: httpx2.Client, wanted: dict[str, str], spider: str = "default/seo") -> float:
    """Seconds of the median answer, for all users' jobs or one user's."""
    address = f"/console/spiders/{spider}"
    return statistics.median(_seconds(http, address, {"days": "90", **wanted}) for _ in range(ROUNDS))


def list_seconds(http: httpx2.Client, wanted: dict[str, Any]) -> float:
    """Seconds of the median answer, for a full page or all that there is."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        page = http.get("/jobs", params=wanted).raise_for_status().json()
        times.append(time.perf_counter() - began)
        assert page["jobs"], wanted
        assert page["searched_to"] is None, "it has not looked at all"
    return statistics.median(times)


def page_seconds(http: httpx2.Client, wanted: dict[str, Any]) -> dict[str, float]:
    """Seconds of the median answers: the page itself, and its requests after it is shown."""
    return {
        name: statistics.median(_seconds(http, path, wanted) for _ in range(ROUNDS))
        for name, path in (("page", "/console/jobs"), ("count", "/jobs/count"), ("picture", "/jobs/points"))
    }


def _seconds(http: httpx2.Client, path: str, wanted: dict[str, Any]) -> float:
    began = time.perf_counter()
    http.get(path, params=wanted, headers={"Accept": "text/html, application/json"}).raise_for_status()
    return time.perf_counter() - began


def delete(http: httpx2.Client) -> tuple[int, float]:
    """How many of a user's jobs were deleted, and in how many seconds."""
    body: dict[str, Any] = {"filter": {"user_id": "user-3"}, "action": "delete"}
    body["expect"] = http.post("/jobs/bulk", json=body).raise_for_status().json()["matched"]
    began, done = time.perf_counter(), 0
    while True:
        report = http.post("/jobs/bulk", json=body).raise_for_status().json()
        done += report["done"]
        if report["next"] is None:
            return done, time.perf_counter() - began
        body["after"] = report["next"]


def search(http: httpx2.Client, text: str) -> list[float]:
    """Seconds of each answer until the oldest job was found."""
    times, after = list[float](), None
    while True:
        began = time.perf_counter()
        wanted = {"q": text} if after is None else {"q": text, "after": after}
        page = http.get("/jobs", params=wanted).raise_for_status().json()
        times.append(time.perf_counter() - began)
        if page["jobs"]:
            return times
        after = page["next"]
