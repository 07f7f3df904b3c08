"""Removes an ended job with all it has left behind; the document goes last, so that a half-done deletion shows."""

from __future__ import annotations

import redis

from gateway.domain import redis_keys
from gateway.domain.errors import ConflictError
from gateway.redis.dedupe import DedupeRelease
from gateway.storage.client import truth_store_errors
from gateway.storage.items import ItemStore
from gateway.storage.jobs import JobStore
from gateway.storage.logs import LogStore


class Deletion:
    def __init__(self, *, jobs: JobStore, items: ItemStore, logs: LogStore, dedupe: DedupeRelease) -> None:
        self._jobs = jobs
        self._items = items
        self._logs = logs
        self._dedupe = dedupe

    def delete(self, job_id: str) -> None:
        """Raises `JobNotFoundError`, and `ConflictError` for a job that has not ended."""
        with truth_store_errors():
            job = self._jobs.get(job_id)
            if not job.is_final or not job.settled:
                raise ConflictError(f"only ended jobs can be deleted (it is {job.status})")
            key = redis_keys.dedupe(job.user_id, job.spec.spider, job.fingerprint)
            try:
                self._dedupe.release(key, job.id)
            except redis.RedisError as error:
                # the key would answer repeated requests with a job that is gone
                raise ConflictError("the job cannot be deleted while Redis is away; ask again") from error
            self._items.delete(job_id)
            self._logs.delete(job_id)
            self._jobs.delete(job_id)
