"""The run model: the same facts as a job's, under the names that runs of sites go by."""

from __future__ import annotations

import re
from enum import StrEnum

from gateway.domain.errors import RunNotFoundError
from gateway.domain.job import Job, JobStatus
from gateway.domain.slot import Trigger


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"


RUN_STATUSES: dict[JobStatus, RunStatus] = {
    JobStatus.SCHEDULED: RunStatus.QUEUED,
    JobStatus.PENDING: RunStatus.QUEUED,
    JobStatus.RUNNING: RunStatus.RUNNING,
    JobStatus.FINISHED: RunStatus.SUCCEEDED,
    JobStatus.PARTIAL: RunStatus.PARTIAL,
    JobStatus.ERROR: RunStatus.FAILED,
    JobStatus.CANCELLED: RunStatus.FAILED,
}
#: What a run's id begins with says who asked for it.
PREFIXES: dict[Trigger, str] = {Trigger.MANUAL: "manual_", Trigger.SCHEDULED: "sched_"}
_RUN_ID = re.compile(r"(manual_|sched_)([0-9a-f]{32})")


def run_id_of(job: Job) -> str | None:
    """The job's id behind its prefix, not a second identity; `None` for a job that is no run of a site."""
    return None if job.trigger is None else PREFIXES[job.trigger] + job.id


def job_id_of(run_id: str) -> str:
    """Raises `RunNotFoundError` for what cannot be the id of a run."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        raise RunNotFoundError(run_id)
    return match[2]
