"""What becomes of jobs that are out of retries: run again, or let go."""

from __future__ import annotations

from gateway.domain.errors import DeadLetterNotFoundError, JobNotFoundError
from gateway.domain.job import Job
from gateway.services.retry import Resubmission
from gateway.storage.client import truth_store_errors
from gateway.storage.dead_letters import DeadLetterStore
from gateway.storage.jobs import JobStore


class DeadLetters:
    def __init__(self, *, jobs: JobStore, letters: DeadLetterStore, resubmission: Resubmission) -> None:
        self._jobs = jobs
        self._letters = letters
        self._resubmission = resubmission

    def requeue(self, job_id: str, correlation_id: str | None = None) -> Job:
        """The new job, which names the old one; that is no dead letter any more.

        Raises `DeadLetterNotFoundError`, and `ConflictError` where the job cannot be run again.
        """
        with truth_store_errors():
            self._require(job_id)
            # the new one first: a letter may be answered twice, and must not be lost
            new = self._resubmission.run_again(job_id, correlation_id)
            self._letters.dismiss(job_id)
            return new

    def dismiss(self, job_id: str) -> None:
        """Raises `DeadLetterNotFoundError`."""
        with truth_store_errors():
            if not self._letters.dismiss(job_id):
                raise DeadLetterNotFoundError(job_id)

    def _require(self, job_id: str) -> None:
        try:
            letter = self._jobs.get(job_id)
        except JobNotFoundError:
            raise DeadLetterNotFoundError(job_id) from None
        if not letter.dead:
            raise DeadLetterNotFoundError(job_id)
