"""What tests of nodes that fail have in common."""

from __future__ import annotations

from datetime import timedelta

from conftest import DEAD_AFTER, Platform
from jobs import make_job

from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.jobs.job import Job, JobStatus
from gateway.nodes.node import NodeState
from gateway.nodes.store import Node


def submitted(platform: Platform, count: int = 1, **fields: object) -> list[Job]:
    jobs = [make_job(**fields) for _ in range(count)]
    for job in jobs:
        platform.jobs.insert(job)
    return jobs


def node(platform: Platform, name: str = "n1") -> Node:
    found = platform.nodes.get(name)
    assert found is not None
    return found


def state(platform: Platform, name: str = "n1") -> NodeState:
    return node(platform, name).state(platform.clock(), DEAD_AFTER)


def later(platform: Platform, seconds: float, *names: str, slots: int = 2) -> None:
    """Let time pass; then the nodes send heartbeats, and are looked at."""
    platform.ahead += timedelta(seconds=seconds)
    # if no other node is up, a resting node is probed at once
    platform.heartbeat("other", slots=0)
    for name in names or ("n1",):
        platform.heartbeat(name, slots=slots)
    platform.look_at_nodes()


def ends(platform: Platform, job_id: str, **facts: object) -> None:
    """End the running attempt with this exit report."""
    job = platform.jobs.get(job_id)
    report = ExitReport.model_validate({"attempt": job.attempt, "ended_at": platform.clock(), **facts})
    platform.completion.record_exit(AttemptId(job.id, job.attempt), report, 0)
    platform.completion.conclude(job.id)


def ends_well(platform: Platform, job_id: str) -> None:
    progress = Progress(requested_pages=1, completed_pages=1)
    report = SpiderReport(finish_reason="finished", progress=progress, ended_at=platform.clock())
    ends(platform, job_id, exit_code=0, report=report.model_dump())


def running_on(platform: Platform, jobs: list[Job], name: str) -> list[str]:
    read = [platform.jobs.get(job.id) for job in jobs]
    return [job.id for job in read if job.status is JobStatus.RUNNING and job.current and job.current.node == name]
