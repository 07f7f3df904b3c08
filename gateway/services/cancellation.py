"""Ends a job early: asked for on the document first, carried out by whoever has the job."""

from __future__ import annotations

from gateway.domain.errors import ConflictError
from gateway.domain.job import Job, JobStatus
from gateway.domain.outcome import CANCELLED
from gateway.services.completion import Completion
from gateway.services.waker import CANCEL_CRAWL, Waker
from gateway.storage.client import truth_store_errors
from gateway.storage.jobs import JobStore


class Cancellation:
    def __init__(self, *, jobs: JobStore, completion: Completion, waker: Waker) -> None:
        self._jobs = jobs
        self._completion = completion
        self._waker = waker

    def cancel(self, job_id: str) -> Job:
        """The job as it is now: a waiting one has ended, a running one has been asked to.

        Raises `JobNotFoundError`, and `ConflictError` for a job that has ended.
        """
        with truth_store_errors():
            job = self._jobs.request_cancel(job_id) or self._jobs.get(job_id)
            if job.is_final:
                raise ConflictError(f"the job has ended already ({job.status})")
            if job.status is not JobStatus.RUNNING and job.assignment is None:
                # None: a worker was quicker; it looks again after it has handed the job over
                job = self._completion.end_waiting(job, CANCELLED) or self._jobs.get(job_id)
            else:
                self._waker.wake(CANCEL_CRAWL, job_id)
            return job
