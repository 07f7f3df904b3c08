"""What workers and a beat do with jobs that exclude each other, and whose users may run only `MOST` at once."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

from conftest import Platform
from jobs import make_job
from node_double import NodeDouble
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.store import JobStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.scrapyd import ScrapydClient
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect

#: The `exclusive` of the jobs of each user.
JOBS = {"ada": ("site:a", "site:a", "schedule:b", "schedule:b", None), "bob": (None, None, None)}
#: Crawls of one user at once.
MOST = 2
#: A process that is not stuck is done after fewer rounds.
ROUNDS = 60
#: Takes long to make. It may be made before the processes are forked, because it has no connections yet.
SCRAPYD = ScrapydClient("discoverybot", "secret")


class PlatformAtHand(Platform):
    """A platform that starts at once, because its client of the nodes is made already."""

    def node_client(self) -> ScrapydClient:
        return SCRAPYD


def prepare(database: Database[Document]) -> list[Job]:
    """Insert jobs that wait, one that runs, and holds that belong to no attempt."""
    ensure_indexes(database)
    jobs, holds = JobStore(database), HoldStore(database)
    made = [make_job(user_id=user, exclusive=key) for user, keys in JOBS.items() for key in keys]
    leaked = made[-1]
    # a job that runs, and blocks another one
    runs = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    first = make_job(user_id="carl", exclusive="site:c", status=JobStatus.RUNNING, attempt=1, attempts={"1": runs})
    made += [first, make_job(user_id="dora", exclusive="site:c")]
    for job in made:
        jobs.insert(job)
    holds.take([Wish(resource, f"{first.id}-1") for resource in first.resources("n1")], "token")
    # holds of a job that was deleted directly in the database, and of one that was never assigned after all
    assert holds.take([Wish("site:a", f"{'0' * 32}-1", 1), Wish("user:bob", f"{leaked.id}-1")], "token")
    return made


def check_each_ran(database: Database[Document], made: list[Job]) -> None:
    jobs = JobStore(database)
    assert {jobs.get(job.id).status for job in made} == {JobStatus.FINISHED}
    assert all(len(jobs.attempts.complete(jobs.get(job.id)).attempts) == 2 for job in made)
    assert [held for held in HoldStore(database).all() if held.holders] == []


def tell(mongo_url: str, redis_url: str, node_url: str) -> None:
    """Work until all jobs have ended; the first attempt of each fails. What earlier processes held has expired."""
    double = cast("NodeDouble", SimpleNamespace(url=node_url))
    platform = PlatformAtHand(redis_url, double, connect(mongo_url), running_max=MOST)
    jobs = platform.database["jobs"]
    check_limits(platform)
    for _ in range(ROUNDS):
        # long enough for holds to expire that were never assigned, for missing answers, and for the beat's next look
        platform.ahead += TAKEN_FOR + timedelta(seconds=1)
        jobs.update_many(
            {"attend_at": {"$exists": True}}, {"$set": {"attend_at": platform.clock() - timedelta(days=1)}}
        )
        platform.heartbeat(slots=9)
        platform.sweeper.sweep()
        check_limits(platform)
        platform.dispatch.fill()
        check_limits(platform)
        each_attempt_ends(platform)
        if is_over(platform):
            return
    raise AssertionError(f"stuck: {list(jobs.find({'settled': {'$ne': True}}))}, {platform.held()}")


def check_limits(platform: Platform) -> None:
    running = list(platform.database["jobs"].find({"status": "running"}))
    by_lease = Counter(job["exclusive"] for job in running if "exclusive" in job)
    by_user = Counter(job["user_id"] for job in running)
    assert max(by_lease.values(), default=0) <= 1, by_lease
    assert max(by_user.values(), default=0) <= MOST, by_user


def each_attempt_ends(platform: Platform) -> None:
    for job in platform.database["jobs"].find({"status": "running"}):
        begun = platform.jobs.attempts.complete(platform.jobs.get(job["_id"])).attempts
        now, failed = platform.clock(), len(begun) == 1
        progress = Progress(completed_pages=1 - failed, errors_count=failed)
        report = SpiderReport(finish_reason="finished", progress=progress, ended_at=now)
        facts = ExitReport(attempt=job["attempt"], exit_code=0, ended_at=now, report=report)
        platform.completion.record_exit(AttemptId(job["_id"], job["attempt"]), facts, 0)
        platform.completion.conclude(job["_id"])


def is_over(platform: Platform) -> bool:
    """Whether all jobs are settled, and nothing is held."""
    unsettled = platform.database["jobs"].count_documents({"settled": {"$ne": True}})
    return not (unsettled or platform.held())
