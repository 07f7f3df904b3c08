"""Tells those who asked that a job has ended: at least once, again after a failure, in the end no more."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

import orjson
import structlog

from gateway.correlation import about
from gateway.domain.clock import Clock, to_iso, utc_now
from gateway.domain.job import Job
from gateway.domain.outcome import backoff
from gateway.storage.jobs import JobStore

log = structlog.get_logger()

#: Rounds of calls after which a webhook that never answered is given up; with the back-off about four minutes.
MAX_ROUNDS = 7
#: A caller that has not come back by then is taken for dead; longer than all calls of one round take.
CALL_TIME = timedelta(minutes=6)


class Caller(Protocol):
    def post(self, url: str, body: bytes) -> str | None:
        """`None` for success, else the reason of the failure."""


class Webhooks:
    def __init__(self, *, jobs: JobStore, caller: Caller, clock: Clock = utc_now) -> None:
        self._jobs = jobs
        self._caller = caller
        self._clock = clock

    def call(self, job_id: str) -> None:
        """Call every webhook of the ended job that has not answered yet, if it is time and nobody else does."""
        job = self._jobs.claim_webhooks(job_id, self._clock() + CALL_TIME)
        if job is None:
            return
        with about(job):
            self._call(job)

    def _call(self, job: Job) -> None:
        missing = [url for url in job.webhooks if url not in job.webhooks_delivered]
        body = message(job)
        failures = {url: reason for url in missing if (reason := self._caller.post(url, body)) is not None}
        for url, reason in failures.items():
            # the path of many a webhook is its password
            host = urlsplit(url).hostname
            log.warning("webhook_failed", job_id=job.id, host=host, reason=reason, round=job.webhook_failures + 1)
        again = bool(failures) and job.webhook_failures + 1 < MAX_ROUNDS
        self._jobs.webhooks_called(
            job,
            [url for url in missing if url not in failures],
            self._clock() + backoff(job.webhook_failures + 1) if again else None,
        )


def message(job: Job) -> bytes:
    """`{"event": "job.ended", "job_id", "status", "message", "finished_at", counts…}`; of a schedule's run also
    `schedule_id`, which may be all that whoever is called has ever heard of.
    """
    counts = (
        job.progress.model_dump(include={"completed_pages", "items_count", "errors_count"}) if job.progress else {}
    )
    finished_at = to_iso(job.finished_at) if job.finished_at else None
    return orjson.dumps(
        {
            "event": "job.ended",
            "job_id": job.id,
            "status": job.status.value,
            "message": job.message,
            "finished_at": finished_at,
            **counts,
            **({"schedule_id": job.schedule_id} if job.schedule_id else {}),
        }
    )
