"""Runs an ended job again, as a new job that names the old one."""

from __future__ import annotations

import structlog
from redis import RedisError

from gateway.domain import redis_keys
from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import ConflictError, LiveTwinError
from gateway.domain.job import Job, new_job_id
from gateway.redis.dedupe import DedupeRelease
from gateway.services.waker import ENQUEUE_CRAWL, Waker
from gateway.storage.client import truth_store_errors
from gateway.storage.jobs import JobStore

log = structlog.get_logger()


class Resubmission:
    def __init__(self, *, jobs: JobStore, dedupe: DedupeRelease, waker: Waker, clock: Clock = utc_now) -> None:
        self._jobs = jobs
        self._dedupe = dedupe
        self._waker = waker
        self._clock = clock

    def run_again(self, job_id: str) -> Job:
        """The new job. Raises `JobNotFoundError`, and `ConflictError` while the old one or a twin is alive."""
        with truth_store_errors():
            old = self._jobs.get(job_id)
            if not old.is_final:
                raise ConflictError(f"the job has not ended yet ({old.status})")
            now = self._clock()
            new = Job(
                id=new_job_id(),
                user_id=old.user_id,
                spec=old.spec,
                fingerprint=old.fingerprint,
                live_key=old.fingerprint,
                priority=old.priority,
                tags=old.tags,
                webhooks=old.webhooks,
                max_retries=old.max_retries,
                created_at=now,
                updated_at=now,
                not_before=now,
                retry_of=old.id,
            )
            try:
                self._jobs.insert(new)
            except LiveTwinError:
                raise ConflictError("the same crawl is already under way") from None
            self._forget(old)
            self._waker.wake(ENQUEUE_CRAWL, new.id)
            return new

    def _forget(self, old: Job) -> None:
        """A repeated request shall be answered with the new job, which its live key leads to."""
        try:
            self._dedupe.release(redis_keys.dedupe(old.user_id, old.spec.spider, old.fingerprint), old.id)
        except RedisError as error:
            log.warning("old_job_still_answers", job_id=old.id, error=str(error))
