"""What every log line about a job says of it, and the one id that leads through all processes that had to do with it.

The id is that of the request that asked for the job; one that a schedule made has its own id for one. It travels in
the job's document, in the headers of messages about it, and in its attempts' `spec.json`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from structlog.contextvars import bound_contextvars, get_contextvars

from gateway.domain.job import Job
from gateway.domain.run import run_id_of

#: Of a broker's message; `correlation_id` there is Celery's own, the message's.
HEADER = "x-correlation-id"


def correlation_of(job: Job) -> str:
    return job.correlation_id or job.id


def current_correlation() -> str | None:
    """Of what this thread or task is at."""
    correlation_id: str | None = get_contextvars().get("correlation_id")
    return correlation_id


def about(job: Job) -> AbstractContextManager[object]:
    """Every line that is logged within says which job it is about."""
    names = {"run_id": run_id_of(job), "site_name": job.spec.site}
    known = {name: value for name, value in names.items() if value}
    return bound_contextvars(job_id=job.id, task_id=job.id, correlation_id=correlation_of(job), **known)


def about_message(job_id: str | None, correlation_id: str | None) -> AbstractContextManager[object]:
    """As `about`, for whoever knows no more of the job than its message or its attempt says."""
    names = {"job_id": job_id, "task_id": job_id, "correlation_id": correlation_id or job_id}
    return bound_contextvars(**{name: value for name, value in names.items() if value})
