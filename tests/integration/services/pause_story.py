"""Each job is paused in its first attempts, resumed each time, and finished in the last one."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from dispatch_story import ROUNDS, PlatformAtHand, check_limits, is_over
from jobs import make_job
from node_double import NodeDouble
from pymongo.database import Database

from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.errors import ConflictError
from gateway.jobs.completion import Pausing
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.store import JobStore
from gateway.nodes.holds import HoldStore
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect

ATTEMPTS = 4


def prepare(database: Database[Document]) -> list[Job]:
    ensure_indexes(database)
    made = [make_job(exclusive="site:jobs"), make_job(exclusive="site:jobs"), make_job()]
    for job in made:
        JobStore(database).insert(job)
    return made


def check(database: Database[Document], made: list[Job]) -> None:
    jobs = JobStore(database)
    assert {jobs.get(job.id).status for job in made} == {JobStatus.FINISHED}
    assert {len(jobs.attempts.complete(jobs.get(job.id)).attempts) for job in made} == {ATTEMPTS}
    # a process that died after it had begun an attempt left the attempt before in the job, for the next to move
    assert database["attempts"].count_documents({})
    assert [held for held in HoldStore(database).all() if held.holders] == []


def tell(mongo_url: str, redis_url: str, node_url: str) -> None:
    double = cast("NodeDouble", SimpleNamespace(url=node_url))
    platform = PlatformAtHand(redis_url, double, connect(mongo_url))
    pausing = Pausing(jobs=platform.jobs, completion=platform.completion, waker=platform)
    for _ in range(ROUNDS):
        platform.ahead += TAKEN_FOR + timedelta(seconds=1)
        platform.heartbeat(slots=9)
        platform.sweeper.sweep()
        platform.dispatch.fill()
        check_limits(platform)
        for job in list(platform.database["jobs"].find({"status": {"$in": ["running", "paused"]}})):
            take_part(platform, pausing, job)
        if is_over(platform):
            return
    raise AssertionError(f"stuck: {list(platform.database['jobs'].find({}))}, {platform.held()}")


def take_part(platform: PlatformAtHand, pausing: Pausing, job: dict[str, Any]) -> None:
    """Pause or resume the job, as a person does, and report the attempt's end, as the node does."""
    if job["status"] == "paused":
        pausing.resume(job["_id"])
        return
    is_paused = len(platform.jobs.attempts.complete(platform.jobs.get(job["_id"])).attempts) < ATTEMPTS
    if is_paused:
        with suppress(ConflictError):  # a process that has died since has asked for the pause already
            pausing.pause(job["_id"])
    now, progress = platform.clock(), Progress(completed_pages=1)
    report = SpiderReport(finish_reason="shutdown" if is_paused else "finished", progress=progress, ended_at=now)
    facts = ExitReport(
        attempt=job["attempt"], exit_code=0, ended_at=now, report=report,
        stopped_by="pause" if is_paused else None, can_go_on=is_paused,
    )  # fmt: skip
    platform.completion.record_exit(AttemptId(job["_id"], job["attempt"]), facts, 0)
    platform.completion.conclude(job["_id"])
